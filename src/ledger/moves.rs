//! Moves of free vouchers from the stock of a shard to that of another one, where orders wait for them.
//!
//! One transaction holds both heads. It moves the rows with the keys that seal them, and appends an event to each log. So a
//! voucher is in one shard at any time, and both logs tell the same. The heads advance, so both writers load their stock anew.
//!
//! If the answer to COMMIT is lost, nothing is left to do: whoever looks next finds the vouchers in one of the two shards.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Instant;

use ledger_database::PgConnection;
use ledger_events::catalogue::{MovedLot, Product, VouchersMovedIn, VouchersMovedOut};
use ledger_events::{Actor, Money, Position, ProductId, ShardId};
use ledger_projections::{ProjectionError, stock};
use rust_decimal::Decimal;

use crate::ledger::batch::Batch;
use crate::ledger::clock::expiry_day;
use crate::ledger::context::{CommandContext, Origin};
use crate::ledger::read_set::ReadSet;
use crate::ledger::reader::{self, ReadError};
use crate::secrets::seal::Keyring;

/// Maximum number of vouchers in one move, so that its transaction does not delay others.
pub const MAX_MOVED: i64 = 1_000;
/// Number of positions by which the table of costs may be behind the log. The mover reads the events between them.
const MAX_BEHIND: Position = 100_000;

/// Longest wait for the head that is locked first.
const LOWER_HEAD: &str = "4s";
/// Longest wait for the other head. The orders of the first shard wait for it, too.
const UPPER_HEAD: &str = "200ms";

/// A number of vouchers that a shard is to give to another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Move {
    pub from: ShardId,
    pub to: ShardId,
    pub product_id: ProductId,
    pub denomination: Money,
    pub vouchers: i64,
}

