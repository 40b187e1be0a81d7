//! Notices of suppliers: a supplier says that an order is ready, so that the node asks now instead of at the next poll.
//!
//! A notice only makes a purchase due. Whatever else it says is not read: the node asks the supplier itself, as always.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;

use ledger_database::PgPool;
use reqwest::header::HeaderName;
use serde_json::Value;
use uuid::Uuid;
use webhook_client::signature::{self, VerifyError};

use super::settings::{Described, LONGEST_PAUSE, SettingsError, described, directory, fault, secret};
use crate::secrets::seal::Secret;

/// Minimum length of the secret, in bytes. Anybody who guesses it can make the node ask the supplier.
const MIN_SECRET: usize = 16;

/// Secret of a supplier that sends notices, their headers, and the place of the key.
#[derive(Clone, Debug)]
pub struct NoticeSettings {
    secret: Secret,
    pub signature_header: HeaderName,
    pub timestamp_header: HeaderName,
    /// JSON pointer (RFC 6901) to the idempotency key.
    pub key: String,
}

impl NoticeSettings {
    /// Verifies the signature of a notice, and that it is at most five minutes old.
    ///
    /// # Errors
    /// If the notice is not authentic.
    pub fn verify(&self, timestamp: &str, signature: &str, body: &[u8], now: i64) -> Result<(), VerifyError> {
        signature::verify(self.secret.expose(), timestamp, body, signature, now)
    }

    /// Returns the text of the key, if the notice has one.
    pub fn key<'a>(&self, notice: &'a Value) -> Option<&'a str> {
        notice.pointer(&self.key).and_then(Value::as_str)
    }

    /// Reads the settings of a supplier that sends notices.
    fn read(described: &Described, directory: &Path) -> Result<Option<NoticeSettings>, SettingsError> {
        let name = &described.name;
        let fault = |field: &str, problem: &str| fault(name, field, problem);
        let Some(path) = &described.notice_secret_file else {
            return match &described.notice {
                Some(_) => Err(fault("notice", "needs notice_secret_file")),
                None => Ok(None),
            };
        };
        if *path == described.client_secret_file {
            return Err(fault("notice_secret_file", "must be another file than client_secret_file"));
        }
        let secret = secret(name, "notice_secret_file", &directory.join(path))?;
        if secret.expose().len() < MIN_SECRET {
            return Err(fault("notice_secret_file", &format!("must have a secret of {MIN_SECRET} characters or more")));
        }
        let fields = described.notice.clone().unwrap_or_default();
        let header = |field: &str, name: &str| name.parse().map_err(|_| fault(field, "must be the name of a header"));
        if !fields.key.starts_with('/') {
            return Err(fault("notice.key", "must be a JSON pointer that begins with /"));
        }
        Ok(Some(NoticeSettings {
            secret,
            signature_header: header("notice.signature_header", &fields.signature_header)?,
            timestamp_header: header("notice.timestamp_header", &fields.timestamp_header)?,
            key: fields.key,
        }))
    }
}

/// Suppliers whose notices a node accepts, by name. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct Notices(Arc<HashMap<String, NoticeSettings>>);

impl Notices {
    /// Reads from the file of suppliers what notices need. The secrets for calls are not read.
    ///
    /// # Errors
    /// If the file or the secret of a supplier's notices cannot be read, or if a field is invalid.
    pub fn read(path: &Path) -> Result<Notices, SettingsError> {
        let mut notices = HashMap::new();
        for described in described(path)? {
            if let Some(settings) = NoticeSettings::read(&described, directory(path))? {
                notices.insert(described.name, settings);
            }
        }
        Ok(Notices(Arc::new(notices)))
    }

    /// Returns the settings of a supplier, if it sends notices.
    pub fn of(&self, supplier: &str) -> Option<&NoticeSettings> {
        self.0.get(supplier)
    }
}

/// Makes the purchase with this key due now. Does nothing for an unknown key, for a purchase of another supplier, and for one that
/// has ended.
///
/// A purchase that is leased may have been asked about just before it became ready. The notice is then kept until the node gives the
/// lease back, which makes the purchase due again. If the node dies, the purchase is due after the lease in any case. A purchase that
/// no node has claimed yet has no row of calls, and is due without it.
///
/// After a failed call, the purchase keeps its pause. Otherwise repeated notices would let a supplier that fails be called again and
/// again, at the full rate. The pause is short at first, and its end brings the question that the notice asks for. A notice moves
/// neither the rate nor the breaker of the supplier.
///
/// # Errors
/// Any error of the database.
pub async fn take_notice(pool: &PgPool, supplier: &str, key: Uuid) -> Result<(), sqlx::Error> {
    // A repeated notice writes nothing. As in a claim, a lease that is further ahead than the longest pause counts as past. Each
    // condition is on the row that is changed, so it still holds after a wait for the row's lock.
    sqlx::query(
        "WITH purchase AS (
            SELECT shard_id, id FROM purchases WHERE key = $1 AND supplier = $2 AND status IN ('REQUESTED', 'PENDING'))
         UPDATE purchase_calls c SET is_noticed = c.leased_until > now() AND c.leased_until <= now() + $3,
            due_at = CASE WHEN c.leased_until > now() AND c.leased_until <= now() + $3 THEN c.due_at ELSE now() END
         FROM purchase p WHERE c.shard_id = p.shard_id AND c.purchase_id = p.id
            AND CASE WHEN c.leased_until > now() AND c.leased_until <= now() + $3 THEN NOT c.is_noticed
                ELSE c.problem IS NULL AND c.due_at > now() END",
    )
    .bind(key)
    .bind(supplier)
    .bind(LONGEST_PAUSE)
    .execute(pool)
    .await?;
    Ok(())
}
