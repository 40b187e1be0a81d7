//! The story that fills the pages: users, pictures of the products, many orders, payouts, a discount, a receiver that does not
//! answer, money that waits for a second operator, and a bank statement. It uses the same HTTP APIs as the tour.

use anyhow::Context;
use chrono::Utc;
use reqwest::Method;
use serde_json::{Value, json};

use super::printer::Printer;
use super::stage::Stage;
use super::tour::Account;
use crate::cli::client::{Body, Client};
use crate::cli::starter;
use crate::sandbox::cards::{CARDS, COUNTRY, CURRENCY, made_up_codes};

/// Number of units of each order of the first card.
const QUANTITIES: [u32; 12] = [1, 2, 1, 3, 2, 1, 4, 1, 2, 1, 3, 2];
/// Number of vouchers that are loaded for these orders. The rest waits for stock.
const STOCK: u32 = 20;
/// Address at which nobody answers.
const DEAD_URL: &str = "https://127.0.0.1:9/webhooks";

/// Fills the account of the tour.
///
/// # Errors
/// If the service refuses a step.
pub async fn tell(account: &Account, stage: &mut Stage, printer: &mut Printer) -> anyhow::Result<()> {
    printer.section("A story for the pages")?;
    let story = Story { account, run: stage.run.clone() };
    story.users(stage).await?;
    story.pictures().await?;
    story.money().await?;
    story.bank_statement().await?;
    story.webhook_without_receiver().await?;
    story.orders().await?;
    story.payouts().await?;
    printer.fact(
        "filled",
        &format!(
            "{} orders, two payouts, a receiver that does not answer, a funding to approve, a line of a bank statement to decide",
            QUANTITIES.len()
        ),
    )?;
    Ok(())
}

struct Story<'a> {
    account: &'a Account,
    run: String,
}

impl Story<'_> {
    /// Creates the users whom the printed links sign in, and a viewer.
    async fn users(&self, stage: &Stage) -> anyhow::Result<()> {
        starter::users(&self.account.operator, self.account.id, &stage.one_click).await?;
        let (email, password) = (format!("viewer@demo-{}.example", self.run), stage.one_click.client.password.expose());
        let viewer = json!({"email": email, "password": password, "role": "viewer"});
        self.operator(Method::POST, &format!("/accounts/{}/users", self.account.id), viewer).await?;
        Ok(())
    }

    /// Uploads the pictures of the products.
    async fn pictures(&self) -> anyhow::Result<()> {
        for (product, card) in self.account.products.into_iter().zip(CARDS) {
            let path = format!("/admin/v1/products/{product}/image");
            let picture = Body::bytes(card.picture.to_vec());
            let reply = self.account.operator.send(Method::PUT, &path, Some(picture), &[]).await?;
            reply.data().with_context(|| format!("PUT {path}"))?;
        }
        Ok(())
    }

    /// Funds the wallet, requests a funding that a second operator must approve, and sets a discount on one product.
    async fn money(&self) -> anyhow::Result<()> {
        let Account { id, wallet, products: [_, books, ..], .. } = self.account;
        let fund = format!("/wallets/{wallet}/fund");
        for (amount, reference) in
            [("2500.00", "MONTHLY"), ("750.00", "INVOICE-1"), ("750.00", "INVOICE-2"), ("25000.00", "CAMPAIGN")]
        {
            self.operator(Method::POST, &fund, json!({"amount": amount, "reference": format!("{reference}-{}", self.run)}))
                .await?;
        }
        let discount = json!({"product_id": books, "discount": "5.00"});
        self.operator(Method::PUT, &format!("/accounts/{id}/discounts"), discount).await?;
        Ok(())
    }

    /// Imports a bank statement. The first line is matched. The second one fits two fundings, so a person decides.
    async fn bank_statement(&self) -> anyhow::Result<()> {
        let (today, run) = (Utc::now().date_naive(), &self.run);
        let csv = format!(
            "date,amount,currency,reference,text\n\
             {today},2500.00,{CURRENCY},MONTHLY-{run},Monthly budget\n\
             {today},750.00,{CURRENCY},INVOICE-{run},Payment of an invoice\n"
        );
        let path = "/admin/v1/reconciliation/statements";
        let reply = self.account.operator.send(Method::POST, path, Some(Body::csv(csv)), &[]).await?;
        reply.data().with_context(|| format!("POST {path}"))?;
        Ok(())
    }

    async fn webhook_without_receiver(&self) -> anyhow::Result<()> {
        let webhook = json!({"name": "reporting", "url": DEAD_URL, "events": ["order.delivered", "order.cancelled"]});
        self.client(Method::POST, "/webhooks", webhook).await?;
        Ok(())
    }

    /// Places orders of the first card, of which the stock covers most, and one of a card without stock.
    async fn orders(&self) -> anyhow::Result<()> {
        let [coffee, _, _, travel] = self.account.products;
        let denomination = CARDS[0].denomination;
        let vouchers = (0..STOCK).map(|_| {
            let (card_number, pin) = made_up_codes("STORY");
            json!({"card_number": card_number, "pin": pin})
        });
        let stock = json!({"denomination": denomination, "vouchers": vouchers.collect::<Vec<_>>()});
        self.operator(Method::POST, &format!("/products/{coffee}/vouchers"), stock).await?;
        let threshold = json!({"denomination": denomination, "threshold": 10});
        self.operator(Method::PUT, &format!("/products/{coffee}/stock-threshold"), threshold).await?;
        for (number, quantity) in QUANTITIES.into_iter().enumerate() {
            let reference = format!("CAMPAIGN-{}-{}", self.run, number + 1);
            self.order(coffee, denomination, quantity, &reference).await?;
        }
        self.order(travel, CARDS[3].denomination, 1, &format!("TRIP-{}", self.run)).await
    }

    async fn order(&self, product_id: i64, denomination: &str, quantity: u32, reference: &str) -> anyhow::Result<()> {
        let denomination: Value = serde_json::from_str(denomination)?;
        let order = json!({
            "product_id": product_id, "denomination": denomination, "quantity": quantity, "client_reference": reference,
        });
        self.client(Method::POST, "/orders", order).await?;
        Ok(())
    }

    /// Requests two payouts, of which the first is paid.
    async fn payouts(&self) -> anyhow::Result<()> {
        let beneficiary = json!({
            "name": "Jane Doe", "type": "BANK", "country": COUNTRY, "currency": CURRENCY, "account_number": "000123456789",
        });
        let beneficiary = self.client(Method::POST, "/beneficiaries", beneficiary).await?;
        let mut payouts = vec![];
        for amount in ["120.00", "75.50"] {
            let payout = json!({"beneficiary_id": beneficiary["id"], "wallet_id": self.account.wallet, "amount": amount});
            payouts.push(self.client(Method::POST, "/payouts", payout).await?["id"].as_i64().context("a payout has no id")?);
        }
        self.operator(Method::PUT, &format!("/payouts/{}", payouts[0]), json!({"status": "PAID"})).await?;
        Ok(())
    }

    async fn operator(&self, method: Method, path: &str, body: Value) -> anyhow::Result<Value> {
        call(&self.account.operator, method, &format!("/admin/v1{path}"), &body).await
    }

    async fn client(&self, method: Method, path: &str, body: Value) -> anyhow::Result<Value> {
        call(&self.account.client, method, &format!("/api/v1{path}"), &body).await
    }
}

async fn call(client: &Client, method: Method, path: &str, body: &Value) -> anyhow::Result<Value> {
    client.json(method.clone(), path, Some(body)).await.with_context(|| format!("{method} {path}"))
}
