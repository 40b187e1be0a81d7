//! `accounts` and `credentials`: client organisations and their API keys, written inline.

use std::collections::{HashMap, HashSet};

use ledger_database::FromRow;
use ledger_database::{PgConnection, PgPool};
use ledger_events::account::{Account, AccountStatus, Credential, evolve, evolve_credential};
use ledger_events::{AccountId, CredentialId, Event, Recorded, ShardId};
use sqlx::postgres::PgRow;
use sqlx::{Postgres, QueryBuilder, Row};

use crate::page::{self, Listed, Page};
use crate::{ProjectionError, known};

/// The columns of [`AccountRow`], as a literal for `concat!`.
macro_rules! account_columns {
    () => {
        "id, version, name, status, discounts, created_at, updated_at"
    };
}

/// The columns of [`CredentialRow`], as a literal for `concat!`.
macro_rules! credential_columns {
    () => {
        "id, version, account_id, name, key_prefix, has_signing_secret, hmac_required, is_revoked,
         created_at, updated_at"
    };
}

pub async fn load(conn: &mut PgConnection, shard: ShardId, ids: &[AccountId]) -> Result<Vec<Account>, sqlx::Error> {
    let found: Vec<AccountRow> =
        sqlx::query_as(concat!("SELECT ", account_columns!(), " FROM accounts WHERE shard_id = $1 AND id = ANY($2)"))
            .bind(shard)
            .bind(ids)
            .fetch_all(conn)
            .await?;
    Ok(found.into_iter().map(|row| row.0).collect())
}

pub async fn load_credentials(
    conn: &mut PgConnection,
    shard: ShardId,
    ids: &[CredentialId],
) -> Result<Vec<Credential>, sqlx::Error> {
    let found: Vec<CredentialRow> =
        sqlx::query_as(concat!("SELECT ", credential_columns!(), " FROM credentials WHERE shard_id = $1 AND id = ANY($2)"))
            .bind(shard)
            .bind(ids)
            .fetch_all(conn)
            .await?;
    Ok(found.into_iter().map(|row| row.0).collect())
}

/// Loads all accounts. `verify` compares them with the fold.
pub async fn all(conn: &mut PgConnection, shard: ShardId) -> Result<Vec<Account>, sqlx::Error> {
    let found: Vec<AccountRow> =
        sqlx::query_as(concat!("SELECT ", account_columns!(), " FROM accounts WHERE shard_id = $1 ORDER BY id"))
            .bind(shard)
            .fetch_all(conn)
            .await?;
    Ok(found.into_iter().map(|row| row.0).collect())
}

/// Loads all credentials. `verify` compares them with the fold.
pub async fn all_credentials(conn: &mut PgConnection, shard: ShardId) -> Result<Vec<Credential>, sqlx::Error> {
    let found: Vec<CredentialRow> =
        sqlx::query_as(concat!("SELECT ", credential_columns!(), " FROM credentials WHERE shard_id = $1 ORDER BY id"))
            .bind(shard)
            .fetch_all(conn)
            .await?;
    Ok(found.into_iter().map(|row| row.0).collect())
}

pub async fn write(conn: &mut PgConnection, shard: ShardId, accounts: &[&Account]) -> Result<(), ProjectionError> {
    if accounts.is_empty() {
        return Ok(());
    }
    sqlx::query(
        "INSERT INTO accounts (shard_id, id, version, name, status, discounts, created_at, updated_at)
         SELECT $1, new.* FROM unnest($2::bigint[], $3::bigint[], $4::text[], $5::text[], $6::json[], $7::timestamptz[], $8::timestamptz[]) AS new
         ON CONFLICT (id) DO UPDATE SET version = excluded.version, name = excluded.name, status = excluded.status,
            discounts = excluded.discounts, updated_at = excluded.updated_at",
    )
    .bind(shard)
    .bind(accounts.iter().map(|a| a.id).collect::<Vec<_>>())
    .bind(accounts.iter().map(|a| a.version).collect::<Vec<_>>())
    .bind(accounts.iter().map(|a| &*a.name).collect::<Vec<_>>())
    .bind(accounts.iter().map(|a| a.status.as_str()).collect::<Vec<_>>())
    .bind(accounts.iter().map(|a| serde_json::to_string(&a.discounts)).collect::<Result<Vec<_>, _>>()?)
    .bind(accounts.iter().map(|a| a.created_at).collect::<Vec<_>>())
    .bind(accounts.iter().map(|a| a.updated_at).collect::<Vec<_>>())
    .execute(conn)
    .await?;
    Ok(())
}

pub async fn write_credentials(
    conn: &mut PgConnection,
    shard: ShardId,
    credentials: &[&Credential],
) -> Result<(), ProjectionError> {
    if credentials.is_empty() {
        return Ok(());
    }
    sqlx::query(
        "INSERT INTO credentials (shard_id, id, version, account_id, name, key_prefix, has_signing_secret, is_revoked, created_at, updated_at, hmac_required)
         SELECT $1, new.* FROM unnest($2::bigint[], $3::bigint[], $4::bigint[], $5::text[], $6::text[], $7::boolean[], $8::boolean[],
            $9::timestamptz[], $10::timestamptz[], $11::boolean[]) AS new
         ON CONFLICT (id) DO UPDATE SET version = excluded.version, has_signing_secret = excluded.has_signing_secret,
            hmac_required = excluded.hmac_required, is_revoked = excluded.is_revoked, updated_at = excluded.updated_at",
    )
    .bind(shard)
    .bind(credentials.iter().map(|c| c.id).collect::<Vec<_>>())
    .bind(credentials.iter().map(|c| c.version).collect::<Vec<_>>())
    .bind(credentials.iter().map(|c| c.account_id).collect::<Vec<_>>())
    .bind(credentials.iter().map(|c| &*c.name).collect::<Vec<_>>())
    .bind(credentials.iter().map(|c| &*c.key_prefix).collect::<Vec<_>>())
    .bind(credentials.iter().map(|c| c.has_signing_secret).collect::<Vec<_>>())
    .bind(credentials.iter().map(|c| c.is_revoked).collect::<Vec<_>>())
    .bind(credentials.iter().map(|c| c.created_at).collect::<Vec<_>>())
    .bind(credentials.iter().map(|c| c.updated_at).collect::<Vec<_>>())
    .bind(credentials.iter().map(|c| c.hmac_required).collect::<Vec<_>>())
    .execute(conn)
    .await?;
    Ok(())
}

