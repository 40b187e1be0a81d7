//! Compares operators' users in the vault with the log: role, sign-in, second factor and removal. With the master key, also
//! what they sign in with, and their sessions.

use std::collections::HashMap;

use chrono::{DateTime, Utc};
use ledger_database::{FromRow, PgConnection};
use ledger_events::operator::{OperatorEvent, OperatorRole, SignIn};
use ledger_events::{Recorded, ShardId};
use serde_json::{Value, json};

use super::secrets::{self, Streams, TextRow};
use super::{Difference, FieldDifference, Findings, RowDifference, RowProblem};
use crate::ledger::texts::{OPERATOR_EMAIL, OPERATOR_TOTP};
use crate::secrets::rows::Row;
use crate::secrets::seal::Keyring;

const TABLE: &str = "vault.operator_users";
/// Number of rows per statement.
const PAGE: i64 = 5_000;

/// State of a user according to the log.
#[derive(Clone, Debug)]
pub struct UserState {
    role: OperatorRole,
    sign_in: SignIn,
    email_hash: String,
    totp_hash: Option<String>,
    created_at: DateTime<Utc>,
    removed_at: Option<DateTime<Utc>>,
}

/// Folds one event of a user; other events change nothing. Returns the problem if the event cannot follow the earlier ones.
pub fn fold(users: &mut HashMap<i64, UserState>, recorded: &Recorded, event: &OperatorEvent) -> Option<String> {
    let (id, at) = (recorded.stream_id, recorded.moment.recorded_at);
    let known = users.get_mut(&id);
    let is_fine = match (event, known) {
        (OperatorEvent::OperatorTokenIssued(_) | OperatorEvent::OperatorTokenRevoked(_), known) => known.is_none(),
        (OperatorEvent::OperatorUserCreated(e), None) => {
            let (role, sign_in, email_hash) = (e.role, e.sign_in, e.email_hash.clone());
            users.insert(id, UserState { role, sign_in, email_hash, totp_hash: None, created_at: at, removed_at: None });
            true
        }
        (_, None) | (OperatorEvent::OperatorUserCreated(_), Some(_)) => false,
        (event, Some(user)) => {
            let was_removed = user.removed_at.is_some();
            match event {
                OperatorEvent::OperatorUserChanged(e) => user.role = e.role.unwrap_or(user.role),
                OperatorEvent::OperatorTwoFactorEnabled(e) => user.totp_hash = Some(e.secret_hash.clone()),
                OperatorEvent::OperatorTwoFactorRemoved(_) => user.totp_hash = None,
                _ => (user.totp_hash, user.removed_at) = (None, Some(at)),
            }
            !was_removed
        }
    };
    (!is_fine).then(|| format!("{} cannot follow the earlier events", event.type_and_version().0))
}

#[derive(FromRow)]
struct Stored {
    id: i64,
    role: String,
    password_hash: Option<String>,
    subject_lookup: Option<Vec<u8>>,
    totp_hash: Option<String>,
    mac: Vec<u8>,
    created_at: DateTime<Utc>,
    removed_at: Option<DateTime<Utc>>,
}

impl Stored {
    fn differing(&self, logged: &UserState) -> Vec<FieldDifference> {
        let sign_in = if self.subject_lookup.is_some() { SignIn::OpenId } else { SignIn::Password };
        let compared = [
            ("role", json!(self.role), json!(logged.role)),
            ("sign_in", json!(sign_in), json!(logged.sign_in)),
            ("totp_hash", json!(self.totp_hash), json!(logged.totp_hash)),
            ("created_at", json!(self.created_at), json!(logged.created_at)),
            ("removed_at", json!(self.removed_at), json!(logged.removed_at)),
        ];
        let differs = |(_, stored, folded): &(&str, Value, Value)| stored != folded;
        let field = |(field, stored, folded): (&str, Value, Value)| FieldDifference { field: field.to_owned(), stored, folded };
        compared.into_iter().filter(differs).map(field).collect()
    }

    fn protected(&self) -> Row<'_> {
        Row::OperatorUser {
            id: self.id,
            role: &self.role,
            password_hash: self.password_hash.as_deref(),
            subject_lookup: self.subject_lookup.as_deref(),
            totp_hash: self.totp_hash.as_deref(),
            is_removed: self.removed_at.is_some(),
        }
    }
}

