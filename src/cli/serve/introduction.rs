//! Prints a sandbox to the person who started it. Its secrets go to stdout alone, and never into a log line.

use std::path::PathBuf;

use owo_colors::OwoColorize;
use serde_json::{Value, json};

use crate::access::one_click::OneClick;
use crate::cli::output::Output;
use crate::cli::starter::{Starter, StarterWebhook};
use crate::sandbox::cards::{CARDS, CURRENCY};

/// Idempotency key of the order that the printed `curl` places.
const FIRST_ORDER: &str = "first-order";

/// Addresses and files of a sandbox.
#[derive(Debug)]
pub struct Introduction {
    /// URL of the client API, without a trailing slash.
    pub public: String,
    /// URL of the operator API and the console, without a trailing slash.
    pub operators: String,
    pub has_pages: bool,
    pub operator_token_file: Option<PathBuf>,
    pub data_dir: PathBuf,
}

impl Introduction {
    /// Prints a new sandbox with its secrets.
    pub fn of_new(
        &self,
        starter: &Starter,
        webhook: Option<&(StarterWebhook, String)>,
        users: &OneClick,
        balance: &str,
        output: &Output,
    ) -> std::io::Result<()> {
        let curl = self.curl(starter);
        let (public, secret) = (&self.public, starter.api_secret.expose());
        let [portal_link, console_link] = users.paths();
        let (portal_link, console_link) = (format!("{public}{portal_link}"), format!("{}{console_link}", self.operators));
        if output.json {
            let mut all = self.addresses(starter.account);
            let made = json!({
                "is_new": true, "wallet_id": starter.wallet, "balance": balance, "currency": CURRENCY,
                "credential_id": starter.credential, "api_key": starter.api_key, "api_secret": secret,
                "signing_secret": webhook.map(|(webhook, _)| webhook.token.expose()),
                "webhook_id": webhook.map(|(webhook, _)| webhook.id), "webhook_url": webhook.map(|(_, url)| url),
                "webhook_token": webhook.map(|(webhook, _)| webhook.token.expose()),
                "portal_email": users.client.email, "portal_password": users.client.password.expose(),
                "console_email": users.operator.email, "console_password": users.operator.password.expose(),
                "portal_link": self.has_pages.then_some(portal_link), "console_link": self.has_pages.then_some(console_link),
                "curl": curl,
            });
            if let (Some(all), Value::Object(made)) = (all.as_object_mut(), made) {
                all.extend(made);
            }
            return output.json_line(&all);
        }
        output.line(format!("\n{}\n", "A new sandbox. Its secrets are shown now, and never again.".bold()))?;
        fact(output, "account", &format!("id {}, with wallet {}: {balance} {CURRENCY}", starter.account, starter.wallet))?;
        fact(output, "API key", &starter.api_key)?;
        fact(output, "API secret", secret)?;
        if let Some((webhook, url)) = webhook {
            fact(output, "webhook", &format!("id {}, to {url}: received and verified by this program", webhook.id))?;
            fact(output, "token", &format!("{}  (it signs webhooks, and requests)", webhook.token.expose()))?;
        }
        fact(output, "API page", &format!("{public}/docs"))?;
        if self.has_pages {
            fact(output, "portal", &format!("{portal_link}  (signs you in while this node runs)"))?;
            fact(output, "", &format!("{}  {}", users.client.email, users.client.password.expose()))?;
            fact(output, "console", &format!("{console_link}  (signs you in while this node runs)"))?;
            fact(output, "", &format!("{}  {}", users.operator.email, users.operator.password.expose()))?;
        }
        output.line("\nPlace an order; the key makes it safe to repeat:\n")?;
        output.line(curl)?;
        output.line("\nKeep the API key for the commands of this program:\n")?;
        output.line(format!("rewards-ledger login --url {public} --profile sandbox --api-key {}\n", starter.api_key))
    }

    /// Prints a sandbox of an earlier start, without secrets.
    pub fn of_existing(&self, account: &Value, output: &Output) -> std::io::Result<()> {
        let mut options = format!(" --url {}", self.operators);
        if let Some(file) = &self.operator_token_file {
            options.push_str(&format!(" --operator-token-file {}", file.display()));
        }
        let (key, password) = (
            format!("rewards-ledger admin credential issue {account} NAME{options}"),
            format!("rewards-ledger admin user list {account}{options}"),
        );
        if output.json {
            let mut all = self.addresses(account.as_i64().unwrap_or_default());
            all["is_new"] = json!(false);
            all["new_api_key"] = json!(key);
            return output.json_line(&all);
        }
        output.line(format!("\n{}\n", "This sandbox was made by an earlier start, which showed its secrets.".bold()))?;
        fact(output, "API page", &format!("{}/docs", self.public))?;
        if self.has_pages {
            fact(output, "portal", &format!("{}/portal", self.public))?;
            fact(output, "console", &format!("{}/console", self.operators))?;
        }
        fact(output, "new key", &key)?;
        fact(output, "users", &password)?;
        fact(output, "new start", &format!("stop the node, and delete {}\n", self.data_dir.display()))
    }

    /// Returns the fields that a new sandbox and an earlier one have in common.
    fn addresses(&self, account: i64) -> Value {
        let page = |base: &str, path: &str| self.has_pages.then(|| format!("{base}{path}"));
        json!({
            "url": self.public, "docs_url": format!("{}/docs", self.public), "portal_url": page(&self.public, "/portal"),
            "console_url": page(&self.operators, "/console"), "account_id": account,
            "operator_token_file": self.operator_token_file, "data_dir": self.data_dir,
        })
    }

    fn curl(&self, starter: &Starter) -> String {
        let order = format!(r#"{{"product_id": 1, "denomination": {}, "quantity": 2}}"#, CARDS[0].denomination);
        format!(
            "curl '{}/api/v1/orders' \\\n  -H 'X-API-Key: {}' \\\n  -H 'X-API-Secret: {}' \\\n  -H 'Idempotency-Key: {FIRST_ORDER}' \\\n  \
             -H 'Content-Type: application/json' \\\n  -d '{order}'",
            self.public,
            starter.api_key,
            starter.api_secret.expose(),
        )
    }
}

fn fact(output: &Output, name: &str, text: &str) -> std::io::Result<()> {
    output.line(format!("  {}  {text}", format!("{name:<10}").dimmed()))
}
