//! Rotation of the master key while the service runs: makes the key file's first key current, and reseals every value.
//!
//! Each step is a transaction of its own. A run may be interrupted at any point: finished steps stay, and the next run
//! continues with the rest. A step skips locked rows instead of waiting for them, so it cannot deadlock with a writer; a
//! later pass takes those rows.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use ledger_database::PgPool;
use ledger_events::ShardId;

use crate::ledger::stock;
use crate::ledger::texts::RESPONSE_KIND;
use crate::reconciliation::statements;
use crate::secrets::master_keys::{self, KeyError, RegisteredKey};
use crate::secrets::seal::{DATA_KEY, KeyId, Keyring, SealError};
use crate::secrets::{CONSOLE_ENROLMENT, INVITATION_EMAIL, MAIL, SESSION_CLIENT, SIGNING_SECRET, TWO_FACTOR_SECRET};

/// Values per step.
const STEP: i64 = 500;
/// Time after which no node seals under the previous key any more. A node polls the current key every 2 s, and a poll takes
/// at most 5 s. The database refuses a batch that began more than 15 s ago.
const SETTLED: Duration = Duration::from_secs(22);
/// Pause before another pass, if locked rows were left over.
const PASS_PAUSE: Duration = Duration::from_millis(200);

#[derive(Debug, thiserror::Error)]
pub enum RotationError {
    #[error(transparent)]
    Database(#[from] sqlx::Error),
    #[error(transparent)]
    Key(#[from] KeyError),
    #[error("{values} values are sealed under master key {key}, which is not in --master-key-file: add it on a line of its own")]
    Missing { key: KeyId, values: i64 },
    #[error("{table} {part} {id} of shard {shard} cannot be opened ({error}); run `verify`")]
    Unreadable { table: &'static str, shard: ShardId, part: String, id: i64, error: SealError },
}

/// A column of values sealed under the master key. Shard, `part` and `id` identify a row.
struct Column {
    table: &'static str,
    /// Query that counts the sealed values by key id.
    count: &'static str,
    /// Query for the next rows after ($2, $3, $4) that are not sealed under $1, locked: (shard, part, id, sealed).
    page: &'static str,
    /// Statement that sets the rows ($1, $2, $3) to the values $4.
    write: &'static str,
    /// Kind and id that a row's value is bound to, from its `part` and `id`.
    bound_to: fn(&str, i64) -> (String, i64),
}

/// Column `sealed` of a table whose rows one id identifies.
macro_rules! sealed_by_id {
    ($table:literal, $id:literal, $kind:expr) => {
        Column {
            table: $table,
            count: concat!("SELECT substring(sealed FROM 1 FOR 4), count(*) FROM ", $table, " GROUP BY 1"),
            page: concat!(
                "SELECT 0::smallint, '', ", $id, ", sealed FROM ", $table, " WHERE (0::smallint, ", $id, ") > ($2, $4)
                   AND $3::text IS NOT NULL AND substring(sealed FROM 1 FOR 4) <> $1 ORDER BY ", $id, " LIMIT $5 FOR UPDATE SKIP LOCKED"
            ),
            write: concat!(
                "UPDATE ", $table, " t SET sealed = n.sealed
                 FROM unnest($1::smallint[], $2::text[], $3::bigint[], $4::bytea[]) AS n (shard_id, part, id, sealed) WHERE t.", $id, " = n.id"
            ),
            bound_to: |_, id| ($kind.to_owned(), id),
        }
    };
}

const COLUMNS: [Column; 11] = [
    Column {
        table: "vault.data_keys",
        count: "SELECT substring(sealed FROM 1 FOR 4), count(*) FROM vault.data_keys GROUP BY 1",
        page: "SELECT shard_id, '', id, sealed FROM vault.data_keys
            WHERE (shard_id, id) > ($2, $4) AND $3::text IS NOT NULL AND substring(sealed FROM 1 FOR 4) <> $1
            ORDER BY shard_id, id LIMIT $5 FOR UPDATE SKIP LOCKED",
        write: "UPDATE vault.data_keys t SET sealed = n.sealed
            FROM unnest($1::smallint[], $2::text[], $3::bigint[], $4::bytea[]) AS n (shard_id, part, id, sealed)
            WHERE t.shard_id = n.shard_id AND t.id = n.id",
        bound_to: |_, id| (DATA_KEY.to_owned(), id),
    },
    Column {
        table: "vault.texts",
        count: "SELECT substring(sealed FROM 1 FOR 4), count(*) FROM vault.texts WHERE key_id IS NULL GROUP BY 1",
        page: "SELECT shard_id, kind, id, sealed FROM vault.texts
            WHERE (shard_id, kind, id) > ($2, $3, $4) AND key_id IS NULL AND substring(sealed FROM 1 FOR 4) <> $1
            ORDER BY shard_id, kind, id LIMIT $5 FOR UPDATE SKIP LOCKED",
        write: "UPDATE vault.texts t SET sealed = n.sealed
            FROM unnest($1::smallint[], $2::text[], $3::bigint[], $4::bytea[]) AS n (shard_id, part, id, sealed)
            WHERE t.shard_id = n.shard_id AND t.kind = n.part AND t.id = n.id",
        bound_to: |kind, id| (kind.to_owned(), id),
    },
    Column {
        table: "vault.vouchers",
        count: "SELECT substring(sealed FROM 1 FOR 4), count(*) FROM vault.vouchers WHERE key_id IS NULL AND sealed IS NOT NULL GROUP BY 1",
        page: "SELECT shard_id, '', id, sealed FROM vault.vouchers
            WHERE (shard_id, id) > ($2, $4) AND $3::text IS NOT NULL AND key_id IS NULL AND sealed IS NOT NULL AND substring(sealed FROM 1 FOR 4) <> $1
            ORDER BY shard_id, id LIMIT $5 FOR UPDATE SKIP LOCKED",
        write: "UPDATE vault.vouchers t SET sealed = n.sealed
            FROM unnest($1::smallint[], $2::text[], $3::bigint[], $4::bytea[]) AS n (shard_id, part, id, sealed)
            WHERE t.shard_id = n.shard_id AND t.id = n.id",
        bound_to: |_, id| (stock::KIND.to_owned(), id),
    },
    Column {
        table: "vault.credentials",
        count: "SELECT substring(signing_secret FROM 1 FOR 4), count(*) FROM vault.credentials WHERE signing_secret IS NOT NULL GROUP BY 1",
        page: "SELECT 0::smallint, '', credential_id, signing_secret FROM vault.credentials
            WHERE (0::smallint, credential_id) > ($2, $4) AND $3::text IS NOT NULL AND substring(signing_secret FROM 1 FOR 4) <> $1
            ORDER BY credential_id LIMIT $5 FOR UPDATE SKIP LOCKED",
        write: "UPDATE vault.credentials t SET signing_secret = n.sealed
            FROM unnest($1::smallint[], $2::text[], $3::bigint[], $4::bytea[]) AS n (shard_id, part, id, sealed)
            WHERE t.credential_id = n.id",
        bound_to: |_, id| (SIGNING_SECRET.to_owned(), id),
    },
    Column {
        table: "vault.console_sessions",
        count: "SELECT substring(enrolment FROM 1 FOR 4), count(*) FROM vault.console_sessions WHERE enrolment IS NOT NULL GROUP BY 1",
        page: "SELECT 0::smallint, '', id, enrolment FROM vault.console_sessions
            WHERE (0::smallint, id) > ($2, $4) AND $3::text IS NOT NULL AND enrolment IS NOT NULL AND substring(enrolment FROM 1 FOR 4) <> $1
            ORDER BY id LIMIT $5 FOR UPDATE SKIP LOCKED",
        write: "UPDATE vault.console_sessions t SET enrolment = n.sealed
            FROM unnest($1::smallint[], $2::text[], $3::bigint[], $4::bytea[]) AS n (shard_id, part, id, sealed)
            WHERE t.id = n.id",
        bound_to: |_, id| (CONSOLE_ENROLMENT.to_owned(), id),
    },
    Column {
        table: "vault.statement_lines",
        count: "SELECT substring(sealed FROM 1 FOR 4), count(*) FROM vault.statement_lines GROUP BY 1",
        page: "SELECT shard_id, fingerprint, line::bigint, sealed FROM vault.statement_lines
            WHERE (shard_id, fingerprint, line) > ($2, $3, $4::int) AND substring(sealed FROM 1 FOR 4) <> $1
            ORDER BY shard_id, fingerprint, line LIMIT $5 FOR UPDATE SKIP LOCKED",
        write: "UPDATE vault.statement_lines t SET sealed = n.sealed
            FROM unnest($1::smallint[], $2::text[], $3::bigint[], $4::bytea[]) AS n (shard_id, part, id, sealed)
            WHERE t.shard_id = n.shard_id AND t.fingerprint = n.part AND t.line = n.id",
        bound_to: |fingerprint, line| (statements::kind(fingerprint), line),
    },
    Column {
        table: "idempotency_keys",
        count: "SELECT substring(body FROM 1 FOR 4), count(*) FROM idempotency_keys WHERE is_sealed AND key_id IS NULL GROUP BY 1",
        page: "SELECT shard_id, encode(key_hash, 'hex'), 0::bigint, body FROM idempotency_keys
            WHERE (shard_id, key_hash) > ($2, decode($3, 'hex')) AND $4::bigint IS NOT NULL AND is_sealed AND key_id IS NULL
              AND substring(body FROM 1 FOR 4) <> $1
            ORDER BY shard_id, key_hash LIMIT $5 FOR UPDATE SKIP LOCKED",
        write: "UPDATE idempotency_keys t SET body = n.sealed
            FROM unnest($1::smallint[], $2::text[], $3::bigint[], $4::bytea[]) AS n (shard_id, part, id, sealed)
            WHERE t.shard_id = n.shard_id AND t.key_hash = decode(n.part, 'hex')",
        bound_to: |key_hash, _| (format!("{RESPONSE_KIND}.{key_hash}"), 0),
    },
    sealed_by_id!("vault.two_factor", "user_id", TWO_FACTOR_SECRET),
    sealed_by_id!("vault.session_details", "session_id", SESSION_CLIENT),
    sealed_by_id!("vault.invitations", "id", INVITATION_EMAIL),
    sealed_by_id!("vault.mails", "id", MAIL),
];

/// Number of values sealed under each key, by table.
pub type Counts = BTreeMap<KeyId, BTreeMap<&'static str, i64>>;

/// Progress of a rotation in one table: resealed values and their total.
#[derive(Clone, Copy, Debug)]
pub struct RotationProgress {
    pub table: &'static str,
    pub done: i64,
    pub total: i64,
}

/// Result of a rotation.
#[derive(Debug)]
pub struct Rotated {
    pub current: KeyId,
    pub resealed: i64,
    /// Keys under which nothing is sealed any more. They may be removed from the key files.
    pub retired: Vec<KeyId>,
}

/// Counts the values sealed under each key.
pub async fn count(pool: &PgPool) -> Result<Counts, RotationError> {
    let mut counts = Counts::new();
    for column in &COLUMNS {
        let found: Vec<(Vec<u8>, i64)> = sqlx::query_as(column.count).fetch_all(pool).await?;
        for (id, count) in found {
            let id = KeyId::try_from(&id[..]).map_err(KeyError::from)?;
            counts.entry(id).or_default().insert(column.table, count);
        }
    }
    Ok(counts)
}

/// Returns the keys known to the database, and the number of values sealed under each.
pub async fn status(pool: &PgPool) -> Result<(Vec<RegisteredKey>, Counts), RotationError> {
    Ok((master_keys::load(pool).await?, count(pool).await?))
}

/// Makes the key file's first key current and reseals every value under it. Calls `told` after each committed step.
pub async fn rotate(pool: &PgPool, keyring: &Keyring, mut told: impl FnMut(RotationProgress)) -> Result<Rotated, RotationError> {
    master_keys::establish(pool, keyring).await?;
    let to = keyring.first().ok_or(KeyError::Seal(SealError::MasterKeys))?;
    let counts = count(pool).await?;
    for (key, tables) in &counts {
        if !keyring.holds(*key) {
            return Err(RotationError::Missing { key: *key, values: tables.values().sum() });
        }
    }
    master_keys::make_current(pool, keyring, to).await?;
    let mut totals: HashMap<&'static str, RotationProgress> = HashMap::new();
    for (_, tables) in counts.iter().filter(|(key, _)| **key != to) {
        for (table, count) in tables {
            totals.entry(table).or_insert(RotationProgress { table, done: 0, total: 0 }).total += count;
        }
    }
    let mut resealed = 0;
    loop {
        for column in &COLUMNS {
            let mut step = totals.remove(column.table).unwrap_or(RotationProgress { table: column.table, done: 0, total: 0 });
            let mut after = (ShardId::MIN, String::new(), 0); // ids are positive
            while let Some((last, done)) = reseal(pool, keyring, column, to, &after).await? {
                after = last;
                step.done += done;
                step.total = step.total.max(step.done);
                resealed += done;
                told(step);
            }
            totals.insert(column.table, step);
        }
        let is_left = count(pool).await?.keys().any(|key| *key != to);
        match master_keys::until_settled(pool, to, SETTLED).await? {
            None if !is_left => break,
            // The next pass takes values that were locked, or that nodes have sealed under the old key in the meantime.
            wait => tokio::time::sleep(wait.unwrap_or(PASS_PAUSE)).await,
        }
    }
    let retired = master_keys::retire_others(pool, to).await?;
    Ok(Rotated { current: to, resealed, retired })
}

type Place = (ShardId, String, i64);

/// Reseals the rows of one step. Returns the last row and the number of rows; `None` when no row is left.
async fn reseal(
    pool: &PgPool,
    keyring: &Keyring,
    column: &Column,
    to: KeyId,
    after: &Place,
) -> Result<Option<(Place, i64)>, RotationError> {
    let mut tx = pool.begin().await?;
    let rows: Vec<(ShardId, String, i64, Vec<u8>)> = sqlx::query_as(column.page)
        .bind(&to.0[..])
        .bind(after.0)
        .bind(&after.1)
        .bind(after.2)
        .bind(STEP)
        .fetch_all(&mut *tx)
        .await?;
    let Some((shard, part, id, _)) = rows.last() else { return Ok(None) };
    let last = (*shard, part.clone(), *id);
    let mut sealed = Vec::with_capacity(rows.len());
    for (shard, part, id, value) in &rows {
        let (kind, bound) = (column.bound_to)(part, *id);
        sealed.push(keyring.reseal(to, &kind, bound, value).map_err(|error| RotationError::Unreadable {
            table: column.table,
            shard: *shard,
            part: part.clone(),
            id: *id,
            error,
        })?);
    }
    sqlx::query(column.write)
        .bind(rows.iter().map(|row| row.0).collect::<Vec<_>>())
        .bind(rows.iter().map(|row| row.1.as_str()).collect::<Vec<_>>())
        .bind(rows.iter().map(|row| row.2).collect::<Vec<_>>())
        .bind(sealed)
        .execute(&mut *tx)
        .await?;
    tx.commit().await?;
    Ok(Some((last, i64::try_from(rows.len()).unwrap_or(i64::MAX))))
}
