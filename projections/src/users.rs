//! `users`: people who act for accounts, written inline.

use ledger_database::{PgConnection, PgPool};
use ledger_events::user::{User, UserEvent, UserRole, evolve};
use ledger_events::{AccountId, ShardId, UserId};
use sqlx::postgres::PgRow;
use sqlx::{Postgres, QueryBuilder, Row as _};

use crate::page::{self, Listed, Page};
use crate::state::{Row, State, Upsert, all, first, select, state};
use crate::{ProjectionError, known};

/// Lists one page of an account's users, newest first, without removed ones.
pub async fn list(pool: &PgPool, account_id: AccountId, page: Page) -> Result<Listed<User>, sqlx::Error> {
    let conditions = |query: &mut QueryBuilder<Postgres>| {
        query.push(" FROM users WHERE NOT is_removed AND account_id = ").push_bind(account_id);
    };
    page::fetch(pool, conditions, "id", page).await
}

/// Finds a user of an account who was not removed.
pub async fn find_present(pool: &PgPool, account_id: AccountId, id: UserId) -> Result<Option<User>, sqlx::Error> {
    first(select("FROM users WHERE id = $1 AND account_id = $2 AND NOT is_removed").bind(id).bind(account_id), pool).await
}

pub async fn find(pool: &PgPool, id: UserId) -> Result<Option<(ShardId, User)>, sqlx::Error> {
    first(select("FROM users WHERE id = $1").bind(id), pool).await
}

/// Loads the owners of these accounts, without removed ones.
pub async fn load_owners(conn: &mut PgConnection, shard: ShardId, accounts: &[AccountId]) -> Result<Vec<User>, sqlx::Error> {
    let owners = select("FROM users WHERE shard_id = $1 AND account_id = ANY($2) AND role = 'owner' AND NOT is_removed");
    all(owners.bind(shard).bind(accounts), conn).await
}

impl Row for User {
    const COLUMNS: &'static str = "id, version, account_id, role, email_hash, is_removed, created_at, updated_at";

    fn read(row: &PgRow) -> Result<Self, sqlx::Error> {
        let role: &str = row.try_get("role")?;
        Ok(User {
            id: row.try_get("id")?,
            version: row.try_get("version")?,
            account_id: row.try_get("account_id")?,
            role: known(UserRole::parse(role), role)?,
            email_hash: row.try_get("email_hash")?,
            is_removed: row.try_get("is_removed")?,
            created_at: row.try_get("created_at")?,
            updated_at: row.try_get("updated_at")?,
        })
    }
}

impl State for User {
    state!(UserId, UserEvent, User, evolve, "users");
}

impl Upsert for User {
    async fn write(conn: &mut PgConnection, shard: ShardId, users: &[&Self]) -> Result<(), ProjectionError> {
        if users.is_empty() {
            return Ok(());
        }
        sqlx::query(
            "INSERT INTO users (shard_id, id, version, account_id, role, email_hash, is_removed, created_at, updated_at)
             SELECT $1, new.* FROM unnest($2::bigint[], $3::bigint[], $4::bigint[], $5::text[], $6::text[], $7::boolean[],
                $8::timestamptz[], $9::timestamptz[]) AS new
             ON CONFLICT (id) DO UPDATE SET version = excluded.version, role = excluded.role, is_removed = excluded.is_removed, updated_at = excluded.updated_at",
        )
        .bind(shard)
        .bind(users.iter().map(|u| u.id).collect::<Vec<_>>())
        .bind(users.iter().map(|u| u.version).collect::<Vec<_>>())
        .bind(users.iter().map(|u| u.account_id).collect::<Vec<_>>())
        .bind(users.iter().map(|u| u.role.as_str()).collect::<Vec<_>>())
        .bind(users.iter().map(|u| &*u.email_hash).collect::<Vec<_>>())
        .bind(users.iter().map(|u| u.is_removed).collect::<Vec<_>>())
        .bind(users.iter().map(|u| u.created_at).collect::<Vec<_>>())
        .bind(users.iter().map(|u| u.updated_at).collect::<Vec<_>>())
        .execute(conn)
        .await?;
        Ok(())
    }
}
