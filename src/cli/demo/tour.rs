//! The tour: sets up an account, places four orders with four different outcomes, and reconciles the wallet.

use anyhow::Context;
use reqwest::Method;
use serde::Serialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::printer::Printer;
use super::stage::Stage;
use super::statement::DemoStatement;
use crate::cli::client::{Caller, Client};
use crate::cli::starter::{self, Starter, id, text};
use crate::sandbox::cards::{CARDS, COUNTRY, CURRENCY, Card, MAX_QUANTITY, made_up_codes};

/// Path and query of the request that the tour suggests at its end.
const TRY_PATH: &str = "/api/v1/orders?limit=2&page=1";

/// The account that the tour created, with clients of both APIs.
#[derive(Debug)]
pub struct Account {
    pub operator: Client,
    pub client: Client,
    pub id: i64,
    pub wallet: i64,
    /// Ids of the products, in the order of [`CARDS`].
    pub products: [i64; 4],
}

/// A product and its only denomination.
struct Shelf {
    id: i64,
    denomination: &'static str,
}

#[derive(Serialize)]
struct PlaceOrder<'a> {
    product_id: i64,
    denomination: &'a RawValue,
    quantity: u32,
}

struct Tour<'a> {
    stage: &'a mut Stage,
    printer: &'a mut Printer,
    operator: Client,
    client: Client,
    account: i64,
    wallet: i64,
}

/// Runs the tour from creating the account to the reconciled statement.
pub async fn run(stage: &mut Stage, printer: &mut Printer) -> anyhow::Result<Account> {
    printer.section("An account, through the operator API")?;
    let operator = Client::new(&stage.base, Some(Caller::Operator(stage.operator_token.clone())))?;
    let mut tour = Tour::begin(stage, printer, operator).await?;

    tour.printer.section("Products and stock")?;
    let [coffee, books, games, travel] = [
        tour.product(&CARDS[0], 4).await?,
        tour.product(&CARDS[1], 1).await?,
        tour.product(&CARDS[2], 0).await?,
        tour.product(&CARDS[3], 0).await?,
    ];

    tour.printer.section("An order that is delivered at once")?;
    let order = tour.order(&coffee, 2).await?;
    tour.until(order, &["OrderDelivered"], &["order.created", "order.pending", "order.delivered"]).await?;

    tour.printer.section("An order that is delivered partly, and wholly when stock arrives")?;
    let order = tour.order(&books, 3).await?;
    tour.until(order, &["OrderPartiallyDelivered"], &["order.created", "order.pending", "order.partially_delivered"]).await?;
    tour.load(&books, 2).await?;
    tour.until(order, &["OrderDelivered"], &["order.delivered"]).await?;

    tour.printer.section("An order that waits for stock")?;
    let order = tour.order(&games, 1).await?;
    tour.until(order, &["OrderDelayed"], &["order.created", "order.pending"]).await?;
    tour.load(&games, 1).await?;
    tour.until(order, &["OrderDelivered"], &["order.delivered"]).await?;

    tour.printer.section("An order that is cancelled and refunded")?;
    let order = tour.order(&travel, 1).await?;
    tour.until(order, &["OrderDelayed"], &["order.created", "order.pending"]).await?;
    tour.cancel(order).await?;
    tour.until(order, &["OrderCancelled"], &["order.cancelled"]).await?;

    tour.printer.section("The wallet's statement")?;
    let statement = tour.statement().await?;
    tour.printer.statement(&statement)?;
    statement.check()?;
    let summary = format!(
        "{} webhooks, every signature verified; the log ends at position {}",
        tour.stage.webhooks(),
        tour.stage.position()
    );
    tour.printer.fact("in all", &summary)?;
    tour.printer.finish();
    Ok(Account {
        operator: tour.operator,
        client: tour.client,
        id: tour.account,
        wallet: tour.wallet,
        products: [coffee, books, games, travel].map(|shelf| shelf.id),
    })
}

