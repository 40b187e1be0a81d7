//! Second factors, invitations and rules for logins: rows of the vault that a batch writes beside its events.

use chrono::{DateTime, Utc};
use ledger_database::PgConnection;
use ledger_events::user::UserRole;
use ledger_events::{AccountId, UserId};

use crate::secrets::seal::Secret;

/// A new invitation, sealed.
#[derive(Debug)]
pub struct NewInvitation {
    pub id: i64,
    pub account_id: AccountId,
    pub role: UserRole,
    pub sealed: Vec<u8>,
    pub token_hash: [u8; 32],
    pub invited_by: UserId,
    pub created_at: DateTime<Utc>,
    pub expires_at: DateTime<Utc>,
    pub mac: [u8; 32],
}

/// An invitation that has neither expired nor ended, sealed.
#[derive(Clone, Debug)]
pub struct OpenInvitation {
    pub id: i64,
    pub sealed: Vec<u8>,
}

/// A confirmed second factor, sealed.
#[derive(Debug)]
pub struct NewTwoFactor {
    pub user_id: UserId,
    pub sealed: Vec<u8>,
    /// Step of the code that confirmed it.
    pub step: i64,
    pub mac: [u8; 32],
    /// Keyed hashes of the recovery codes.
    pub recovery_codes: Vec<[u8; 32]>,
}

/// A change to the rows beside a user or an account.
#[derive(Debug)]
pub enum Change {
    EnableTwoFactor(NewTwoFactor),
    DisableTwoFactor(UserId),
    SetPolicy { account_id: AccountId, owners_need_two_factor: bool },
    Invite(NewInvitation),
    EndInvitation(i64),
}

/// Writes changes, in this order.
pub async fn write(conn: &mut PgConnection, changes: &[Change]) -> Result<(), sqlx::Error> {
    for change in changes {
        match change {
            Change::EnableTwoFactor(new) => enable(conn, new).await?,
            Change::DisableTwoFactor(id) => {
                sqlx::query("DELETE FROM vault.two_factor WHERE user_id = $1").bind(id).execute(&mut *conn).await?;
            }
            Change::SetPolicy { account_id, owners_need_two_factor } => {
                sqlx::query(
                    "INSERT INTO vault.account_security (account_id, owners_need_two_factor) VALUES ($1, $2)
                     ON CONFLICT (account_id) DO UPDATE SET owners_need_two_factor = excluded.owners_need_two_factor",
                )
                .bind(account_id)
                .bind(owners_need_two_factor)
                .execute(&mut *conn)
                .await?;
            }
            Change::Invite(new) => invite(conn, new).await?,
            Change::EndInvitation(id) => {
                sqlx::query("DELETE FROM vault.invitations WHERE id = $1").bind(id).execute(&mut *conn).await?;
            }
        }
    }
    Ok(())
}

async fn enable(conn: &mut PgConnection, new: &NewTwoFactor) -> Result<(), sqlx::Error> {
    sqlx::query(
        "INSERT INTO vault.two_factor (user_id, sealed, is_enabled, last_step, mac) VALUES ($1, $2, true, $3, $4)
         ON CONFLICT (user_id) DO UPDATE SET sealed = excluded.sealed, is_enabled = true, last_step = excluded.last_step, mac = excluded.mac",
    )
    .bind(new.user_id)
    .bind(&*new.sealed)
    .bind(new.step)
    .bind(&new.mac[..])
    .execute(&mut *conn)
    .await?;
    sqlx::query("INSERT INTO vault.recovery_codes (user_id, code_hash) SELECT $1, code FROM unnest($2::bytea[]) AS new (code)")
        .bind(new.user_id)
        .bind(new.recovery_codes.iter().map(|hash| &hash[..]).collect::<Vec<_>>())
        .execute(conn)
        .await?;
    Ok(())
}

async fn invite(conn: &mut PgConnection, new: &NewInvitation) -> Result<(), sqlx::Error> {
    sqlx::query(
        "INSERT INTO vault.invitations (id, account_id, role, sealed, token_hash, invited_by, created_at, expires_at, mac)
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)",
    )
    .bind(new.id)
    .bind(new.account_id)
    .bind(new.role.as_str())
    .bind(&*new.sealed)
    .bind(&new.token_hash[..])
    .bind(new.invited_by)
    .bind(new.created_at)
    .bind(new.expires_at)
    .bind(&new.mac[..])
    .execute(conn)
    .await?;
    Ok(())
}

/// Returns the open invitations of these accounts.
pub async fn open_invitations(
    conn: &mut PgConnection,
    accounts: &[AccountId],
) -> Result<Vec<(AccountId, OpenInvitation)>, sqlx::Error> {
    let open: Vec<(AccountId, i64, Vec<u8>)> = sqlx::query_as(
        "SELECT account_id, id, sealed FROM vault.invitations WHERE account_id = ANY($1) AND expires_at > clock_timestamp()",
    )
    .bind(accounts)
    .fetch_all(conn)
    .await?;
    Ok(open.into_iter().map(|(account_id, id, sealed)| (account_id, OpenInvitation { id, sealed })).collect())
}

/// Deletes the tokens by which a user could set another password.
pub async fn end_resets(conn: &mut PgConnection, user: UserId) -> Result<(), sqlx::Error> {
    sqlx::query("DELETE FROM vault.password_resets WHERE user_id = $1").bind(user).execute(conn).await.map(drop)
}

/// Returns the hashes of these users' passwords.
pub async fn password_hashes(conn: &mut PgConnection, users: &[UserId]) -> Result<Vec<(UserId, Secret)>, sqlx::Error> {
    let stored: Vec<(UserId, String)> = sqlx::query_as("SELECT user_id, password_hash FROM vault.users WHERE user_id = ANY($1)")
        .bind(users)
        .fetch_all(conn)
        .await?;
    Ok(stored.into_iter().map(|(id, hash)| (id, Secret::new(hash))).collect())
}

/// Returns those of these users that have two-factor authentication.
pub async fn with_two_factor(conn: &mut PgConnection, users: &[UserId]) -> Result<Vec<UserId>, sqlx::Error> {
    sqlx::query_scalar("SELECT user_id FROM vault.two_factor WHERE is_enabled AND user_id = ANY($1)")
        .bind(users)
        .fetch_all(conn)
        .await
}

/// Returns those of these accounts whose owners need two-factor authentication.
pub async fn with_policy(conn: &mut PgConnection, accounts: &[AccountId]) -> Result<Vec<AccountId>, sqlx::Error> {
    sqlx::query_scalar("SELECT account_id FROM vault.account_security WHERE owners_need_two_factor AND account_id = ANY($1)")
        .bind(accounts)
        .fetch_all(conn)
        .await
}
