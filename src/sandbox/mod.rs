//! Sandbox: the same program and the same decisions on a separate database. Clients fund themselves (`api/sandbox.rs`), and
//! four seeded products determine how an order proceeds.
//!
//! The sandbox controls orders through the stock. A small loop looks at the waiting orders and adds the fake vouchers that
//! the course of their product requires. Fulfilment does the rest as usual. The loop only submits commands.

pub mod cards;

use std::pin::pin;
use std::time::Duration;

use chrono::{DateTime, TimeDelta, Utc};
use ledger_database::{PgConnection, PgPool};
use ledger_events::catalogue::ProductEvent;
use ledger_events::order::Order;
use ledger_events::{Actor, Event, ProductId, Recorded};
use ledger_projections::state::State as _;
use ledger_projections::{catalogue, orders};
use sha2::{Digest, Sha256};
use tokio_util::sync::CancellationToken;

use crate::ledger::commands::NewVoucher;
use crate::ledger::reader::{self, ReadError};
use crate::ledger::{Command, CommandResult, FIRST_SHARD, Ledger, Origin, WriteError, commands, images, stock};
use crate::secrets::seal::Secret;
use cards::{CARDS, Card, CardError, Course, MAX_QUANTITY, made_up_codes};

/// Stock of products that are delivered at once, refilled to `FULL` when it falls below `LOW`. `LOW` covers
/// the default rate limits. A key may place 100 orders at the end of one minute and 100 more at the start of the next.
const FULL: i64 = 2 * LOW;
const LOW: i64 = 2 * 100 * MAX_QUANTITY as i64;
/// Maximum number of vouchers in one command. On a busy machine, a debug build took longer for 1,000 than a command may.
const CHUNK: i64 = 100;
/// Maximum number of waiting orders per product that one step reads.
const LOOKED_AT: i64 = 500;
/// Number of first events that contain the seeded products. A sandbox's log begins with them.
const FIRST_EVENTS: i64 = 100;
/// Minimum and maximum time between two steps.
const BREATH: Duration = Duration::from_millis(100);
const IDLE: Duration = Duration::from_secs(1);
/// Key of the advisory lock under which one node at a time adds vouchers: "sandbox" in ASCII.
const LOCK: i64 = 0x73_616e_6462_6f78;

