//! The start of a sandbox on an embedded database. A new one gets an account with everything that a client needs, whose
//! secrets are printed once, and a receiver to which the account's webhook leads.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use anyhow::{Context, bail};
use reqwest::{Method, Url};
use serde::{Deserialize, Serialize};
use webhook_client::receiver::{Received, Receiver, ReceiverResponse};

use super::introduction::Introduction;
use crate::access::one_click::OneClick;
use crate::cli::client::{Caller, Client};
use crate::cli::output::Output;
use crate::cli::starter::{Starter, StarterWebhook, users};
use crate::cli::{private, receiver};
use crate::config::{Config, OperatorTokenSettings, Role};
use crate::node::Node;
use crate::secrets::seal::{Secret, random_secret};

/// Name of the account of a new sandbox.
const ACCOUNT: &str = "Sandbox";
/// Opening balance of its wallet.
const BALANCE: &str = "1000.00";
/// Name of the site of its users' email addresses.
const SITE: &str = "sandbox";
/// File in the data directory with the operator token, if none is configured.
const TOKEN_FILE: &str = "operator.token";
/// File beside the receiver's certificate that keeps the address and the token of the webhook.
const WEBHOOK_FILE: &str = "webhook.json";
/// File in the data directory with the number of the attempt to create the account. It exists from before the creation until
/// the secrets are printed. So a start after an interrupted one knows that nobody has seen them.
const ATTEMPT_FILE: &str = "sandbox.attempt";

/// The webhook that leads to the receiver. A restart receives and verifies its deliveries again.
#[derive(Serialize, Deserialize)]
struct Kept {
    address: SocketAddr,
    token: String,
}

/// Everything that stands ready beside the node of a sandbox.
#[derive(Debug)]
pub struct SandboxStart {
    data_dir: PathBuf,
    operator_token: Secret,
    operator_token_file: Option<PathBuf>,
    users: OneClick,
    has_pages: bool,
    public_url: Option<String>,
    receiver: Option<Receiver>,
    /// Token of the webhook, once it is registered.
    webhook_token: Arc<OnceLock<Secret>>,
    /// Number of the earlier attempt to create the account that was interrupted, if one was.
    interrupted: Option<u32>,
}

impl SandboxStart {
    /// Returns whether a node is the sandbox of one person: it runs alone on its embedded database. A sandbox on another
    /// database is shared, and its operators create the accounts.
    ///
    /// # Errors
    /// If the database URL is invalid, or the node would speak TLS.
    pub fn is_wanted(config: &Config) -> anyhow::Result<bool> {
        let is_embedded = config.database.options()?.is_none();
        let is_wanted = config.sandbox && is_embedded && config.roles.include(Role::Api);
        if is_wanted && config.tls.files()?.is_some() {
            bail!("a sandbox on the embedded Postgres calls its own API over plain HTTP: leave out --tls-cert and --tls-key");
        }
        Ok(is_wanted)
    }

