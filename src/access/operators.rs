//! Operator tokens (`Authorization: Bearer`), each with a role.
//!
//! Commands issue and revoke tokens, and each change is an event. The token of the configuration is neither a row nor
//! an event: a person who can configure the service runs it anyway.

use std::sync::Arc;

use ledger_database::PgPool;
use ledger_events::Actor;
pub use ledger_events::operator::OperatorRole as Role;
use subtle::ConstantTimeEq;

use super::AccessError;
use crate::ledger::operators::hash;
use crate::secrets::rows::Row;
use crate::secrets::seal::{Keyring, Secret};

/// An authenticated operator. Id 0 stands for the token of the configuration.
#[derive(Clone, Copy, Debug)]
pub struct Operator {
    pub id: i64,
    pub role: Role,
}

impl Operator {
    pub fn actor(&self) -> Actor {
        Actor::Operator(self.id)
    }

    /// Returns whether the operator has this role or is an admin.
    pub fn may(&self, role: Role) -> bool {
        self.role == Role::Admin || self.role == role
    }
}

/// Authenticates operator tokens.
#[derive(Clone, Debug)]
pub struct Operators {
    pool: PgPool,
    keyring: Arc<Keyring>,
    configured: Option<[u8; 32]>,
}

impl Operators {
    pub fn new(pool: PgPool, keyring: Arc<Keyring>, configured: Option<&Secret>) -> Operators {
        Operators { pool, keyring, configured: configured.map(|token| hash(token.expose())) }
    }

    pub async fn authenticate(&self, token: &str) -> Result<Operator, AccessError> {
        let hash = hash(token);
        if self.configured.is_some_and(|configured| bool::from(configured.ct_eq(&hash))) {
            return Ok(Operator { id: 0, role: Role::Admin });
        }
        let found: Option<(i64, String, Option<Vec<u8>>)> = sqlx::query_as(
            "SELECT o.id, o.role, m.mac FROM vault.operators o LEFT JOIN vault.operator_macs m ON m.operator_id = o.id
             WHERE o.token_hash = $1 AND o.revoked_at IS NULL",
        )
        .bind(&hash[..])
        .fetch_optional(&self.pool)
        .await
        .map_err(|error| {
            tracing::warn!(%error, "failed to look up an operator token");
            AccessError::Unavailable
        })?;
        let (id, role, mac) = found.ok_or(AccessError::Unknown)?;
        if !self.keyring.admits(Row::Operator { id, role: &role, token_hash: &hash }, mac.as_deref()) {
            return Err(AccessError::Unknown);
        }
        Ok(Operator { id, role: Role::parse(&role).ok_or(AccessError::Unknown)? })
    }
}
