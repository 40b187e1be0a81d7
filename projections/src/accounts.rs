//! `accounts`, `credentials` and `credential_restrictions`: client organisations and their API keys, written inline.

use ledger_database::{PgConnection, PgPool};
use ledger_events::account::{Account, AccountEvent, AccountStatus, Credential, CredentialEvent, evolve, evolve_credential};
use ledger_events::restrictions::{Restrictions, Scope, Scopes};
use ledger_events::{AccountId, CredentialId, ShardId};
use sqlx::postgres::PgRow;
use sqlx::{Postgres, QueryBuilder, Row as _};

use crate::page::{self, Listed, Page};
use crate::state::{Row, State, Upsert, all, first, select, state};
use crate::{ProjectionError, known};

/// The tables behind a credential, as a literal for `concat!`. Only a restricted key has a row of restrictions.
macro_rules! credential_tables {
    () => {
        " FROM credentials LEFT JOIN (SELECT id AS restricted_id, scopes, expires_at, allowed_networks::text[] AS allowed_networks
             FROM credential_restrictions) AS restrictions ON restricted_id = id"
    };
}

impl Row for Account {
    const COLUMNS: &'static str = "id, version, name, status, discounts, created_at, updated_at";

    fn read(row: &PgRow) -> Result<Self, sqlx::Error> {
        let status: &str = row.try_get("status")?;
        Ok(Account {
            id: row.try_get("id")?,
            version: row.try_get("version")?,
            name: row.try_get("name")?,
            status: known(AccountStatus::parse(status), status)?,
            discounts: row.try_get::<sqlx::types::Json<_>, _>("discounts")?.0,
            created_at: row.try_get("created_at")?,
            updated_at: row.try_get("updated_at")?,
        })
    }
}

impl State for Account {
    state!(AccountId, AccountEvent, Account, evolve, "accounts");
}

impl Upsert for Account {
    async fn write(conn: &mut PgConnection, shard: ShardId, accounts: &[&Self]) -> Result<(), ProjectionError> {
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
}

impl Row for Credential {
    const COLUMNS: &'static str =
        "id, version, account_id, name, key_prefix, has_signing_secret, hmac_required, is_revoked, created_at,
         updated_at, scopes, expires_at, allowed_networks";

    fn read(row: &PgRow) -> Result<Self, sqlx::Error> {
        Ok(Credential {
            id: row.try_get("id")?,
            version: row.try_get("version")?,
            account_id: row.try_get("account_id")?,
            name: row.try_get("name")?,
            key_prefix: row.try_get("key_prefix")?,
            restrictions: restrictions(row)?,
            has_signing_secret: row.try_get("has_signing_secret")?,
            hmac_required: row.try_get("hmac_required")?,
            is_revoked: row.try_get("is_revoked")?,
            created_at: row.try_get("created_at")?,
            updated_at: row.try_get("updated_at")?,
        })
    }
}

impl State for Credential {
    state!(CredentialId, CredentialEvent, Credential, evolve_credential, "credentials");

    /// Loads rows by id, with their restrictions. Skips unknown ids.
    async fn load(conn: &mut PgConnection, shard: ShardId, ids: &[CredentialId]) -> Result<Vec<Self>, sqlx::Error> {
        let query = select(concat!(credential_tables!(), " WHERE shard_id = $1 AND id = ANY($2)"));
        all(query.bind(shard).bind(ids), conn).await
    }
}

impl Upsert for Credential {
    async fn write(conn: &mut PgConnection, shard: ShardId, credentials: &[&Self]) -> Result<(), ProjectionError> {
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
        .execute(&mut *conn)
        .await?;
        write_restrictions(conn, shard, credentials).await
    }
}

/// Writes the restrictions of new credentials. They never change.
async fn write_restrictions(conn: &mut PgConnection, shard: ShardId, credentials: &[&Credential]) -> Result<(), ProjectionError> {
    let restricted: Vec<(CredentialId, &Restrictions)> =
        credentials.iter().filter(|c| !c.restrictions.are_none()).map(|c| (c.id, &c.restrictions)).collect();
    if restricted.is_empty() {
        return Ok(());
    }
    let names = |scopes: Scopes| scopes.iter().map(Scope::as_str).collect::<Vec<_>>().join(",");
    let networks = |restrictions: &Restrictions| {
        let networks: Vec<String> = restrictions.allowed_networks.iter().map(ToString::to_string).collect();
        (!networks.is_empty()).then(|| networks.join(","))
    };
    sqlx::query(
        "INSERT INTO credential_restrictions (shard_id, id, scopes, expires_at, allowed_networks)
         SELECT $1, new.id, string_to_array(new.scopes, ','), new.expires_at, string_to_array(new.networks, ',')::cidr[]
         FROM unnest($2::bigint[], $3::text[], $4::timestamptz[], $5::text[]) AS new (id, scopes, expires_at, networks)
         ON CONFLICT (id) DO NOTHING",
    )
    .bind(shard)
    .bind(restricted.iter().map(|(id, _)| *id).collect::<Vec<_>>())
    .bind(restricted.iter().map(|(_, r)| r.scopes.map(names)).collect::<Vec<_>>())
    .bind(restricted.iter().map(|(_, r)| r.expires_at).collect::<Vec<_>>())
    .bind(restricted.iter().map(|(_, r)| networks(r)).collect::<Vec<_>>())
    .execute(conn)
    .await?;
    Ok(())
}

fn restrictions(row: &PgRow) -> Result<Restrictions, sqlx::Error> {
    let (scopes, networks): (Option<Vec<String>>, Option<Vec<String>>) =
        (row.try_get("scopes")?, row.try_get("allowed_networks")?);
    let read = Restrictions::from_columns(scopes.as_deref(), row.try_get("expires_at")?, networks.as_deref());
    read.map_err(|error| sqlx::Error::Decode(Box::new(error)))
}

/// Lists one page of the accounts of all shards with their shards, newest first.
pub async fn list(pool: &PgPool, page: Page) -> Result<Listed<(ShardId, Account)>, sqlx::Error> {
    let conditions = |query: &mut QueryBuilder<Postgres>| {
        query.push(" FROM accounts WHERE true");
    };
    page::fetch(pool, conditions, "created_at DESC, id", page).await
}

/// Lists one page of an account's credentials, newest first.
pub async fn list_credentials(pool: &PgPool, account_id: AccountId, page: Page) -> Result<Listed<Credential>, sqlx::Error> {
    let conditions = |query: &mut QueryBuilder<Postgres>| {
        query.push(concat!(credential_tables!(), " WHERE account_id = ")).push_bind(account_id);
    };
    page::fetch(pool, conditions, "id", page).await
}

/// Finds a credential of an account.
pub async fn find_credential(pool: &PgPool, account_id: AccountId, id: CredentialId) -> Result<Option<Credential>, sqlx::Error> {
    let query = select(concat!(credential_tables!(), " WHERE account_id = $1 AND id = $2"));
    first(query.bind(account_id).bind(id), pool).await
}

pub async fn find(pool: &PgPool, id: AccountId) -> Result<Option<(ShardId, Account)>, sqlx::Error> {
    first(select("FROM accounts WHERE id = $1").bind(id), pool).await
}
