//! Times at which API keys were last used, to the minute. No request waits for them.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use chrono::{DateTime, Utc};
use ledger_database::PgPool;
use ledger_events::CredentialId;
use tokio::sync::mpsc;
use tokio_util::task::TaskTracker;

use crate::heartbeat::Heartbeat;

/// Shortest time between two writes for one key.
const INTERVAL: Duration = Duration::from_secs(60);
/// Maximum number of keys whose last write a node remembers.
const KNOWN_KEYS: usize = 65_536;
/// Maximum number of uses that wait to be written, and maximum in one statement.
const QUEUE_USES: usize = 4_096;

/// Handle to the task that writes the uses. Cheap to clone. The task ends when the last handle is dropped.
#[derive(Clone, Debug)]
pub(super) struct KeyUses {
    /// Time at which this node last queued a use of each key.
    queued: Arc<Mutex<HashMap<CredentialId, Instant>>>,
    uses: mpsc::Sender<CredentialId>,
}

impl KeyUses {
    pub fn start(pool: PgPool, heartbeat: Heartbeat, tasks: &TaskTracker) -> KeyUses {
        let (uses, waiting) = mpsc::channel(QUEUE_USES);
        tasks.spawn(write_all(pool, heartbeat, waiting));
        KeyUses { queued: Arc::default(), uses }
    }

    /// Notes a use of a key, unless one of the last minute is noted already.
    pub fn note(&self, id: CredentialId) {
        let now = Instant::now();
        let mut queued = self.queued.lock().unwrap_or_else(PoisonError::into_inner);
        if queued.get(&id).is_some_and(|at| now.duration_since(*at) < INTERVAL) {
            return;
        }
        if queued.len() >= KNOWN_KEYS {
            queued.retain(|_, at| now.duration_since(*at) < INTERVAL);
            if queued.len() >= KNOWN_KEYS {
                queued.clear();
            }
        }
        // If the queue is full, a later use of the key is noted instead.
        if self.uses.try_send(id).is_ok() {
            queued.insert(id, now);
        }
    }
}

async fn write_all(pool: PgPool, heartbeat: Heartbeat, mut waiting: mpsc::Receiver<CredentialId>) {
    let mut ids = Vec::new();
    loop {
        heartbeat.rest();
        if waiting.recv_many(&mut ids, QUEUE_USES).await == 0 {
            return;
        }
        heartbeat.beat();
        ids.sort_unstable(); // so that two nodes lock the rows in the same order
        ids.dedup();
        if let Err(error) = write(&pool, &ids).await {
            tracing::warn!(%error, keys = ids.len(), "failed to record the last use of API keys");
        }
        ids.clear();
    }
}

/// Records that these keys were used now. A use within a minute of the recorded one changes nothing.
async fn write(pool: &PgPool, ids: &[CredentialId]) -> Result<(), sqlx::Error> {
    sqlx::query(
        "INSERT INTO credential_uses AS u (credential_id, last_used_at) SELECT id, clock_timestamp() FROM unnest($1::bigint[]) AS id
         ON CONFLICT (credential_id) DO UPDATE SET last_used_at = excluded.last_used_at
            WHERE u.last_used_at <= excluded.last_used_at - make_interval(secs => $2)",
    )
    .bind(ids)
    .bind(INTERVAL.as_secs_f64())
    .execute(pool)
    .await
    .map(drop)
}

/// Returns the time of the last use of each of these keys. A key that was never used has none.
///
/// # Errors
/// Any error of the database.
pub async fn last_used(pool: &PgPool, ids: &[CredentialId]) -> Result<HashMap<CredentialId, DateTime<Utc>>, sqlx::Error> {
    let found: Vec<(CredentialId, DateTime<Utc>)> =
        sqlx::query_as("SELECT credential_id, last_used_at FROM credential_uses WHERE credential_id = ANY($1)")
            .bind(ids)
            .fetch_all(pool)
            .await?;
    Ok(found.into_iter().collect())
}