/// Folds the next events of the log into the tables.
pub async fn apply(conn: &mut PgConnection, shard: ShardId, events: &[Recorded]) -> Result<(), ProjectionError> {
    let account_ids: HashSet<_> = events.iter().filter(|r| matches!(r.event, Event::Account(_))).map(|r| r.stream_id).collect();
    let credential_ids: HashSet<_> =
        events.iter().filter(|r| matches!(r.event, Event::Credential(_))).map(|r| r.stream_id).collect();
    if account_ids.is_empty() && credential_ids.is_empty() {
        return Ok(());
    }
    let (account_ids, credential_ids): (Vec<_>, Vec<_>) =
        (account_ids.into_iter().collect(), credential_ids.into_iter().collect());
    let mut accounts: HashMap<_, _> = load(conn, shard, &account_ids).await?.into_iter().map(|a| (a.id, a)).collect();
    let mut credentials: HashMap<_, _> =
        load_credentials(conn, shard, &credential_ids).await?.into_iter().map(|c| (c.id, c)).collect();
    for recorded in events {
        fold(&mut accounts, &mut credentials, recorded);
    }
    write(conn, shard, &accounts.values().collect::<Vec<_>>()).await?;
    write_credentials(conn, shard, &credentials.values().collect::<Vec<_>>()).await
}

/// Folds one event into maps of accounts and credentials.
pub fn fold(
    accounts: &mut HashMap<AccountId, Account>,
    credentials: &mut HashMap<CredentialId, Credential>,
    recorded: &Recorded,
) {
    let id = recorded.stream_id;
    match &recorded.event {
        Event::Account(event) => {
            if let Some(after) = evolve(accounts.remove(&id), id, event, &recorded.moment) {
                accounts.insert(id, after);
            }
        }
        Event::Credential(event) => {
            if let Some(after) = evolve_credential(credentials.remove(&id), id, event, &recorded.moment) {
                credentials.insert(id, after);
            }
        }
        _ => {}
    }
}

struct AccountRow(Account);

impl FromRow<'_, PgRow> for AccountRow {
    fn from_row(row: &PgRow) -> Result<AccountRow, sqlx::Error> {
        let status: &str = row.try_get("status")?;
        Ok(AccountRow(Account {
            id: row.try_get("id")?,
            version: row.try_get("version")?,
            name: row.try_get("name")?,
            status: known(AccountStatus::parse(status), status)?,
            discounts: row.try_get::<sqlx::types::Json<_>, _>("discounts")?.0,
            created_at: row.try_get("created_at")?,
            updated_at: row.try_get("updated_at")?,
        }))
    }
}

struct CredentialRow(Credential);

impl FromRow<'_, PgRow> for CredentialRow {
    fn from_row(row: &PgRow) -> Result<CredentialRow, sqlx::Error> {
        Ok(CredentialRow(Credential {
            id: row.try_get("id")?,
            version: row.try_get("version")?,
            account_id: row.try_get("account_id")?,
            name: row.try_get("name")?,
            key_prefix: row.try_get("key_prefix")?,
            has_signing_secret: row.try_get("has_signing_secret")?,
            hmac_required: row.try_get("hmac_required")?,
            is_revoked: row.try_get("is_revoked")?,
            created_at: row.try_get("created_at")?,
            updated_at: row.try_get("updated_at")?,
        }))
    }
}

/// Lists one page of accounts, newest first.
pub async fn list(pool: &PgPool, page: Page) -> Result<Listed<Account>, sqlx::Error> {
    let conditions = |query: &mut QueryBuilder<Postgres>| {
        query.push(" FROM accounts WHERE true");
    };
    let listed: Listed<AccountRow> = page::fetch(pool, account_columns!(), conditions, "id", page).await?;
    Ok(listed.map(|row| row.0))
}

/// Lists one page of an account's credentials, newest first.
pub async fn list_credentials(pool: &PgPool, account_id: AccountId, page: Page) -> Result<Listed<Credential>, sqlx::Error> {
    let conditions = |query: &mut QueryBuilder<Postgres>| {
        query.push(" FROM credentials WHERE account_id = ").push_bind(account_id);
    };
    let listed: Listed<CredentialRow> = page::fetch(pool, credential_columns!(), conditions, "id", page).await?;
    Ok(listed.map(|row| row.0))
}

pub async fn find(pool: &PgPool, id: AccountId) -> Result<Option<(ShardId, Account)>, sqlx::Error> {
    let row = sqlx::query(concat!("SELECT shard_id, ", account_columns!(), " FROM accounts WHERE id = $1"))
        .bind(id)
        .fetch_optional(pool)
        .await?;
    row.map(|row| Ok((row.try_get("shard_id")?, AccountRow::from_row(&row)?.0))).transpose()
}
