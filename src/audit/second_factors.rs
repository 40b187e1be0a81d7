//! Compares second factors, rules for logins and one-time tokens with the log, as far as the log has events for them.

use std::collections::HashMap;

use chrono::{DateTime, Utc};
use ledger_database::{FromRow, PgConnection};
use ledger_events::account::Account;
use ledger_events::user::User;
use ledger_events::{AccountId, UserId};

use super::Findings;
use super::secrets::{PAGE, Streams, add, problem};
use crate::secrets::rows::{NOBODY, Row};
use crate::secrets::seal::Keyring;
use crate::secrets::{INVITATION_EMAIL, TWO_FACTOR_SECRET};

/// Compares users' second factors, in the caller's snapshot. Without the master key, it finds missing and planted ones.
pub async fn users(
    conn: &mut PgConnection,
    streams: Streams<'_>,
    users: &HashMap<UserId, User>,
    keyring: Option<&Keyring>,
    findings: &mut Findings,
) -> Result<(), sqlx::Error> {
    const TABLE: &str = "vault.two_factor";
    let rows: Vec<(UserId, Vec<u8>, bool, Vec<u8>)> = sqlx::query_as(
        "SELECT t.user_id, t.sealed, t.is_enabled, t.mac FROM vault.two_factor t JOIN public.users u ON u.id = t.user_id
         WHERE u.shard_id = $1 AND t.user_id > $2 AND t.user_id <= $3 ORDER BY t.user_id",
    )
    .bind(streams.shard)
    .bind(streams.range.0)
    .bind(streams.range.1)
    .fetch_all(&mut *conn)
    .await?;
    let mut enabled: Vec<UserId> = vec![];
    for (id, sealed, is_enabled, mac) in rows {
        let logged = streams.logged(id.0).two_factor_mac;
        if is_enabled {
            enabled.push(id);
            if logged.is_none() {
                add(findings, TABLE, id, "is not in the log");
                continue;
            }
        }
        let Some(keyring) = keyring else { continue };
        match keyring.open_text(TWO_FACTOR_SECRET, id.0, &sealed) {
            Err(error) => add(findings, TABLE, id, format!("cannot be opened: {error}")),
            Ok(secret) => {
                let row = Row::TwoFactor { user_id: id, secret: secret.expose() };
                let committed = logged.as_deref().filter(|_| is_enabled);
                if let Some(problem) = problem(keyring, row, committed, Some(&mac)) {
                    add(findings, TABLE, id, problem);
                }
            }
        }
    }
    let is_missing = |user: &&User| {
        let is_compared = user.id.0 > streams.range.0 && user.id.0 <= streams.range.1 && !user.is_removed;
        is_compared && !enabled.contains(&user.id) && streams.logged(user.id.0).two_factor_mac.is_some()
    };
    let missing: Vec<UserId> = users.values().filter(is_missing).map(|user| user.id).collect();
    if missing.is_empty() {
        return Ok(());
    }
    // Nobody can log in to an imported log, so nothing is missing there.
    let missing: Vec<UserId> = sqlx::query_scalar("SELECT user_id FROM vault.users WHERE user_id = ANY($1) ORDER BY user_id")
        .bind(missing)
        .fetch_all(conn)
        .await?;
    missing.into_iter().for_each(|id| add(findings, TABLE, id, "is missing: logins of the user take no code"));
    Ok(())
}

/// Compares the rules for logins of accounts, in the caller's snapshot.
pub async fn policies(
    conn: &mut PgConnection,
    streams: Streams<'_>,
    accounts: &HashMap<AccountId, Account>,
    findings: &mut Findings,
) -> Result<(), sqlx::Error> {
    let mut ids: Vec<AccountId> =
        accounts.keys().copied().filter(|id| id.0 > streams.range.0 && id.0 <= streams.range.1).collect();
    ids.sort_unstable();
    // Nobody can log in to an imported log, so no rule is missing there.
    let rows: Vec<(AccountId, bool, bool)> = sqlx::query_as(
        "SELECT a.id, coalesce(s.owners_need_two_factor, false),
            EXISTS (SELECT FROM public.users u JOIN vault.users v ON v.user_id = u.id WHERE u.account_id = a.id)
         FROM unnest($1::bigint[]) AS a (id) LEFT JOIN vault.account_security s ON s.account_id = a.id",
    )
    .bind(&ids)
    .fetch_all(conn)
    .await?;
    for (id, is_strict, has_logins) in rows {
        let logged = streams.logged(id.0).owners_need_two_factor;
        if is_strict != logged && (is_strict || has_logins) {
            add(findings, "vault.account_security", id, "differs from the log");
        }
    }
    Ok(())
}

#[derive(FromRow)]
struct InvitationRow {
    id: i64,
    account_id: AccountId,
    role: String,
    sealed: Vec<u8>,
    token_hash: Vec<u8>,
    invited_by: UserId,
    expires_at: DateTime<Utc>,
    mac: Vec<u8>,
}

/// Hash of the token, user, end and MAC of a password reset.
type ResetRow = (Vec<u8>, Option<UserId>, DateTime<Utc>, Vec<u8>);

/// Compares one-time tokens with their MACs, which alone prove who wrote them.
pub async fn one_time_tokens(conn: &mut PgConnection, keyring: &Keyring, findings: &mut Findings) -> Result<(), sqlx::Error> {
    let mut after = vec![];
    loop {
        let rows: Vec<ResetRow> = sqlx::query_as(
            "SELECT token_hash, user_id, expires_at, mac FROM vault.password_resets WHERE token_hash > $1 ORDER BY token_hash LIMIT $2",
        )
        .bind(&after)
        .bind(PAGE)
        .fetch_all(&mut *conn)
        .await?;
        let Some((last, ..)) = rows.last() else { break };
        after.clone_from(last);
        for (token_hash, user_id, expires_at, mac) in &rows {
            let user_id = user_id.unwrap_or(NOBODY);
            let row = Row::PasswordReset { token_hash, user_id, expires_at: *expires_at };
            if let Some(problem) = problem(keyring, row, None, Some(mac)) {
                add(findings, "vault.password_resets", format!("of user {user_id}"), problem);
            }
        }
    }
    let mut after = 0;
    loop {
        let rows: Vec<InvitationRow> = sqlx::query_as(
            "SELECT id, account_id, role, sealed, token_hash, invited_by, expires_at, mac FROM vault.invitations
             WHERE id > $1 ORDER BY id LIMIT $2",
        )
        .bind(after)
        .bind(PAGE)
        .fetch_all(&mut *conn)
        .await?;
        let Some(last) = rows.last() else { return Ok(()) };
        after = last.id;
        rows.iter().for_each(|row| invitation(keyring, row, findings));
    }
}

fn invitation(keyring: &Keyring, row: &InvitationRow, findings: &mut Findings) {
    const TABLE: &str = "vault.invitations";
    let InvitationRow { id, account_id, ref role, ref sealed, ref token_hash, invited_by, expires_at, ref mac } = *row;
    let email = match keyring.open_text(INVITATION_EMAIL, id, sealed) {
        Ok(email) => email,
        Err(error) => return add(findings, TABLE, id, format!("cannot be opened: {error}")),
    };
    let row = Row::Invitation { id, account_id, role, email: email.expose(), token_hash, invited_by, expires_at };
    if let Some(problem) = problem(keyring, row, None, Some(mac)) {
        add(findings, TABLE, id, problem);
    }
}
