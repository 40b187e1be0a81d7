//! `admin …`: the operator API's operations from the shell.

mod products;
mod stock;
mod users;

use anyhow::Context;
use clap::{Args, Subcommand, ValueEnum};
use reqwest::{Method, Url};
use serde_json::{Map, Value, json};

use super::client::{Caller, Client};
use super::output::{Output, with_progress};
use super::tokens::{self, TokenArgs};
use crate::config::OperatorTokenSettings;

#[derive(Args, Debug)]
pub struct AdminArgs {
    /// Where the service is
    #[arg(long, env = "LEDGER_URL", value_name = "URL", default_value = "http://127.0.0.1:8080")]
    url: Url,
    #[command(flatten)]
    operator_token: OperatorTokenSettings,
    #[command(subcommand)]
    what: Admin,
}

#[derive(Subcommand, Debug)]
enum Admin {
    /// Client organisations
    #[command(subcommand)]
    Account(Account),
    /// People who act for an account
    #[command(subcommand)]
    User(users::User),
    /// API keys of an account
    #[command(subcommand)]
    Credential(Credential),
    /// Wallets, and the money in them
    #[command(subcommand)]
    Wallet(Wallet),
    /// Product categories
    #[command(subcommand)]
    Category(Category),
    /// What can be ordered
    #[command(subcommand)]
    Product(products::Product),
    /// What an account pays less
    #[command(subcommand)]
    Discount(Discount),
    /// Vouchers to deliver
    #[command(subcommand)]
    Stock(stock::Stock),
    /// Orders of any account
    #[command(subcommand)]
    Order(Order),
    /// Addresses that logged in too often
    #[command(subcommand)]
    IpBlock(IpBlock),
    /// Payouts of any account
    #[command(subcommand)]
    Payout(Payout),
    /// Operator tokens, directly on the database
    Token(TokenArgs),
}

#[derive(Subcommand, Debug)]
enum Account {
    Create {
        name: String,
    },
    List(PageArgs),
    /// A suspended account can read and change nothing
    Suspend {
        account: i64,
    },
    Activate {
        account: i64,
    },
}

#[derive(Subcommand, Debug)]
enum Credential {
    /// Issue an API key; its secret is shown once
    Issue {
        account: i64,
        name: String,
    },
    /// Whether its requests must be signed; a signing secret that is made for it is shown once
    Hmac {
        credential: i64,
        #[arg(value_enum)]
        signatures: Signatures,
    },
    Revoke {
        credential: i64,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Signatures {
    Required,
    Optional,
}

#[derive(Subcommand, Debug)]
enum Wallet {
    Open {
        account: i64,
        currency: String,
    },
    /// Put money in, once for each reference
    Fund {
        wallet: i64,
        amount: String,
        reference: String,
        #[arg(long)]
        note: Option<String>,
    },
    /// Correct a balance
    Adjust {
        wallet: i64,
        #[arg(value_enum)]
        direction: Direction,
        amount: String,
        reason: String,
    },
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Direction {
    Credit,
    Debit,
}

#[derive(Subcommand, Debug)]
enum Category {
    Create {
        name: String,
        #[arg(long, value_name = "CATEGORY")]
        parent: Option<i64>,
    },
    List(PageArgs),
}

#[derive(Subcommand, Debug)]
enum Discount {
    /// Set an account's discount in percent: on a product, on a category, or on everything
    Set {
        account: i64,
        discount: String,
        #[arg(long, value_name = "ID", conflicts_with = "category")]
        product: Option<i64>,
        #[arg(long, value_name = "ID")]
        category: Option<i64>,
    },
}

#[derive(Subcommand, Debug)]
enum Order {
    List(PageArgs),
    Show {
        order: i64,
    },
    /// Cancel, and refund what was not delivered
    Cancel {
        order: i64,
        #[arg(long)]
        reason: Option<String>,
    },
}

#[derive(Subcommand, Debug)]
enum IpBlock {
    /// Let an address call again before its block ends
    Lift { ip: std::net::IpAddr },
}

#[derive(Subcommand, Debug)]
enum Payout {
    List {
        #[command(flatten)]
        page: PageArgs,
        /// Only PENDING, PAID, FAILED or CANCELLED ones
        #[arg(long)]
        status: Option<String>,
    },
    /// The money has been sent
    Paid { payout: i64 },
    /// The money could not be sent, and goes back to the wallet
    Failed {
        payout: i64,
        #[arg(long)]
        reason: Option<String>,
    },
}

#[derive(Args, Debug)]
struct PageArgs {
    #[arg(long, default_value_t = 1)]
    page: u32,
    #[arg(long, default_value_t = 20)]
    limit: u32,
}

/// One request: method, path and body.
type Operation = (Method, String, Option<Value>);

pub async fn run(args: AdminArgs, output: &Output) -> anyhow::Result<()> {
    let operation = match args.what {
        Admin::Token(token) => return tokens::run(token, output).await,
        Admin::Stock(stock) => {
            let client = client(&args.url, &args.operator_token)?;
            return stock::run(stock, &client, output).await;
        }
        Admin::Account(account) => account_operation(account),
        Admin::User(user) => users::operation(user)?,
        Admin::Credential(credential) => credential_operation(credential),
        Admin::Wallet(wallet) => wallet_operation(wallet),
        Admin::Category(Category::Create { name, parent }) => {
            post("/categories", filled([("name", Some(json!(name))), ("parent_id", parent.map(Value::from))]))
        }
        Admin::Category(Category::List(page)) => list("/categories", &page),
        Admin::Product(product) => {
            let client = client(&args.url, &args.operator_token)?;
            return products::run(product, &client, output).await;
        }
        Admin::Discount(Discount::Set { account, discount, product, category }) => put(
            &format!("/accounts/{account}/discounts"),
            filled([
                ("discount", Some(json!(discount))),
                ("product_id", product.map(Value::from)),
                ("category_id", category.map(Value::from)),
            ]),
        ),
        Admin::IpBlock(IpBlock::Lift { ip }) => (Method::DELETE, format!("/admin/v1/ip-blocks/{ip}"), None),
        Admin::Order(Order::List(page)) => list("/orders", &page),
        Admin::Order(Order::Show { order }) => (Method::GET, format!("/admin/v1/orders/{order}"), None),
        Admin::Order(Order::Cancel { order, reason }) => {
            post(&format!("/orders/{order}/cancel"), filled([("reason", reason.map(Value::from))]))
        }
        Admin::Payout(payout) => payout_operation(payout),
    };
    ask(&client(&args.url, &args.operator_token)?, operation, output).await
}

/// Makes the request, and prints what is answered.
async fn ask(client: &Client, (method, path, body): Operation, output: &Output) -> anyhow::Result<()> {
    let data = with_progress("waiting for the answer", client.json(method, &path, body.as_ref())).await?;
    Ok(output.facts(&data)?)
}

pub(super) fn client(url: &Url, token: &OperatorTokenSettings) -> anyhow::Result<Client> {
    let token = token.read()?.context(
        "no operator token: set LEDGER_OPERATOR_TOKEN or --operator-token-file, or make one with `rewards-ledger admin token create NAME --role admin`",
    )?;
    Client::new(url, Some(Caller::Operator(token)))
}

fn post(path: &str, body: Value) -> Operation {
    (Method::POST, format!("/admin/v1{path}"), Some(body))
}

fn put(path: &str, body: Value) -> Operation {
    (Method::PUT, format!("/admin/v1{path}"), Some(body))
}

fn list(path: &str, page: &PageArgs) -> Operation {
    (Method::GET, format!("/admin/v1{path}?page={}&limit={}", page.page, page.limit), None)
}

/// An object of the fields that were given.
fn filled<const N: usize>(fields: [(&str, Option<Value>); N]) -> Value {
    Value::Object(fields.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?))).collect::<Map<_, _>>())
}

