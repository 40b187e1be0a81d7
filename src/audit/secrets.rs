//! Compares values that grant access with the log's commitments. The values are API keys, operators' tokens, passwords,
//! sessions, signing secrets, webhooks' URLs, tokens and headers, and the data keys of sealed texts.
//!
//! Without the master key, only missing rows can be found.

mod webhooks;

use std::collections::HashMap;

use chrono::{DateTime, Utc};
use ledger_database::FromRow;
use ledger_database::PgConnection;
use ledger_events::account::{AccountEvent, Credential, CredentialEvent};
use ledger_events::operator::OperatorEvent;
use ledger_events::user::{User, UserEvent};
use ledger_events::webhook::WebhookEvent;
use ledger_events::{AccountId, CredentialId, Event, Recorded, ShardId, UserId};

use super::{Difference, Findings};
use crate::ledger::keys;
use crate::ledger::texts::{EMAIL, VaultError};
use crate::secrets::SIGNING_SECRET;
use crate::secrets::master_keys;
use crate::secrets::rows::Row;
use crate::secrets::seal::{Keyring, Secret, salted_hash};
pub use webhooks::webhooks;

/// Number of rows per statement.
pub(super) const PAGE: i64 = 5_000;

/// Columns of an operator's token: id, role, token hash, MAC.
type OperatorRow = (i64, String, Vec<u8>, Option<Vec<u8>>);
/// Columns of a refresh token: token hash, session id, expiry time, MAC.
type RefreshTokenRow = (Vec<u8>, i64, DateTime<Utc>, Option<Vec<u8>>);

/// Latest commitments of a stream's events.
#[derive(Clone, Debug, Default)]
pub struct Commitments {
    pub row_mac: Option<String>,
    secret_mac: Option<String>,
    url_hash: Option<String>,
    headers_hash: Option<String>,
    /// MAC of the second factor that the user has.
    pub(super) two_factor_mac: Option<String>,
    pub(super) owners_need_two_factor: bool,
}

/// Folds one event into the commitments.
pub fn fold(logged: &mut HashMap<i64, Commitments>, recorded: &Recorded) {
    let of_stream = || recorded.stream_id;
    match &recorded.event {
        Event::Credential(CredentialEvent::CredentialIssued(e)) => {
            logged.entry(of_stream()).or_default().row_mac = e.row_mac.clone()
        }
        Event::Credential(CredentialEvent::SigningSecretRotated(e)) => {
            logged.entry(of_stream()).or_default().secret_mac = e.secret_mac.clone();
        }
        Event::Operator(OperatorEvent::OperatorTokenIssued(e)) => {
            logged.entry(of_stream()).or_default().row_mac = e.row_mac.clone()
        }
        Event::Operator(event) => {
            if let Some(row_mac) = row_mac_of_user(event) {
                logged.entry(of_stream()).or_default().row_mac = Some(row_mac.clone());
            }
        }
        Event::User(UserEvent::UserTwoFactorEnabled(e)) => {
            logged.entry(of_stream()).or_default().two_factor_mac = Some(e.row_mac.clone());
        }
        Event::User(UserEvent::UserTwoFactorDisabled(_) | UserEvent::UserRemoved(_) | UserEvent::PersonalDataErased(_)) => {
            logged.entry(of_stream()).or_default().two_factor_mac = None;
        }
        Event::Account(AccountEvent::SecurityPolicyChanged(e)) => {
            logged.entry(of_stream()).or_default().owners_need_two_factor = e.owners_need_two_factor;
        }
        Event::User(UserEvent::UserCreated(e)) => logged.entry(of_stream()).or_default().row_mac = e.row_mac.clone(),
        Event::User(UserEvent::UserPasswordReset(e)) => logged.entry(of_stream()).or_default().row_mac = e.row_mac.clone(),
        Event::Webhook(WebhookEvent::WebhookRegistered(e)) => {
            let commitments = logged.entry(of_stream()).or_default();
            commitments.url_hash = Some(e.url_hash.clone());
            commitments.headers_hash = e.headers_hash.clone();
        }
        Event::Webhook(WebhookEvent::WebhookUpdated(e)) => {
            let commitments = logged.entry(of_stream()).or_default();
            commitments.url_hash = e.url_hash.clone().or(commitments.url_hash.take());
            commitments.headers_hash = e.headers_hash.clone().or(commitments.headers_hash.take());
        }
        _ => {}
    }
}

