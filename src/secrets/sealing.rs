//! `keys seal`: adds a MAC to every row that grants access, and refuses rows without a MAC from then on.
//!
//! It is for a ledger to which nodes of a release without MACs have written, once none of those nodes is left.

use chrono::{DateTime, Utc};
use ledger_database::{FromRow, PgPool};
use ledger_events::restrictions::Restrictions;
use ledger_events::{AccountId, CredentialId, UserId};

use super::SIGNING_SECRET;
use super::master_keys::{self, KeyError};
use super::rows::Row;
use super::seal::{Keyring, SealError};

/// Rows per statement.
const STEP: i64 = 500;

/// Credential, with what its MACs cover.
#[derive(FromRow)]
struct CredentialRow {
    credential_id: CredentialId,
    account_id: AccountId,
    key_hash: Vec<u8>,
    secret_hash: Vec<u8>,
    /// Sealed.
    signing_secret: Option<Vec<u8>>,
    scopes: Option<Vec<String>>,
    expires_at: Option<DateTime<Utc>>,
    networks: Option<Vec<String>>,
}
/// User, account, password hash, MAC, and whether the log commits to the MAC.
type UserRow = (UserId, AccountId, String, Option<Vec<u8>>, bool);
/// Session, user, account, hash and expiry of the portal cookie.
type SessionRow = (i64, UserId, AccountId, Vec<u8>, DateTime<Utc>);

