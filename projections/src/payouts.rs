//! `payouts`: the state of every payout, written inline.

use std::collections::{HashMap, HashSet};

use chrono::{DateTime, Utc};
use ledger_database::FromRow;
use ledger_database::{PgConnection, PgPool};
use ledger_events::payout::{Payout, PayoutRequested, PayoutStatus, evolve};
use ledger_events::{AccountId, BeneficiaryId, Event, PayoutId, Recorded, ShardId, WalletId};
use sqlx::postgres::PgRow;
use sqlx::{Postgres, QueryBuilder, Row};

use crate::page::{self, Listed, Page};
use crate::{ProjectionError, known, money};

/// The columns of [`PayoutRow`], as a literal for `concat!`.
macro_rules! payout_columns {
    () => {
        "id, version, requested_event_id, last_event_id, account_id, beneficiary_id, wallet_id, amount,
         currency, client_reference, transaction_id, status, refund_transaction_id, created_at, settled_at,
         updated_at"
    };
}

/// Loads payouts by id. Skips unknown ids.
pub async fn load(conn: &mut PgConnection, shard: ShardId, ids: &[PayoutId]) -> Result<Vec<Payout>, sqlx::Error> {
    rows(
        sqlx::query_as(concat!(
            "SELECT ",
            payout_columns!(),
            " FROM unnest($2::bigint[]) AS wanted (wanted_id) JOIN payouts ON shard_id = $1 AND id = wanted_id"
        ))
        .bind(shard)
        .bind(ids)
        .fetch_all(conn)
        .await?,
    )
}

/// Loads the payouts with these (account, `client_reference`) pairs.
pub async fn load_by_client_reference(
    conn: &mut PgConnection,
    shard: ShardId,
    accounts: &[AccountId],
    references: &[&str],
) -> Result<Vec<Payout>, sqlx::Error> {
    rows(
        sqlx::query_as(concat!(
            "SELECT ",
            payout_columns!(),
            " FROM unnest($2::bigint[], $3::text[]) AS wanted (wanted_account, wanted_reference)
             JOIN payouts ON shard_id = $1 AND account_id = wanted_account AND client_reference = wanted_reference
                AND client_reference COLLATE \"C\" = wanted_reference"
        ))
        .bind(shard)
        .bind(accounts)
        .bind(references)
        .fetch_all(conn)
        .await?,
    )
}

fn rows(rows: Vec<PayoutRow>) -> Result<Vec<Payout>, sqlx::Error> {
    Ok(rows.into_iter().map(|row| row.0).collect())
}

/// Writes payouts as rows: inserts new ones, and replaces known ones.
pub async fn write(conn: &mut PgConnection, shard: ShardId, payouts: &[&Payout]) -> Result<(), ProjectionError> {
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
    .bind(column(|p| p.id))
    .bind(column(|p| p.version))
    .bind(payouts.iter().map(|p| p.requested_event_id).collect::<Vec<_>>())
    .bind(payouts.iter().map(|p| p.last_event_id).collect::<Vec<_>>())
    .bind(column(|p| p.requested.account_id))
    .bind(column(|p| p.requested.beneficiary_id))
    .bind(column(|p| p.requested.wallet_id))
    .bind(payouts.iter().map(|p| p.requested.amount.decimal()).collect::<Vec<_>>())
    .bind(payouts.iter().map(|p| p.requested.currency.as_str()).collect::<Vec<_>>())
    .bind(payouts.iter().map(|p| p.requested.client_reference.as_deref()).collect::<Vec<_>>())
    .bind(column(|p| p.requested.transaction_id))
    .bind(payouts.iter().map(|p| p.status.as_str()).collect::<Vec<_>>())
    .bind(payouts.iter().map(|p| p.refund_transaction_id).collect::<Vec<_>>())
    .bind(payouts.iter().map(|p| p.created_at).collect::<Vec<_>>())
    .bind(payouts.iter().map(|p| p.settled_at).collect::<Vec<_>>())
    .bind(payouts.iter().map(|p| p.updated_at).collect::<Vec<_>>())
    .execute(conn)
    .await?;
    Ok(())
}

/// Folds the next events of the log into the table.
pub async fn apply(conn: &mut PgConnection, shard: ShardId, events: &[Recorded]) -> Result<(), ProjectionError> {
    let ids: HashSet<PayoutId> = events.iter().filter(|r| matches!(r.event, Event::Payout(_))).map(|r| r.stream_id).collect();
    if ids.is_empty() {
        return Ok(());
    }
    let ids: Vec<PayoutId> = ids.into_iter().collect();
    let mut payouts: HashMap<PayoutId, Payout> = load(conn, shard, &ids).await?.into_iter().map(|p| (p.id, p)).collect();
    for recorded in events {
        fold(&mut payouts, recorded);
    }
    write(conn, shard, &payouts.values().collect::<Vec<_>>()).await
}

/// Folds one event into a map of payouts.
pub fn fold(payouts: &mut HashMap<PayoutId, Payout>, recorded: &Recorded) {
    if let Event::Payout(event) = &recorded.event {
        let before = payouts.remove(&recorded.stream_id);
        if let Some(after) = evolve(before, recorded.stream_id, event, &recorded.moment) {
            payouts.insert(recorded.stream_id, after);
        }
    }
}

struct PayoutRow(Payout);

impl FromRow<'_, PgRow> for PayoutRow {
    fn from_row(row: &PgRow) -> Result<PayoutRow, sqlx::Error> {
        let currency: &str = row.try_get("currency")?;
        let status: &str = row.try_get("status")?;
        Ok(PayoutRow(Payout {
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
        }))
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
    let listed: Listed<PayoutRow> = page::fetch(pool, payout_columns!(), conditions, "id", page).await?;
    Ok(listed.map(|row| row.0))
}

/// Finds one of an account's payouts.
pub async fn find(pool: &PgPool, shard: ShardId, account: AccountId, id: PayoutId) -> Result<Option<Payout>, sqlx::Error> {
    let found: Option<PayoutRow> = sqlx::query_as(concat!(
        "SELECT ",
        payout_columns!(),
        " FROM payouts WHERE shard_id = $1 AND id = $2 AND account_id = $3"
    ))
    .bind(shard)
    .bind(id)
    .bind(account)
    .fetch_optional(pool)
    .await?;
    Ok(found.map(|row| row.0))
}
