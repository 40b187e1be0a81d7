//! `payouts`: the state of every payout, written inline.

use chrono::{DateTime, Utc};
use ledger_database::{PgConnection, PgPool};
use ledger_events::payout::{Payout, PayoutEvent, PayoutRequested, PayoutStatus, evolve};
use ledger_events::{AccountId, BeneficiaryId, PayoutId, ShardId, WalletId};
use sqlx::postgres::PgRow;
use sqlx::{Postgres, QueryBuilder, Row as _};

use crate::page::{self, Listed, Page};
use crate::state::{Row, State, Upsert, first, select, state};
use crate::{ProjectionError, known, money};

impl Row for Payout {
    const COLUMNS: &'static str =
        "id, version, requested_event_id, last_event_id, account_id, beneficiary_id, wallet_id, amount, currency,
         client_reference, transaction_id, status, refund_transaction_id, created_at, settled_at, updated_at";

    fn read(row: &PgRow) -> Result<Self, sqlx::Error> {
        let currency: &str = row.try_get("currency")?;
        let status: &str = row.try_get("status")?;
        Ok(Payout {
            id: row.try_get("id")?,
            version: row.try_get("version")?,
            requested_event_id: row.try_get("requested_event_id")?,
            last_event_id: row.try_get("last_event_id")?,
            requested: PayoutRequested {
                account_id: row.try_get("account_id")?,
                beneficiary_id: row.try_get("beneficiary_id")?,
                wallet_id: row.try_get("wallet_id")?,
                amount: money(row.try_get("amount")?)?,
                currency: known(currency.parse().ok(), currency)?,
                client_reference: row.try_get("client_reference")?,
                transaction_id: row.try_get("transaction_id")?,
            },
            status: known(PayoutStatus::parse(status), status)?,
            refund_transaction_id: row.try_get("refund_transaction_id")?,
            created_at: row.try_get("created_at")?,
            settled_at: row.try_get("settled_at")?,
            updated_at: row.try_get("updated_at")?,
        })
    }
}

impl State for Payout {
    state!(PayoutId, PayoutEvent, Payout, evolve, "payouts");
}

impl Upsert for Payout {
    async fn write(conn: &mut PgConnection, shard: ShardId, payouts: &[&Self]) -> Result<(), ProjectionError> {
        if payouts.is_empty() {
            return Ok(());
        }
        let column = |value: fn(&Payout) -> i64| payouts.iter().map(|p| value(p)).collect::<Vec<_>>();
        sqlx::query(
            "INSERT INTO payouts (shard_id, id, version, requested_event_id, last_event_id, account_id, beneficiary_id, wallet_id, amount,
                    currency, client_reference, transaction_id, status, refund_transaction_id, created_at, settled_at, updated_at)
             SELECT $1, new.* FROM unnest($2::bigint[], $3::bigint[], $4::uuid[], $5::uuid[], $6::bigint[], $7::bigint[], $8::bigint[],
                    $9::numeric[], $10::text[], $11::text[], $12::bigint[], $13::text[], $14::bigint[], $15::timestamptz[], $16::timestamptz[],
                    $17::timestamptz[]) AS new
             ON CONFLICT (shard_id, id) DO UPDATE SET version = excluded.version, last_event_id = excluded.last_event_id,
                status = excluded.status, refund_transaction_id = excluded.refund_transaction_id, settled_at = excluded.settled_at,
                updated_at = excluded.updated_at",
        )
        .bind(shard)
        .bind(column(|p| p.id.0))
        .bind(column(|p| p.version))
        .bind(payouts.iter().map(|p| p.requested_event_id).collect::<Vec<_>>())
        .bind(payouts.iter().map(|p| p.last_event_id).collect::<Vec<_>>())
        .bind(column(|p| p.requested.account_id.0))
        .bind(column(|p| p.requested.beneficiary_id.0))
        .bind(column(|p| p.requested.wallet_id.0))
        .bind(payouts.iter().map(|p| p.requested.amount.decimal()).collect::<Vec<_>>())
        .bind(payouts.iter().map(|p| p.requested.currency.as_str()).collect::<Vec<_>>())
        .bind(payouts.iter().map(|p| p.requested.client_reference.as_deref()).collect::<Vec<_>>())
        .bind(column(|p| p.requested.transaction_id.0))
        .bind(payouts.iter().map(|p| p.status.as_str()).collect::<Vec<_>>())
        .bind(payouts.iter().map(|p| p.refund_transaction_id).collect::<Vec<_>>())
        .bind(payouts.iter().map(|p| p.created_at).collect::<Vec<_>>())
        .bind(payouts.iter().map(|p| p.settled_at).collect::<Vec<_>>())
        .bind(payouts.iter().map(|p| p.updated_at).collect::<Vec<_>>())
        .execute(conn)
        .await?;
        Ok(())
    }
}

/// Filter of a payout list. `account_id` is `None` for operators.
#[derive(Clone, Debug, Default)]
pub struct PayoutFilter {
    pub account_id: Option<AccountId>,
    pub status: Option<PayoutStatus>,
    pub beneficiary_id: Option<BeneficiaryId>,
    pub wallet_id: Option<WalletId>,
    pub client_reference: Option<String>,
    pub created_from: Option<DateTime<Utc>>,
    pub created_to: Option<DateTime<Utc>>,
}

/// Lists one page of payouts, newest first, with the total.
pub async fn list(pool: &PgPool, shard: ShardId, filter: &PayoutFilter, page: Page) -> Result<Listed<Payout>, sqlx::Error> {
    let conditions = |query: &mut QueryBuilder<Postgres>| {
        query.push(" FROM payouts WHERE shard_id = ").push_bind(shard);
        page::equals(query, "account_id", filter.account_id);
        page::equals(query, "status", filter.status.map(PayoutStatus::as_str));
        page::equals(query, "beneficiary_id", filter.beneficiary_id);
        page::equals(query, "wallet_id", filter.wallet_id);
        page::equals(query, "client_reference", filter.client_reference.clone());
        page::equals(query, "client_reference COLLATE \"C\"", filter.client_reference.clone());
        page::between(query, "created_at", filter.created_from, filter.created_to);
    };
    page::fetch(pool, conditions, "id", page).await
}

/// Finds a payout of any account in a shard.
pub async fn find_any(pool: &PgPool, shard: ShardId, id: PayoutId) -> Result<Option<Payout>, sqlx::Error> {
    first(select("FROM payouts WHERE shard_id = $1 AND id = $2").bind(shard).bind(id), pool).await
}

/// Finds one of an account's payouts.
pub async fn find(pool: &PgPool, shard: ShardId, account: AccountId, id: PayoutId) -> Result<Option<Payout>, sqlx::Error> {
    let query = select("FROM payouts WHERE shard_id = $1 AND id = $2 AND account_id = $3").bind(shard).bind(id).bind(account);
    first(query, pool).await
}