    /// Starts the receiver, and adds to the configuration what the sandbox needs: an operator token, and the receiver's
    /// certificate and network.
    ///
    /// # Errors
    /// If a file in the data directory cannot be read or written.
    pub async fn prepare(config: &mut Config) -> anyhow::Result<SandboxStart> {
        let data_dir = config.database.data_dir.clone();
        let token = config.operator_token.read_strong()?;
        let operator_token = match token {
            Some(token) => token,
            None => own_token(config, &data_dir.join(TOKEN_FILE))?,
        };
        let kept_file = data_dir.join(receiver::DIRECTORY).join(WEBHOOK_FILE);
        let kept: Option<Kept> = match kept_file.exists() {
            true => {
                let text = crate::config::read_private(&kept_file, "the sandbox's webhook")?;
                Some(serde_json::from_str(text.expose()).with_context(|| format!("{} is damaged", kept_file.display()))?)
            }
            false => None,
        };
        let interrupted = interrupted(&data_dir)?;
        let webhook_token = Arc::new(OnceLock::new());
        let listen = kept.as_ref().map_or(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)), |kept| kept.address);
        // The next attempt registers a webhook with another token.
        if let Some(kept) = kept.filter(|_| interrupted.is_none()) {
            _ = webhook_token.set(Secret::new(kept.token)); // it was empty
        }
        let known = webhook_token.clone();
        let respond = Arc::new(move |received: &Received| respond(received, known.get()));
        let receiver = match receiver::start(&data_dir, listen, &config.service_name, respond).await {
            Ok((receiver, _)) => Some(receiver),
            Err(error) => {
                tracing::warn!(error = format!("{error:#}"), "the sandbox's webhook receiver did not start");
                None
            }
        };
        trust_receiver(config, &data_dir, receiver.as_ref().map_or(listen, Receiver::address).ip())?;
        // The users of an interrupted attempt have passwords that nobody knows.
        let users = OneClick::new(&interrupted.map_or_else(|| SITE.to_owned(), |last| format!("{SITE}-{}", last + 1)));
        config.one_click = Some(users.clone());
        Ok(SandboxStart {
            data_dir,
            operator_token,
            operator_token_file: config.operator_token.operator_token_file.clone(),
            users,
            has_pages: config.pages.is_on(),
            public_url: config.public_url.clone(),
            receiver,
            webhook_token,
            interrupted,
        })
    }

    /// Prints what a client needs: of a new sandbox, after creating it, with its secrets; of an earlier one, how to get new
    /// ones. If an earlier start was interrupted before it printed the secrets, creates another account.
    ///
    /// # Errors
    /// If the node refuses a step of the creation.
    pub async fn introduce(&self, node: &Node, output: &Output) -> anyhow::Result<()> {
        let base = url(node.address().context("the node does not listen")?)?;
        let operators = node.operator_address().map_or_else(|| Ok(base.clone()), url)?;
        let operator = Client::new(&operators, Some(Caller::Operator(self.operator_token.clone())))?;
        let accounts = operator.json(Method::GET, "/admin/v1/accounts?limit=1", None).await?;
        let introduction = Introduction {
            public: self.public_url.clone().unwrap_or_else(|| without_slash(&base)),
            operators: without_slash(&operators),
            has_pages: self.has_pages,
            operator_token_file: self.operator_token_file.clone(),
            data_dir: self.data_dir.clone(),
        };
        let existing = &accounts["accounts"][0]["id"];
        if !existing.is_null() && self.interrupted.is_none() {
            return Ok(introduction.of_existing(existing, output)?);
        }
        let attempt = self.interrupted.map_or(1, |last| last + 1);
        let file = self.data_dir.join(ATTEMPT_FILE);
        private::write(&file, &attempt.to_string())?;
        let (starter, webhook) = self.make(attempt, &operator, &base).await?;
        introduction.of_new(&starter, webhook.as_ref(), &self.users, BALANCE, output)?;
        std::fs::remove_file(&file).with_context(|| format!("cannot delete {}", file.display()))
    }

    async fn make(
        &self,
        attempt: u32,
        operator: &Client,
        base: &Url,
    ) -> anyhow::Result<(Starter, Option<(StarterWebhook, String)>)> {
        let silent = |_: &str, _: &str, _: u16, _: &str| Ok(());
        // A reference is for one funding.
        let opening = if attempt == 1 { "SANDBOX-OPENING".to_owned() } else { format!("SANDBOX-OPENING-{attempt}") };
        let starter = Starter::make(operator, ACCOUNT, (BALANCE, &opening), &silent).await?;
        users(operator, starter.account, &self.users).await?;
        let Some(receiver) = &self.receiver else { return Ok((starter, None)) };
        let url = format!("https://{}/webhooks", receiver.address());
        let webhook = starter.webhook(base, &url, &silent).await?;
        let kept = Kept { address: receiver.address(), token: webhook.token.expose().to_owned() };
        let file = self.data_dir.join(receiver::DIRECTORY).join(WEBHOOK_FILE);
        private::write(&file, &serde_json::to_string(&kept)?)?;
        _ = self.webhook_token.set(webhook.token.clone()); // it was empty
        Ok((starter, Some((webhook, url))))
    }

    /// Stops the receiver. The node has to stop first, because it sends to the receiver.
    pub async fn stop(self) {
        if let Some(receiver) = self.receiver {
            receiver.stop().await;
        }
    }
}

/// Makes an operator token, or reads the one of an earlier start, and configures the node with its file.
fn own_token(config: &mut Config, file: &Path) -> anyhow::Result<Secret> {
    if !file.exists() {
        private::write(file, random_secret().expose())?;
    }
    config.operator_token = OperatorTokenSettings { operator_token_file: Some(file.to_owned()) };
    config.operator_token.read_strong()?.context("the operator token is empty")
}

/// Returns the number of the attempt that was interrupted, if one was.
fn interrupted(data_dir: &Path) -> anyhow::Result<Option<u32>> {
    let file = data_dir.join(ATTEMPT_FILE);
    match std::fs::read_to_string(&file) {
        Ok(number) => Ok(Some(number.trim().parse().with_context(|| format!("{} is not a number", file.display()))?)),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error).with_context(|| format!("cannot read {}", file.display())),
    }
}

/// Lets the node send webhooks to the receiver, in addition to those that the configuration allows. `listen` receives at the
/// same address.
fn trust_receiver(config: &mut Config, data_dir: &Path, address: IpAddr) -> anyhow::Result<()> {
    config.webhook_allow_nets.push(address.into());
    let own = data_dir.join(receiver::DIRECTORY).join(receiver::CA_FILE);
    let Some(configured) = config.webhook_ca_file.take() else {
        config.webhook_ca_file = Some(own);
        return Ok(());
    };
    let read = |file: &Path| std::fs::read_to_string(file).with_context(|| format!("cannot read {}", file.display()));
    let both = data_dir.join(receiver::DIRECTORY).join("trusted.pem");
    private::write(&both, &format!("{}\n{}", read(&configured)?, read(&own)?))?;
    config.webhook_ca_file = Some(both);
    Ok(())
}

/// Verifies a delivery and logs it. Answers 200 to a genuine one alone, so a delivered webhook was verified.
fn respond(received: &Received, token: Option<&Secret>) -> ReceiverResponse {
    let (event_type, event_id) = (received.event_type(), received.event_id());
    match receiver::verdict(received, token) {
        Some(Ok(())) => {
            tracing::info!(event_type, event_id, signature = "verified", "webhook received");
            ReceiverResponse::Status(200)
        }
        refused => {
            let problem = refused.and_then(Result::err).unwrap_or_else(|| "the token is not known yet".to_owned());
            tracing::warn!(event_type, event_id, signature = problem, "webhook refused");
            ReceiverResponse::Status(401)
        }
    }
}

/// Returns the URL at which this machine reaches a listener.
fn url(address: SocketAddr) -> anyhow::Result<Url> {
    let ip = match address.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(ip) if ip.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
        ip => ip,
    };
    Ok(format!("http://{}", SocketAddr::new(ip, address.port())).parse()?)
}

fn without_slash(url: &Url) -> String {
    url.as_str().trim_end_matches('/').to_owned()
}