fn account_operation(account: Account) -> Operation {
    let status = |account: i64, status: &str| put(&format!("/accounts/{account}"), json!({"status": status}));
    match account {
        Account::Create { name } => post("/accounts", json!({"name": name})),
        Account::List(page) => list("/accounts", &page),
        Account::Suspend { account } => status(account, "SUSPENDED"),
        Account::Activate { account } => status(account, "ACTIVE"),
    }
}

fn credential_operation(credential: Credential) -> Operation {
    match credential {
        Credential::Issue { account, name } => post(&format!("/accounts/{account}/credentials"), json!({"name": name})),
        Credential::Hmac { credential, signatures } => {
            let is_required = signatures == Signatures::Required;
            put(&format!("/credentials/{credential}"), json!({"hmac_required": is_required}))
        }
        Credential::Revoke { credential } => (Method::DELETE, format!("/admin/v1/credentials/{credential}"), None),
    }
}

fn wallet_operation(wallet: Wallet) -> Operation {
    match wallet {
        Wallet::Open { account, currency } => post(&format!("/accounts/{account}/wallets"), json!({"currency": currency})),
        Wallet::Fund { wallet, amount, reference, note } => post(
            &format!("/wallets/{wallet}/fund"),
            filled([("amount", Some(json!(amount))), ("reference", Some(json!(reference))), ("note", note.map(Value::from))]),
        ),
        Wallet::Adjust { wallet, direction, amount, reason } => {
            let direction = match direction {
                Direction::Credit => "CREDIT",
                Direction::Debit => "DEBIT",
            };
            post(&format!("/wallets/{wallet}/adjust"), json!({"type": direction, "amount": amount, "reason": reason}))
        }
    }
}

fn payout_operation(payout: Payout) -> Operation {
    let settle = |payout: i64, status: &str, reason: Option<String>| {
        let body = filled([("status", Some(json!(status))), ("failure_reason", reason.map(Value::from))]);
        put(&format!("/payouts/{payout}"), body)
    };
    match payout {
        Payout::List { page, status } => {
            let (method, mut path, body) = list("/payouts", &page);
            if let Some(status) = status {
                let status: String = url::form_urlencoded::byte_serialize(status.as_bytes()).collect();
                path.push_str(&format!("&status={status}"));
            }
            (method, path, body)
        }
        Payout::Paid { payout } => settle(payout, "PAID", None),
        Payout::Failed { payout, reason } => settle(payout, "FAILED", reason),
    }
}
