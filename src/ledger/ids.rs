//! Ids that the writer draws from sequences and assigns.

use std::collections::VecDeque;

use ledger_database::PgConnection;
use ledger_events::{DecisionId, Id, ShardId, TransactionId, id_base};

/// Ids are drawn in blocks of this size where every order needs one.
pub const BLOCK: i64 = 1_000;

/// A batch needs more ids than its commands asked for.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("the batch ran out of {0} ids")]
pub struct NoIdLeft(pub &'static str);

/// Ids that were drawn from a sequence and may be assigned. An id that is left when the node ends is never used.
#[derive(Debug)]
pub struct IdPool<T> {
    name: &'static str,
    sequence: Option<&'static str>,
    block: i64,
    left: VecDeque<T>,
}

impl<T: Id> IdPool<T> {
    /// Creates an empty pool. It draws at least `block` ids at a time.
    pub fn new(name: &'static str, sequence: Option<&'static str>, block: i64) -> IdPool<T> {
        IdPool { name, sequence, block, left: VecDeque::new() }
    }

    /// Draws the ids that a batch lacks: numbers of the sequence, each plus `base`.
    pub async fn refill(&mut self, conn: &mut PgConnection, wanted: i64, base: i64) -> Result<(), sqlx::Error> {
        let missing = wanted - i64::try_from(self.left.len()).unwrap_or(i64::MAX);
        if let Some(sequence) = self.sequence.filter(|_| missing > 0) {
            let drawn: Vec<i64> = sqlx::query_scalar("SELECT $3::bigint + nextval($1::regclass) FROM generate_series(1, $2)")
                .bind(sequence)
                .bind(missing.max(self.block))
                .bind(base)
                .fetch_all(conn)
                .await?;
            self.left.extend(drawn.into_iter().map(T::new));
        }
        Ok(())
    }

    /// Assigns the next id.
    pub fn next(&mut self) -> Result<T, NoIdLeft> {
        self.left.pop_front().ok_or(NoIdLeft(self.name))
    }

    pub fn clear(&mut self) {
        self.left.clear();
    }

    #[cfg(test)]
    pub fn put_back(&mut self, id: T) {
        self.left.push_front(id);
    }

    #[cfg(test)]
    pub fn len(&self) -> usize {
        self.left.len()
    }
}

/// Number of ids that a batch needs, for ids that no stream has.
#[derive(Clone, Copy, Debug, Default)]
pub struct NewIds {
    pub transactions: i64,
    pub deliveries: i64,
    pub vouchers: i64,
    pub decisions: i64,
    pub data_keys: i64,
}

/// Ids that no stream has.
#[derive(Debug)]
pub struct Ids {
    pub transactions: IdPool<TransactionId>,
    pub deliveries: IdPool<i64>,
    pub vouchers: IdPool<i64>,
    pub decisions: IdPool<DecisionId>,
    pub data_keys: IdPool<i64>,
}

impl Default for Ids {
    fn default() -> Ids {
        Ids {
            transactions: IdPool::new("transaction", Some("transaction_ids"), BLOCK),
            deliveries: IdPool::new("delivery", Some("delivery_ids"), 0),
            vouchers: IdPool::new("voucher", Some("voucher_ids"), 0),
            decisions: IdPool::new("decision", Some("match_decision_ids"), 0),
            data_keys: IdPool::new("data key", Some("vault.data_key_ids"), BLOCK),
        }
    }
}

impl Ids {
    /// Draws the ids that a batch of a shard lacks. Vouchers move between shards, and nobody looks a data key up by its id alone.
    pub async fn refill(&mut self, conn: &mut PgConnection, shard: ShardId, wanted: &NewIds) -> Result<(), sqlx::Error> {
        let base = id_base(shard);
        self.transactions.refill(conn, wanted.transactions, base).await?;
        self.deliveries.refill(conn, wanted.deliveries, base).await?;
        self.vouchers.refill(conn, wanted.vouchers, 0).await?;
        self.decisions.refill(conn, wanted.decisions, base).await?;
        self.data_keys.refill(conn, wanted.data_keys, 0).await
    }
}
