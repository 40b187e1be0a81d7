//! The master keys known to a database. Each has a check value that only a holder of the key can open.
//!
//! The database names the current key, so that all nodes switch together; the key file defines the keys that a node
//! holds. The check value contains the root keys, which survive a rotation. The first node generates them, and all nodes
//! share them.

use std::sync::Arc;
use std::time::Duration;

use chrono::{DateTime, Utc};
use ledger_database::FromRow;
use ledger_database::PgPool;
use sqlx::PgExecutor;
use tokio_util::sync::CancellationToken;

use super::seal::{KeyId, Keyring, SealError};
use crate::telemetry::Metrics;

/// Interval at which a node polls the current key.
pub const LOOK_EVERY: Duration = Duration::from_secs(2);
/// Timeout of one poll.
const DEADLINE: Duration = Duration::from_secs(5);

#[derive(Debug, thiserror::Error)]
pub enum KeyError {
    #[error(transparent)]
    Database(#[from] sqlx::Error),
    #[error(transparent)]
    Seal(#[from] SealError),
    #[error(
        "this ledger is sealed under master key {current}, but --master-key-file (LEDGER_MASTER_KEY_FILE) holds {}: give this node the key file of the other nodes",
        list(configured)
    )]
    Foreign { current: KeyId, configured: Vec<KeyId> },
    #[error("master key {0} cannot open its own check value: vault.master_keys was changed; run `verify`")]
    Changed(KeyId),
    #[error("vault.master_keys names no current key: it was changed; run `verify`")]
    NoneCurrent,
    #[error("the check value of master key {0} holds other root keys than before: vault.master_keys was replaced; run `verify`")]
    Replaced(KeyId),
}

fn list(ids: &[KeyId]) -> String {
    ids.iter().map(KeyId::to_string).collect::<Vec<_>>().join(", ")
}

/// Master key known to the database.
#[derive(Clone, Debug, FromRow)]
pub struct RegisteredKey {
    key_id: Vec<u8>,
    check_value: Vec<u8>,
    pub state: String,
    pub created_at: DateTime<Utc>,
}

impl RegisteredKey {
    pub fn id(&self) -> Result<KeyId, SealError> {
        KeyId::try_from(&self.key_id[..])
    }

    fn is_current(&self) -> bool {
        self.state == "current"
    }
}

/// Loads every key known to the database, oldest first.
pub async fn load(db: impl PgExecutor<'_>) -> Result<Vec<RegisteredKey>, sqlx::Error> {
    sqlx::query_as("SELECT key_id, check_value, state, created_at FROM vault.master_keys ORDER BY created_at, key_id")
        .fetch_all(db)
        .await
}

/// Ensures that this node holds the ledger's current key, and starts to use it. The first node creates the check value.
///
/// # Errors
/// [`KeyError::Foreign`] if the ledger's values are sealed under a key that is not in the node's key file.
pub async fn establish(pool: &PgPool, keyring: &Keyring) -> Result<(), KeyError> {
    let mut known = load(pool).await?;
    if known.is_empty() {
        found(pool, keyring).await?;
        known = load(pool).await?; // another node may have been faster
    }
    adopt(keyring, &known)
}

/// Registers the first key, unless another node has registered one in the meantime.
async fn found(pool: &PgPool, keyring: &Keyring) -> Result<(), KeyError> {
    let mut id = keyring.first().ok_or(SealError::MasterKeys)?;
    // Values that earlier releases sealed tell which key the ledger uses.
    let sealed: Vec<Vec<u8>> = sqlx::query_scalar(
        "(SELECT substring(sealed FROM 1 FOR 4) FROM vault.data_keys LIMIT 1)
         UNION (SELECT substring(sealed FROM 1 FOR 4) FROM vault.texts WHERE key_id IS NULL LIMIT 1)
         UNION (SELECT substring(signing_secret FROM 1 FOR 4) FROM vault.credentials WHERE signing_secret IS NOT NULL LIMIT 1)
         UNION (SELECT substring(sealed FROM 1 FOR 4) FROM vault.vouchers WHERE key_id IS NULL AND sealed IS NOT NULL LIMIT 1)
         UNION (SELECT substring(sealed FROM 1 FOR 4) FROM vault.statement_lines LIMIT 1)",
    )
    .fetch_all(pool)
    .await?;
    for current in sealed {
        let current = KeyId::try_from(&current[..])?;
        if !keyring.holds(current) {
            return Err(KeyError::Foreign { current, configured: keyring.ids().collect() });
        }
        id = current;
    }
    let check_value = keyring.seal_roots(id, &keyring.new_roots(id)?, false)?;
    // If two nodes with different keys race, the first one wins: there is only one current key.
    sqlx::query("INSERT INTO vault.master_keys (key_id, check_value, state) VALUES ($1, $2, 'current') ON CONFLICT DO NOTHING")
        .bind(&id.0[..])
        .bind(check_value)
        .execute(pool)
        .await?;
    Ok(())
}

/// Seals under the current one of these keys from now on; under none if that fails.
pub fn adopt(keyring: &Keyring, known: &[RegisteredKey]) -> Result<(), KeyError> {
    let adopted = check(keyring, known);
    keyring.seal_under(adopted.as_ref().ok().copied());
    adopted.map(|_| ())
}

