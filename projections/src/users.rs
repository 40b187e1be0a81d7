//! `users`: people who act for accounts, written inline.

use std::collections::{HashMap, HashSet};

use ledger_database::FromRow;
use ledger_database::{PgConnection, PgPool};
use ledger_events::user::{User, UserRole, evolve};
use ledger_events::{AccountId, Event, Recorded, ShardId, UserId};
use sqlx::postgres::PgRow;
use sqlx::{Postgres, QueryBuilder, Row};

use crate::page::{self, Listed, Page};
use crate::{ProjectionError, known};

/// The columns of [`UserRow`], as a literal for `concat!`.
macro_rules! user_columns {
    () => {
        "id, version, account_id, role, email_hash, is_removed, created_at, updated_at"
    };
}

pub async fn load(conn: &mut PgConnection, shard: ShardId, ids: &[UserId]) -> Result<Vec<User>, sqlx::Error> {
    let found: Vec<UserRow> =
        sqlx::query_as(concat!("SELECT ", user_columns!(), " FROM users WHERE shard_id = $1 AND id = ANY($2)"))
            .bind(shard)
            .bind(ids)
            .fetch_all(conn)
            .await?;
    Ok(found.into_iter().map(|row| row.0).collect())
}

pub async fn write(conn: &mut PgConnection, shard: ShardId, users: &[&User]) -> Result<(), ProjectionError> {
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

/// Folds the next events of the log into the table.
pub async fn apply(conn: &mut PgConnection, shard: ShardId, events: &[Recorded]) -> Result<(), ProjectionError> {
    let ids: HashSet<_> = events.iter().filter(|r| matches!(r.event, Event::User(_))).map(|r| r.stream_id).collect();
    if ids.is_empty() {
        return Ok(());
    }
    let ids: Vec<_> = ids.into_iter().collect();
    let mut users: HashMap<_, _> = load(conn, shard, &ids).await?.into_iter().map(|u| (u.id, u)).collect();
    for recorded in events {
        fold(&mut users, recorded);
    }
    write(conn, shard, &users.values().collect::<Vec<_>>()).await
}

/// Folds one event into a map of users.
pub fn fold(users: &mut HashMap<UserId, User>, recorded: &Recorded) {
    let id = recorded.stream_id;
    if let Event::User(event) = &recorded.event
        && let Some(after) = evolve(users.remove(&id), id, event, &recorded.moment)
    {
        users.insert(id, after);
    }
}

/// Lists one page of an account's users, newest first, without removed ones.
pub async fn list(pool: &PgPool, account_id: AccountId, page: Page) -> Result<Listed<User>, sqlx::Error> {
    let conditions = |query: &mut QueryBuilder<Postgres>| {
        query.push(" FROM users WHERE NOT is_removed AND account_id = ").push_bind(account_id);
    };
    let listed: Listed<UserRow> = page::fetch(pool, user_columns!(), conditions, "id", page).await?;
    Ok(listed.map(|row| row.0))
}

pub async fn find(pool: &PgPool, id: UserId) -> Result<Option<(ShardId, User)>, sqlx::Error> {
    let row = sqlx::query(concat!("SELECT shard_id, ", user_columns!(), " FROM users WHERE id = $1"))
        .bind(id)
        .fetch_optional(pool)
        .await?;
    row.map(|row| Ok((row.try_get("shard_id")?, UserRow::from_row(&row)?.0))).transpose()
}

struct UserRow(User);

impl FromRow<'_, PgRow> for UserRow {
    fn from_row(row: &PgRow) -> Result<UserRow, sqlx::Error> {
        let role: &str = row.try_get("role")?;
        Ok(UserRow(User {
            id: row.try_get("id")?,
            version: row.try_get("version")?,
            account_id: row.try_get("account_id")?,
            role: known(UserRole::parse(role), role)?,
            email_hash: row.try_get("email_hash")?,
            is_removed: row.try_get("is_removed")?,
            created_at: row.try_get("created_at")?,
            updated_at: row.try_get("updated_at")?,
        }))
    }
}
