//! Mails to users: their words, and the loop that sends them.
//!
//! A mail is stored with the change that it is about ([`crate::ledger::outbox`]). The loop leases it, sends it outside any
//! transaction, and deletes it. If a node dies in between, the lease expires and the mail is sent again: a mail is sent at
//! least once.

pub mod compose;
mod transport;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use chrono::{DateTime, TimeDelta, Utc};
use ledger_database::{FromRow, PgPool};
use ledger_events::{AccountId, ShardId, UserId};
use tokio::time::MissedTickBehavior;
use tokio_util::sync::CancellationToken;

use crate::heartbeat::Heartbeat;
use crate::ledger::outbox::Mail;
use crate::ledger::texts::{self, EMAIL, Texts, VaultError};
use crate::ledger::{ShardWatch, low_balance};
use crate::secrets::INVITATION_EMAIL;
use crate::secrets::seal::{Keyring, Secret};
use crate::telemetry::Metrics;
pub use compose::{Message, Site, compose};
pub use lettre::message::Mailbox;
pub use transport::{SendError, Sender, SmtpUrl, Transport};

/// Interval at which the loop looks for mails that are due.
const POLL_EVERY: Duration = Duration::from_secs(1);
/// Number of mails that a node leases at once, and the duration of a lease. Sending all of them takes less.
const BATCH_MAILS: i64 = 8;
const LEASE: TimeDelta = TimeDelta::minutes(5);
/// Wait after the first failed attempt; it doubles after each further one, up to the maximum.
const BACKOFF: TimeDelta = TimeDelta::seconds(5);
const MAX_BACKOFF: TimeDelta = TimeDelta::minutes(15);

/// A leased mail, with what its address is found by.
#[derive(Debug, FromRow)]
struct Leased {
    id: i64,
    attempts: i16,
    sealed: Vec<u8>,
    user_id: Option<UserId>,
    shard_id: Option<ShardId>,
    invitation_id: Option<i64>,
    invitation: Option<Vec<u8>>,
}

#[derive(FromRow)]
struct SentRow {
    sent_at: DateTime<Utc>,
    #[sqlx(flatten)]
    mail: Leased,
}

/// A mail that a sandbox or the demo has sent.
#[derive(Clone, Debug)]
pub struct SentMail {
    pub sent_at: DateTime<Utc>,
    pub message: Message,
}

/// Sends mails that are due. Several nodes may do this at the same time.
#[derive(Clone, Debug)]
pub struct Mailer {
    pub pool: PgPool,
    /// Shards whose notices become mails.
    pub shards: ShardWatch,
    pub keyring: Arc<Keyring>,
    pub sender: Arc<Sender>,
    pub site: Site,
    /// Whether sent mails stay until they expire, for the page of a sandbox that shows them.
    pub keeps_sent: bool,
    pub metrics: Metrics,
}

