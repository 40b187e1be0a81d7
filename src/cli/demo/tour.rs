//! The tour: sets up an account, places four orders with four different outcomes, and reconciles the wallet.

use anyhow::{Context, ensure};
use reqwest::Method;
use serde::Serialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::printer::Printer;
use super::stage::Stage;
use super::statement::Statement;
use crate::cli::client::{Body, Caller, Client};
use crate::sandbox::cards::{CARDS, COUNTRY, CURRENCY, Card, MAX_QUANTITY, made_up_codes};
use crate::secrets::seal::Secret;

/// Every webhook event type.
const WEBHOOK_EVENTS: [&str; 5] =
    ["order.created", "order.pending", "order.delivered", "order.partially_delivered", "order.cancelled"];
/// Path and query of the request that the tour suggests at its end.
const TRY_PATH: &str = "/api/v1/orders?limit=2&page=1";

/// API client of the account that the tour created.
#[derive(Debug)]
pub struct Account {
    client: Client,
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
    /// Random suffix that keeps the names and references of this run apart from those of earlier runs.
    run: String,
    wallet: i64,
}

/// Runs the tour from creating the account to the reconciled statement.
pub async fn tell(stage: &mut Stage, printer: &mut Printer) -> anyhow::Result<Account> {
    printer.section("An account, through the operator API")?;
    let operator = Client::new(&stage.base, Some(Caller::Operator(stage.operator_token.clone())))?;
    let client = Client::new(&stage.base, None)?;
    let run = format!("{:08x}", rand::random::<u32>());
    let mut story = Tour { stage, printer, operator, client, run, wallet: 0 };
    story.set_up_account().await?;

    story.printer.section("Products and stock")?;
    let [coffee, books, games, travel] = [
        story.product(&CARDS[0], 4).await?,
        story.product(&CARDS[1], 1).await?,
        story.product(&CARDS[2], 0).await?,
        story.product(&CARDS[3], 0).await?,
    ];

    story.printer.section("An order that is delivered at once")?;
    let order = story.order(&coffee, 2).await?;
    story.until(order, &["OrderDelivered"], &["order.created", "order.pending", "order.delivered"]).await?;

    story.printer.section("An order that is delivered partly, and wholly when stock arrives")?;
    let order = story.order(&books, 3).await?;
    story.until(order, &["OrderPartiallyDelivered"], &["order.created", "order.pending", "order.partially_delivered"]).await?;
    story.load(&books, 2).await?;
    story.until(order, &["OrderDelivered"], &["order.delivered"]).await?;

    story.printer.section("An order that waits for stock")?;
    let order = story.order(&games, 1).await?;
    story.until(order, &["OrderDelayed"], &["order.created", "order.pending"]).await?;
    story.load(&games, 1).await?;
    story.until(order, &["OrderDelivered"], &["order.delivered"]).await?;

    story.printer.section("An order that is cancelled and refunded")?;
    let order = story.order(&travel, 1).await?;
    story.until(order, &["OrderDelayed"], &["order.created", "order.pending"]).await?;
    story.cancel(order).await?;
    story.until(order, &["OrderCancelled"], &["order.cancelled"]).await?;

    story.printer.section("The wallet's statement")?;
    let statement = story.statement().await?;
    story.printer.statement(&statement)?;
    statement.check()?;
    let told = format!(
        "{} webhooks, every signature verified; the log ends at position {}",
        story.stage.webhooks(),
        story.stage.position()
    );
    story.printer.fact("in all", &told)?;
    story.printer.told();
    Ok(Account { client: story.client })
}

