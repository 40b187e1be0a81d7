//! Stock follows demand: vouchers move to the shard where the oldest orders wait for them.
//!
//! One node at a time looks at the waiting orders and the stock of all shards, and moves what the oldest order lacks first. Each
//! move is a transaction of its own ([`crate::ledger::moves`]).

mod plan;

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use ledger_database::{PgConnectOptions, PgConnection};
use ledger_events::{Money, ProductId, ShardId};
use tokio_util::sync::CancellationToken;

use crate::ledger::connect::{self, DedicatedConnection};
use crate::ledger::moves::{self, Move, MoveError, Moved, Picked, move_vouchers};
use crate::ledger::{Ledger, stock};
use crate::secrets::seal::Keyring;
use crate::telemetry::Metrics;
pub use plan::planned;
use plan::{COUNTED, Planner};

/// Number of plans of a look. Each one leaves out vouchers of a shard that turned out not to move.
const PLANS: usize = 16;
/// Time for which such vouchers are left out of further plans, so that they do not use up those of each look.
const LEFT_OUT: Duration = Duration::from_secs(10);
/// Interval at which the same vouchers that cannot move are reported.
const REPORTED_EVERY: Duration = Duration::from_secs(600);
/// Deadline of a look with its move.
const DEADLINE: Duration = Duration::from_secs(10);
/// Interval between looks when no wake-up arrives.
const IDLE: Duration = Duration::from_secs(1);
/// Shortest pause between two looks, however often the log grows.
const BREATH: Duration = Duration::from_millis(100);
/// Pause between two moves. Orders get on meanwhile.
const BETWEEN_MOVES: Duration = Duration::from_millis(25);
/// Pause after the database was away.
const RETRY_PAUSE: Duration = Duration::from_secs(1);
/// Key of the advisory lock under which one node at a time looks: "moves" in ASCII.
const LOCK: i64 = 0x6d_6f_76_65_73;

/// A shard with its vouchers of a product and denomination.
type Shelf = (ShardId, ProductId, Money);

/// Vouchers that cannot move.
#[derive(Debug)]
struct Stuck {
    vouchers: i64,
    seen: Instant,
    reported: Instant,
}

/// Moves vouchers between the shards of a ledger.
#[derive(Debug)]
pub struct Mover {
    ledger: Ledger,
    connection: DedicatedConnection,
    keyring: Arc<Keyring>,
    metrics: Metrics,
    stuck: Mutex<HashMap<Shelf, Stuck>>,
}

impl Mover {
    pub fn new(ledger: &Ledger, options: &PgConnectOptions, keyring: Arc<Keyring>, metrics: Metrics) -> Mover {
        Mover { ledger: ledger.clone(), connection: connect::mover(options), keyring, metrics, stuck: Mutex::default() }
    }

    /// Moves vouchers until stopped.
    pub async fn run(self, stop: CancellationToken) {
        let heartbeat = self.ledger.heartbeats().background("moves of vouchers");
        let mut grown = self.ledger.wake().subscribe();
        while !stop.is_cancelled() {
            heartbeat.beat();
            grown.borrow_and_update();
            let (breath, idle) = match self.step().await {
                Ok(0) => (BREATH, IDLE),
                Ok(_) => (BETWEEN_MOVES, Duration::ZERO),
                Err(error) => {
                    // Also if the answer to COMMIT is lost: the next look sees where the vouchers are.
                    tracing::warn!(%error, "failed to move vouchers between shards; retrying");
                    (RETRY_PAUSE, Duration::ZERO)
                }
            };
            heartbeat.rest();
            let pause = async {
                tokio::time::sleep(breath).await;
                _ = tokio::time::timeout(idle, grown.changed()).await; // a timeout is fine too
            };
            stop.run_until_cancelled(pause).await;
        }
    }

    /// Moves what the oldest order lacks that another shard's stock can serve. Returns the number of vouchers; there may be more
    /// to move. Returns 0 while another node does the same.
    ///
    /// # Errors
    /// Any error of the database. The next look decides anew.
    pub async fn step(&self) -> Result<usize, MoveError> {
        if self.ledger.shards().len() < 2 {
            return Ok(0);
        }
        // After an error the connection is closed, which releases the lock of the session.
        let mut connection = self.connection.acquire().await?;
        let moved = connect::within(DEADLINE, self.look(&mut connection)).await?;
        connection.keep();
        Ok(moved)
    }

