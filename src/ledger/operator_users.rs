//! Rows of operators' users: roles and hashes, never a password or a two-factor secret.

use chrono::{DateTime, Utc};
use ledger_database::{FromRow, PgConnection, PgPool};
use ledger_events::ShardId;
use ledger_events::operator::{OperatorRole as Role, SignIn};
use ledger_projections::page::{Listed, Page};

use super::texts::OPERATOR_TOTP;
use crate::secrets::rows::Row;
use crate::secrets::seal::Secret;

/// A user as the writer decides on it.
#[derive(Clone, Debug)]
pub struct UserRow {
    pub id: i64,
    pub role: Role,
    pub email_lookup: Option<[u8; 32]>,
    /// argon2id, as a PHC string.
    pub password_hash: Option<Secret>,
    /// Keyed hash of issuer and subject.
    pub subject_lookup: Option<[u8; 32]>,
    /// Salted hash of the two-factor secret.
    pub totp_hash: Option<String>,
    pub created_at: DateTime<Utc>,
    pub removed_at: Option<DateTime<Utc>>,
}

impl UserRow {
    /// Returns the columns that the row's MAC covers.
    pub fn protected(&self) -> Row<'_> {
        Row::OperatorUser {
            id: self.id,
            role: self.role.as_str(),
            password_hash: self.password_hash.as_ref().map(Secret::expose),
            subject_lookup: self.subject_lookup.as_ref().map(|lookup| &lookup[..]),
            totp_hash: self.totp_hash.as_deref(),
            is_removed: self.removed_at.is_some(),
        }
    }

    pub fn sign_in(&self) -> SignIn {
        if self.subject_lookup.is_some() { SignIn::OpenId } else { SignIn::Password }
    }

    pub fn public(&self) -> OperatorUser {
        OperatorUser {
            id: self.id,
            role: self.role,
            sign_in: self.sign_in(),
            has_two_factor: self.totp_hash.is_some(),
            created_at: self.created_at,
        }
    }
}

/// Public fields of a user. The email address is in the vault.
#[derive(Clone, Copy, Debug)]
pub struct OperatorUser {
    pub id: i64,
    pub role: Role,
    pub sign_in: SignIn,
    pub has_two_factor: bool,
    pub created_at: DateTime<Utc>,
}

/// Sessions that end with a change.
#[derive(Clone, Copy, Debug)]
pub enum EndedSessions {
    None,
    All,
    /// All sessions but the one that makes the change.
    AllBut(i64),
}

/// Change to the second factor.
#[derive(Clone, Debug)]
pub enum TwoFactorChange {
    None,
    Enable {
        /// Time step of the code that confirmed the enrolment.
        step: i64,
        /// Keyed hashes of the recovery codes, each with its MAC.
        codes: Vec<([u8; 32], [u8; 32])>,
    },
    Remove,
}

/// New state of a user, decided by the writer.
#[derive(Debug)]
pub struct Change {
    pub row: UserRow,
    pub mac: [u8; 32],
    pub sessions: EndedSessions,
    pub two_factor: TwoFactorChange,
}

/// Columns of a row, as the database returns them.
#[derive(FromRow)]
struct Stored {
    id: i64,
    role: String,
    email_lookup: Option<Vec<u8>>,
    password_hash: Option<String>,
    subject_lookup: Option<Vec<u8>>,
    totp_hash: Option<String>,
    created_at: DateTime<Utc>,
    removed_at: Option<DateTime<Utc>>,
}

impl TryFrom<Stored> for UserRow {
    type Error = sqlx::Error;

    fn try_from(stored: Stored) -> Result<UserRow, sqlx::Error> {
        let damaged = |what: &'static str| sqlx::Error::Decode(what.into());
        let hash = |bytes: Option<Vec<u8>>| {
            let hash = bytes.map(<[u8; 32]>::try_from).transpose();
            hash.map_err(|_| damaged("a keyed hash of an operator's user is not 32 bytes"))
        };
        Ok(UserRow {
            id: stored.id,
            role: Role::parse(&stored.role).ok_or_else(|| damaged("the role of an operator's user is unknown"))?,
            email_lookup: hash(stored.email_lookup)?,
            password_hash: stored.password_hash.map(Secret::new),
            subject_lookup: hash(stored.subject_lookup)?,
            totp_hash: stored.totp_hash,
            created_at: stored.created_at,
            removed_at: stored.removed_at,
        })
    }
}

/// Loads these users with the versions of their streams, and locks the rows until the transaction ends.
pub async fn lock(conn: &mut PgConnection, shard: ShardId, ids: &[i64]) -> Result<Vec<(i64, UserRow)>, sqlx::Error> {
    let stored: Vec<Stored> = sqlx::query_as(
        "SELECT id, role, email_lookup, password_hash, subject_lookup, totp_hash, created_at, removed_at
         FROM vault.operator_users WHERE id = ANY($1) ORDER BY id FOR UPDATE",
    )
    .bind(ids)
    .fetch_all(&mut *conn)
    .await?;
    let found: Vec<i64> = stored.iter().map(|row| row.id).collect();
    let versions: Vec<(i64, i64)> = sqlx::query_as(
        "SELECT u.id, (SELECT coalesce(max(version), 0) FROM events
            WHERE shard_id = $1 AND stream_type = 'operator' AND stream_id = u.id) FROM unnest($2::bigint[]) AS u (id)",
    )
    .bind(shard)
    .bind(&found)
    .fetch_all(conn)
    .await?;
    let version = |id| versions.iter().find(|(of, _)| *of == id).map_or(0, |(_, version)| *version);
    stored.into_iter().map(|row| Ok((version(row.id), UserRow::try_from(row)?))).collect()
}