/// Returns the MAC that an event of an operator's user commits to.
fn row_mac_of_user(event: &OperatorEvent) -> Option<&String> {
    match event {
        OperatorEvent::OperatorUserCreated(e) => Some(&e.row_mac),
        OperatorEvent::OperatorUserChanged(e) => Some(&e.row_mac),
        OperatorEvent::OperatorUserRemoved(e) => Some(&e.row_mac),
        OperatorEvent::OperatorTwoFactorEnabled(e) => Some(&e.row_mac),
        OperatorEvent::OperatorTwoFactorRemoved(e) => Some(&e.row_mac),
        OperatorEvent::OperatorTokenIssued(_) | OperatorEvent::OperatorTokenRevoked(_) => None,
    }
}

/// Ids of the compared streams, as a range that excludes its start and includes its end, and their commitments in the
/// log.
#[derive(Clone, Copy)]
pub struct Streams<'a> {
    pub shard: ShardId,
    pub range: (i64, i64),
    pub logged: &'a HashMap<i64, Commitments>,
}

impl Streams<'_> {
    pub fn logged(&self, id: i64) -> Commitments {
        self.logged.get(&id).cloned().unwrap_or_default()
    }
}

/// Compares the MAC of a row. Returns the problem, if any.
pub fn problem(keyring: &Keyring, row: Row<'_>, committed: Option<&str>, stored: Option<&[u8]>) -> Option<&'static str> {
    let made = keyring.row_mac(row).ok()?;
    let differs = "differs from the row that this service wrote: it was replaced or changed";
    match (committed, stored) {
        (Some(committed), _) if committed != hex::encode(made) => Some(differs),
        // A node of an earlier release may have reset the password.
        (None, Some(_)) if matches!(row, Row::User { .. }) && !keyring.requires_macs() => None,
        (_, Some(stored)) if stored != made => Some(differs),
        (Some(_), None) => Some("has lost its MAC"),
        (None, None) if keyring.requires_macs() => Some("has no MAC: this service did not write it"),
        _ => None,
    }
}

pub fn add(findings: &mut Findings, table: &'static str, row: impl ToString, problem: impl Into<String>) {
    findings.add(Difference::Secret { table, row: row.to_string(), problem: problem.into() });
}

#[derive(FromRow)]
struct CredentialRow {
    credential_id: CredentialId,
    key_hash: Vec<u8>,
    secret_hash: Vec<u8>,
    signing_secret: Option<Vec<u8>>,
    mac: Option<Vec<u8>>,
    secret_mac: Option<Vec<u8>>,
}

/// Compares API keys and signing secrets, in the caller's snapshot.
pub async fn credentials(
    conn: &mut PgConnection,
    streams: Streams<'_>,
    credentials: &HashMap<CredentialId, Credential>,
    keyring: Option<&Keyring>,
    findings: &mut Findings,
) -> Result<(), sqlx::Error> {
    const TABLE: &str = "vault.credentials";
    let rows: Vec<CredentialRow> = sqlx::query_as(
        "SELECT v.credential_id, v.key_hash, v.secret_hash, v.signing_secret, m.mac, m.secret_mac FROM vault.credentials v
         LEFT JOIN vault.credential_macs m ON m.credential_id = v.credential_id
         LEFT JOIN public.credentials c ON c.id = v.credential_id
         WHERE v.credential_id > $2 AND v.credential_id <= $3 AND (c.shard_id = $1 OR c.id IS NULL) ORDER BY v.credential_id",
    )
    .bind(streams.shard)
    .bind(streams.range.0)
    .bind(streams.range.1)
    .fetch_all(conn)
    .await?;
    for row in rows {
        let (id, logged) = (row.credential_id, streams.logged(row.credential_id.0));
        let Some(credential) = credentials.get(&id) else {
            add(findings, TABLE, id, "is not in the log");
            continue;
        };
        if credential.has_signing_secret && row.signing_secret.is_none() {
            add(findings, TABLE, id, "has lost its signing secret");
        }
        let Some(keyring) = keyring else { continue };
        let (key_hash, secret_hash) = (&row.key_hash[..], &row.secret_hash[..]);
        let Credential { account_id, restrictions, .. } = credential;
        let key = Row::Credential { id, account_id: *account_id, key_hash, secret_hash, restrictions };
        if let Some(problem) = problem(keyring, key, logged.row_mac.as_deref(), row.mac.as_deref()) {
            add(findings, TABLE, id, problem);
        }
        let Some(sealed) = row.signing_secret else { continue };
        match keyring.open_text(SIGNING_SECRET, id.0, &sealed) {
            Err(error) => add(findings, TABLE, id, format!("its signing secret cannot be opened: {error}")),
            Ok(secret) => {
                let row_of = Row::SigningSecret { id, secret: secret.expose() };
                if problem(keyring, row_of, logged.secret_mac.as_deref(), row.secret_mac.as_deref()).is_some() {
                    add(findings, TABLE, id, "its signing secret is not the latest one");
                }
            }
        }
    }
    Ok(())
}

/// Compares operators' tokens, in the caller's snapshot. The module `operators` checks that each is in the log.
pub async fn operators(
    conn: &mut PgConnection,
    streams: Streams<'_>,
    keyring: &Keyring,
    findings: &mut Findings,
) -> Result<(), sqlx::Error> {
    let rows: Vec<OperatorRow> = sqlx::query_as(
        "SELECT o.id, o.role, o.token_hash, m.mac FROM vault.operators o LEFT JOIN vault.operator_macs m ON m.operator_id = o.id
         WHERE o.id > $1 AND o.id <= $2 ORDER BY o.id",
    )
    .bind(streams.range.0)
    .bind(streams.range.1)
    .fetch_all(conn)
    .await?;
    for (id, role, token_hash, mac) in rows {
        let row = Row::Operator { id, role: &role, token_hash: &token_hash };
        if let Some(problem) = problem(keyring, row, streams.logged(id).row_mac.as_deref(), mac.as_deref()) {
            add(findings, "vault.operators", id, problem);
        }
    }
    Ok(())
}

/// A text of the vault, with its salt, its data key's id and the sealed data key.
#[derive(FromRow)]
pub struct TextRow {
    salt: Option<Vec<u8>>,
    sealed: Option<Vec<u8>>,
    key_id: Option<i64>,
    data_key: Option<Vec<u8>>,
}

impl TextRow {
    /// Checks a text against its hash in the log. Returns the problem, if any.
    pub fn problem(&self, keyring: Option<&Keyring>, kind: &str, id: i64, hash: Option<&str>) -> Option<String> {
        let (Some(salt), Some(sealed)) = (&self.salt, &self.sealed) else { return Some("is missing".to_owned()) };
        if self.key_id.is_some() && self.data_key.is_none() {
            return Some("cannot be opened: its data key is missing".to_owned());
        }
        let keyring = keyring?;
        let open = || -> Result<Secret, VaultError> {
            let key = keys::beside(keyring, self.key_id, self.data_key.as_deref())?;
            Ok(keyring.open_text_under(key.as_ref(), kind, id, sealed)?)
        };
        match open() {
            Err(error) => Some(format!("cannot be opened: {error}")),
            Ok(text) => {
                hash.filter(|hash| *hash != salted_hash(salt, text.expose())).map(|_| "is not the one in the log".to_owned())
            }
        }
    }
}

#[derive(FromRow)]
struct UserRow {
    user_id: UserId,
    password_hash: String,
    mac: Option<Vec<u8>>,
    #[sqlx(flatten)]
    email: TextRow,
}

/// Compares users' passwords and email addresses, in the caller's snapshot.
pub async fn users(
    conn: &mut PgConnection,
    streams: Streams<'_>,
    users: &HashMap<UserId, User>,
    keyring: Option<&Keyring>,
    findings: &mut Findings,
) -> Result<(), sqlx::Error> {
    const TABLE: &str = "vault.users";
    let rows: Vec<UserRow> = sqlx::query_as(
        "SELECT v.user_id, v.password_hash, m.mac, t.salt, t.sealed, t.key_id, k.sealed AS data_key FROM vault.users v
         LEFT JOIN vault.user_macs m ON m.user_id = v.user_id
         LEFT JOIN public.users u ON u.id = v.user_id
         LEFT JOIN vault.texts t ON t.shard_id = $1 AND t.kind = $4 AND t.id = v.user_id
         LEFT JOIN vault.data_keys k ON k.shard_id = $1 AND k.id = t.key_id
         WHERE v.user_id > $2 AND v.user_id <= $3 AND (u.shard_id = $1 OR u.id IS NULL) ORDER BY v.user_id",
    )
    .bind(streams.shard)
    .bind(streams.range.0)
    .bind(streams.range.1)
    .bind(EMAIL)
    .fetch_all(conn)
    .await?;
    for row in rows {
        let id = row.user_id;
        let Some(user) = users.get(&id).filter(|user| !user.is_removed) else {
            add(findings, TABLE, id, "is not in the log, or was removed");
            continue;
        };
        if let Some(problem) = row.email.problem(keyring, EMAIL, id.0, Some(&user.email_hash)) {
            add(findings, TABLE, id, format!("its email {problem}"));
        }
        let Some(keyring) = keyring else { continue };
        let password = Row::User { id, account_id: user.account_id, password_hash: &row.password_hash };
        if let Some(problem) = problem(keyring, password, streams.logged(id.0).row_mac.as_deref(), row.mac.as_deref()) {
            add(findings, TABLE, id, problem);
        }
    }
    Ok(())
}

/// Checks that every data key in use exists and can be opened.
pub async fn data_keys(conn: &mut PgConnection, keyring: Option<&Keyring>, findings: &mut Findings) -> Result<(), sqlx::Error> {
    let missing: Vec<(i64, i64)> = sqlx::query_as(
        "SELECT of.key_id, count(*) FROM (
            SELECT shard_id, key_id FROM vault.texts WHERE key_id IS NOT NULL
            UNION ALL SELECT shard_id, key_id FROM vault.vouchers WHERE key_id IS NOT NULL) AS of
         WHERE NOT EXISTS (SELECT FROM vault.data_keys k WHERE k.shard_id = of.shard_id AND k.id = of.key_id) GROUP BY 1 ORDER BY 1",
    )
    .fetch_all(&mut *conn)
    .await?;
    for (id, values) in missing {
        add(findings, "vault.data_keys", id, format!("is missing: {values} texts or vouchers can no longer be opened"));
    }
    let Some(keyring) = keyring else { return Ok(()) };
    let mut after = (ShardId::MIN, i64::MIN);
    loop {
        let rows: Vec<(ShardId, i64, Vec<u8>)> = sqlx::query_as(
            "SELECT shard_id, id, sealed FROM vault.data_keys WHERE (shard_id, id) > ($1, $2) ORDER BY shard_id, id LIMIT $3",
        )
        .bind(after.0)
        .bind(after.1)
        .bind(PAGE)
        .fetch_all(&mut *conn)
        .await?;
        let Some((shard, id, _)) = rows.last() else { return Ok(()) };
        after = (*shard, *id);
        for (_, id, sealed) in &rows {
            if let Err(error) = keyring.open_data_key(*id, sealed) {
                add(findings, "vault.data_keys", id, format!("cannot be opened: {error}"));
            }
        }
    }
}

