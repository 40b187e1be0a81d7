//! MACs of rows that grant access: API keys, operator tokens, passwords and sessions.
//!
//! Only holders of the master key have the key of the MACs, so write access to the database is not enough to forge a row.
//! The MAC is stored in a separate table. The event that created the row commits to it, so that restoring an
//! older row with its MAC is detected too.
//!
//! Earlier releases write no MACs. Rows without one are valid until `keys seal` records that no such node is left.

use std::fmt;

use chrono::{DateTime, Utc};
use ledger_events::{AccountId, CredentialId, UserId};
use subtle::ConstantTimeEq;

use super::seal::{Keyring, SealError};

/// Columns that a row's MAC covers.
#[derive(Clone, Copy)]
pub enum Row<'a> {
    Credential {
        id: CredentialId,
        account_id: AccountId,
        key_hash: &'a [u8],
        secret_hash: &'a [u8],
    },
    /// Signing secret of a credential.
    SigningSecret {
        id: CredentialId,
        secret: &'a str,
    },
    Operator {
        id: i64,
        role: &'a str,
        token_hash: &'a [u8],
    },
    User {
        id: UserId,
        account_id: AccountId,
        password_hash: &'a str,
    },
    Session {
        id: i64,
        user_id: UserId,
        account_id: AccountId,
        portal_hash: &'a [u8],
        portal_expires_at: DateTime<Utc>,
    },
    RefreshToken {
        token_hash: &'a [u8],
        session_id: i64,
        expires_at: DateTime<Utc>,
    },
}

impl Keyring {
    /// Computes the MAC of a row.
    ///
    /// # Errors
    /// [`SealError::NotCurrent`] before the database's keys are loaded.
    pub fn row_mac(&self, row: Row<'_>) -> Result<[u8; 32], SealError> {
        let time = |time: DateTime<Utc>| time.timestamp_millis().to_be_bytes();
        match row {
            Row::Credential { id, account_id, key_hash, secret_hash } => {
                self.row_hash("credential", &[&id.to_be_bytes(), &account_id.to_be_bytes(), key_hash, secret_hash])
            }
            Row::SigningSecret { id, secret } => self.row_hash("signing secret", &[&id.to_be_bytes(), secret.as_bytes()]),
            Row::Operator { id, role, token_hash } => {
                self.row_hash("operator", &[&id.to_be_bytes(), role.as_bytes(), token_hash])
            }
            Row::User { id, account_id, password_hash } => {
                self.row_hash("user", &[&id.to_be_bytes(), &account_id.to_be_bytes(), password_hash.as_bytes()])
            }
            Row::Session { id, user_id, account_id, portal_hash, portal_expires_at } => self.row_hash(
                "session",
                &[&id.to_be_bytes(), &user_id.to_be_bytes(), &account_id.to_be_bytes(), portal_hash, &time(portal_expires_at)],
            ),
            Row::RefreshToken { token_hash, session_id, expires_at } => {
                self.row_hash("refresh token", &[token_hash, &session_id.to_be_bytes(), &time(expires_at)])
            }
        }
    }

    /// Returns whether a row with this MAC, or without one, may grant access.
    pub fn admits(&self, row: Row<'_>, mac: Option<&[u8]>) -> bool {
        let admitted = match mac {
            None => !self.requires_macs(),
            // A node of an earlier release may have changed the password without updating the MAC.
            Some(_) if matches!(row, Row::User { .. }) && !self.requires_macs() => true,
            Some(mac) => self.row_mac(row).is_ok_and(|expected| bool::from(expected.ct_eq(mac))),
        };
        if !admitted {
            tracing::error!(?row, "refused a row with a wrong or missing MAC; run `verify`");
        }
        admitted
    }
}

impl fmt::Debug for Row<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name())
    }
}

impl Row<'_> {
    /// Returns the row's kind and id, for logs.
    fn name(&self) -> String {
        match self {
            Self::Credential { id, .. } | Self::SigningSecret { id, .. } => format!("credential {id}"),
            Self::Operator { id, .. } => format!("operator token {id}"),
            Self::User { id, .. } => format!("user {id}"),
            Self::Session { id, .. } => format!("session {id}"),
            Self::RefreshToken { session_id, .. } => format!("refresh token of session {session_id}"),
        }
    }
}