#[derive(Debug, thiserror::Error)]
pub enum SealingError {
    #[error(transparent)]
    Database(#[from] sqlx::Error),
    #[error(transparent)]
    Key(#[from] KeyError),
    #[error(transparent)]
    Seal(#[from] SealError),
}

/// Number of rows that got a MAC, by table.
#[derive(Clone, Copy, Debug, Default)]
pub struct Sealed {
    pub credentials: u64,
    pub operators: u64,
    pub users: u64,
    pub sessions: u64,
    pub refresh_tokens: u64,
}

/// Adds a MAC to each row without one, based on the row's current contents. Run `verify` first, and fix what it finds.
///
/// An existing MAC stays, except that of a user whose password an earlier release has reset.
pub async fn seal(pool: &PgPool, keyring: &Keyring) -> Result<Sealed, SealingError> {
    master_keys::establish(pool, keyring).await?;
    let sealed = Sealed {
        credentials: credentials(pool, keyring).await?,
        operators: operators(pool, keyring).await?,
        users: users(pool, keyring).await?,
        sessions: sessions(pool, keyring).await?,
        refresh_tokens: refresh_tokens(pool, keyring).await?,
    };
    master_keys::require_macs(pool, keyring).await?;
    Ok(sealed)
}

async fn credentials(pool: &PgPool, keyring: &Keyring) -> Result<u64, SealingError> {
    let (mut sealed, mut after) = (0, 0);
    loop {
        let rows: Vec<CredentialRow> = sqlx::query_as(
            "SELECT v.credential_id, c.account_id, v.key_hash, v.secret_hash, v.signing_secret, r.scopes, r.expires_at,
                r.allowed_networks::text[] AS networks
             FROM vault.credentials v JOIN credentials c ON c.id = v.credential_id
             LEFT JOIN credential_restrictions r ON r.id = v.credential_id
             LEFT JOIN vault.credential_macs m ON m.credential_id = v.credential_id
             WHERE v.credential_id > $1 AND (m.mac IS NULL OR (m.secret_mac IS NULL AND v.signing_secret IS NOT NULL))
             ORDER BY v.credential_id LIMIT $2",
        )
        .bind(after)
        .bind(STEP)
        .fetch_all(pool)
        .await?;
        let Some(last) = rows.last() else { return Ok(sealed) };
        after = last.credential_id.0;
        let ids: Vec<CredentialId> = rows.iter().map(|row| row.credential_id).collect();
        let (mut macs, mut secret_macs) = (vec![], vec![]);
        for row in rows {
            let CredentialRow { credential_id: id, account_id, key_hash, secret_hash, signing_secret, .. } = &row;
            let restrictions = Restrictions::from_columns(row.scopes.as_deref(), row.expires_at, row.networks.as_deref());
            let restrictions = &restrictions.map_err(|error| sqlx::Error::Decode(Box::new(error)))?;
            let (id, account_id) = (*id, *account_id);
            macs.push(keyring.row_mac(Row::Credential { id, account_id, key_hash, secret_hash, restrictions })?);
            let secret = signing_secret.as_ref().map(|sealed| keyring.open_text(SIGNING_SECRET, id.0, sealed)).transpose()?;
            let mac = |secret: super::seal::Secret| keyring.row_mac(Row::SigningSecret { id, secret: secret.expose() });
            secret_macs.push(secret.map(mac).transpose()?);
        }
        let written = sqlx::query(
            "INSERT INTO vault.credential_macs AS m (credential_id, mac, secret_mac)
             SELECT * FROM unnest($1::bigint[], $2::bytea[], $3::bytea[])
             ON CONFLICT (credential_id) DO UPDATE
             SET mac = coalesce(m.mac, excluded.mac), secret_mac = coalesce(m.secret_mac, excluded.secret_mac)",
        )
        .bind(ids)
        .bind(macs.iter().map(|mac| &mac[..]).collect::<Vec<_>>())
        .bind(secret_macs.iter().map(|mac| mac.as_ref().map(|mac| &mac[..])).collect::<Vec<_>>())
        .execute(pool)
        .await?;
        sealed += written.rows_affected();
    }
}

async fn operators(pool: &PgPool, keyring: &Keyring) -> Result<u64, SealingError> {
    let rows: Vec<(i64, String, Vec<u8>)> = sqlx::query_as(
        "SELECT o.id, o.role, o.token_hash FROM vault.operators o
         WHERE NOT EXISTS (SELECT FROM vault.operator_macs m WHERE m.operator_id = o.id)",
    )
    .fetch_all(pool)
    .await?;
    let mac = |(id, role, token_hash): &(i64, String, Vec<u8>)| keyring.row_mac(Row::Operator { id: *id, role, token_hash });
    let macs = rows.iter().map(mac).collect::<Result<Vec<_>, _>>()?;
    let written = sqlx::query(
        "INSERT INTO vault.operator_macs (operator_id, mac) SELECT * FROM unnest($1::bigint[], $2::bytea[]) ON CONFLICT DO NOTHING",
    )
    .bind(rows.iter().map(|row| row.0).collect::<Vec<_>>())
    .bind(macs.iter().map(|mac| &mac[..]).collect::<Vec<_>>())
    .execute(pool)
    .await?;
    Ok(written.rows_affected())
}

async fn users(pool: &PgPool, keyring: &Keyring) -> Result<u64, SealingError> {
    let (mut sealed, mut after) = (0, 0);
    loop {
        // The last event that set the password commits to the row's MAC, if a node of this release wrote the event.
        let rows: Vec<UserRow> = sqlx::query_as(
            "SELECT v.user_id, u.account_id, v.password_hash, m.mac, coalesce(
                (SELECT e.data->>'row_mac' IS NOT NULL FROM events e WHERE e.shard_id = u.shard_id AND e.stream_type = 'user'
                    AND e.stream_id = u.id AND e.type IN ('UserCreated', 'UserPasswordReset') ORDER BY e.version DESC LIMIT 1), false)
             FROM vault.users v JOIN users u ON u.id = v.user_id LEFT JOIN vault.user_macs m ON m.user_id = v.user_id
             WHERE v.user_id > $1 ORDER BY v.user_id LIMIT $2",
        )
        .bind(after)
        .bind(STEP)
        .fetch_all(pool)
        .await?;
        let Some((last, ..)) = rows.last() else { return Ok(sealed) };
        after = last.0;
        for (id, account_id, password_hash, mac, is_committed) in &rows {
            let made = keyring.row_mac(Row::User { id: *id, account_id: *account_id, password_hash })?;
            if mac.as_ref().is_some_and(|mac| *is_committed || mac[..] == made) {
                continue;
            }
            let written = sqlx::query(
                "INSERT INTO vault.user_macs AS m (user_id, mac) SELECT user_id, $3 FROM vault.users WHERE user_id = $1 AND password_hash = $2
                 ON CONFLICT (user_id) DO UPDATE SET mac = excluded.mac WHERE m.mac IS NOT DISTINCT FROM $4",
            )
            .bind(id)
            .bind(password_hash)
            .bind(&made[..])
            .bind(mac.as_deref())
            .execute(pool)
            .await?;
            sealed += written.rows_affected();
        }
    }
}

async fn sessions(pool: &PgPool, keyring: &Keyring) -> Result<u64, SealingError> {
    let (mut sealed, mut after) = (0, 0);
    loop {
        let rows: Vec<SessionRow> = sqlx::query_as(
            "SELECT s.id, s.user_id, u.account_id, s.portal_hash, s.portal_expires_at FROM vault.sessions s JOIN users u ON u.id = s.user_id
             WHERE s.id > $1 AND NOT EXISTS (SELECT FROM vault.session_macs m WHERE m.session_id = s.id) ORDER BY s.id LIMIT $2",
        )
        .bind(after)
        .bind(STEP)
        .fetch_all(pool)
        .await?;
        let Some((last, ..)) = rows.last() else { return Ok(sealed) };
        after = *last;
        let mac = |row: &SessionRow| {
            let (id, user_id, account_id, portal_hash, portal_expires_at) = row;
            keyring.row_mac(Row::Session {
                id: *id,
                user_id: *user_id,
                account_id: *account_id,
                portal_hash,
                portal_expires_at: *portal_expires_at,
            })
        };
        let macs = rows.iter().map(mac).collect::<Result<Vec<_>, _>>()?;
        let written = sqlx::query(
            "INSERT INTO vault.session_macs (session_id, mac) SELECT n.* FROM unnest($1::bigint[], $2::bytea[]) AS n (id, mac)
             JOIN vault.sessions s ON s.id = n.id ON CONFLICT DO NOTHING",
        )
        .bind(rows.iter().map(|row| row.0).collect::<Vec<_>>())
        .bind(macs.iter().map(|mac| &mac[..]).collect::<Vec<_>>())
        .execute(pool)
        .await?;
        sealed += written.rows_affected();
    }
}

async fn refresh_tokens(pool: &PgPool, keyring: &Keyring) -> Result<u64, SealingError> {
    let (mut sealed, mut after) = (0, vec![]);
    loop {
        let rows: Vec<(Vec<u8>, i64, DateTime<Utc>)> = sqlx::query_as(
            "SELECT t.token_hash, t.session_id, t.expires_at FROM vault.refresh_tokens t WHERE t.token_hash > $1
                AND NOT EXISTS (SELECT FROM vault.refresh_token_macs m WHERE m.token_hash = t.token_hash) ORDER BY t.token_hash LIMIT $2",
        )
        .bind(&after)
        .bind(STEP)
        .fetch_all(pool)
        .await?;
        let Some((last, ..)) = rows.last() else { return Ok(sealed) };
        after = last.clone();
        let mac = |(token_hash, session_id, expires_at): &(Vec<u8>, i64, DateTime<Utc>)| {
            keyring.row_mac(Row::RefreshToken { token_hash, session_id: *session_id, expires_at: *expires_at })
        };
        let macs = rows.iter().map(mac).collect::<Result<Vec<_>, _>>()?;
        let written = sqlx::query(
            "INSERT INTO vault.refresh_token_macs (token_hash, mac) SELECT n.* FROM unnest($1::bytea[], $2::bytea[]) AS n (token_hash, mac)
             JOIN vault.refresh_tokens t ON t.token_hash = n.token_hash ON CONFLICT DO NOTHING",
        )
        .bind(rows.iter().map(|row| &row.0[..]).collect::<Vec<_>>())
        .bind(macs.iter().map(|mac| &mac[..]).collect::<Vec<_>>())
        .execute(pool)
        .await?;
        sealed += written.rows_affected();
    }
}
