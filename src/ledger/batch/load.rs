//! Loading of the rows that a batch lacks.

use std::sync::Arc;

use chrono::{DateTime, Utc};
use ledger_database::PgConnection;
use ledger_events::ShardId;
use ledger_events::beneficiary::Beneficiary;
use ledger_events::user::User;
use ledger_projections::state::State as _;
use sqlx::Row;

use super::Batch;
use crate::ledger::cache::{HeadState, IdempotencyRecord, UnflushedState, WriterCache};
use crate::ledger::context::StoredResponse;
use crate::ledger::erasure::{Erasable, Part, Subject};
use crate::ledger::keys::{self, Owner};
use crate::ledger::read_set::ReadSet;
use crate::ledger::stock;
use crate::ledger::texts::{self, VaultError, response_kind};
use crate::secrets::seal::Keyring;

/// Statements that lock the head, and only then read the clock, in one round trip. The shard is a setting of the session.
macro_rules! lock {
    () => {
        "SELECT FROM log_head WHERE shard_id = current_setting('ledger.shard')::smallint FOR UPDATE;
         SELECT position, epoch, greatest(now, recorded_at) AS recorded_at, now,
            (SELECT event_id FROM events e WHERE e.shard_id = h.shard_id AND e.position = h.position) AS last_event
         FROM log_head h CROSS JOIN (SELECT clock_timestamp()::timestamptz(3) AS now OFFSET 0) AS clock
         WHERE shard_id = current_setting('ledger.shard')::smallint"
    };
}

/// Statement that waits until no other transaction reads the stock of all shards and writes what follows, because a head guards
/// only the stock of its own shard. It comes before the head: whoever has a head never waits for it. The key is "stock" in ASCII.
macro_rules! lock_all_stock {
    () => {
        "SELECT pg_advisory_xact_lock(495874696043);"
    };
}

impl Batch {
    /// Begins a transaction, locks the head, and loads the rows that the commands need and the cache lacks.
    pub async fn load(
        conn: &mut PgConnection,
        shard: ShardId,
        keyring: Arc<Keyring>,
        cache: WriterCache,
        reads: ReadSet<'_>,
    ) -> Result<Batch, sqlx::Error> {
        let begin = match reads.need_all_stock() {
            true => concat!("BEGIN;", lock_all_stock!(), lock!()),
            false => concat!("BEGIN;", lock!()),
        };
        let (head, now) = lock_head(conn, begin).await?;
        let mut batch = Batch::new(shard, keyring, cache.still_exact_at(head), UnflushedState::default(), now);
        batch.fetch(conn, reads).await?;
        Ok(batch)
    }

    /// Locks the head in the caller's transaction, for a batch beside that of another shard. The caller locks heads in the
    /// order of their numbers, as everybody does, and fetches rows only then: whoever replaces tables locks all heads first.
    pub async fn lock_beside(
        conn: &mut PgConnection,
        shard: ShardId,
        patience: &str,
        keyring: Arc<Keyring>,
    ) -> Result<Batch, sqlx::Error> {
        let of_shard = sqlx::query("SELECT set_config('ledger.shard', $1, true), set_config('lock_timeout', $2, true)");
        of_shard.bind(shard.to_string()).bind(patience).execute(&mut *conn).await?;
        let (head, now) = lock_head(conn, lock!()).await?;
        Ok(Batch::new(shard, keyring, WriterCache::default().still_exact_at(head), UnflushedState::default(), now))
    }

    /// Loads the rows that the commands ask for and the batch lacks. Rows that the batch has changed stay as they are.
    pub async fn fetch(&mut self, conn: &mut PgConnection, mut reads: ReadSet<'_>) -> Result<(), sqlx::Error> {
        self.ids.refill(conn, self.shard, &reads.new_ids).await?;
        self.streams.refill(conn, self.shard, &reads.streams).await?;
        reads.keys.retain(|key| self.response(key).is_none());
        if !reads.keys.is_empty() {
            self.load_responses(conn, &reads.keys).await?;
        }
        let follow_ups = self.streams.fetch(conn, self.shard, &mut reads.streams).await?;
        reads.texts.extend(follow_ups.texts);
        reads.data_keys.extend(follow_ups.data_keys);
        reads.data_keys.retain(|owner| !self.data_keys.contains_key(owner));
        if !reads.data_keys.is_empty() {
            let owners: Vec<Owner> = reads.data_keys.iter().copied().collect();
            let loaded = keys::load(&mut *conn, &self.keyring, self.shard, &owners).await;
            self.data_keys.extend(loaded.map_err(VaultError::into_database)?);
        }
        if !reads.texts.is_empty() {
            let texts = texts::sealed(&mut *conn, &self.keyring, self.shard, &reads.texts).await;
            let texts = texts.map_err(VaultError::into_database)?;
            self.texts.extend(texts.into_iter().map(|text| ((text.kind, text.id), text)));
        }
        if !reads.uploads.is_empty() {
            self.stock.known = stock::known(conn, &self.keyring, &reads.uploads).await?;
        }
        if !reads.named_vouchers.is_empty() {
            self.stock.named = stock::named(conn, self.shard, &reads.named_vouchers).await?;
        }
        for (product, references) in &reads.transfers {
            self.stock.duplicates.extend(stock::duplicates(conn, self.shard, *product, references).await?);
        }
        if !reads.fulfilled.is_empty() {
            self.load_stock(conn, &reads.fulfilled).await?;
        }
        if let Some((subject, part)) = reads.erased {
            self.load_erasable(conn, subject, part).await?;
        }
        Ok(())
    }

