//! Mails that wait to be sent. Each is stored in the transaction of the change that it is about.
//!
//! A mail contains no address. It is read from the vault when the mail is sent, so an erased address gets no mail.

use std::fmt;

use chrono::{DateTime, TimeDelta, Utc};
use ledger_database::PgConnection;
use ledger_events::{Money, UserId, WalletId, WebhookId};
use serde::{Deserialize, Serialize};

use crate::secrets::MAIL;
use crate::secrets::seal::{Keyring, SealError};

/// Content of a mail, before it is put into words.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Mail {
    PasswordReset { token: String },
    PasswordChanged,
    TwoFactorEnabled,
    TwoFactorDisabled,
    Invitation { token: String, account_name: String },
    LowBalance { wallet_id: WalletId, currency: String, balance: Money, below: Money },
    WebhookDeactivated { webhook_id: WebhookId, name: String, failing_since: DateTime<Utc> },
}

impl Mail {
    /// Lifetime of the token that a password reset carries.
    pub const RESET_LIFETIME: TimeDelta = TimeDelta::minutes(30);
    /// Lifetime of the token that an invitation carries.
    pub const INVITATION_LIFETIME: TimeDelta = TimeDelta::days(7);

    pub fn kind(&self) -> &'static str {
        match self {
            Self::PasswordReset { .. } => "password_reset",
            Self::PasswordChanged => "password_changed",
            Self::TwoFactorEnabled => "two_factor_enabled",
            Self::TwoFactorDisabled => "two_factor_disabled",
            Self::Invitation { .. } => "invitation",
            Self::LowBalance { .. } => "low_balance",
            Self::WebhookDeactivated { .. } => "webhook_deactivated",
        }
    }

    /// Returns the time after which the mail is of no use.
    fn lifetime(&self) -> TimeDelta {
        match self {
            Self::PasswordReset { .. } => Self::RESET_LIFETIME,
            Self::Invitation { .. } => Self::INVITATION_LIFETIME,
            // The webhook stays off, so the mail is of use later, too.
            Self::WebhookDeactivated { .. } => TimeDelta::days(7),
            Self::PasswordChanged | Self::TwoFactorEnabled | Self::TwoFactorDisabled | Self::LowBalance { .. } => {
                TimeDelta::days(1)
            }
        }
    }

    /// Opens a stored mail.
    ///
    /// # Errors
    /// [`SealError`] for a value that was changed or that none of the keys has sealed.
    pub fn open(keyring: &Keyring, id: i64, sealed: &[u8]) -> Result<Mail, SealError> {
        serde_json::from_slice(&keyring.open(MAIL, id, sealed)?).map_err(|_| SealError::Unreadable)
    }
}

/// Shows only the kind, because some mails contain a token.
impl fmt::Debug for Mail {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.kind())
    }
}

/// Person who gets a mail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Recipient {
    User(UserId),
    Invitation(i64),
    /// Nobody: the mail is dropped. It stands for a mail to an unknown address, which must cost the same work.
    Nobody,
}

/// A mail to be stored, sealed.
#[derive(Clone, Debug)]
pub struct QueuedMail {
    id: i64,
    to: Recipient,
    sealed: Vec<u8>,
    lifetime: TimeDelta,
}

impl QueuedMail {
    /// Seals a mail under a new random id.
    ///
    /// # Errors
    /// [`SealError::NotCurrent`] while this node does not have the current master key.
    pub fn new(keyring: &Keyring, mail: &Mail, to: Recipient) -> Result<QueuedMail, SealError> {
        let id = random_id();
        let plain = serde_json::to_vec(mail).map_err(|_| SealError::Unreadable)?;
        Ok(QueuedMail { id, to, sealed: keyring.seal(MAIL, id, &plain)?, lifetime: mail.lifetime() })
    }
}

/// Returns a random positive id, for rows that are no streams. Every JSON reader keeps it exact.
pub fn random_id() -> i64 {
    rand::random_range(1..1 << 53)
}

/// Stores mails, which are due at once.
pub async fn insert(conn: &mut PgConnection, mails: &[QueuedMail]) -> Result<(), sqlx::Error> {
    for QueuedMail { id, to, sealed, lifetime } in mails {
        let (user_id, invitation_id) = match to {
            Recipient::User(id) => (Some(id), None),
            Recipient::Invitation(id) => (None, Some(id)),
            Recipient::Nobody => (None, None),
        };
        sqlx::query(
            "INSERT INTO vault.mails (id, user_id, invitation_id, sealed, due_at, expires_at)
             VALUES ($1, $2, $3, $4, clock_timestamp(), clock_timestamp() + $5)",
        )
        .bind(id)
        .bind(user_id)
        .bind(invitation_id)
        .bind(&**sealed)
        .bind(lifetime)
        .execute(&mut *conn)
        .await?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn a_mail_is_sealed_and_shows_no_token() {
        let keyring = Keyring::from_base64(&Keyring::generate()).unwrap();
        for mail in [
            Mail::PasswordReset { token: "a secret token".into() },
            Mail::Invitation { token: "a secret token".into(), account_name: "Acme".into() },
            Mail::PasswordChanged,
        ] {
            let queued = QueuedMail::new(&keyring, &mail, Recipient::User(UserId(7))).unwrap();
            assert!(!format!("{mail:?} {queued:?}").contains("a secret token"));
            assert!(!String::from_utf8_lossy(&queued.sealed).contains("a secret token"));
            assert_eq!(Mail::open(&keyring, queued.id, &queued.sealed), Ok(mail));
            assert!(Mail::open(&keyring, queued.id + 1, &queued.sealed).is_err());
        }
    }
}