impl Tour<'_> {
    async fn set_up_account(&mut self) -> anyhow::Result<()> {
        let account =
            self.operator(Method::POST, "/accounts", json!({"name": format!("Demo {}", self.run)}), |_| String::new()).await?;
        let account = id(&account)?;
        let path = format!("/accounts/{account}/credentials");
        // The API shows only the first characters of the key from now on.
        let shown = |data: &Value| format!("key {}…", text(data, "api_key").get(..8).unwrap_or_default());
        let credential = self.operator(Method::POST, &path, json!({"name": "demo"}), shown).await?;
        let wallet = self
            .operator(Method::POST, &format!("/accounts/{account}/wallets"), json!({"currency": CURRENCY}), |_| {
                CURRENCY.to_owned()
            })
            .await?;
        self.wallet = id(&wallet)?;
        let funding = json!({"amount": "500.00", "reference": format!("DEMO-{}", self.run)});
        self.operator(Method::POST, &format!("/wallets/{}/fund", self.wallet), funding, |data| {
            format!("{} {CURRENCY}", text(data, "amount"))
        })
        .await?;
        let rule = json!({"discount": "2.50"});
        self.operator(Method::PUT, &format!("/accounts/{account}/discounts"), rule, |_| "2.50 % on everything".to_owned())
            .await?;

        let caller = |signing_secret| Caller::Client {
            api_key: text(&credential, "api_key").to_owned(),
            api_secret: Secret::new(text(&credential, "api_secret")),
            signing_secret,
        };
        self.client = Client::new(&self.stage.base, Some(caller(None)))?;
        let webhook = json!({
            "name": "demo", "url": self.stage.webhook_url(), "events": WEBHOOK_EVENTS, "credential_id": id(&credential)?,
        });
        let webhook = self.client(Method::POST, "/webhooks", webhook, |_| "all event types".to_owned()).await?;
        // The webhook is linked to the credential, so its token also signs requests.
        let token = Secret::new(text(&webhook, "token"));
        ensure!(!token.expose().is_empty(), "the webhook was registered without a token");
        self.client = Client::new(&self.stage.base, Some(caller(Some(token.clone()))))?;
        self.stage.webhook_token = Some(token);
        self.stage.look(self.printer).await
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
        let told = |data: &Value| format!("{} for {} {}", text(data, "status"), text(data, "amount"), text(data, "currency"));
        id(&self.client(Method::POST, "/orders", body, told).await?)
    }

    async fn cancel(&mut self, order: i64) -> anyhow::Result<()> {
        let told = |data: &Value| {
            format!("{}, {} {} refunded", text(data, "status"), text(data, "refunded_amount"), text(data, "currency"))
        };
        self.client(Method::POST, &format!("/orders/{order}/cancel"), json!({"reason": "changed our mind"}), told).await?;
        Ok(())
    }

    async fn until(&mut self, order: i64, events: &[&str], webhooks: &[&str]) -> anyhow::Result<()> {
        self.stage.until(self.printer, order, events, webhooks).await
    }

    async fn statement(&mut self) -> anyhow::Result<Statement> {
        let wallets = self.client.json(Method::GET, "/api/v1/wallets", None).await?;
        let wallets = wallets["wallets"].as_array().context("the wallets are not a list")?;
        let wallet = wallets.iter().find(|wallet| wallet["id"] == self.wallet).context("the wallet is not listed")?;
        let path = format!("/api/v1/transactions?wallet_id={}&limit=100", self.wallet);
        let transactions = self.client.json(Method::GET, &path, None).await?;
        Statement::of(wallet, transactions["transactions"].as_array().context("the transactions are not a list")?)
    }

    async fn operator(
        &self,
        method: Method,
        path: &str,
        body: impl Serialize,
        told: impl Fn(&Value) -> String,
    ) -> anyhow::Result<Value> {
        self.call("operator", &self.operator, method, &format!("/admin/v1{path}"), body, told).await
    }

    async fn client(
        &self,
        method: Method,
        path: &str,
        body: impl Serialize,
        told: impl Fn(&Value) -> String,
    ) -> anyhow::Result<Value> {
        self.call("client", &self.client, method, &format!("/api/v1{path}"), body, told).await
    }

    /// Sends a request and prints it with its outcome.
    async fn call(
        &self,
        who: &str,
        client: &Client,
        method: Method,
        path: &str,
        body: impl Serialize,
        told: impl Fn(&Value) -> String,
    ) -> anyhow::Result<Value> {
        let request = format!("{method} {path}");
        let reply = client.send(method, path, Some(Body::json(serde_json::to_string(&body)?)), &[]).await?;
        let status = reply.status.as_u16();
        let data = reply.data().with_context(|| request.clone())?;
        let named = data["id"].as_i64().map(|id| format!("id {id:<4}  ")).unwrap_or_default();
        self.printer.request(who, &request, status, format!("{named}{}", told(&data)).trim_end())?;
        Ok(data)
    }
}

impl Account {
    /// Prints commands and a request for the user to try.
    pub fn invite(&self, stage: &Stage, printer: &mut Printer) -> anyhow::Result<()> {
        printer.section("Try it yourself (Ctrl-C stops the demo)")?;
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

fn id(data: &Value) -> anyhow::Result<i64> {
    data["id"].as_i64().context("the response has no id")
}

fn text<'a>(data: &'a Value, name: &str) -> &'a str {
    data[name].as_str().unwrap_or_default()
}