#[derive(FromRow)]
struct SessionRow {
    id: i64,
    user_id: UserId,
    account_id: AccountId,
    portal_hash: Vec<u8>,
    portal_expires_at: DateTime<Utc>,
    mac: Option<Vec<u8>>,
}

/// Compares sessions and refresh tokens. The log has no events for them, so only their MACs prove who wrote them.
pub async fn sessions(conn: &mut PgConnection, keyring: &Keyring, findings: &mut Findings) -> Result<(), sqlx::Error> {
    let mut after = i64::MIN;
    loop {
        let rows: Vec<SessionRow> = sqlx::query_as(
            "SELECT s.id, s.user_id, u.account_id, s.portal_hash, s.portal_expires_at, m.mac FROM vault.sessions s
             JOIN public.users u ON u.id = s.user_id LEFT JOIN vault.session_macs m ON m.session_id = s.id
             WHERE s.id > $1 ORDER BY s.id LIMIT $2",
        )
        .bind(after)
        .bind(PAGE)
        .fetch_all(&mut *conn)
        .await?;
        let Some(last) = rows.last() else { break };
        after = last.id;
        for SessionRow { id, user_id, account_id, portal_hash, portal_expires_at, mac } in &rows {
            let row = Row::Session {
                id: *id,
                user_id: *user_id,
                account_id: *account_id,
                portal_hash,
                portal_expires_at: *portal_expires_at,
            };
            if let Some(problem) = problem(keyring, row, None, mac.as_deref()) {
                add(findings, "vault.sessions", id, problem);
            }
        }
    }
    let mut after = vec![];
    loop {
        let rows: Vec<RefreshTokenRow> = sqlx::query_as(
            "SELECT t.token_hash, t.session_id, t.expires_at, m.mac FROM vault.refresh_tokens t
             LEFT JOIN vault.refresh_token_macs m ON m.token_hash = t.token_hash WHERE t.token_hash > $1 ORDER BY t.token_hash LIMIT $2",
        )
        .bind(&after)
        .bind(PAGE)
        .fetch_all(&mut *conn)
        .await?;
        let Some((last, ..)) = rows.last() else { return Ok(()) };
        after.clone_from(last);
        for (token_hash, session_id, expires_at, mac) in &rows {
            let row = Row::RefreshToken { token_hash, session_id: *session_id, expires_at: *expires_at };
            if let Some(problem) = problem(keyring, row, None, mac.as_deref()) {
                add(findings, "vault.refresh_tokens", format!("of session {session_id}"), problem);
            }
        }
    }
}

/// Returns whether the keyring opens the check values. If so, the keyring computes the MACs of this ledger from now on.
pub async fn adopt(conn: &mut PgConnection, keyring: &Keyring, findings: &mut Findings) -> Result<bool, sqlx::Error> {
    let known = master_keys::load(&mut *conn).await?;
    match master_keys::adopt(keyring, &known) {
        Ok(()) => Ok(true),
        Err(error) => {
            add(findings, "vault.master_keys", "of this ledger", error.to_string());
            Ok(false)
        }
    }
}
