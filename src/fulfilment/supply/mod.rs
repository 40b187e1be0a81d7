//! Purchases of vouchers from suppliers, for orders that the stock does not serve.
//!
//! The command `RequestPurchase` puts a purchase into the log before the supplier sees it, under a key that follows from the log.
//! The vouchers go into the stock, and fulfilment allocates them to the oldest waiting order. After any doubt, the node asks the
//! supplier about the key, and it sends the order again only under the same key. So neither a crash nor two nodes buy twice.

mod answer;
mod calls;
mod http;
mod notices;
mod port;
mod settings;

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use chrono::{NaiveDate, Utc};
use ledger_database::PgPool;
use ledger_events::purchase::{PurchaseAnswer, PurchasePending, PurchaseRefused, PurchaseStatus};
use ledger_events::{Actor, Currency, Money, Rejection, ShardId};
use ledger_projections::purchases::{self, Lacking};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::ledger::commands::{self, LoadVouchers};
use crate::ledger::{Command, CommandResult, Ledger, Origin, WriteError, connect};
use crate::telemetry::Metrics;
pub use answer::{Answer, Unknown};
pub use calls::Claimed;
pub use http::HttpSupplier;
pub use notices::{NoticeSettings, Notices, take_notice};
pub use port::{Supplier, Wanted};
pub use settings::{Fields, SettingsError, SupplierSettings, read};

/// Interval between checks when no wake-up arrives.
const IDLE: Duration = Duration::from_secs(1);
/// Pause after the queue was full or the database was away.
const RETRY_PAUSE: Duration = Duration::from_secs(2);
/// Interval at which what was spent is read for the metrics.
const WATCH_EVERY: Duration = Duration::from_secs(15);
/// Deadline of a statement of this loop.
const DEADLINE: Duration = Duration::from_secs(10);
/// Longest time for a call: the token, the question and the order. It is shorter than the lease, and than the time after which a
/// loop counts as stalled.
const CALL_DEADLINE: Duration = Duration::from_secs(30);
/// Maximum number of orders that a step makes purchases for.
const STEP: i64 = 100;
/// Number of purchases of one supplier that a node works on at once.
const AT_ONCE: usize = 4;

/// Makes purchases from one supplier and works on them until stopped.
#[derive(Debug)]
pub struct Purchaser {
    ledger: Ledger,
    pool: PgPool,
    supplier: Arc<dyn Supplier>,
    /// Currencies whose budget of a day is too small for a voucher of this face value.
    exhausted: HashMap<Currency, (NaiveDate, Money)>,
    metrics: Metrics,
}

impl Purchaser {
    pub fn new(ledger: Ledger, supplier: Arc<dyn Supplier>, metrics: Metrics) -> Purchaser {
        let pool = ledger.maintenance().clone();
        metrics.show_supplier(&supplier.settings().name);
        Purchaser { ledger, pool, supplier, exhausted: HashMap::new(), metrics }
    }

    pub async fn run(mut self, stop: CancellationToken) {
        let heartbeat = self.ledger.heartbeats().background(format!("purchases from {}", self.supplier.settings().name));
        let mut watched: Option<Instant> = None;
        while !stop.is_cancelled() {
            let mut pause = IDLE;
            let is_to_watch = watched.is_none_or(|at| at.elapsed() >= WATCH_EVERY);
            watched = if is_to_watch { Some(Instant::now()) } else { watched };
            for shard in self.ledger.shards() {
                heartbeat.beat();
                if let Err(error) = self.request(shard).await {
                    tracing::warn!(shard, %error, "failed to make purchases; retrying");
                    pause = RETRY_PAUSE;
                }
                if is_to_watch && let Err(error) = self.watch(shard).await {
                    tracing::debug!(shard, %error, "failed to read what was spent at a supplier");
                }
                heartbeat.beat();
                let works = futures::future::join_all((0..AT_ONCE).map(|_| self.work(shard)));
                let done = stop.run_until_cancelled(works).await;
                if pause == IDLE && done.is_some_and(|done| done.into_iter().any(|is_more| is_more)) {
                    pause = Duration::ZERO;
                }
            }
            heartbeat.rest();
            stop.run_until_cancelled(tokio::time::sleep(pause)).await;
        }
    }

