//! `admin …`: calls the operator API.

mod approvals;
mod audit;
mod audit_runs;
mod lookups;
mod operators;
mod payouts;
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
pub(super) use users::password;

#[derive(Args, Debug)]
pub struct AdminArgs {
    /// URL of the service
    #[arg(long, env = "LEDGER_URL", value_name = "URL", default_value = "http://127.0.0.1:8080")]
    url: Url,
    #[command(flatten)]
    operator_token: OperatorTokenSettings,
    #[command(subcommand)]
    what: Admin,
}

#[derive(Subcommand, Debug)]
enum Admin {
    /// Manage accounts (client organisations)
    #[command(subcommand)]
    Account(Account),
    /// Manage the users of an account
    #[command(subcommand)]
    User(users::User),
    /// Manage the API keys of an account
    #[command(subcommand)]
    Credential(Credential),
    /// Open wallets, fund them, and adjust balances
    #[command(subcommand)]
    Wallet(Wallet),
    /// Manage product categories
    #[command(subcommand)]
    Category(Category),
    /// Manage the products of the catalogue
    #[command(subcommand)]
    Product(products::Product),
    /// Set the discounts of an account
    #[command(subcommand)]
    Discount(Discount),
    /// Load, void and expire vouchers, and show the stock of a product
    #[command(subcommand)]
    Stock(stock::Stock),
    /// List, show, and cancel orders of any account
    #[command(subcommand)]
    Order(Order),
    /// Manage IP addresses that are blocked after too many logins
    #[command(subcommand)]
    IpBlock(IpBlock),
    /// List and decide movements of money that wait for a second operator
    #[command(subcommand)]
    Approval(approvals::Approval),
    /// List and settle payouts of any account
    #[command(subcommand)]
    Payout(payouts::Payout),
    /// Show a webhook or a delivery of any account
    #[command(flatten)]
    Lookup(lookups::Lookup),
    /// Manage operators, the people who sign in to the console
    #[command(subcommand)]
    Operator(operators::Operator),
    /// Show who did what
    Audit(audit::AuditArgs),
    /// Start a verification, and show the runs of verify and rebuild
    #[command(subcommand)]
    AuditRun(audit_runs::AuditRun),
    /// Manage operator tokens; connects to the database instead of the service
    Token(TokenArgs),
}

#[derive(Subcommand, Debug)]
enum Account {
    /// Create an account
    Create {
        /// Name of the organisation
        name: String,
        /// Shard of the account, for its whole life [default: the open one with the least load]
        #[arg(long, value_name = "NUMBER")]
        shard: Option<i16>,
    },
    /// List accounts
    List(PageArgs),
    /// Show an account, or a list of what it has
    Show {
        /// Account id
        account: i64,
        /// List to show instead of the account
        #[arg(value_enum)]
        what: Option<lookups::OfAccount>,
    },
    /// Suspend an account: it can read everything and change nothing
    Suspend {
        /// Account id
        account: i64,
    },
    /// Lift the suspension of an account
    Activate {
        /// Account id
        account: i64,
    },
}

#[derive(Subcommand, Debug)]
enum Credential {
    /// Issue an API key; its secret is shown only once
    Issue {
        /// Account id
        account: i64,
        /// Name of the API key, to recognise it in lists
        name: String,
        #[command(flatten)]
        restrictions: Restrictions,
    },
    /// Require signed requests, or make signatures optional; a newly generated signing secret is shown only once
    Hmac {
        /// Credential id
        credential: i64,
        /// Signature policy of the API key
        #[arg(value_enum)]
        signatures: Signatures,
    },
    /// Revoke an API key, starting with the next request
    Revoke {
        /// Credential id
        credential: i64,
    },
}