    async fn load_responses(&mut self, conn: &mut PgConnection, keys: &[[u8; 32]]) -> Result<(), sqlx::Error> {
        let stored: Vec<ResponseRow> = sqlx::query_as(
            "SELECT k.key_hash, k.fingerprint, k.status, k.body, k.is_sealed, k.created_at <= $3::timestamptz - interval '24 hours',
                k.key_id, d.sealed
             FROM unnest($2::bytea[]) AS wanted (key_hash) JOIN idempotency_keys k ON k.shard_id = $1 AND k.key_hash = wanted.key_hash
             LEFT JOIN vault.data_keys d ON d.shard_id = $1 AND d.id = k.key_id",
        )
        .bind(self.shard)
        .bind(keys.iter().map(|k| &k[..]).collect::<Vec<_>>())
        .bind(self.head.recorded_at)
        .fetch_all(conn)
        .await?;
        for (key_hash, fingerprint, status, body, is_sealed, is_expired, key_id, key) in stored {
            let damaged = |what: &'static str| sqlx::Error::Decode(what.into());
            let key_hash: [u8; 32] = key_hash.try_into().map_err(|_| damaged("an idempotency key's hash is not 32 bytes"))?;
            if is_expired {
                self.expired_keys.push(key_hash);
                continue;
            }
            let fingerprint: [u8; 32] = fingerprint.try_into().map_err(|_| damaged("a fingerprint is not 32 bytes"))?;
            let key = keys::beside(&self.keyring, key_id, key.as_deref()).map_err(VaultError::into_database)?.map(Arc::new);
            let body = if is_sealed {
                let opened = self.keyring.open_under(key.as_deref(), &response_kind(&key_hash), 0, &body);
                opened.map_err(|e| sqlx::Error::Decode(Box::new(e)))?.to_vec()
            } else {
                body
            };
            let body = String::from_utf8(body).map_err(|_| damaged("a stored response is not text"))?;
            let response = StoredResponse { status: u16::try_from(status).unwrap_or(500), body, is_secret: is_sealed };
            self.responses.insert(key_hash, IdempotencyRecord { fingerprint, response, key, about: None });
        }
        Ok(())
    }

    async fn load_erasable(&mut self, conn: &mut PgConnection, subject: Subject, part: &Part) -> Result<(), sqlx::Error> {
        let erasable = Erasable::load(&mut *conn, &self.keyring, self.shard, subject, part).await;
        let erasable = erasable.map_err(VaultError::into_database)?;
        self.streams.users.keep(User::load(&mut *conn, self.shard, &erasable.users).await?);
        self.streams.beneficiaries.keep(Beneficiary::load(&mut *conn, self.shard, &erasable.beneficiaries).await?);
        self.erasable = Some(erasable);
        Ok(())
    }
}

/// `key_hash, fingerprint, status, body, is_sealed`, whether the key has expired, and its data key.
type ResponseRow = (Vec<u8>, Vec<u8>, i16, Vec<u8>, bool, bool, Option<i64>, Option<Vec<u8>>);

/// Runs statements that lock the head. Returns the head, and the database's time.
async fn lock_head(conn: &mut PgConnection, statements: &'static str) -> Result<(HeadState, DateTime<Utc>), sqlx::Error> {
    let rows = sqlx::raw_sql(statements).fetch_all(conn).await?;
    let row = rows.last().ok_or(sqlx::Error::RowNotFound)?;
    let head = HeadState {
        position: row.try_get("position")?,
        last_event: row.try_get("last_event")?,
        epoch: row.try_get("epoch")?,
        recorded_at: row.try_get("recorded_at")?,
    };
    Ok((head, row.try_get("now")?))
}
