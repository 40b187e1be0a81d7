//! Rows that open something: API keys, operators' tokens, passwords, sessions. Each has a MAC, made with a key that only
//! holders of the master key have, so that whoever can write to the database cannot make one.
//!
//! The MAC stands in a table beside, and the event that made the row commits to it, so that an older row with its MAC is
//! noticed, too. Earlier releases write no MACs: until `keys seal` says that there are none of these nodes any more, rows
//! without one count.

use std::fmt;

use chrono::{DateTime, Utc};
use ledger_events::{AccountId, CredentialId, UserId};
use subtle::ConstantTimeEq;

use super::seal::{Keyring, SealError};

/// What a row's MAC binds.
#[derive(Clone, Copy)]
pub enum Row<'a> {
    Credential {
        id: CredentialId,
        account_id: AccountId,
        key_hash: &'a [u8],
        secret_hash: &'a [u8],
    },
    /// What a credential signs with.
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
    /// The MAC of a row.
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

    /// Whether a row with this MAC, or without one, may open anything.
    pub fn admits(&self, row: Row<'_>, mac: Option<&[u8]>) -> bool {
        let admitted = match mac {
            None => !self.requires_macs(),
            // A node of an earlier release has given the user another password.
            Some(_) if matches!(row, Row::User { .. }) && !self.requires_macs() => true,
            Some(mac) => self.row_mac(row).is_ok_and(|expected| bool::from(expected.ct_eq(mac))),
        };
        if !admitted {
            tracing::error!(?row, "a row that would open something is not authentic: refused; run `verify`");
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
    /// What it is, and its id where it has one.
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