    /// Makes purchases for orders that wait for vouchers. Returns their number.
    ///
    /// # Errors
    /// Any error of the database, and a writer that does not answer.
    pub async fn request(&mut self, shard: ShardId) -> Result<usize, PurchaseError> {
        let mut made = 0;
        let today = Utc::now().date_naive();
        self.exhausted.retain(|_, (day, _)| *day == today);
        let settings = self.supplier.settings();
        let funded = settings.funded();
        for lacking in connect::within(DEADLINE, purchases::lacking(&self.pool, shard, &settings.name, &funded, STEP)).await? {
            let Lacking { order_id, product_id, denomination, currency, sku } = lacking;
            let Some(budget) = settings.daily_budget.get(&currency).copied() else { continue };
            if self.exhausted.get(&currency).is_some_and(|(_, least)| denomination >= *least) {
                continue;
            }
            let supplier = settings.name.clone();
            let command = commands::RequestPurchase { order_id, product_id, denomination, currency, supplier, sku, budget };
            match self.ledger.execute(shard, command, origin()).await {
                Ok(CommandResult::Purchase(purchase)) => made += usize::from(purchase.is_some()),
                Ok(_) => {}
                Err(WriteError::Rejected(Rejection::Conflict(problem))) => {
                    tracing::warn!(supplier = settings.name, %currency, %denomination, problem, "nothing more is bought today");
                    self.exhausted.insert(currency, (today, denomination));
                }
                Err(WriteError::Rejected(rejection)) => {
                    tracing::warn!(shard, %order_id, %rejection, "a purchase for the order was rejected");
                }
                Err(error) => return Err(error.into()),
            }
        }
        for currency in funded {
            self.metrics.supplier_exhausted(&settings.name, currency, self.exhausted.contains_key(&currency));
        }
        Ok(made)
    }

    /// Shows in the metrics what a shard has spent of each budget of the day.
    ///
    /// # Errors
    /// Any error of the database.
    pub async fn watch(&self, shard: ShardId) -> Result<(), sqlx::Error> {
        let settings = self.supplier.settings();
        let spent = connect::within(DEADLINE, purchases::spent(&self.pool, shard, &settings.name, &settings.funded())).await?;
        for ((currency, budget), spent) in settings.daily_budget.iter().zip(spent) {
            self.metrics.supplier_spent(&settings.name, *currency, shard, (spent, budget.decimal()));
        }
        Ok(())
    }

    /// Works on one purchase. Returns whether one was due.
    pub async fn work(&self, shard: ShardId) -> bool {
        let claimed = match self.claim(shard).await {
            Ok(Some(claimed)) => claimed,
            Ok(None) => return false,
            Err(error) => {
                tracing::warn!(shard, %error, "failed to claim a purchase; retrying");
                return false;
            }
        };
        let answer = call(&*self.supplier, &claimed).await;
        if let Err(error) = self.record(shard, &claimed, answer).await {
            tracing::warn!(shard, purchase_id = %claimed.id, %error, "failed to record a supplier's answer; asking again");
        }
        true
    }

    /// Claims a purchase that is due.
    ///
    /// # Errors
    /// Any error of the database.
    pub async fn claim(&self, shard: ShardId) -> Result<Option<Claimed>, sqlx::Error> {
        let settings = self.supplier.settings();
        connect::within(DEADLINE, calls::claim(&self.pool, shard, &settings.name, settings.interval)).await
    }