impl<'a> Tour<'a> {
    /// Creates the account with a funded wallet, a discount and a webhook.
    async fn begin(stage: &'a mut Stage, printer: &'a mut Printer, operator: Client) -> anyhow::Result<Tour<'a>> {
        let report = |by: &str, request: &str, status, result: &str| printer.request(by, request, status, result);
        let (name, reference) = (format!("Demo {}", stage.run), format!("DEMO-{}", stage.run));
        let starter = Starter::make(&operator, &name, ("500.00", &reference), &report).await?;
        let (rule, path) = (json!({"discount": "2.50"}), format!("/admin/v1/accounts/{}/discounts", starter.account));
        let everything = |_: &Value| "2.50 % on everything".to_owned();
        starter::ask(("operator", &operator), (Method::PUT, &path), rule, everything, &report).await?;
        let webhook = starter.webhook(&stage.base, &stage.webhook_url(), &report).await?;
        // The webhook is linked to the credential, so its token also signs requests.
        let client = starter.client(&stage.base, Some(webhook.token.clone()))?;
        stage.webhook_token = Some(webhook.token);
        stage.look(printer).await?;
        Ok(Tour { stage, printer, operator, client, account: starter.account, wallet: starter.wallet })
    }

    async fn product(&mut self, card: &Card, units: u32) -> anyhow::Result<Shelf> {
        let Card { name, denomination, .. } = *card;
        let body = json!({
            "name": name, "brand": "Demo", "country": COUNTRY, "currency": CURRENCY, "denomination_type": "FIXED",
            "denominations": [denomination], "max_quantity": MAX_QUANTITY, "description": "", "terms": "", "is_active": true,
        });
        let product = self.operator(Method::POST, "/products", body, |_| format!("{name} {denomination} {CURRENCY}")).await?;
        let shelf = Shelf { id: id(&product)?, denomination };
        if units > 0 {
            self.load(&shelf, units).await?;
        }
        self.stage.look(self.printer).await?;
        Ok(shelf)
    }

    async fn load(&mut self, shelf: &Shelf, units: u32) -> anyhow::Result<()> {
        let vouchers = (0..units).map(|_| {
            let (card_number, pin) = made_up_codes("DEMO");
            json!({"card_number": card_number, "pin": pin})
        });
        let body = json!({"denomination": shelf.denomination, "vouchers": vouchers.collect::<Vec<_>>()});
        let accepted = |data: &Value| format!("{} accepted", data["accepted"]);
        self.operator(Method::POST, &format!("/products/{}/vouchers", shelf.id), body, accepted).await?;
        Ok(())
    }

    async fn order(&mut self, shelf: &Shelf, quantity: u32) -> anyhow::Result<i64> {
        // Sent as a JSON number without ever becoming a float.
        let denomination = serde_json::from_str(shelf.denomination)?;
        let body = PlaceOrder { product_id: shelf.id, denomination, quantity };
        let result = |data: &Value| format!("{} for {} {}", text(data, "status"), text(data, "amount"), text(data, "currency"));
        id(&self.client(Method::POST, "/orders", body, result).await?)
    }

    async fn cancel(&mut self, order: i64) -> anyhow::Result<()> {
        let result = |data: &Value| {
            format!("{}, {} {} refunded", text(data, "status"), text(data, "refunded_amount"), text(data, "currency"))
        };
        self.client(Method::POST, &format!("/orders/{order}/cancel"), json!({"reason": "changed our mind"}), result).await?;
        Ok(())
    }

    async fn until(&mut self, order: i64, events: &[&str], webhooks: &[&str]) -> anyhow::Result<()> {
        self.stage.until(self.printer, order, events, webhooks).await
    }

    async fn statement(&mut self) -> anyhow::Result<DemoStatement> {
        let wallets = self.client.json(Method::GET, "/api/v1/wallets", None).await?;
        let wallets = wallets["wallets"].as_array().context("the wallets are not a list")?;
        let wallet = wallets.iter().find(|wallet| wallet["id"] == self.wallet).context("the wallet is not listed")?;
        let path = format!("/api/v1/transactions?wallet_id={}&limit=100", self.wallet);
        let transactions = self.client.json(Method::GET, &path, None).await?;
        DemoStatement::of(wallet, transactions["transactions"].as_array().context("the transactions are not a list")?)
    }

    async fn operator(
        &self,
        method: Method,
        path: &str,
        body: impl Serialize,
        result: impl Fn(&Value) -> String,
    ) -> anyhow::Result<Value> {
        self.call("operator", &self.operator, method, &format!("/admin/v1{path}"), body, result).await
    }

    async fn client(
        &self,
        method: Method,
        path: &str,
        body: impl Serialize,
        result: impl Fn(&Value) -> String,
    ) -> anyhow::Result<Value> {
        self.call("client", &self.client, method, &format!("/api/v1{path}"), body, result).await
    }

    /// Sends a request and prints it with its outcome.
    async fn call(
        &self,
        by: &str,
        client: &Client,
        method: Method,
        path: &str,
        body: impl Serialize,
        result: impl Fn(&Value) -> String,
    ) -> anyhow::Result<Value> {
        let report = |by: &str, request: &str, status, result: &str| self.printer.request(by, request, status, result);
        starter::ask((by, client), (method, path), body, result, &report).await
    }
}

impl Account {
    /// Prints commands and a request for the user to try.
    pub fn invite(&self, stage: &Stage, printer: &mut Printer) -> anyhow::Result<()> {
        printer.section("Try it yourself (Ctrl-C stops the demo)")?;
        let [portal, console] = stage.one_click.paths();
        printer.fact("portal", &format!("{}{}", stage.base.as_str().trim_end_matches('/'), portal))?;
        printer.fact("console", &format!("{}{}", stage.base.as_str().trim_end_matches('/'), console))?;
        printer.fact("", "each link signs you in, as long as the demo runs")?;
        printer.fact("API page", &format!("{}docs", stage.base))?;
        printer.fact(
            "operator",
            &format!(
                "rewards-ledger admin --url {} --operator-token-file {} account list",
                stage.base.as_str().trim_end_matches('/'),
                stage.operator_token_file.display()
            ),
        )?;
        let url = self.client.url(TRY_PATH)?;
        let mut command = format!("curl '{url}'");
        for (name, value) in self.client.headers(&Method::GET, &url, b"")? {
            command.push_str(&format!(" \\\n  -H '{name}: {}'", value.to_str().context("a header is not text")?));
        }
        printer.verbatim(&format!("{command}\n\n  The signature is valid for five minutes.\n"))?;
        Ok(())
    }
}