/// Returns the ids of the users with these keyed hashes of emails and of subjects.
pub async fn find(
    conn: &mut PgConnection,
    emails: &[[u8; 32]],
    subjects: &[[u8; 32]],
) -> Result<Vec<(i64, Option<Vec<u8>>, Option<Vec<u8>>)>, sqlx::Error> {
    let bytes = |hashes: &[[u8; 32]]| hashes.iter().map(|hash| hash.to_vec()).collect::<Vec<_>>();
    sqlx::query_as(
        "SELECT id, email_lookup, subject_lookup FROM vault.operator_users
         WHERE email_lookup = ANY($1) OR subject_lookup = ANY($2)",
    )
    .bind(bytes(emails))
    .bind(bytes(subjects))
    .fetch_all(conn)
    .await
}

/// Writes the new state of a user.
pub async fn write(conn: &mut PgConnection, change: &Change) -> Result<(), sqlx::Error> {
    let Change { row, mac, sessions, two_factor } = change;
    sqlx::query(
        "INSERT INTO vault.operator_users (id, role, email_lookup, password_hash, subject_lookup, totp_hash, mac, created_at, removed_at)
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)
         ON CONFLICT (id) DO UPDATE SET role = excluded.role, email_lookup = excluded.email_lookup,
            password_hash = excluded.password_hash, subject_lookup = excluded.subject_lookup, totp_hash = excluded.totp_hash,
            mac = excluded.mac, removed_at = excluded.removed_at",
    )
    .bind(row.id)
    .bind(row.role.as_str())
    .bind(row.email_lookup.as_ref().map(|lookup| &lookup[..]))
    .bind(row.password_hash.as_ref().map(Secret::expose))
    .bind(row.subject_lookup.as_ref().map(|lookup| &lookup[..]))
    .bind(&row.totp_hash)
    .bind(&mac[..])
    .bind(row.created_at)
    .bind(row.removed_at)
    .execute(&mut *conn)
    .await?;
    write_two_factor(conn, row.id, two_factor).await?;
    let kept = match sessions {
        EndedSessions::None => return Ok(()),
        EndedSessions::All => None,
        EndedSessions::AllBut(kept) => Some(*kept),
    };
    sqlx::query("DELETE FROM vault.console_sessions WHERE operator_id = $1 AND id IS DISTINCT FROM $2")
        .bind(row.id)
        .bind(kept)
        .execute(conn)
        .await?;
    Ok(())
}

/// Deletes the two-factor secrets of these users, unless they have enrolled again.
pub async fn delete_secrets(conn: &mut PgConnection, shard: ShardId, ids: &[i64]) -> Result<(), sqlx::Error> {
    sqlx::query(
        "DELETE FROM vault.texts t USING vault.operator_users u
         WHERE t.shard_id = $1 AND t.kind = $2 AND t.id = ANY($3) AND u.id = t.id AND u.totp_hash IS NULL",
    )
    .bind(shard)
    .bind(OPERATOR_TOTP)
    .bind(ids)
    .execute(conn)
    .await?;
    Ok(())
}

async fn write_two_factor(conn: &mut PgConnection, id: i64, change: &TwoFactorChange) -> Result<(), sqlx::Error> {
    let (step, codes) = match change {
        TwoFactorChange::None => return Ok(()),
        TwoFactorChange::Enable { step, codes } => (Some(*step), &codes[..]),
        TwoFactorChange::Remove => (None, &[][..]),
    };
    sqlx::query("UPDATE vault.operator_users SET totp_step = $2 WHERE id = $1").bind(id).bind(step).execute(&mut *conn).await?;
    sqlx::query("DELETE FROM vault.operator_recovery_codes WHERE operator_id = $1").bind(id).execute(&mut *conn).await?;
    let (hashes, macs): (Vec<&[u8]>, Vec<&[u8]>) = codes.iter().map(|(hash, mac)| (&hash[..], &mac[..])).unzip();
    sqlx::query(
        "INSERT INTO vault.operator_recovery_codes (operator_id, code_hash, mac)
         SELECT $1, code.* FROM unnest($2::bytea[], $3::bytea[]) AS code (hash, mac)",
    )
    .bind(id)
    .bind(hashes)
    .bind(macs)
    .execute(conn)
    .await?;
    Ok(())
}

/// Finds a user who is not removed.
pub async fn find_present(pool: &PgPool, id: i64) -> Result<Option<OperatorUser>, sqlx::Error> {
    let stored: Option<Stored> = sqlx::query_as(
        "SELECT id, role, email_lookup, password_hash, subject_lookup, totp_hash, created_at, removed_at
         FROM vault.operator_users WHERE removed_at IS NULL AND id = $1",
    )
    .bind(id)
    .fetch_optional(pool)
    .await?;
    stored.map(|stored| Ok(UserRow::try_from(stored)?.public())).transpose()
}

/// Lists the users who are not removed, the newest first.
pub async fn list(pool: &PgPool, page: Page) -> Result<Listed<OperatorUser>, sqlx::Error> {
    let total: i64 =
        sqlx::query_scalar("SELECT count(*) FROM vault.operator_users WHERE removed_at IS NULL").fetch_one(pool).await?;
    let stored: Vec<Stored> = sqlx::query_as(
        "SELECT id, role, email_lookup, password_hash, subject_lookup, totp_hash, created_at, removed_at
         FROM vault.operator_users WHERE removed_at IS NULL ORDER BY id DESC LIMIT $1 OFFSET $2",
    )
    .bind(page.size)
    .bind(page.offset())
    .fetch_all(pool)
    .await?;
    let rows = stored.into_iter().map(|row| Ok(UserRow::try_from(row)?.public()));
    Ok(Listed { rows: rows.collect::<Result<_, sqlx::Error>>()?, total })
}