    /// Records what the supplier has said, or that nobody knows.
    ///
    /// # Errors
    /// Any error of the database, and a writer that does not answer. The purchase is then asked about after the lease.
    pub async fn record(&self, shard: ShardId, claimed: &Claimed, answer: Result<Answer, Unknown>) -> Result<(), PurchaseError> {
        let settings = self.supplier.settings();
        self.metrics.supplier_called(&settings.name, if answer.is_ok() { "answered" } else { "failed" });
        let answer = match answer {
            Ok(answer) => answer,
            Err(unknown) => {
                tracing::warn!(shard, supplier = settings.name, purchase_id = %claimed.id, attempt = claimed.attempt, problem = unknown.0,
                    "the outcome of a purchase is unknown; asking again");
                connect::within(DEADLINE, calls::failed(&self.pool, shard, claimed, &settings.name, unknown.0)).await?;
                return Ok(());
            }
        };
        let (purchase_id, attempt) = (claimed.id, Some(claimed.attempt));
        let command: Command = match answer {
            Answer::Fulfilled { vouchers, cost, reference } => {
                let (product_id, denomination) = (claimed.product_id, claimed.wanted.denomination);
                let today = Utc::now().date_naive();
                let expired = vouchers.iter().filter(|voucher| voucher.expires_on.is_some_and(|day| day < today)).count();
                let expired = i32::try_from(expired).unwrap_or(i32::MAX);
                let load = LoadVouchers { product_id, denomination, vouchers, cost, supplier_reference: reference };
                commands::ReceivePurchase { purchase_id, load, expired }.into()
            }
            Answer::Pending { reference } => {
                let answer = PurchaseAnswer::Pending(PurchasePending { supplier_reference: reference });
                commands::RecordPurchase { purchase_id, answer, attempt }.into()
            }
            Answer::Refused { reason, may_succeed_later } => {
                let answer = PurchaseAnswer::Refused(PurchaseRefused { reason, may_succeed_later });
                commands::RecordPurchase { purchase_id, answer, attempt }.into()
            }
        };
        let result = self.ledger.execute(shard, command, origin()).await?;
        if let CommandResult::Purchase(Some(purchase)) = result
            && purchase.status == PurchaseStatus::Fulfilled
            && purchase.usable == 0
        {
            self.metrics.purchase_unusable(&settings.name);
            tracing::error!(shard, supplier = settings.name, %purchase_id, "the supplier delivered no voucher that an order can get");
        }
        connect::within(DEADLINE, calls::answered(&self.pool, shard, claimed, &settings.name, settings.poll_every)).await?;
        Ok(())
    }
}

/// Calls a supplier about a claimed purchase. From the second claim on, the supplier may know the key, so it is asked first. An order
/// that it has accepted, or that is older than its keys, is not sent again.
///
/// # Errors
/// [`Unknown`] unless the supplier has said what became of the purchase.
pub async fn call(supplier: &dyn Supplier, claimed: &Claimed) -> Result<Answer, Unknown> {
    let is_old = claimed.age > supplier.settings().key_lifetime;
    let asked = async {
        if claimed.attempt > 1 || claimed.is_accepted || is_old {
            match supplier.ask(&claimed.wanted).await? {
                Some(answer) => return Ok(answer),
                None if claimed.is_accepted => return Err(Unknown("the supplier does not know an order that it has accepted")),
                None if is_old => return Err(Unknown("the supplier does not know the order, which is too old to be sent again")),
                None => {}
            }
        }
        supplier.order(&claimed.wanted).await
    };
    tokio::time::timeout(CALL_DEADLINE, asked).await.unwrap_or(Err(Unknown("the supplier did not answer in time")))
}

/// Opens the suppliers that a file describes; none without a file.
///
/// # Errors
/// If the file or a certificate is invalid.
pub fn open(path: Option<&Path>) -> Result<Vec<Arc<dyn Supplier>>, SettingsError> {
    let settings = path.map(settings::read).transpose()?.unwrap_or_default();
    let open = |settings: SupplierSettings| {
        let name = settings.name.clone();
        let supplier =
            HttpSupplier::new(settings).map_err(|error| SettingsError(format!("supplier {name}: ca_file: {error}")))?;
        Ok(Arc::new(supplier) as Arc<dyn Supplier>)
    };
    settings.into_iter().map(open).collect()
}

/// Checks the file of suppliers and those that it names, as nodes of any role read them.
///
/// # Errors
/// If a file or a certificate is invalid.
pub fn check(path: &Path) -> Result<(), SettingsError> {
    open(Some(path))?;
    Notices::read(path).map(drop)
}

/// Starts the purchases from each of these suppliers. A silent one does not delay the others.
pub fn start(
    ledger: &Ledger,
    suppliers: Vec<Arc<dyn Supplier>>,
    metrics: &Metrics,
    tasks: &TaskTracker,
    stop: &CancellationToken,
) {
    for supplier in suppliers {
        tasks.spawn(Purchaser::new(ledger.clone(), supplier, metrics.clone()).run(stop.clone()));
    }
}

fn origin() -> Origin {
    Origin { actor: Actor::Fulfilment, request_id: "supply".to_owned() }
}

/// A purchase that could not be made or recorded. It is tried again.
#[derive(Debug, thiserror::Error)]
pub enum PurchaseError {
    #[error(transparent)]
    Database(#[from] sqlx::Error),
    #[error(transparent)]
    Write(#[from] WriteError),
}