/// Reason why vouchers could not be moved. Nothing happened, unless the answer to COMMIT is lost.
#[derive(Debug, thiserror::Error)]
pub enum MoveError {
    #[error(transparent)]
    Database(#[from] sqlx::Error),
    #[error(transparent)]
    Projection(#[from] ProjectionError),
    #[error(transparent)]
    Read(#[from] ReadError),
}

/// Vouchers that a move is to take, with their costs. Until the heads are locked, orders and operators may take some of them
/// away.
#[derive(Debug)]
pub struct Picked {
    wanted: Move,
    ids: Vec<i64>,
    costs: HashMap<String, Decimal>,
}

impl Picked {
    pub fn wanted(&self) -> &Move {
        &self.wanted
    }

    pub fn is_empty(&self) -> bool {
        self.ids.is_empty()
    }
}

/// Result of a move.
#[derive(Clone, Copy, Debug)]
pub struct Moved {
    pub vouchers: usize,
    /// Times at which the two heads were locked, by this node's clock.
    pub locked_at: [Instant; 2],
}

/// Picks the oldest free vouchers that the other shard can take. Returns none, and says so in the log, while the costs of
/// vouchers are too far behind. The caller has no transaction open, because it would keep locks on tables while it waits for
/// heads.
///
/// # Errors
/// Any error of the database.
pub async fn pick(conn: &mut PgConnection, wanted: &Move) -> Result<Option<Picked>, MoveError> {
    let (ids, references): (Vec<i64>, Vec<String>) = movable(conn, wanted).await?.into_iter().unzip();
    let costs = costs(conn, wanted.from, &references.iter().collect::<Vec<_>>()).await?;
    Ok(costs.map(|costs| Picked { wanted: *wanted, ids, costs }))
}

/// Moves those of the picked vouchers that are still free, in the caller's transaction, which has locked nothing yet.
///
/// # Errors
/// Any error of the database. The caller then rolls back.
pub async fn move_vouchers(conn: &mut PgConnection, keyring: &Arc<Keyring>, picked: &Picked) -> Result<Moved, MoveError> {
    let Move { from, to, product_id, denomination, .. } = picked.wanted;
    // Everybody locks heads in the order of their numbers, so nobody waits in a circle.
    let lower = Batch::lock_beside(conn, from.min(to), LOWER_HEAD, keyring.clone()).await?;
    let upper = Batch::lock_beside(conn, from.max(to), UPPER_HEAD, keyring.clone()).await?;
    let locked_at = [lower.locked_at, upper.locked_at];
    let (mut source, mut target) = if from < to { (lower, upper) } else { (upper, lower) };
    for batch in [&mut source, &mut target] {
        let mut reads = ReadSet { shard: batch.shard, ..ReadSet::default() };
        reads.streams.products.id(product_id);
        batch.fetch(conn, reads).await?;
    }
    let vouchers = transfer(conn, picked).await?;
    let moved = Moved { vouchers: vouchers.len(), locked_at };
    if vouchers.is_empty() {
        return Ok(moved); // orders have got them meanwhile
    }
    let origin = Origin { actor: Actor::Fulfilment, request_id: "moves".to_owned() };
    let context = context(&origin);
    let (left_at, arrived_at) = (source.end() + 1, target.end() + 1);
    let lots = lots(&vouchers, &picked.costs)?;
    let left = VouchersMovedOut { to_shard: to, position: arrived_at, vouchers };
    source.append::<Product>(product_id, left, &context);
    let arrived = VouchersMovedIn { from_shard: from, position: left_at, denomination, lots };
    target.append::<Product>(product_id, arrived, &context);
    source.write(conn).await?;
    target.write(conn).await?;
    Ok(moved)
}

fn context(origin: &Origin) -> CommandContext<'_> {
    CommandContext { origin, idempotency: None, account_id: None, correlation_id: None, causation_id: None, traceparent: None }
}

/// Finds the oldest free vouchers, with their references. Leaves out those whose card number or reference the other shard has,
/// and those whose key is missing.
async fn movable(conn: &mut PgConnection, wanted: &Move) -> Result<Vec<(i64, String)>, sqlx::Error> {
    sqlx::query_as(concat!(
        "SELECT v.id, v.reference FROM vault.vouchers v
         WHERE v.shard_id = $1 AND v.product_id = $3 AND v.denomination = $4 AND v.order_id IS NULL AND v.expired_at IS NULL
           AND (v.expires_on IS NULL OR v.expires_on >= ",
        expiry_day!(),
        ") AND NOT EXISTS (SELECT FROM vault.vouchers o
            WHERE o.shard_id = $2 AND o.product_id = v.product_id AND o.fingerprint = v.fingerprint)
           AND NOT EXISTS (SELECT FROM vault.vouchers o WHERE o.shard_id = $2 AND o.reference = v.reference)
           AND (v.key_id IS NULL OR EXISTS (SELECT FROM vault.data_keys k WHERE k.shard_id = $1 AND k.id = v.key_id))
         ORDER BY v.id LIMIT $5"
    ))
    .bind(wanted.from)
    .bind(wanted.to)
    .bind(wanted.product_id)
    .bind(wanted.denomination.decimal())
    .bind(wanted.vouchers.min(MAX_MOVED))
    .fetch_all(conn)
    .await
}

/// Returns the known costs of vouchers in the stock of a shard. The table follows the log, so the log has the rest. Returns none
/// while the rest is too long to be read.
async fn costs(
    conn: &mut PgConnection,
    shard: ShardId,
    references: &[&String],
) -> Result<Option<HashMap<String, Decimal>>, ReadError> {
    if references.is_empty() {
        return Ok(Some(HashMap::new()));
    }
    let projected = stock::checkpoint(&mut *conn, shard).await?;
    let behind = reader::head(&mut *conn, shard).await? - projected;
    if behind > MAX_BEHIND {
        tracing::debug!(shard, behind, "the costs of vouchers are too far behind the log; moving none");
        return Ok(None);
    }
    let ahead = reader::arrivals_after(&mut *conn, shard, projected).await?;
    // The table is read last: what it gains meanwhile is known twice, and not missed.
    let mut costs = stock::costs(conn, shard, references).await?;
    for (arrived, cost) in ahead.iter().flat_map(stock::priced) {
        costs.extend(arrived.iter().map(|reference| (reference.clone(), cost)));
    }
    Ok(Some(costs))
}

/// Groups vouchers by their cost.
fn lots(vouchers: &[String], costs: &HashMap<String, Decimal>) -> Result<Vec<MovedLot>, sqlx::Error> {
    let mut by_cost: BTreeMap<Option<Money>, Vec<String>> = BTreeMap::new();
    for voucher in vouchers {
        let cost = costs.get(voucher).map(|cost| Money::try_from(*cost)).transpose();
        let cost = cost.map_err(|error| sqlx::Error::Decode(Box::new(error)))?;
        by_cost.entry(cost).or_default().push(voucher.clone());
    }
    Ok(by_cost.into_iter().map(|(cost, vouchers)| MovedLot { cost, vouchers }).collect())
}

/// Moves the rows of those vouchers that are still free and of the product, with the keys of their codes. Returns their
/// references, the oldest first.
///
/// The rows are deleted and inserted: the shard of a row that is distributed by it cannot be updated.
async fn transfer(conn: &mut PgConnection, picked: &Picked) -> Result<Vec<String>, sqlx::Error> {
    let Move { from, to, product_id, denomination, .. } = picked.wanted;
    let mut moved: Vec<(i64, String, Option<i64>)> = sqlx::query_as(
        "WITH moved AS (
            DELETE FROM vault.vouchers WHERE shard_id = $1 AND id = ANY($3) AND product_id = $4 AND denomination = $5
                AND order_id IS NULL AND expired_at IS NULL
            RETURNING id, product_id, denomination, reference, fingerprint, sealed, expires_on, key_id)
         INSERT INTO vault.vouchers (shard_id, id, product_id, denomination, reference, fingerprint, sealed, expires_on, key_id)
         SELECT $2::smallint, id, product_id, denomination, reference, fingerprint, sealed, expires_on, key_id FROM moved
         RETURNING id, reference, key_id",
    )
    .bind(from)
    .bind(to)
    .bind(&picked.ids)
    .bind(product_id)
    .bind(denomination.decimal())
    .fetch_all(&mut *conn)
    .await?;
    moved.sort_unstable();
    let keys: Vec<i64> = moved.iter().filter_map(|(.., key)| *key).collect();
    let keys_moved = sqlx::query(
        "WITH moved AS (
            DELETE FROM vault.data_keys WHERE shard_id = $1 AND id = ANY($3) RETURNING id, subject, subject_id, sealed)
         INSERT INTO vault.data_keys (shard_id, id, subject, subject_id, sealed)
         SELECT $2::smallint, id, subject, subject_id, sealed FROM moved",
    )
    .bind(from)
    .bind(to)
    .bind(&keys)
    .execute(conn)
    .await?;
    if usize::try_from(keys_moved.rows_affected()).is_ok_and(|rows| rows != keys.len()) {
        return Err(sqlx::Error::Protocol("a voucher to move has no key".into()));
    }
    Ok(moved.into_iter().map(|(_, reference, _)| reference).collect())
}