    /// Plans the moves, and makes the first one that is possible. The lock is one of the session: a transaction would keep
    /// locks on the tables that the plan reads while it waits for heads.
    async fn look(&self, conn: &mut PgConnection) -> Result<usize, MoveError> {
        if !sqlx::query_scalar("SELECT pg_try_advisory_lock($1)").bind(LOCK).fetch_one(&mut *conn).await? {
            return Ok(0);
        }
        let moved = match self.choose(&mut *conn).await? {
            Some(picked) => self.carry_out(&mut *conn, &picked).await?,
            None => 0,
        };
        sqlx::query("SELECT pg_advisory_unlock($1)").bind(LOCK).execute(conn).await?;
        Ok(moved)
    }

    /// Picks the vouchers of the first planned move for which there are some.
    async fn choose(&self, conn: &mut PgConnection) -> Result<Option<Picked>, MoveError> {
        let mut planner = Planner::load(&mut *conn).await?;
        for (shelf, stuck) in self.stuck.lock().unwrap_or_else(PoisonError::into_inner).iter() {
            if stuck.seen.elapsed() < LEFT_OUT {
                planner.withhold(*shelf, stuck.vouchers);
            }
        }
        'plans: for _ in 0..PLANS {
            for wanted in planner.moves() {
                let Some(picked) = moves::pick(&mut *conn, &wanted).await? else { continue };
                if !picked.is_empty() {
                    return Ok(Some(picked));
                }
                // Otherwise an older order would wait for these for ever, and a younger one would not get others.
                let pair = (wanted.product_id, wanted.denomination.decimal());
                let stuck = stock::available_pairs(&mut *conn, &[wanted.from], &[pair], COUNTED).await?;
                let stuck = stuck.first().map_or(0, |(.., vouchers)| *vouchers);
                self.report(&wanted, stuck);
                planner.withhold((wanted.from, wanted.product_id, wanted.denomination), stuck);
                continue 'plans;
            }
            break;
        }
        Ok(None)
    }

    /// Moves the picked vouchers, and wakes what follows the two logs. Returns their number.
    async fn carry_out(&self, conn: &mut PgConnection, picked: &Picked) -> Result<usize, MoveError> {
        let mut tx = conn.begin().await?;
        let moved = move_vouchers(&mut tx, &self.keyring, picked).await?;
        tx.commit().await?;
        self.tell(picked.wanted(), &moved);
        Ok(moved.vouchers)
    }

    fn tell(&self, wanted: &Move, moved: &Moved) {
        let &Move { from, to, product_id, denomination, .. } = wanted;
        let vouchers = moved.vouchers;
        for held in moved.locked_at.map(|at| at.elapsed()) {
            match vouchers {
                0 => self.metrics.held(held),
                _ => self.metrics.moved(held),
            }
        }
        if vouchers > 0 {
            self.ledger.wake().committed(from);
            self.ledger.wake().committed(to);
            tracing::info!(from, to, %product_id, %denomination, vouchers, "vouchers were moved to a shard with older orders");
        }
    }

    /// Notes vouchers that cannot move, and logs them, unless that was done lately.
    fn report(&self, wanted: &Move, vouchers: i64) {
        let &Move { from, to, product_id, denomination, .. } = wanted;
        let (now, mut stuck) = (Instant::now(), self.stuck.lock().unwrap_or_else(PoisonError::into_inner));
        stuck.retain(|_, known| known.reported.elapsed() < REPORTED_EVERY);
        if vouchers == 0 {
            return; // orders have got them meanwhile
        }
        let known = stuck.entry((from, product_id, denomination));
        if matches!(known, Entry::Vacant(_)) {
            tracing::warn!(
                from, to, %product_id, %denomination, vouchers,
                "vouchers cannot move to a shard with older orders: it has their card numbers or references, or their keys are missing"
            );
        }
        let known = known.or_insert(Stuck { vouchers, seen: now, reported: now });
        (known.vouchers, known.seen) = (vouchers, now);
    }
}