/// Compares the users with ids in a range, in the caller's snapshot.
pub async fn check(
    conn: &mut PgConnection,
    streams: Streams<'_>,
    logged: &HashMap<i64, UserState>,
    keyring: Option<&Keyring>,
    findings: &mut Findings,
) -> Result<(), sqlx::Error> {
    let rows: Vec<Stored> = sqlx::query_as(
        "SELECT id, role, password_hash, subject_lookup, totp_hash, mac, created_at, removed_at FROM vault.operator_users
         WHERE id > $1 AND id <= $2 ORDER BY id",
    )
    .bind(streams.range.0)
    .bind(streams.range.1)
    .fetch_all(&mut *conn)
    .await?;
    let shard = streams.shard;
    let mut add = |id: i64, problem| {
        let (key, part) = (id.to_string(), String::new());
        findings.add(Difference::Row(RowDifference { table: TABLE, shard, key, part, problem }));
    };
    for row in &rows {
        match logged.get(&row.id).map(|logged| row.differing(logged)) {
            Some(fields) if fields.is_empty() => {}
            Some(fields) => add(row.id, RowProblem::Differs { fields }),
            None => add(row.id, RowProblem::Extra),
        }
    }
    let mut missing: Vec<i64> = logged.keys().copied().filter(|id| rows.iter().all(|row| row.id != *id)).collect();
    missing.sort_unstable();
    missing.into_iter().for_each(|id| add(id, RowProblem::Missing));
    for row in rows.iter().filter(|_| keyring.is_some()) {
        let committed = streams.logged(row.id).row_mac;
        let problem =
            keyring.and_then(|keyring| secrets::problem(keyring, row.protected(), committed.as_deref(), Some(&row.mac)));
        if let Some(problem) = problem {
            secrets::add(findings, TABLE, row.id, problem);
        }
    }
    texts(conn, shard, logged, keyring, findings).await
}

#[derive(FromRow)]
struct TextOf {
    id: i64,
    kind: String,
    #[sqlx(flatten)]
    text: TextRow,
}

/// Compares the email addresses and two-factor secrets with their hashes in the log.
async fn texts(
    conn: &mut PgConnection,
    shard: ShardId,
    logged: &HashMap<i64, UserState>,
    keyring: Option<&Keyring>,
    findings: &mut Findings,
) -> Result<(), sqlx::Error> {
    let mut wanted: Vec<(i64, &str)> = logged.keys().map(|id| (*id, OPERATOR_EMAIL)).collect();
    wanted.extend(logged.iter().filter(|(_, user)| user.totp_hash.is_some()).map(|(id, _)| (*id, OPERATOR_TOTP)));
    wanted.sort_unstable();
    let (ids, kinds): (Vec<i64>, Vec<&str>) = wanted.into_iter().unzip();
    let rows: Vec<TextOf> = sqlx::query_as(
        "SELECT w.id, w.kind, t.salt, t.sealed, t.key_id, NULL::bytea AS data_key FROM unnest($2::bigint[], $3::text[]) AS w (id, kind)
         LEFT JOIN vault.texts t ON t.shard_id = $1 AND t.kind = w.kind AND t.id = w.id",
    )
    .bind(shard)
    .bind(ids)
    .bind(kinds)
    .fetch_all(conn)
    .await?;
    for TextOf { id, kind, text } in rows {
        let Some(user) = logged.get(&id) else { continue };
        let (name, hash) = match kind == OPERATOR_TOTP {
            true => ("two-factor secret", user.totp_hash.as_deref()),
            false => ("email", Some(user.email_hash.as_str())),
        };
        if let Some(problem) = text.problem(keyring, &kind, id, hash) {
            secrets::add(findings, TABLE, id, format!("its {name} {problem}"));
        }
    }
    Ok(())
}

#[derive(FromRow)]
struct SessionRow {
    id: i64,
    operator_id: i64,
    secret_hash: Vec<u8>,
    expires_at: DateTime<Utc>,
    mac: Vec<u8>,
}

/// Compares sessions of the console and recovery codes. The log has no events for them, so only their MACs prove who wrote
/// them.
pub async fn sessions(conn: &mut PgConnection, keyring: &Keyring, findings: &mut Findings) -> Result<(), sqlx::Error> {
    let mut after = i64::MIN;
    loop {
        let rows: Vec<SessionRow> = sqlx::query_as(
            "SELECT id, operator_id, secret_hash, expires_at, mac FROM vault.console_sessions WHERE id > $1 ORDER BY id LIMIT $2",
        )
        .bind(after)
        .bind(PAGE)
        .fetch_all(&mut *conn)
        .await?;
        let Some(last) = rows.last() else { break };
        after = last.id;
        for SessionRow { id, operator_id, secret_hash, expires_at, mac } in &rows {
            let row = Row::ConsoleSession { id: *id, operator_id: *operator_id, secret_hash, expires_at: *expires_at };
            if let Some(problem) = secrets::problem(keyring, row, None, Some(mac)) {
                secrets::add(findings, "vault.console_sessions", id, problem);
            }
        }
    }
    // An operator's user has ten codes, and a ledger has few users.
    let codes: Vec<(i64, Vec<u8>, Vec<u8>)> =
        sqlx::query_as("SELECT operator_id, code_hash, mac FROM vault.operator_recovery_codes ORDER BY operator_id, code_hash")
            .fetch_all(conn)
            .await?;
    for (operator_id, code_hash, mac) in &codes {
        let row = Row::OperatorRecoveryCode { operator_id: *operator_id, code_hash };
        if let Some(problem) = secrets::problem(keyring, row, None, Some(mac)) {
            secrets::add(findings, "vault.operator_recovery_codes", format!("of {operator_id}"), problem);
        }
    }
    Ok(())
}