#[derive(Debug, thiserror::Error)]
enum MailError {
    #[error(transparent)]
    Vault(#[from] VaultError),
    #[error(transparent)]
    Send(#[from] SendError),
}

impl MailError {
    /// Returns whether no repetition can succeed.
    fn is_for_good(&self) -> bool {
        matches!(self, Self::Send(SendError::Recipient(_) | SendError::Address(_)))
    }
}

impl Mailer {
    /// Sends mails until `stop` is cancelled.
    pub async fn run(self, heartbeat: Heartbeat, stop: CancellationToken) {
        let mut due = tokio::time::interval(POLL_EVERY);
        due.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            heartbeat.rest();
            if stop.run_until_cancelled(due.tick()).await.is_none() {
                return;
            }
            if let Err(error) = self.queue_notices(&heartbeat).await {
                tracing::warn!(%error, "failed to queue the mails of low balances; retrying");
            }
            while !stop.is_cancelled() {
                match self.send_due(&heartbeat).await {
                    Ok(0) => break,
                    Ok(_) => {}
                    Err(error) => {
                        tracing::warn!(%error, "failed to query due mails; retrying");
                        break;
                    }
                }
            }
        }
    }

    /// Makes mails of the notices of low balances that are due. Returns the number of notices.
    ///
    /// # Errors
    /// Any error of the database, and a mail that cannot be sealed. The notices stay due.
    pub async fn queue_notices(&self, heartbeat: &Heartbeat) -> Result<usize, sqlx::Error> {
        let mut queued = 0;
        for shard in self.shards.current() {
            heartbeat.beat();
            queued += low_balance::queue_mails(&self.pool, &self.keyring, shard).await?;
        }
        Ok(queued)
    }

    /// Leases mails that are due and attempts to send each once. Returns their number.
    ///
    /// # Errors
    /// Any error of the database while it leases the mails.
    pub async fn send_due(&self, heartbeat: &Heartbeat) -> Result<usize, sqlx::Error> {
        heartbeat.beat();
        let leased: Vec<Leased> = sqlx::query_as(
            "WITH due AS (
                SELECT id FROM vault.mails WHERE sent_at IS NULL AND due_at <= clock_timestamp() AND expires_at > clock_timestamp()
                ORDER BY due_at LIMIT $1 FOR UPDATE SKIP LOCKED), leased AS (
                UPDATE vault.mails m SET due_at = clock_timestamp() + $2, attempts = least(m.attempts, 1000) + 1 FROM due WHERE m.id = due.id
                RETURNING m.id, m.attempts, m.sealed, m.user_id, m.invitation_id)
             SELECT l.id, l.attempts, l.sealed, l.user_id, u.shard_id, l.invitation_id, i.sealed AS invitation FROM leased l
             LEFT JOIN users u ON u.id = l.user_id LEFT JOIN vault.invitations i ON i.id = l.invitation_id",
        )
        .bind(BATCH_MAILS)
        .bind(LEASE)
        .fetch_all(&self.pool)
        .await?;
        for mail in &leased {
            heartbeat.beat();
            let outcome = self.send(mail).await;
            if let Err(error) = self.record(mail, outcome).await {
                tracing::warn!(%error, mail = mail.id, "failed to record that a mail was sent; it is sent again when its lease expires");
            }
        }
        Ok(leased.len())
    }

    /// Sends a mail. Returns false if it has no recipient.
    async fn send(&self, leased: &Leased) -> Result<bool, MailError> {
        let emails = emails(&self.pool, &self.keyring, [leased]).await?;
        let Some(message) = message(&self.keyring, &self.site, leased, &emails)? else { return Ok(false) };
        self.sender.send(leased.id, &message).await?;
        Ok(true)
    }

    /// Records the outcome of an attempt. A failed mail is due again after a backoff. One whose recipient is refused for
    /// good, or has an address that no mail can have, is deleted, as one without a recipient is.
    async fn record(&self, mail: &Leased, outcome: Result<bool, MailError>) -> Result<(), sqlx::Error> {
        match &outcome {
            Ok(true) => self.metrics.mail_attempted("sent"),
            Ok(false) => {}
            Err(error) if error.is_for_good() => {
                self.metrics.mail_attempted("refused");
                tracing::warn!(%error, mail = mail.id, attempts = mail.attempts, "failed to send a mail; giving up");
            }
            Err(error) => {
                self.metrics.mail_attempted("failed");
                tracing::warn!(%error, mail = mail.id, attempts = mail.attempts, "failed to send a mail; retrying");
            }
        }
        match outcome {
            Ok(true) if self.keeps_sent => {
                sqlx::query("UPDATE vault.mails SET sent_at = clock_timestamp() WHERE id = $1")
                    .bind(mail.id)
                    .execute(&self.pool)
                    .await?;
            }
            Err(error) if !error.is_for_good() => {
                sqlx::query("UPDATE vault.mails SET due_at = clock_timestamp() + $2 WHERE id = $1")
                    .bind(mail.id)
                    .bind(backoff(mail.attempts))
                    .execute(&self.pool)
                    .await?;
            }
            Ok(_) | Err(_) => {
                sqlx::query("DELETE FROM vault.mails WHERE id = $1").bind(mail.id).execute(&self.pool).await?;
            }
        }
        Ok(())
    }
}

