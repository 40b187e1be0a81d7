//! Accounts that are ready to use, made through the HTTP APIs: for the demo, and for a new sandbox.

use std::io;

use anyhow::{Context, ensure};
use ledger_events::webhook::WebhookEventType;
use reqwest::{Method, Url};
use serde::Serialize;
use serde_json::{Value, json};

use super::client::{Body, Caller, Client};
use crate::access::one_click::OneClick;
use crate::sandbox::cards::CURRENCY;
use crate::secrets::seal::Secret;

/// Reports a request that succeeded: the caller, the request, the status, and the result.
pub type Report<'a> = &'a dyn Fn(&str, &str, u16, &str) -> io::Result<()>;

/// An account with a funded wallet and an API key.
#[derive(Debug)]
pub struct Starter {
    pub account: i64,
    pub wallet: i64,
    pub credential: i64,
    pub api_key: String,
    pub api_secret: Secret,
}

/// A webhook whose token is the signing secret of the account's API key.
#[derive(Debug)]
pub struct StarterWebhook {
    pub id: i64,
    pub token: Secret,
}

impl Starter {
    /// Creates the account, its API key and its wallet, and funds the wallet under this reference.
    ///
    /// # Errors
    /// If the service refuses a step.
    pub async fn make(
        operator: &Client,
        name: &str,
        (amount, reference): (&str, &str),
        report: Report<'_>,
    ) -> anyhow::Result<Starter> {
        let post = async |path: &str, body: Value, result: &dyn Fn(&Value) -> String| {
            ask(("operator", operator), (Method::POST, &format!("/admin/v1{path}")), body, result, report).await
        };
        let account = id(&post("/accounts", json!({"name": name}), &|_| String::new()).await?)?;
        // The API shows only the first characters of the key from now on.
        let shown = |data: &Value| format!("key {}…", text(data, "api_key").get(..8).unwrap_or_default());
        let credential = post(&format!("/accounts/{account}/credentials"), json!({"name": "first"}), &shown).await?;
        let currency = json!({"currency": CURRENCY});
        let wallet = id(&post(&format!("/accounts/{account}/wallets"), currency, &|_| CURRENCY.to_owned()).await?)?;
        let funded = |data: &Value| format!("{} {CURRENCY}", text(data, "amount"));
        let funding = json!({"amount": amount, "reference": reference});
        post(&format!("/wallets/{wallet}/fund"), funding, &funded).await?;
        let (api_key, api_secret) = (text(&credential, "api_key").to_owned(), Secret::new(text(&credential, "api_secret")));
        Ok(Starter { account, wallet, credential: id(&credential)?, api_key, api_secret })
    }

    /// Returns a client that uses the account's API key.
    pub fn client(&self, base: &Url, signing_secret: Option<Secret>) -> anyhow::Result<Client> {
        let (api_key, api_secret) = (self.api_key.clone(), self.api_secret.clone());
        Client::new(base, Some(Caller::Client { api_key, api_secret, signing_secret }))
    }

    /// Registers a webhook for all event types, linked to the account's API key.
    ///
    /// # Errors
    /// If the service refuses it.
    pub async fn webhook(&self, base: &Url, url: &str, report: Report<'_>) -> anyhow::Result<StarterWebhook> {
        let events = WebhookEventType::ALL;
        let body = json!({"name": "first", "url": url, "events": events, "credential_id": self.credential});
        let client = self.client(base, None)?;
        let call = (Method::POST, "/api/v1/webhooks");
        let webhook = ask(("client", &client), call, body, |_| "all event types".to_owned(), report).await?;
        let token = Secret::new(text(&webhook, "token"));
        ensure!(!token.expose().is_empty(), "the webhook was registered without a token");
        Ok(StarterWebhook { id: id(&webhook)?, token })
    }
}

/// Creates the users whom one click signs in: an owner of the account, and an operator of the service.
///
/// # Errors
/// If the service refuses them.
pub async fn users(operator: &Client, account: i64, users: &OneClick) -> anyhow::Result<()> {
    let path = format!("/admin/v1/accounts/{account}/users");
    for (path, login, role) in [(path.as_str(), &users.client, "owner"), ("/admin/v1/operators", &users.operator, "admin")] {
        let user = json!({"email": login.email, "password": login.password.expose(), "role": role});
        operator.json(Method::POST, path, Some(&user)).await.with_context(|| format!("POST {path}"))?;
    }
    Ok(())
}

/// Sends a request, and reports it with its result.
///
/// # Errors
/// If the service does not answer, or refuses the request.
pub async fn ask(
    (by, client): (&str, &Client),
    (method, path): (Method, &str),
    body: impl Serialize,
    result: impl Fn(&Value) -> String,
    report: Report<'_>,
) -> anyhow::Result<Value> {
    let request = format!("{method} {path}");
    let reply = client.send(method, path, Some(Body::json(serde_json::to_string(&body)?)), &[]).await?;
    let status = reply.status.as_u16();
    let data = reply.data().with_context(|| request.clone())?;
    let named = data["id"].as_i64().map(|id| format!("id {id:<4}  ")).unwrap_or_default();
    report(by, &request, status, format!("{named}{}", result(&data)).trim_end())?;
    Ok(data)
}

pub fn id(data: &Value) -> anyhow::Result<i64> {
    data["id"].as_i64().context("the response has no id")
}

pub fn text<'a>(data: &'a Value, name: &str) -> &'a str {
    data[name].as_str().unwrap_or_default()
}
