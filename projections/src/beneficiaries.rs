//! `beneficiaries`: the recipients of payouts, without personal data, written inline.

use ledger_database::{PgConnection, PgPool};
use ledger_events::beneficiary::{Beneficiary, BeneficiaryEvent, BeneficiaryKind, evolve};
use ledger_events::{AccountId, BeneficiaryId, ShardId};
use sqlx::postgres::PgRow;
use sqlx::{Postgres, QueryBuilder, Row as _};

use crate::page::{self, Listed, Page};
use crate::state::{Row, State, Upsert, first, select, state};
use crate::{ProjectionError, known};

impl Row for Beneficiary {
    const COLUMNS: &'static str = "id, version, account_id, type, country, currency, is_deleted, created_at, updated_at";

    fn read(row: &PgRow) -> Result<Self, sqlx::Error> {
        let kind: &str = row.try_get("type")?;
        let currency: &str = row.try_get("currency")?;
        Ok(Beneficiary {
            id: row.try_get("id")?,
            version: row.try_get("version")?,
            account_id: row.try_get("account_id")?,
            kind: known(BeneficiaryKind::parse(kind), kind)?,
            country: row.try_get("country")?,
            currency: known(currency.parse().ok(), currency)?,
            is_deleted: row.try_get("is_deleted")?,
            created_at: row.try_get("created_at")?,
            updated_at: row.try_get("updated_at")?,
        })
    }
}

impl State for Beneficiary {
    state!(BeneficiaryId, BeneficiaryEvent, Beneficiary, evolve, "beneficiaries");
}

impl Upsert for Beneficiary {
    async fn write(conn: &mut PgConnection, shard: ShardId, beneficiaries: &[&Self]) -> Result<(), ProjectionError> {
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
}

/// Lists one page of an account's beneficiaries, newest first, without deleted ones.
pub async fn list(pool: &PgPool, shard: ShardId, account: AccountId, page: Page) -> Result<Listed<Beneficiary>, sqlx::Error> {
    let conditions = |query: &mut QueryBuilder<Postgres>| {
        query.push(" FROM beneficiaries WHERE NOT is_deleted AND shard_id = ").push_bind(shard);
        page::equals(query, "account_id", Some(account));
    };
    page::fetch(pool, conditions, "id", page).await
}

/// Finds one of an account's beneficiaries. Returns `None` if it is deleted.
pub async fn find(
    pool: &PgPool,
    shard: ShardId,
    account: AccountId,
    id: BeneficiaryId,
) -> Result<Option<Beneficiary>, sqlx::Error> {
    let query = select("FROM beneficiaries WHERE shard_id = $1 AND id = $2 AND account_id = $3 AND NOT is_deleted")
        .bind(shard)
        .bind(id)
        .bind(account);
    first(query, pool).await
}
