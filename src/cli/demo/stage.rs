//! The environment of the tour: an embedded server, a node with every role, and a webhook receiver. It prints the events
//! that are appended to the log and the webhooks that arrive.

use std::collections::{HashMap, HashSet};
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, bail};
use embedded_postgres::{Server, Settings};
use ledger_events::Position;
use reqwest::Url;
use serde_json::Value;
use tempfile::TempDir;
use tokio::sync::mpsc;
use tokio::time::Instant;
use webhook_client::receiver::{Received, Receiver, ReceiverResponse};

use super::DemoArgs;
use super::printer::Printer;
use crate::access::one_click::OneClick;
use crate::cli::output::with_progress;
use crate::cli::serve::{self, StopSignals};
use crate::cli::{private, receiver};
use crate::config::{Config, DatabaseSettings, OperatorTokenSettings};
use crate::embedded;
use crate::ledger::{FIRST_SHARD, reader};
use crate::node::{Database, Node};
use crate::secrets::seal::{Secret, random_secret};

/// Timeout of a step, from the request to the last webhook.
const STEP_DEADLINE: Duration = Duration::from_secs(30);
const LOOK_EVERY: Duration = Duration::from_millis(40);
/// Amount above which a second operator approves a movement of money.
const APPROVAL_ABOVE: &str = "10000";
const PAGE_EVENTS: i64 = 200;
const DEFAULT_LISTEN: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 8080);

/// The running service, its webhook receiver, and the progress of the printed log.
#[derive(Debug)]
pub struct Stage {
    node: Node,
    receiver: Receiver,
    arrivals: mpsc::UnboundedReceiver<Received>,
    /// Position up to which the log has been printed.
    position: Position,
    /// Event types in the log, for each order id.
    logged: HashMap<i64, HashSet<String>>,
    /// Event types of the webhooks that arrived, for each order id.
    arrived: HashMap<i64, HashSet<String>>,
    /// Event ids of the webhooks that arrived. Webhooks are delivered at least once, so an id may arrive again.
    event_ids: HashSet<String>,
    /// Reason why the last webhook with a bad signature was rejected.
    unverified: Option<String>,
    pub base: Url,
    /// Random suffix that keeps the names and references of this run apart from those of earlier runs.
    pub run: String,
    /// Users of the portal and the console whom the printed links sign in.
    pub one_click: OneClick,
    pub operator_token: Secret,
    pub operator_token_file: PathBuf,
    /// Token that signs webhooks, once the tour has registered a webhook.
    pub webhook_token: Option<Secret>,
    /// Directory for keys and certificates with `--exit`; deleted on drop.
    _temporary: Option<TempDir>,
}

impl Stage {
    /// Starts the server, the receiver, and the node, and prints their addresses.
    pub async fn start(args: &DemoArgs, printer: &mut Printer) -> anyhow::Result<Stage> {
        printer.section("Start")?;
        let Home { database, data_dir, temporary } = with_progress("starting the embedded Postgres", home(args)).await?;
        let kind = if temporary.is_some() { "in a temporary directory".to_owned() } else { format!("in {}", data_dir.display()) };
        printer.fact("postgres", &format!("embedded, {kind}"))?;

        let listen = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        let respond = Arc::new(|_: &Received| ReceiverResponse::Status(200));
        let (receiver, arrivals) = receiver::start(&data_dir, listen, "SERVICE", respond).await?;

        let run = format!("{:08x}", rand::random::<u32>());
        let one_click = OneClick::new(&format!("demo-{run}"));
        let operator_token = random_secret();
        let operator_token_file = data_dir.join("operator.token");
        private::write(&operator_token_file, operator_token.expose())?;
        let mut config = Config::new(settings(args, data_dir.clone()))?;
        config.listen = args.listen.unwrap_or_else(free_address);
        config.operator_token = OperatorTokenSettings { operator_token_file: Some(operator_token_file.clone()) };
        config.one_click = Some(one_click.clone());
        config.shows_outbox = true;
        config.approval_above = Some(APPROVAL_ABOVE.parse().map_err(anyhow::Error::msg)?);
        config.webhook_ca_file = Some(data_dir.join(receiver::DIRECTORY).join(receiver::CA_FILE));
        config.webhook_allow_nets = vec![receiver.address().ip().into()];
        let node = with_progress("starting the node", Node::start_on(&config, database)).await?;
        let address = node.address().context("the node does not listen")?;
        printer.fact("node", &format!("http://{address}  {}", config.roles))?;
        printer.fact("receiver", &format!("https://{}  the node trusts its certificate", receiver.address()))?;

        let position = reader::head(node.ledger().pool(), FIRST_SHARD).await?;
        Ok(Stage {
            node,
            receiver,
            arrivals,
            position,
            logged: HashMap::new(),
            arrived: HashMap::new(),
            event_ids: HashSet::new(),
            unverified: None,
            base: format!("http://{address}").parse()?,
            run,
            one_click,
            operator_token,
            operator_token_file,
            webhook_token: None,
            _temporary: temporary,
        })
    }

    /// URL to which the receiver accepts webhooks.
    pub fn webhook_url(&self) -> String {
        format!("https://{}/webhooks", self.receiver.address())
    }

    /// Number of distinct events that arrived as webhooks.
    pub fn webhooks(&self) -> usize {
        self.event_ids.len()
    }

    pub fn position(&self) -> Position {
        self.position
    }

