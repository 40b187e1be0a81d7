//! Lookups of sessions, for access tokens and portal cookies.

use std::collections::HashMap;

use chrono::{DateTime, Utc};
use ledger_database::{FromRow, PgPool};
use ledger_events::restrictions::Scopes;
use ledger_events::user::UserRole;
use ledger_events::{AccountId, ShardId, UserId};
use tokio::sync::{mpsc, oneshot};

use super::SessionId;
use crate::access::{AccessError, ClientIdentity, Principal};
use crate::heartbeat::Heartbeat;
use crate::secrets::rows::Row;
use crate::secrets::seal::Keyring;

/// Maximum number of lookups in one statement.
const BATCH_LOOKUPS: usize = 1_024;

/// A session that is not revoked, with its user, who is not removed.
#[derive(Clone, Debug, FromRow)]
pub(super) struct ActiveSession {
    session_id: SessionId,
    pub user_id: UserId,
    role: String,
    account_id: AccountId,
    shard_id: ShardId,
    pub portal_hash: Vec<u8>,
    pub portal_expires_at: DateTime<Utc>,
    mac: Option<Vec<u8>>,
    /// The user is an owner without two-factor authentication, which the account requires of owners.
    must_enrol: bool,
    pub now: DateTime<Utc>,
}

impl ActiveSession {
    pub fn is_authentic(&self, keyring: &Keyring) -> bool {
        let ActiveSession { user_id, account_id, portal_expires_at, .. } = *self;
        let row = Row::Session { id: self.session_id, user_id, account_id, portal_hash: &self.portal_hash, portal_expires_at };
        keyring.admits(row, self.mac.as_deref())
    }

    pub fn principal(&self) -> Result<Principal, AccessError> {
        let role = UserRole::parse(&self.role).ok_or(AccessError::InvalidToken)?;
        let identity = ClientIdentity::User { id: self.user_id, role, session_id: self.session_id, must_enrol: self.must_enrol };
        Ok(Principal { account_id: self.account_id, shard_id: self.shard_id, identity, scopes: Scopes::ALL })
    }
}

#[derive(Debug)]
pub(super) struct Lookup {
    pub session_id: SessionId,
    pub reply: oneshot::Sender<Result<Option<ActiveSession>, AccessError>>,
}

/// Looks sessions up, many in one statement, until the last handle is dropped.
pub(super) async fn look_up(pool: PgPool, heartbeat: Heartbeat, mut waiting: mpsc::Receiver<Lookup>) {
    let mut batch = Vec::with_capacity(BATCH_LOOKUPS);
    loop {
        heartbeat.rest();
        if waiting.recv_many(&mut batch, BATCH_LOOKUPS).await == 0 {
            return;
        }
        heartbeat.beat();
        let mut ids: Vec<SessionId> = batch.iter().map(|lookup| lookup.session_id).collect();
        ids.sort_unstable();
        ids.dedup();
        let found: Result<Vec<ActiveSession>, sqlx::Error> = sqlx::query_as(
            "SELECT s.id AS session_id, s.user_id, u.role, u.account_id, a.shard_id, s.portal_hash, s.portal_expires_at, m.mac,
                u.role = 'owner' AND coalesce(p.owners_need_two_factor, false)
                    AND NOT EXISTS (SELECT FROM vault.two_factor t WHERE t.user_id = u.id AND t.is_enabled) AS must_enrol,
                clock_timestamp() AS now
             FROM vault.sessions s JOIN users u ON u.id = s.user_id JOIN accounts a ON a.id = u.account_id
             LEFT JOIN vault.session_macs m ON m.session_id = s.id
             LEFT JOIN vault.account_security p ON p.account_id = u.account_id
             WHERE s.id = ANY($1) AND s.revoked_at IS NULL AND NOT u.is_removed",
        )
        .bind(ids)
        .fetch_all(&pool)
        .await;
        match found {
            Ok(found) => {
                let known: HashMap<SessionId, &ActiveSession> = found.iter().map(|known| (known.session_id, known)).collect();
                for lookup in batch.drain(..) {
                    let answer = known.get(&lookup.session_id).map(|known| (*known).clone());
                    _ = lookup.reply.send(Ok(answer)); // the caller may have stopped waiting
                }
            }
            Err(error) => {
                tracing::warn!(%error, "failed to look up sessions");
                for lookup in batch.drain(..) {
                    _ = lookup.reply.send(Err(AccessError::Unavailable));
                }
            }
        }
    }
}
