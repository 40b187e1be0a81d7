//! Rows of operator tokens: names, roles and hashes, never the tokens. The rows of users are in [`super::operator_users`].

use chrono::{DateTime, Utc};
use ledger_database::{FromRow, PgConnection, PgPool};
use ledger_events::ShardId;
use ledger_events::operator::OperatorRole as Role;
use sha2::{Digest, Sha256};

use super::operator_users::{self, TwoFactorChange};
use crate::secrets::seal::Secret;

/// Lists every issued token, oldest first, without the token's text.
pub async fn list(pool: &PgPool) -> Result<Vec<IssuedToken>, sqlx::Error> {
    sqlx::query_as("SELECT id, name, role, created_at, revoked_at FROM vault.operators ORDER BY id").fetch_all(pool).await
}

/// Returns the names of these operators, including those with a revoked token.
pub async fn names(pool: &PgPool, ids: &[i64]) -> Result<Vec<(i64, String)>, sqlx::Error> {
    sqlx::query_as("SELECT id, name FROM vault.operators WHERE id = ANY($1)").bind(ids).fetch_all(pool).await
}

/// Returns the ids of the operators with this name whose token is not revoked.
pub async fn named(pool: &PgPool, name: &str) -> Result<Vec<i64>, sqlx::Error> {
    sqlx::query_scalar("SELECT id FROM vault.operators WHERE name = $1 AND revoked_at IS NULL ORDER BY id")
        .bind(name)
        .fetch_all(pool)
        .await
}

/// Public fields of an issued token.
#[derive(Clone, Debug, FromRow)]
pub struct IssuedToken {
    pub id: i64,
    pub name: String,
    pub role: String,
    pub created_at: DateTime<Utc>,
    pub revoked_at: Option<DateTime<Utc>>,
}

/// Token state that the writer decides on.
#[derive(Clone, Copy, Debug, Default)]
pub struct LockedToken {
    /// Number of events in the token's stream. A token that is older than these events has 0.
    pub version: i64,
    pub is_revoked: bool,
}

/// Change to a token or a user, decided by the writer.
#[derive(Debug)]
pub enum Change {
    Issue { id: i64, name: Secret, role: Role, token_hash: [u8; 32], mac: [u8; 32], issued_at: DateTime<Utc> },
    Revoke { id: i64, revoked_at: DateTime<Utc> },
    User(Box<operator_users::Change>),
}

/// Loads these tokens and locks their rows until the transaction ends.
pub async fn lock(conn: &mut PgConnection, shard: ShardId, ids: &[i64]) -> Result<Vec<(i64, LockedToken)>, sqlx::Error> {
    let found: Vec<(i64, bool, i64)> = sqlx::query_as(
        "SELECT id, revoked_at IS NOT NULL, (SELECT coalesce(max(version), 0) FROM events
            WHERE shard_id = $1 AND stream_type = 'operator' AND stream_id = o.id)
         FROM vault.operators o WHERE id = ANY($2) ORDER BY id FOR UPDATE OF o",
    )
    .bind(shard)
    .bind(ids)
    .fetch_all(conn)
    .await?;
    Ok(found.into_iter().map(|(id, is_revoked, version)| (id, LockedToken { version, is_revoked })).collect())
}

/// Writes changes of tokens and users, in this order.
pub async fn write(conn: &mut PgConnection, shard: ShardId, changes: &[Change]) -> Result<(), sqlx::Error> {
    let mut without_two_factor = vec![];
    for change in changes {
        match change {
            Change::Issue { id, name, role, token_hash, mac, issued_at } => {
                sqlx::query(
                    "INSERT INTO vault.operators (id, name, role, token_hash, created_at) OVERRIDING SYSTEM VALUE
                     VALUES ($1, $2, $3, $4, $5)",
                )
                .bind(id)
                .bind(name.expose())
                .bind(role.as_str())
                .bind(&token_hash[..])
                .bind(issued_at)
                .execute(&mut *conn)
                .await?;
                sqlx::query("INSERT INTO vault.operator_macs (operator_id, mac) VALUES ($1, $2)")
                    .bind(id)
                    .bind(&mac[..])
                    .execute(&mut *conn)
                    .await?;
            }
            Change::Revoke { id, revoked_at } => {
                sqlx::query("UPDATE vault.operators SET revoked_at = $2 WHERE id = $1")
                    .bind(id)
                    .bind(revoked_at)
                    .execute(&mut *conn)
                    .await?;
            }
            Change::User(change) => {
                operator_users::write(conn, change).await?;
                without_two_factor.extend(matches!(change.two_factor, TwoFactorChange::Remove).then_some(change.row.id));
            }
        }
    }
    if without_two_factor.is_empty() {
        return Ok(());
    }
    // The batch has written its texts already, so a secret that is enrolled again stays.
    operator_users::delete_secrets(conn, shard, &without_two_factor).await
}

/// Returns the SHA-256 hash that is stored for a token. It needs no salt: the token has 256 random bits.
pub fn hash(token: &str) -> [u8; 32] {
    Sha256::digest(token.as_bytes()).into()
}
