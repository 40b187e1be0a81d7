//! API keys: looked up in the database for every request, so that a revocation counts on the very
//! next one, on every node; one statement for all requests that are waiting.

use std::collections::HashMap;

use ledger_events::{AccountId, CredentialId, ShardId};
use sha2::{Digest, Sha256};
use sqlx::{FromRow, PgPool};
use subtle::ConstantTimeEq;
use tokio::sync::{mpsc, oneshot};
use tokio_util::task::TaskTracker;

use super::{AccessError, Principal, Who};

/// Most look-ups in one statement, and most that may wait.
const BATCH_LOOKUPS: usize = 1_024;
const QUEUE_LOOKUPS: usize = 8_192;

type KeyHash = [u8; 32];

#[derive(Clone, Debug, FromRow)]
struct Known {
    key_hash: Vec<u8>,
    secret_hash: Vec<u8>,
    credential_id: CredentialId,
    account_id: AccountId,
    shard_id: ShardId,
    is_revoked: bool,
}

#[derive(Debug)]
struct Lookup {
    key_hash: KeyHash,
    reply: oneshot::Sender<Result<Option<Known>, AccessError>>,
}

/// Finds and checks API credentials. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Credentials {
    lookups: mpsc::Sender<Lookup>,
}

impl Credentials {
    /// Starts the task that looks keys up; it ends when the last handle is dropped.
    pub fn start(pool: PgPool, tasks: &TaskTracker) -> Credentials {
        let (lookups, waiting) = mpsc::channel(QUEUE_LOOKUPS);
        tasks.spawn(look_up(pool, waiting));
        Credentials { lookups }
    }

    /// Who a key and its secret belong to. The secret is compared in constant time, by its hash.
    pub async fn authenticate(&self, api_key: &str, api_secret: &str) -> Result<Principal, AccessError> {
        let key_hash: KeyHash = Sha256::digest(api_key.as_bytes()).into();
        let (reply, found) = oneshot::channel();
        self.lookups.try_send(Lookup { key_hash, reply }).map_err(|_| AccessError::Unavailable)?;
        let known = found.await.map_err(|_| AccessError::Unavailable)??;
        let secret_hash: [u8; 32] = Sha256::digest(api_secret.as_bytes()).into();
        let expected = known.as_ref().map_or(&[0u8; 32][..], |k| &k.secret_hash);
        let is_right = bool::from(secret_hash.ct_eq(expected));
        match known {
            Some(known) if is_right && !known.is_revoked => {
                let who = Who::Credential(known.credential_id);
                Ok(Principal { account_id: known.account_id, shard_id: known.shard_id, who })
            }
            _ => Err(AccessError::Unknown),
        }
    }
}

async fn look_up(pool: PgPool, mut waiting: mpsc::Receiver<Lookup>) {
    let mut batch = Vec::with_capacity(BATCH_LOOKUPS);
    while waiting.recv_many(&mut batch, BATCH_LOOKUPS).await > 0 {
        let mut keys: Vec<&[u8]> = batch.iter().map(|l| &l.key_hash[..]).collect();
        keys.sort_unstable();
        keys.dedup();
        let found: Result<Vec<Known>, sqlx::Error> = sqlx::query_as(
            "SELECT v.key_hash, v.secret_hash, c.id AS credential_id, c.account_id, a.shard_id, c.is_revoked
             FROM vault.credentials v JOIN credentials c ON c.id = v.credential_id JOIN accounts a ON a.id = c.account_id
             WHERE v.key_hash = ANY($1)",
        )
        .bind(keys)
        .fetch_all(&pool)
        .await;
        match found {
            Ok(found) => {
                let known: HashMap<&[u8], &Known> = found.iter().map(|k| (&*k.key_hash, k)).collect();
                for lookup in batch.drain(..) {
                    let answer = known.get(&lookup.key_hash[..]).map(|k| (*k).clone());
                    _ = lookup.reply.send(Ok(answer)); // the request may have been given up
                }
            }
            Err(error) => {
                tracing::warn!(%error, "credentials cannot be looked up");
                for lookup in batch.drain(..) {
                    _ = lookup.reply.send(Err(AccessError::Unavailable));
                }
            }
        }
    }
}
