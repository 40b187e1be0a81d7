//! Sessions as their user sees them.

use std::net::IpAddr;

use chrono::{DateTime, Utc};
use ledger_database::{FromRow, PgConnection};
use ledger_events::{AccountId, UserId};
use serde::{Deserialize, Serialize};

use super::{REFRESH_LIFETIME, Renewed, SessionId, Sessions};
use crate::access::AccessError;
use crate::secrets::SESSION_CLIENT;
use crate::secrets::seal::Secret;

/// Maximum number of sessions in a list, newest first.
const MAX_LISTED: i64 = 100;
/// Longest stored text of a user agent, in characters.
const USER_AGENT_LENGTH: usize = 256;

/// Client that started a session.
#[derive(Serialize, Deserialize)]
struct Client {
    network: String,
    user_agent: Option<String>,
}

#[derive(FromRow)]
struct Stored {
    id: SessionId,
    started_at: Option<DateTime<Utc>>,
    expires_at: DateTime<Utc>,
    sealed: Option<Vec<u8>>,
}

/// A session that has not ended. What is unknown of a session from before an upgrade is none.
#[derive(Clone, Debug)]
pub struct UserSession {
    pub id: i64,
    pub started_at: Option<DateTime<Utc>>,
    /// Time of the login or of the latest refresh.
    pub last_used_at: DateTime<Utc>,
    /// Address, or the /64 of an IPv6 address, that logged in.
    pub network: Option<Secret>,
    pub user_agent: Option<Secret>,
}

impl Sessions {
    /// Lists a user's sessions, newest first.
    ///
    /// # Errors
    /// [`AccessError::Unavailable`] if the database does not answer.
    pub async fn of_user(&self, user_id: UserId) -> Result<Vec<UserSession>, AccessError> {
        let found: Vec<Stored> = sqlx::query_as(
            "SELECT s.id, d.started_at, s.expires_at, d.sealed FROM vault.sessions s
             LEFT JOIN vault.session_details d ON d.session_id = s.id
             WHERE s.user_id = $1 AND s.revoked_at IS NULL AND s.expires_at > clock_timestamp() ORDER BY s.id DESC LIMIT $2",
        )
        .bind(user_id)
        .bind(MAX_LISTED)
        .fetch_all(&self.pool)
        .await?;
        Ok(found.into_iter().map(|stored| self.view(stored)).collect())
    }

    /// Lists the networks that started the 100 newest live sessions of an account's users. A network can occur repeatedly.
    ///
    /// # Errors
    /// [`AccessError::Unavailable`] if the database does not answer.
    pub async fn networks_of(&self, account_id: AccountId) -> Result<Vec<Secret>, AccessError> {
        let found: Vec<(SessionId, Vec<u8>)> = sqlx::query_as(
            "SELECT s.id, d.sealed FROM users u JOIN vault.sessions s ON s.user_id = u.id
             JOIN vault.session_details d ON d.session_id = s.id
             WHERE u.account_id = $1 AND NOT u.is_removed AND s.revoked_at IS NULL AND s.expires_at > clock_timestamp()
             ORDER BY s.id DESC LIMIT $2",
        )
        .bind(account_id)
        .bind(MAX_LISTED)
        .fetch_all(&self.pool)
        .await?;
        let clients = found.iter().filter_map(|(id, sealed)| self.client(*id, sealed));
        Ok(clients.map(|client| Secret::new(client.network)).collect())
    }

    /// Ends a session of this user. Returns false if the user has no such session.
    ///
    /// # Errors
    /// [`AccessError::Unavailable`] if the database does not answer.
    pub async fn end(&self, user_id: UserId, session_id: SessionId) -> Result<bool, AccessError> {
        let ended = sqlx::query(
            "UPDATE vault.sessions SET revoked_at = clock_timestamp() WHERE id = $1 AND user_id = $2 AND revoked_at IS NULL",
        );
        Ok(ended.bind(session_id).bind(user_id).execute(&self.pool).await?.rows_affected() > 0)
    }

    /// Opens the client of a session. Returns none if it cannot be opened.
    fn client(&self, session_id: SessionId, sealed: &[u8]) -> Option<Client> {
        let plain = self.keyring.open(SESSION_CLIENT, session_id, sealed);
        let plain = plain.inspect_err(|error| tracing::warn!(%error, session_id, "failed to open a session's details"));
        serde_json::from_slice(&plain.ok()?).ok()
    }

    fn view(&self, stored: Stored) -> UserSession {
        let client = stored.sealed.as_ref().and_then(|sealed| self.client(stored.id, sealed));
        let (network, user_agent) = match client {
            Some(client) => (Some(Secret::new(client.network)), client.user_agent.map(Secret::new)),
            None => (None, None),
        };
        let (id, started_at) = (stored.id, stored.started_at);
        UserSession { id, started_at, last_used_at: stored.expires_at - REFRESH_LIFETIME, network, user_agent }
    }

    /// Stores the start of a session and its client, in the login's transaction.
    pub(super) async fn keep_details(
        &self,
        conn: &mut PgConnection,
        session: &Renewed,
        network: IpAddr,
        user_agent: Option<&Secret>,
    ) -> Result<(), AccessError> {
        let unsealable = |error: &dyn std::fmt::Display| {
            tracing::error!(%error, "failed to seal a session's details");
            AccessError::Unavailable
        };
        let user_agent = user_agent.map(|text| text.expose().chars().take(USER_AGENT_LENGTH).collect());
        let client = Client { network: network.to_string(), user_agent };
        let plain = serde_json::to_vec(&client).map_err(|error| unsealable(&error))?;
        let sealed = self.keyring.seal(SESSION_CLIENT, session.session_id, &plain).map_err(|error| unsealable(&error))?;
        sqlx::query("INSERT INTO vault.session_details (session_id, started_at, sealed) VALUES ($1, $2, $3)")
            .bind(session.session_id)
            .bind(session.now)
            .bind(sealed)
            .execute(conn)
            .await?;
        Ok(())
    }
}