#[derive(Debug, thiserror::Error)]
pub enum SandboxError {
    #[error("this database holds real orders and is not a sandbox: use a separate database (or --data-dir) with --sandbox")]
    NotASandbox,
    #[error("this database belongs to a sandbox: serve it with --sandbox, or use another database (or --data-dir)")]
    IsASandbox,
    #[error(transparent)]
    Card(#[from] CardError),
    #[error("failed to access the sandbox's database: {0}")]
    Database(#[from] sqlx::Error),
    #[error("failed to read the sandbox's log: {0}")]
    Read(#[from] ReadError),
    #[error("failed to write the sandbox's products or stock: {0}")]
    Write(#[from] WriteError),
    #[error("a command of the sandbox returned an unexpected kind of result")]
    Unexpected,
}

/// Delays of the seeded products whose orders do not complete at once.
#[derive(Clone, Copy, Debug)]
pub struct Delays {
    /// Time from the first part of a partial delivery to the rest. 5 s by default.
    pub rest_after: TimeDelta,
    /// Time from placing an order to its late delivery. 15 s by default.
    pub late_after: TimeDelta,
}

impl Default for Delays {
    fn default() -> Delays {
        Delays { rest_after: TimeDelta::seconds(5), late_after: TimeDelta::seconds(15) }
    }
}

/// Manages the stock of the seeded products so that orders of each follow its course.
#[derive(Debug)]
pub struct Sandbox {
    ledger: Ledger,
    pool: PgPool,
    products: Vec<(ProductId, Card)>,
    delays: Delays,
}

/// Returns whether the ledger is a sandbox: the first event of its log is the sandbox's. Returns `None` for an empty log.
fn is_a_sandbox(first: &[Recorded]) -> Option<bool> {
    first.first().map(|event| event.metadata.actor == Actor::Sandbox)
}

/// Opens the sandbox if the node is configured as one. Refuses a database of the other kind, because the wallets of a
/// sandbox hold no real money.
///
/// # Errors
/// The errors of [`Sandbox::open`], and [`SandboxError::IsASandbox`].
pub async fn open(is_wanted: bool, ledger: &Ledger, pool: &PgPool) -> Result<Option<Sandbox>, SandboxError> {
    if is_wanted {
        return Sandbox::open(ledger, pool.clone(), Delays::default()).await.map(Some);
    }
    let first = reader::after(pool, FIRST_SHARD, 0, 1).await?;
    if is_a_sandbox(&first) == Some(true) { Err(SandboxError::IsASandbox) } else { Ok(None) }
}

/// Executes a command. Meanwhile, it uses the transaction that holds the lock, so that the database does not end it as idle.
async fn execute(ledger: &Ledger, tx: &mut PgConnection, command: impl Into<Command>) -> Result<CommandResult, SandboxError> {
    let mut executed = pin!(ledger.execute(FIRST_SHARD, command, origin()));
    loop {
        tokio::select! {
            outcome = &mut executed => return Ok(outcome?),
            () = tokio::time::sleep(IDLE) => {
                sqlx::query("SELECT 1").execute(&mut *tx).await?;
            }
        }
    }
}

/// Gives a seeded product its picture, unless it has an image. As with an upload by an operator, the bytes are stored before
/// the event that refers to them.
async fn add_picture(
    ledger: &Ledger,
    pool: &PgPool,
    tx: &mut PgConnection,
    product_id: ProductId,
    card: &Card,
) -> Result<(), SandboxError> {
    if catalogue::find(pool, product_id).await?.is_some_and(|product| product.image.is_some()) {
        return Ok(());
    }
    images::store(pool, product_id, &Sha256::digest(card.picture).into(), card.picture).await?;
    match execute(ledger, tx, commands::SetProductImage { product_id, image: card.image()? }).await? {
        CommandResult::Product(_) => Ok(()),
        _ => Err(SandboxError::Unexpected),
    }
}

impl Sandbox {
    /// Seeds missing products, their pictures and their stock, so that clients can order them when this returns.
    ///
    /// # Errors
    /// [`SandboxError::NotASandbox`] on a database with real orders, and errors from reading or writing the ledger.
    pub async fn open(ledger: &Ledger, pool: PgPool, delays: Delays) -> Result<Sandbox, SandboxError> {
        let mut tx = pool.begin().await?;
        sqlx::query("SELECT pg_advisory_xact_lock($1)").bind(LOCK).execute(&mut *tx).await?;
        let first = reader::after(&mut *tx, FIRST_SHARD, 0, FIRST_EVENTS).await?;
        if is_a_sandbox(&first) == Some(false) {
            return Err(SandboxError::NotASandbox);
        }
        let is_seed = |event: &&Recorded| {
            event.metadata.actor == Actor::Sandbox && matches!(event.event, Event::Product(ProductEvent::ProductAdded(_)))
        };
        let mut ids: Vec<ProductId> = first.iter().filter(is_seed).map(|event| ProductId(event.stream_id)).collect();
        for card in &CARDS[ids.len().min(CARDS.len())..] {
            match execute(ledger, &mut tx, commands::AddProduct { details: card.details()? }).await? {
                CommandResult::Product(product) => ids.push(product.id),
                _ => return Err(SandboxError::Unexpected),
            }
        }
        for (id, card) in ids.iter().zip(&CARDS) {
            add_picture(ledger, &pool, &mut tx, *id, card).await?;
        }
        tx.commit().await?;
        let sandbox = Sandbox { ledger: ledger.clone(), pool, products: ids.into_iter().zip(CARDS).collect(), delays };
        // On a busy machine the database can end the step's connection. A step that was broken off is safe to repeat.
        match sandbox.step(Utc::now()).await {
            Err(SandboxError::Database(error)) => {
                tracing::warn!(%error, "failed to fill the sandbox's stock; retrying");
                sandbox.step(Utc::now()).await?;
            }
            done => {
                done?;
            }
        }
        Ok(sandbox)
    }

    /// Returns the seeded products, in the order of [`CARDS`].
    pub fn products(&self) -> &[(ProductId, Card)] {
        &self.products
    }

    pub async fn run(self, stop: CancellationToken) {
        let mut grown = self.ledger.wake().subscribe();
        let heartbeat = self.ledger.heartbeats().background("sandbox");
        while !stop.is_cancelled() {
            heartbeat.beat();
            grown.borrow_and_update();
            if let Err(error) = self.step(Utc::now()).await {
                tracing::warn!(%error, "failed to refill the sandbox's stock; retrying");
            }
            let pause = async {
                tokio::time::sleep(BREATH).await;
                _ = tokio::time::timeout(IDLE, grown.changed()).await;
            };
            stop.run_until_cancelled(pause).await;
        }
    }

    /// Adds the vouchers that each course requires now. Returns their number, which is 0 while another node does the same.
    pub async fn step(&self, now: DateTime<Utc>) -> Result<i64, SandboxError> {
        let mut tx = self.pool.begin().await?;
        if !sqlx::query_scalar("SELECT pg_try_advisory_xact_lock($1)").bind(LOCK).fetch_one(&mut *tx).await? {
            return Ok(0);
        }
        let mut added = 0;
        for (product, card) in &self.products {
            let denomination = card.face_value()?;
            let waiting = self.waiting(&mut tx, *product, card).await?;
            let pair = [(*product, denomination.decimal())];
            let found = stock::available_pairs(&self.pool, &self.ledger.shards(), &pair, FULL).await?;
            let available: i64 = found.iter().map(|(.., vouchers)| *vouchers).sum();
            let mut wanted = wanted(card.course, available, &waiting, now, self.delays);
            while wanted > 0 {
                let vouchers = (1..=wanted.min(CHUNK)).map(made_up).collect();
                let command =
                    commands::LoadVouchers { product_id: *product, denomination, vouchers, cost: None, supplier_reference: None };
                execute(&self.ledger, &mut tx, command).await?;
                added += wanted.min(CHUNK);
                wanted -= CHUNK;
            }
        }
        tx.commit().await?;
        Ok(added)
    }

    /// Returns the orders of a product that were taken up and wait for stock in any shard, oldest first.
    async fn waiting(&self, conn: &mut PgConnection, product: ProductId, card: &Card) -> Result<Vec<Order>, SandboxError> {
        let denomination = card.face_value()?.decimal();
        let mut waiting = vec![];
        for shard in self.ledger.shards() {
            let oldest = orders::oldest_waiting(&self.pool, shard, product, denomination, LOOKED_AT).await?;
            let ids: Vec<_> = oldest.iter().map(|order| order.id).collect();
            if !ids.is_empty() {
                waiting.extend(Order::load(&mut *conn, shard, &ids).await?);
            }
        }
        waiting.retain(Order::is_waiting);
        waiting.sort_unstable_by_key(|order| (order.created_at, order.placed_position));
        Ok(waiting)
    }
}

/// Returns the number of vouchers to add now, given the available ones and the waiting orders, oldest first.
fn wanted(course: Course, available: i64, waiting: &[Order], now: DateTime<Utc>, delays: Delays) -> i64 {
    let missing = |order: &Order| i64::from(order.undelivered_quantity());
    match course {
        Course::AtOnce if available < LOW => FULL - available + waiting.iter().map(missing).sum::<i64>(),
        // One voucher is in stock for the next order; more would complete it at once. Waiting orders are served one at a
        // time, so that the first part and the rest go to the same order.
        Course::InParts if available == 0 => match waiting.first() {
            Some(order) if order.delivered_quantity == 0 => 1,
            Some(order) if order.updated_at + delays.rest_after <= now => missing(order),
            Some(_) => 0,
            None => 1,
        },
        Course::Late => {
            let due = waiting.iter().take_while(|order| order.created_at + delays.late_after <= now);
            due.map(missing).sum::<i64>() - available
        }
        Course::AtOnce | Course::InParts | Course::Never => 0,
    }
}

fn made_up(row: i64) -> NewVoucher {
    let (card_number, pin) = made_up_codes("SANDBOX");
    NewVoucher {
        row,
        card_number: Secret::new(card_number),
        pin: Some(Secret::new(pin)),
        claim_url: None,
        reference: None,
        expires_on: None,
    }
}

fn origin() -> Origin {
    Origin { actor: Actor::Sandbox, request_id: "sandbox".to_owned() }
}