fn check(keyring: &Keyring, known: &[RegisteredKey]) -> Result<KeyId, KeyError> {
    let current = known.iter().find(|known| known.is_current()).ok_or(KeyError::NoneCurrent)?;
    let id = current.id()?;
    let (roots, requires_macs) = keyring.open_roots(id, &current.check_value).map_err(|error| match error {
        SealError::UnknownKey if !keyring.holds(id) => KeyError::Foreign { current: id, configured: keyring.ids().collect() },
        _ => KeyError::Changed(id),
    })?;
    if !keyring.use_roots(roots) {
        return Err(KeyError::Replaced(id));
    }
    if requires_macs {
        keyring.require_macs();
    }
    Ok(id)
}

/// Makes a key of the key file the current one, on every node that holds it.
pub async fn make_current(pool: &PgPool, keyring: &Keyring, id: KeyId) -> Result<(), KeyError> {
    let mut tx = pool.begin().await?;
    let locked: Vec<RegisteredKey> =
        sqlx::query_as("SELECT key_id, check_value, state, created_at FROM vault.master_keys ORDER BY key_id FOR UPDATE")
            .fetch_all(&mut *tx)
            .await?;
    let before = check(keyring, &locked)?;
    if before != id {
        let current = locked.iter().find(|known| known.is_current()).ok_or(KeyError::NoneCurrent)?;
        let (roots, requires_macs) = keyring.open_roots(before, &current.check_value)?;
        sqlx::query("UPDATE vault.master_keys SET state = 'old' WHERE state = 'current'").execute(&mut *tx).await?;
        sqlx::query(
            "INSERT INTO vault.master_keys (key_id, check_value, state) VALUES ($1, $2, 'current')
             ON CONFLICT (key_id) DO UPDATE SET check_value = excluded.check_value, state = 'current', created_at = clock_timestamp()",
        )
        .bind(&id.0[..])
        .bind(keyring.seal_roots(id, &roots, requires_macs)?)
        .execute(&mut *tx)
        .await?;
        tx.commit().await?;
    }
    keyring.seal_under(Some(id));
    Ok(())
}

/// Records, for every node, that rows without a MAC no longer grant access.
pub async fn require_macs(pool: &PgPool, keyring: &Keyring) -> Result<(), KeyError> {
    let mut tx = pool.begin().await?;
    let locked: Vec<RegisteredKey> =
        sqlx::query_as("SELECT key_id, check_value, state, created_at FROM vault.master_keys ORDER BY key_id FOR UPDATE")
            .fetch_all(&mut *tx)
            .await?;
    let id = check(keyring, &locked)?;
    let current = locked.iter().find(|known| known.is_current()).ok_or(KeyError::NoneCurrent)?;
    let (roots, _) = keyring.open_roots(id, &current.check_value)?;
    sqlx::query("UPDATE vault.master_keys SET check_value = $2 WHERE key_id = $1")
        .bind(&id.0[..])
        .bind(keyring.seal_roots(id, &roots, true)?)
        .execute(&mut *tx)
        .await?;
    tx.commit().await?;
    keyring.require_macs();
    Ok(())
}

/// Returns the time until the key has been current for `settled`; `None` if it has already.
pub async fn until_settled(pool: &PgPool, id: KeyId, settled: Duration) -> Result<Option<Duration>, sqlx::Error> {
    let left: Option<f64> = sqlx::query_scalar(
        "SELECT least($2 - extract(epoch FROM clock_timestamp() - created_at)::float8, $2) FROM vault.master_keys
         WHERE key_id = $1 AND state = 'current' AND (SELECT count(*) FROM vault.master_keys) > 1",
    )
    .bind(&id.0[..])
    .bind(settled.as_secs_f64())
    .fetch_optional(pool)
    .await?;
    Ok(left.filter(|left| *left > 0.0).and_then(|left| Duration::try_from_secs_f64(left).ok()))
}

/// Marks every key but the current one as retired, because nothing is sealed under it any more. Returns their ids.
pub async fn retire_others(pool: &PgPool, current: KeyId) -> Result<Vec<KeyId>, KeyError> {
    let retired: Vec<Vec<u8>> = sqlx::query_scalar(
        "UPDATE vault.master_keys SET state = 'retired' WHERE key_id <> $1 AND state <> 'current' RETURNING key_id",
    )
    .bind(&current.0[..])
    .fetch_all(pool)
    .await?;
    Ok(retired.iter().map(|id| KeyId::try_from(&id[..])).collect::<Result<_, _>>()?)
}

/// Polls the current key and follows its changes, until stopped.
pub async fn follow(pool: PgPool, keyring: Arc<Keyring>, metrics: Metrics, stop: CancellationToken) {
    let mut said = None;
    let heartbeat = metrics.heartbeats().background("master keys");
    metrics.master_key_is_usable(true);
    while stop.run_until_cancelled(tokio::time::sleep(LOOK_EVERY)).await.is_some() {
        heartbeat.beat();
        // While the database does not answer, this node cannot claim or write anything either.
        let Ok(Ok(known)) = tokio::time::timeout(DEADLINE, load(&pool)).await else { continue };
        let before = keyring.current();
        let adopted = adopt(&keyring, &known);
        metrics.master_key_is_usable(adopted.is_ok());
        match adopted {
            Ok(()) => {
                said = None;
                if let Some(key_id) = keyring.current().filter(|now| before != Some(*now)) {
                    tracing::info!(%key_id, "master key changed; sealing under the new one from now on");
                }
            }
            Err(error) => {
                let text = error.to_string();
                if said.as_ref() != Some(&text) {
                    tracing::error!(%error, "current master key is unusable; this node claims no deliveries and seals nothing");
                    said = Some(text);
                }
            }
        }
    }
}