/// Puts a stored mail into words. Returns none if it has no recipient.
fn message(keyring: &Keyring, site: &Site, mail: &Leased, emails: &Texts) -> Result<Option<Message>, VaultError> {
    let Some(to) = address(keyring, mail, emails)? else { return Ok(None) };
    Ok(Some(compose(&Mail::open(keyring, mail.id, &mail.sealed)?, &to, site)))
}

/// Returns the recipient's address, unless there is none or it was erased.
fn address(keyring: &Keyring, mail: &Leased, emails: &Texts) -> Result<Option<Secret>, VaultError> {
    if let Some(user) = mail.user_id {
        return Ok(emails.get(&(EMAIL, user.0)).cloned());
    }
    match (mail.invitation_id, &mail.invitation) {
        (Some(id), Some(sealed)) => Ok(Some(keyring.open_text(INVITATION_EMAIL, id, sealed)?)),
        _ => Ok(None),
    }
}

/// Loads the email addresses of the users who receive these mails, with one query for each shard.
async fn emails<'a>(pool: &PgPool, keyring: &Keyring, mails: impl IntoIterator<Item = &'a Leased>) -> Result<Texts, VaultError> {
    let mut wanted: BTreeMap<ShardId, Vec<(&'static str, i64)>> = BTreeMap::new();
    for mail in mails {
        if let (Some(user), Some(shard)) = (mail.user_id, mail.shard_id) {
            wanted.entry(shard).or_default().push((EMAIL, user.0));
        }
    }
    let mut emails = Texts::new();
    for (shard, users) in wanted {
        emails.extend(texts::load(pool, keyring, shard, &users).await?);
    }
    Ok(emails)
}

/// Lists the newest mails that a sandbox has sent to users of an account and to people whom it invited. Mails whose
/// recipient is gone are left out.
///
/// # Errors
/// Any error of the database, and a mail that cannot be opened.
pub async fn sent(
    pool: &PgPool,
    keyring: &Keyring,
    site: &Site,
    account: AccountId,
    limit: i64,
) -> Result<Vec<SentMail>, VaultError> {
    let rows: Vec<SentRow> = sqlx::query_as(
        "SELECT m.sent_at, m.id, m.attempts, m.sealed, m.user_id, u.shard_id, m.invitation_id, i.sealed AS invitation FROM vault.mails m
         LEFT JOIN users u ON u.id = m.user_id LEFT JOIN vault.invitations i ON i.id = m.invitation_id
         WHERE m.sent_at IS NOT NULL AND (u.account_id = $1 OR i.account_id = $1) ORDER BY m.sent_at DESC LIMIT $2",
    )
    .bind(account)
    .bind(limit)
    .fetch_all(pool)
    .await?;
    let emails = emails(pool, keyring, rows.iter().map(|row| &row.mail)).await?;
    let mut sent = Vec::with_capacity(rows.len());
    for SentRow { sent_at, mail } in rows {
        if let Some(message) = message(keyring, site, &mail, &emails)? {
            sent.push(SentMail { sent_at, message });
        }
    }
    Ok(sent)
}

/// Returns the wait after this many failed attempts.
fn backoff(attempts: i16) -> TimeDelta {
    let doublings = u32::try_from(attempts.clamp(1, 16) - 1).unwrap_or_default();
    BACKOFF.checked_mul(1 << doublings).unwrap_or(MAX_BACKOFF).min(MAX_BACKOFF)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_wait_doubles_up_to_its_maximum() {
        let waits = [1, 2, 3, 4, 8, 9, 1000].map(|attempts| backoff(attempts).num_seconds());
        assert_eq!(waits, [5, 10, 20, 40, 640, 900, 900]);
    }
}
