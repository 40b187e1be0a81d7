//! Operator tokens: `Authorization: Bearer`, each with a role.

use chrono::{DateTime, Utc};
use ledger_events::Actor;
use sha2::{Digest, Sha256};
use sqlx::PgPool;
use subtle::ConstantTimeEq;

use super::AccessError;
use super::seal::{Private, random_secret};

/// What an operator may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Everything.
    Admin,
    /// Money: funding, adjusting, reconciling; and reading.
    Finance,
    /// The log's own entries; and reading.
    Auditor,
}

impl Role {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Admin => "admin",
            Self::Finance => "finance",
            Self::Auditor => "auditor",
        }
    }

    pub fn parse(text: &str) -> Option<Role> {
        [Self::Admin, Self::Finance, Self::Auditor].into_iter().find(|role| role.as_str() == text)
    }
}

/// An authenticated operator. Id 0 is the one whose token is in the configuration.
#[derive(Clone, Copy, Debug)]
pub struct Operator {
    pub id: i64,
    pub role: Role,
}

impl Operator {
    pub fn actor(&self) -> Actor {
        Actor::Operator(self.id)
    }

    /// Whether the operator may do what is for `role` alone: who has it, and an admin.
    pub fn may(&self, role: Role) -> bool {
        self.role == Role::Admin || self.role == role
    }
}

/// Finds and checks operator tokens.
#[derive(Clone, Debug)]
pub struct Operators {
    pool: PgPool,
    configured: Option<[u8; 32]>,
}

impl Operators {
    pub fn new(pool: PgPool, configured: Option<&Private>) -> Operators {
        Operators { pool, configured: configured.map(|token| hash(token.expose())) }
    }

    pub async fn authenticate(&self, token: &str) -> Result<Operator, AccessError> {
        let hash = hash(token);
        if self.configured.is_some_and(|configured| bool::from(configured.ct_eq(&hash))) {
            return Ok(Operator { id: 0, role: Role::Admin });
        }
        let found: Option<(i64, String)> =
            sqlx::query_as("SELECT id, role FROM vault.operators WHERE token_hash = $1 AND revoked_at IS NULL")
                .bind(&hash[..])
                .fetch_optional(&self.pool)
                .await
                .map_err(|error| {
                    tracing::warn!(%error, "operator tokens cannot be looked up");
                    AccessError::Unavailable
                })?;
        let (id, role) = found.ok_or(AccessError::Unknown)?;
        Ok(Operator { id, role: Role::parse(&role).ok_or(AccessError::Unknown)? })
    }

    /// A new token, shown once.
    pub async fn issue(&self, name: &str, role: Role) -> Result<Private, sqlx::Error> {
        let token = random_secret();
        sqlx::query("INSERT INTO vault.operators (name, role, token_hash) VALUES ($1, $2, $3)")
            .bind(name)
            .bind(role.as_str())
            .bind(&hash(token.expose())[..])
            .execute(&self.pool)
            .await?;
        Ok(token)
    }

    /// Every token that was issued, oldest first; never the tokens themselves.
    pub async fn list(&self) -> Result<Vec<IssuedToken>, sqlx::Error> {
        sqlx::query_as("SELECT id, name, role, created_at, revoked_at FROM vault.operators ORDER BY id")
            .fetch_all(&self.pool)
            .await
    }

    /// Revokes a token; false when there is none of this id that is not revoked.
    pub async fn revoke(&self, id: i64) -> Result<bool, sqlx::Error> {
        let revoke = "UPDATE vault.operators SET revoked_at = clock_timestamp() WHERE id = $1 AND revoked_at IS NULL";
        Ok(sqlx::query(revoke).bind(id).execute(&self.pool).await?.rows_affected() == 1)
    }
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
#[derive(Clone, Debug, sqlx::FromRow)]
pub struct IssuedToken {
    pub id: i64,
    pub name: String,
    pub role: String,
    pub created_at: DateTime<Utc>,
    pub revoked_at: Option<DateTime<Utc>>,
}

fn hash(token: &str) -> [u8; 32] {
    Sha256::digest(token.as_bytes()).into()
}
