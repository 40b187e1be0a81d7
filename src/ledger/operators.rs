//! Rows of operator tokens: names, roles and hashes, never the tokens.

use chrono::{DateTime, Utc};
use ledger_database::{FromRow, PgConnection, PgPool};
use ledger_events::ShardId;
use ledger_events::operator::OperatorRole as Role;
use sha2::{Digest, Sha256};

use crate::secrets::seal::Private;

/// Every token that was issued, oldest first; never the tokens themselves.
pub async fn list(pool: &PgPool) -> Result<Vec<IssuedToken>, sqlx::Error> {
    sqlx::query_as("SELECT id, name, role, created_at, revoked_at FROM vault.operators ORDER BY id").fetch_all(pool).await
}

/// The names of operators whose tokens were issued, revoked or not.
pub async fn names(pool: &PgPool, ids: &[i64]) -> Result<Vec<(i64, String)>, sqlx::Error> {
    sqlx::query_as("SELECT id, name FROM vault.operators WHERE id = ANY($1)").bind(ids).fetch_all(pool).await
}

/// The ids of those of a name who have a token that is not revoked.
pub async fn named(pool: &PgPool, name: &str) -> Result<Vec<i64>, sqlx::Error> {
    sqlx::query_scalar("SELECT id FROM vault.operators WHERE name = $1 AND revoked_at IS NULL ORDER BY id")
        .bind(name)
        .fetch_all(pool)
        .await
}

/// What may be known of a token after it was issued.
#[derive(Clone, Debug, FromRow)]
pub struct IssuedToken {
    pub id: i64,
    pub name: String,
    pub role: String,
    pub created_at: DateTime<Utc>,
    pub revoked_at: Option<DateTime<Utc>>,
}

/// What the writer knows of a token.
#[derive(Clone, Copy, Debug, Default)]
pub struct Known {
    /// How many events it has; one that is older than these events, none.
    pub version: i64,
    pub is_revoked: bool,
}

/// What becomes of a token.
#[derive(Debug)]
pub enum Change {
    Issue { id: i64, name: Private, role: Role, token_hash: [u8; 32], mac: [u8; 32], issued_at: DateTime<Utc> },
    Revoke { id: i64, revoked_at: DateTime<Utc> },
}

/// These tokens, kept from others until the transaction ends.
pub async fn lock(conn: &mut PgConnection, shard: ShardId, ids: &[i64]) -> Result<Vec<(i64, Known)>, sqlx::Error> {
    let found: Vec<(i64, bool, i64)> = sqlx::query_as(
        "SELECT id, revoked_at IS NOT NULL, (SELECT coalesce(max(version), 0) FROM events
            WHERE shard_id = $1 AND stream_type = 'operator' AND stream_id = o.id)
         FROM vault.operators o WHERE id = ANY($2) ORDER BY id FOR UPDATE OF o",
    )
    .bind(shard)
    .bind(ids)
    .fetch_all(conn)
    .await?;
    Ok(found.into_iter().map(|(id, is_revoked, version)| (id, Known { version, is_revoked })).collect())
}

/// Writes what was decided of tokens, in this order.
pub async fn write(conn: &mut PgConnection, changes: &[Change]) -> Result<(), sqlx::Error> {
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
                    .await?
            }
            Change::Revoke { id, revoked_at } => {
                sqlx::query("UPDATE vault.operators SET revoked_at = $2 WHERE id = $1")
                    .bind(id)
                    .bind(revoked_at)
                    .execute(&mut *conn)
                    .await?
            }
        };
    }
    Ok(())
}

/// What is stored of a token, which is 256 random bits.
pub fn hash(token: &str) -> [u8; 32] {
    Sha256::digest(token.as_bytes()).into()
}
