//! `beneficiaries`: the recipients of payouts, without personal data, written inline.

use std::collections::{HashMap, HashSet};

use ledger_database::FromRow;
use ledger_database::{PgConnection, PgPool};
use ledger_events::beneficiary::{Beneficiary, BeneficiaryKind, evolve};
use ledger_events::{AccountId, BeneficiaryId, Event, Recorded, ShardId};
use sqlx::postgres::PgRow;
use sqlx::{Postgres, QueryBuilder, Row};

use crate::page::{self, Listed, Page};
use crate::{ProjectionError, known};

/// The columns of [`BeneficiaryRow`], as a literal for `concat!`.
macro_rules! beneficiary_columns {
    () => {
        "id, version, account_id, type, country, currency, is_deleted, created_at, updated_at"
    };
}

/// Loads beneficiaries by id, including deleted ones. Skips unknown ids.
pub async fn load(conn: &mut PgConnection, shard: ShardId, ids: &[BeneficiaryId]) -> Result<Vec<Beneficiary>, sqlx::Error> {
    let rows: Vec<BeneficiaryRow> = sqlx::query_as(concat!(
        "SELECT ",
        beneficiary_columns!(),
        " FROM unnest($2::bigint[]) AS wanted (wanted_id) JOIN beneficiaries ON shard_id = $1 AND id = wanted_id"
    ))
    .bind(shard)
    .bind(ids)
    .fetch_all(conn)
    .await?;
    Ok(rows.into_iter().map(|row| row.0).collect())
}

/// Writes beneficiaries as rows: inserts new ones, and replaces known ones.
pub async fn write(conn: &mut PgConnection, shard: ShardId, beneficiaries: &[&Beneficiary]) -> Result<(), ProjectionError> {
    if beneficiaries.is_empty() {
        return Ok(());
    }
    sqlx::query(
        "INSERT INTO beneficiaries (shard_id, id, version, account_id, type, country, currency, is_deleted, created_at, updated_at)
         SELECT $1, new.* FROM unnest($2::bigint[], $3::bigint[], $4::bigint[], $5::text[], $6::text[], $7::text[], $8::boolean[],
                $9::timestamptz[], $10::timestamptz[]) AS new
         ON CONFLICT (shard_id, id) DO UPDATE SET version = excluded.version, is_deleted = excluded.is_deleted, updated_at = excluded.updated_at",
    )
    .bind(shard)
    .bind(beneficiaries.iter().map(|b| b.id).collect::<Vec<_>>())
    .bind(beneficiaries.iter().map(|b| b.version).collect::<Vec<_>>())
    .bind(beneficiaries.iter().map(|b| b.account_id).collect::<Vec<_>>())
    .bind(beneficiaries.iter().map(|b| b.kind.as_str()).collect::<Vec<_>>())
    .bind(beneficiaries.iter().map(|b| &*b.country).collect::<Vec<_>>())
    .bind(beneficiaries.iter().map(|b| b.currency.as_str()).collect::<Vec<_>>())
    .bind(beneficiaries.iter().map(|b| b.is_deleted).collect::<Vec<_>>())
    .bind(beneficiaries.iter().map(|b| b.created_at).collect::<Vec<_>>())
    .bind(beneficiaries.iter().map(|b| b.updated_at).collect::<Vec<_>>())
    .execute(conn)
    .await?;
    Ok(())
}

/// Folds the next events of the log into the table.
pub async fn apply(conn: &mut PgConnection, shard: ShardId, events: &[Recorded]) -> Result<(), ProjectionError> {
    let ids: HashSet<BeneficiaryId> =
        events.iter().filter(|r| matches!(r.event, Event::Beneficiary(_))).map(|r| r.stream_id).collect();
    if ids.is_empty() {
        return Ok(());
    }
    let ids: Vec<BeneficiaryId> = ids.into_iter().collect();
    let mut beneficiaries: HashMap<_, _> = load(conn, shard, &ids).await?.into_iter().map(|b| (b.id, b)).collect();
    for recorded in events {
        fold(&mut beneficiaries, recorded);
    }
    write(conn, shard, &beneficiaries.values().collect::<Vec<_>>()).await
}

/// Folds one event into a map of beneficiaries.
pub fn fold(beneficiaries: &mut HashMap<BeneficiaryId, Beneficiary>, recorded: &Recorded) {
    if let Event::Beneficiary(event) = &recorded.event {
        let before = beneficiaries.remove(&recorded.stream_id);
        if let Some(after) = evolve(before, recorded.stream_id, event, &recorded.moment) {
            beneficiaries.insert(recorded.stream_id, after);
        }
    }
}

struct BeneficiaryRow(Beneficiary);

impl FromRow<'_, PgRow> for BeneficiaryRow {
    fn from_row(row: &PgRow) -> Result<BeneficiaryRow, sqlx::Error> {
        let kind: &str = row.try_get("type")?;
        let currency: &str = row.try_get("currency")?;
        Ok(BeneficiaryRow(Beneficiary {
            id: row.try_get("id")?,
            version: row.try_get("version")?,
            account_id: row.try_get("account_id")?,
            kind: known(BeneficiaryKind::parse(kind), kind)?,
            country: row.try_get("country")?,
            currency: known(currency.parse().ok(), currency)?,
            is_deleted: row.try_get("is_deleted")?,
            created_at: row.try_get("created_at")?,
            updated_at: row.try_get("updated_at")?,
        }))
    }
}

/// Lists one page of an account's beneficiaries, newest first, without deleted ones.
pub async fn list(pool: &PgPool, shard: ShardId, account: AccountId, page: Page) -> Result<Listed<Beneficiary>, sqlx::Error> {
    let conditions = |query: &mut QueryBuilder<Postgres>| {
        query.push(" FROM beneficiaries WHERE NOT is_deleted AND shard_id = ").push_bind(shard);
        page::equals(query, "account_id", Some(account));
    };
    let listed: Listed<BeneficiaryRow> = page::fetch(pool, beneficiary_columns!(), conditions, "id", page).await?;
    Ok(listed.map(|row| row.0))
}

/// Finds one of an account's beneficiaries. Returns `None` if it is deleted.
pub async fn find(
    pool: &PgPool,
    shard: ShardId,
    account: AccountId,
    id: BeneficiaryId,
) -> Result<Option<Beneficiary>, sqlx::Error> {
    let found: Option<BeneficiaryRow> = sqlx::query_as(concat!(
        "SELECT ",
        beneficiary_columns!(),
        " FROM beneficiaries WHERE shard_id = $1 AND id = $2 AND account_id = $3 AND NOT is_deleted"
    ))
    .bind(shard)
    .bind(id)
    .bind(account)
    .fetch_optional(pool)
    .await?;
    Ok(found.map(|row| row.0))
}