    /// Prints the log and arriving webhooks until the log has `events` of an order and its `webhooks` have arrived.
    ///
    /// # Errors
    /// If something is still missing after [`STEP_DEADLINE`], or a signature does not verify.
    pub async fn until(&mut self, printer: &Printer, order: i64, events: &[&str], webhooks: &[&str]) -> anyhow::Result<()> {
        let deadline = Instant::now() + STEP_DEADLINE;
        loop {
            self.look(printer).await?;
            if let Some(why) = self.unverified.take() {
                bail!("a webhook has an invalid signature: {why}");
            }
            let missing = |seen: &HashMap<i64, HashSet<String>>, wanted: &[&str]| {
                wanted
                    .iter()
                    .find(|name| !seen.get(&order).is_some_and(|seen| seen.contains(**name)))
                    .map(|name| (*name).to_owned())
            };
            let missing_event = missing(&self.logged, events).map(|name| format!("the event {name} was not appended"));
            let missing = missing_event
                .or_else(|| missing(&self.arrived, webhooks).map(|name| format!("the webhook {name} did not arrive")));
            match missing {
                None => return Ok(()),
                Some(what) if Instant::now() >= deadline => bail!("order {order}: {what} within {} s", STEP_DEADLINE.as_secs()),
                Some(_) => {}
            }
        }
    }

    /// Prints the log and arriving webhooks for as long as the node runs.
    pub async fn follow(&mut self, printer: &Printer) -> anyhow::Result<()> {
        loop {
            self.look(printer).await?;
        }
    }

    /// Waits briefly for a webhook, then prints new events and the webhook. Events come first, because a webhook reports
    /// an event that is already in the log.
    pub async fn look(&mut self, printer: &Printer) -> anyhow::Result<()> {
        let arrived = tokio::time::timeout(LOOK_EVERY, self.arrivals.recv()).await.ok().flatten();
        self.read_log(printer).await?;
        if let Some(received) = arrived {
            self.take(printer, &received)?;
        }
        Ok(())
    }

    async fn read_log(&mut self, printer: &Printer) -> anyhow::Result<()> {
        loop {
            let page = reader::stored_after(self.node.ledger().pool(), FIRST_SHARD, self.position, PAGE_EVENTS).await;
            let page = page.context("cannot read the log")?;
            for event in &page {
                printer.event(event)?;
                self.position = event.position;
                if event.stream_type == "order" {
                    self.logged.entry(event.stream_id).or_default().insert(event.event_type.clone());
                }
            }
            if page.is_empty() {
                return Ok(());
            }
        }
    }

    fn take(&mut self, printer: &Printer, received: &Received) -> anyhow::Result<()> {
        let verdict = receiver::verdict(received, self.webhook_token.as_ref());
        let verdict = verdict.unwrap_or_else(|| Err("the token is not known yet".to_owned()));
        let event_id = received.event_id().unwrap_or_default().to_owned();
        let is_repeated = !self.event_ids.insert(event_id);
        printer.webhook(received, &verdict, is_repeated)?;
        if let Err(why) = verdict {
            self.unverified = Some(why);
        }
        let body: Value = serde_json::from_slice(&received.body).unwrap_or_default();
        if let (Some(order), Some(event_type)) = (body["data"]["id"].as_i64(), received.event_type())
            && event_type.starts_with("order.")
        {
            self.arrived.entry(order).or_default().insert(event_type.to_owned());
        }
        Ok(())
    }

    /// Stops the node, then the receiver.
    pub async fn stop(self, signals: &mut StopSignals) -> anyhow::Result<()> {
        // The node stops first, so nothing is sent to the receiver after it has stopped.
        let stopped = serve::stop(self.node, signals).await;
        self.receiver.stop().await;
        stopped
    }
}

fn settings(args: &DemoArgs, data_dir: PathBuf) -> DatabaseSettings {
    DatabaseSettings {
        database_url: None,
        direct_url: None,
        read_url: None,
        allow_plain_database: false,
        migration_url: None,
        data_dir,
        postgres_programs: args.postgres_programs.clone(),
        postgres_release: args.postgres_release.clone(),
        postgres_account: args.postgres_account.clone(),
    }
}

/// Database and directories of a demo.
struct Home {
    database: Database,
    data_dir: PathBuf,
    temporary: Option<TempDir>,
}

/// Opens a temporary database with `--exit`, otherwise the demo's own in the data directory. Never uses a database from
/// the user's settings.
async fn home(args: &DemoArgs) -> anyhow::Result<Home> {
    if args.exit {
        let server = Settings {
            programs: args.postgres_programs.clone(),
            release: args.postgres_release.clone(),
            account: args.postgres_account.clone(),
            // The database is deleted after the tour, so it need not survive a crash.
            ..embedded::temporary(false)?
        };
        let database = Database::embedded(Server::start(server).await?)?;
        // Not in the server's directory, which belongs to another user if root runs the demo.
        let temporary = tempfile::tempdir().context("cannot create a temporary directory")?;
        return Ok(Home { database, data_dir: temporary.path().to_owned(), temporary: Some(temporary) });
    }
    let settings = settings(args, args.data_dir.join("demo"));
    if Database::find(&settings).await?.is_some() {
        bail!("a demo is already running in {}: stop it first, or run a separate tour with --exit", settings.data_dir.display());
    }
    Ok(Home { database: Database::open_or_create(&settings).await?, data_dir: settings.data_dir, temporary: None })
}

fn free_address() -> SocketAddr {
    match std::net::TcpListener::bind(DEFAULT_LISTEN) {
        Ok(_) => DEFAULT_LISTEN,
        Err(_) => SocketAddr::new(DEFAULT_LISTEN.ip(), 0),
    }
}
