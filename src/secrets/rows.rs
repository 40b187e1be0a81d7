//! MACs of rows that grant access: API keys, operator tokens, passwords, second factors, recovery codes, sessions and
//! one-time tokens.
//!
//! Only holders of the master key have the key of the MACs, so write access to the database is not enough to forge a row.
//! The MAC is stored in a separate table. The event that created the row commits to it, so that restoring an
//! older row with its MAC is detected too.
//!
//! Earlier releases write no MACs. Rows without one are valid until `keys seal` records that no such node is left.

use std::fmt;

use chrono::{DateTime, Utc};
use ledger_events::restrictions::{Restrictions, Scope, Scopes};
use ledger_events::{AccountId, CredentialId, UserId};
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;

use super::seal::{Keyring, SealError};

/// User of a token that belongs to nobody, as its MAC covers it.
pub const NOBODY: UserId = UserId(0);

/// Columns that a row's MAC covers.
#[derive(Clone, Copy)]
pub enum Row<'a> {
    Credential {
        id: CredentialId,
        account_id: AccountId,
        key_hash: &'a [u8],
        secret_hash: &'a [u8],
        restrictions: &'a Restrictions,
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
    OperatorUser {
        id: i64,
        role: &'a str,
        password_hash: Option<&'a str>,
        subject_lookup: Option<&'a [u8]>,
        totp_hash: Option<&'a str>,
        is_removed: bool,
    },
    /// Recovery code of an operator's user.
    OperatorRecoveryCode {
        operator_id: i64,
        code_hash: &'a [u8],
    },
    /// Session of an operator's user.
    ConsoleSession {
        id: i64,
        operator_id: i64,
        secret_hash: &'a [u8],
        expires_at: DateTime<Utc>,
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
    /// Secret of a user's one-time codes.
    TwoFactor {
        user_id: UserId,
        secret: &'a str,
    },
    /// Token that sets a new password. `user_id` is [`NOBODY`] if nobody has the email.
    PasswordReset {
        token_hash: &'a [u8],
        user_id: UserId,
        expires_at: DateTime<Utc>,
    },
    Invitation {
        id: i64,
        account_id: AccountId,
        role: &'a str,
        email: &'a str,
        token_hash: &'a [u8],
        invited_by: UserId,
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
            Row::Credential { id, account_id, key_hash, secret_hash, restrictions } => {
                let (id, account_id) = (id.0.to_be_bytes(), account_id.0.to_be_bytes());
                let parts: [&[u8]; 4] = [&id, &account_id, key_hash, secret_hash];
                // The MAC of an unrestricted key is that of releases without restrictions.
                match restrictions.are_none() {
                    true => self.row_hash("credential", &parts),
                    false => {
                        let [scopes, expires_at, networks] = covered(restrictions);
                        let [id, account_id, key_hash, secret_hash] = parts;
                        let parts = [id, account_id, key_hash, secret_hash, &scopes, &expires_at, &networks];
                        self.row_hash("restricted credential", &parts)
                    }
                }
            }
            Row::SigningSecret { id, secret } => self.row_hash("signing secret", &[&id.0.to_be_bytes(), secret.as_bytes()]),
            Row::Operator { id, role, token_hash } => {
                self.row_hash("operator", &[&id.to_be_bytes(), role.as_bytes(), token_hash])
            }
            Row::OperatorUser { id, role, password_hash, subject_lookup, totp_hash, is_removed } => self.row_hash(
                "operator user",
                &[
                    &id.to_be_bytes(),
                    role.as_bytes(),
                    password_hash.unwrap_or_default().as_bytes(),
                    subject_lookup.unwrap_or_default(),
                    totp_hash.unwrap_or_default().as_bytes(),
                    &[is_removed.into()],
                ],
            ),
            Row::OperatorRecoveryCode { operator_id, code_hash } => {
                self.row_hash("operator recovery code", &[&operator_id.to_be_bytes(), code_hash])
            }
            Row::ConsoleSession { id, operator_id, secret_hash, expires_at } => {
                self.row_hash("console session", &[&id.to_be_bytes(), &operator_id.to_be_bytes(), secret_hash, &time(expires_at)])
            }
            Row::User { id, account_id, password_hash } => {
                self.row_hash("user", &[&id.0.to_be_bytes(), &account_id.0.to_be_bytes(), password_hash.as_bytes()])
            }
            Row::Session { id, user_id, account_id, portal_hash, portal_expires_at } => self.row_hash(
                "session",
                &[
                    &id.to_be_bytes(),
                    &user_id.0.to_be_bytes(),
                    &account_id.0.to_be_bytes(),
                    portal_hash,
                    &time(portal_expires_at),
                ],
            ),
            Row::RefreshToken { token_hash, session_id, expires_at } => {
                self.row_hash("refresh token", &[token_hash, &session_id.to_be_bytes(), &time(expires_at)])
            }
            Row::TwoFactor { user_id, secret } => self.row_hash("two factor", &[&user_id.0.to_be_bytes(), secret.as_bytes()]),
            Row::PasswordReset { token_hash, user_id, expires_at } => {
                self.row_hash("password reset", &[token_hash, &user_id.0.to_be_bytes(), &time(expires_at)])
            }
            Row::Invitation { id, account_id, role, email, token_hash, invited_by, expires_at } => {
                let (ids, by) = ([id.to_be_bytes(), account_id.0.to_be_bytes()].concat(), invited_by.0.to_be_bytes());
                let texts = [role.as_bytes(), email.as_bytes(), token_hash];
                self.row_hash("invitation", &[&ids, texts[0], texts[1], texts[2], &by, &time(expires_at)])
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

/// Returns the hash that the vault stores of a restricted key's secret, from the hash of the secret.
///
/// It differs from that of an unrestricted key, so that releases without restrictions refuse a restricted key, and so that
/// nobody lifts restrictions by deleting their row.
pub fn restricted_hash(secret_hash: &[u8; 32]) -> [u8; 32] {
    Sha256::new().chain_update(b"restricted\0").chain_update(secret_hash).finalize().into()
}

/// Returns the bytes of a key's scopes, expiry and networks that its MAC covers. Absent ones differ from empty ones.
fn covered(restrictions: &Restrictions) -> [Vec<u8>; 3] {
    let names = |scopes: Scopes| scopes.iter().map(Scope::as_str).collect::<Vec<_>>().join(",");
    let scopes = restrictions.scopes.map_or_else(|| "every".to_owned(), names);
    let expires_at = restrictions.expires_at.map(|time| time.timestamp_millis().to_be_bytes().to_vec()).unwrap_or_default();
    let networks: Vec<String> = restrictions.allowed_networks.iter().map(ToString::to_string).collect();
    [scopes.into_bytes(), expires_at, networks.join(",").into_bytes()]
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
            Self::OperatorUser { id, .. } => format!("operator user {id}"),
            Self::OperatorRecoveryCode { operator_id, .. } => format!("recovery code of operator user {operator_id}"),
            Self::ConsoleSession { id, .. } => format!("console session {id}"),
            Self::User { id, .. } => format!("user {id}"),
            Self::Session { id, .. } => format!("session {id}"),
            Self::RefreshToken { session_id, .. } => format!("refresh token of session {session_id}"),
            Self::TwoFactor { user_id, .. } => format!("two-factor secret of user {user_id}"),
            Self::PasswordReset { user_id, .. } => format!("password reset of user {user_id}"),
            Self::Invitation { id, .. } => format!("invitation {id}"),
        }
    }
}