#[derive(Args, Debug)]
struct Restrictions {
    /// Scopes of the key, comma-separated: read, orders, webhooks, payouts [default: all]
    #[arg(long, value_name = "SCOPES", value_delimiter = ',')]
    scopes: Vec<String>,
    /// Time from which on the key is refused, for example 2027-01-31T12:00:00Z [default: never]
    #[arg(long, value_name = "TIME")]
    expires_at: Option<String>,
    /// Networks that the key may be used from, comma-separated [default: any]
    #[arg(long, value_name = "NETWORKS", value_delimiter = ',')]
    networks: Vec<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Signatures {
    Required,
    Optional,
}

#[derive(Subcommand, Debug)]
enum Wallet {
    /// Open a wallet for an account
    Open {
        /// Account id
        account: i64,
        /// ISO 4217 currency code, for example EUR
        currency: String,
    },
    /// Add money to a wallet; safe to repeat, because each reference counts once
    Fund {
        /// Wallet id
        wallet: i64,
        /// Amount in the wallet's currency, for example 500.00
        amount: String,
        /// Unique reference of the funding, for example that of the bank transfer
        reference: String,
        /// Note for the record
        #[arg(long)]
        note: Option<String>,
    },
    /// Correct the balance of a wallet
    Adjust {
        /// Wallet id
        wallet: i64,
        /// Direction of the adjustment: credit adds money, debit removes it
        #[arg(value_enum)]
        direction: Direction,
        /// Amount in the wallet's currency, for example 500.00
        amount: String,
        /// Reason for the correction, for the record
        reason: String,
    },
    /// List the transactions of a wallet
    Transactions {
        /// Wallet id
        wallet: i64,
        #[command(flatten)]
        page: PageArgs,
    },
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Direction {
    Credit,
    Debit,
}

#[derive(Subcommand, Debug)]
enum Category {
    /// Create a category
    Create {
        /// Name of the category
        name: String,
        /// Parent category id
        #[arg(long, value_name = "CATEGORY")]
        parent: Option<i64>,
    },
    /// List categories
    List(PageArgs),
}

#[derive(Subcommand, Debug)]
enum Discount {
    /// Set the discount of an account on a product, on a category, or on everything
    Set {
        /// Account id
        account: i64,
        /// Discount in percent, for example 2.50
        discount: String,
        /// Product id: the discount applies to this product only
        #[arg(long, value_name = "ID", conflicts_with = "category")]
        product: Option<i64>,
        /// Category id: the discount applies to this category only
        #[arg(long, value_name = "ID")]
        category: Option<i64>,
    },
}

#[derive(Subcommand, Debug)]
enum Order {
    /// List the orders of all accounts
    List(PageArgs),
    /// Show an order
    Show {
        /// Order id
        order: i64,
    },
    /// Cancel an order and refund its undelivered units
    Cancel {
        /// Order id
        order: i64,
        /// Reason for the cancellation, for the record
        #[arg(long)]
        reason: Option<String>,
    },
}

#[derive(Subcommand, Debug)]
enum IpBlock {
    /// List the IP addresses that are blocked now
    List(PageArgs),
    /// Unblock an IP address before its block ends
    Lift {
        /// IP address
        ip: std::net::IpAddr,
    },
}

#[derive(Args, Debug)]
struct PageArgs {
    /// Page number, from 1
    #[arg(long, default_value_t = 1)]
    page: u32,
    /// Rows per page
    #[arg(long, default_value_t = 20)]
    limit: u32,
}

/// One request to the operator API: method, path with query, and JSON body.
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
        Admin::Operator(operator) => operators::operation(operator)?,
        Admin::Audit(audit) => audit::operation(audit),
        Admin::AuditRun(run) => audit_runs::operation(run),
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
        Admin::IpBlock(IpBlock::List(page)) => list("/ip-blocks", &page),
        Admin::IpBlock(IpBlock::Lift { ip }) => (Method::DELETE, format!("/admin/v1/ip-blocks/{ip}"), None),
        Admin::Order(Order::List(page)) => list("/orders", &page),
        Admin::Order(Order::Show { order }) => get(&format!("/orders/{order}")),
        Admin::Order(Order::Cancel { order, reason }) => {
            post(&format!("/orders/{order}/cancel"), filled([("reason", reason.map(Value::from))]))
        }
        Admin::Payout(payout) => payouts::operation(payout),
        Admin::Lookup(lookup) => lookups::operation(lookup),
        Admin::Approval(approval) => approvals::operation(approval),
    };
    ask(&client(&args.url, &args.operator_token)?, operation, output).await
}

/// Sends the request and prints the `data` of the response.
async fn ask(client: &Client, (method, path, body): Operation, output: &Output) -> anyhow::Result<()> {
    let data = with_progress("waiting for the response", client.json(method, &path, body.as_ref())).await?;
    Ok(output.facts(&data)?)
}

pub(super) fn client(url: &Url, token: &OperatorTokenSettings) -> anyhow::Result<Client> {
    let token = token.read()?.context(
        "no operator token: set LEDGER_OPERATOR_TOKEN or --operator-token-file, or create one with `rewards-ledger admin token create NAME --role admin`",
    )?;
    Client::new(url, Some(Caller::Operator(token)))
}

fn post(path: &str, body: Value) -> Operation {
    (Method::POST, format!("/admin/v1{path}"), Some(body))
}

fn put(path: &str, body: Value) -> Operation {
    (Method::PUT, format!("/admin/v1{path}"), Some(body))
}

fn get(path: &str) -> Operation {
    (Method::GET, format!("/admin/v1{path}"), None)
}

fn list(path: &str, page: &PageArgs) -> Operation {
    (Method::GET, format!("/admin/v1{path}?page={}&limit={}", page.page, page.limit), None)
}

/// Builds a JSON object from the fields that have a value.
fn filled<const N: usize>(fields: [(&str, Option<Value>); N]) -> Value {
    Value::Object(fields.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?))).collect::<Map<_, _>>())
}

fn account_operation(account: Account) -> Operation {
    let status = |account: i64, status: &str| put(&format!("/accounts/{account}"), json!({"status": status}));
    match account {
        Account::Create { name, shard } => {
            post("/accounts", filled([("name", Some(json!(name))), ("shard_id", shard.map(Value::from))]))
        }
        Account::List(page) => list("/accounts", &page),
        Account::Show { account, what } => lookups::of_account(account, what),
        Account::Suspend { account } => status(account, "SUSPENDED"),
        Account::Activate { account } => status(account, "ACTIVE"),
    }
}

fn credential_operation(credential: Credential) -> Operation {
    match credential {
        Credential::Issue { account, name, restrictions } => {
            let Restrictions { scopes, expires_at, networks } = restrictions;
            let listed = |values: Vec<String>| (!values.is_empty()).then(|| json!(values));
            let body = filled([
                ("name", Some(json!(name))),
                ("scopes", listed(scopes)),
                ("expires_at", expires_at.map(Value::from)),
                ("allowed_networks", listed(networks)),
            ]);
            post(&format!("/accounts/{account}/credentials"), body)
        }
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
        Wallet::Transactions { wallet, page } => list(&format!("/wallets/{wallet}/transactions"), &page),
    }
}
