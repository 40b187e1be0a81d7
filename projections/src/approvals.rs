//! `approvals`: movements of money that wait for a second operator, written inline.

use chrono::{DateTime, Utc};
use ledger_database::{PgConnection, PgPool};
use ledger_events::approval::{Approval, ApprovalEvent, ApprovalRequested, ApprovalStatus, evolve};
use ledger_events::{Actor, ApprovalId, PayoutId, ShardId, WalletId};
use sqlx::postgres::PgRow;
use sqlx::types::Json;
use sqlx::{Postgres, QueryBuilder, Row as _};

use crate::page::{self, Listed, Page};
use crate::state::{Row, State, Upsert, all, first, select, state};
use crate::{ProjectionError, known};

impl Row for Approval {
    const COLUMNS: &'static str =
        "id, version, requested_event_id, last_event_id, requested, status, decided_by, transaction_id, created_at, decided_at,
         updated_at";

    fn read(row: &PgRow) -> Result<Self, sqlx::Error> {
        let status: &str = row.try_get("status")?;
        Ok(Approval {
            id: row.try_get("id")?,
            version: row.try_get("version")?,
            requested_event_id: row.try_get("requested_event_id")?,
            last_event_id: row.try_get("last_event_id")?,
            requested: row.try_get::<Json<ApprovalRequested>, _>("requested")?.0,
            status: known(ApprovalStatus::parse(status), status)?,
            decided_by: row.try_get::<Option<Json<Actor>>, _>("decided_by")?.map(|actor| actor.0),
            transaction_id: row.try_get("transaction_id")?,
            created_at: row.try_get("created_at")?,
            decided_at: row.try_get("decided_at")?,
            updated_at: row.try_get("updated_at")?,
        })
    }
}

impl State for Approval {
    state!(ApprovalId, ApprovalEvent, Approval, evolve, "approvals");
}

impl Upsert for Approval {
    async fn write(conn: &mut PgConnection, shard: ShardId, approvals: &[&Self]) -> Result<(), ProjectionError> {
        if approvals.is_empty() {
            return Ok(());
        }
        let decided_by = |approval: &&Approval| approval.decided_by.map(|actor| serde_json::to_string(&actor)).transpose();
        sqlx::query(
            "INSERT INTO approvals (shard_id, id, version, requested_event_id, last_event_id, account_id, requested, reference, payout_id,
                    status, expires_at, decided_by, transaction_id, created_at, decided_at, updated_at)
             SELECT $1, new.* FROM unnest($2::bigint[], $3::bigint[], $4::uuid[], $5::uuid[], $6::bigint[], $7::json[], $8::text[],
                    $9::bigint[], $10::text[], $11::timestamptz[], $12::json[], $13::bigint[], $14::timestamptz[], $15::timestamptz[],
                    $16::timestamptz[]) AS new
             ON CONFLICT (shard_id, id) DO UPDATE SET version = excluded.version, last_event_id = excluded.last_event_id,
                status = excluded.status, decided_by = excluded.decided_by, transaction_id = excluded.transaction_id,
                decided_at = excluded.decided_at, updated_at = excluded.updated_at",
        )
        .bind(shard)
        .bind(approvals.iter().map(|a| a.id).collect::<Vec<_>>())
        .bind(approvals.iter().map(|a| a.version).collect::<Vec<_>>())
        .bind(approvals.iter().map(|a| a.requested_event_id).collect::<Vec<_>>())
        .bind(approvals.iter().map(|a| a.last_event_id).collect::<Vec<_>>())
        .bind(approvals.iter().map(|a| a.requested.account_id).collect::<Vec<_>>())
        .bind(approvals.iter().map(|a| serde_json::to_string(&a.requested)).collect::<Result<Vec<_>, _>>()?)
        .bind(approvals.iter().map(|a| a.requested.action.reference()).collect::<Vec<_>>())
        .bind(approvals.iter().map(|a| a.requested.action.payout_id()).collect::<Vec<_>>())
        .bind(approvals.iter().map(|a| a.status.as_str()).collect::<Vec<_>>())
        .bind(approvals.iter().map(|a| a.requested.expires_at).collect::<Vec<_>>())
        .bind(approvals.iter().map(decided_by).collect::<Result<Vec<_>, _>>()?)
        .bind(approvals.iter().map(|a| a.transaction_id).collect::<Vec<_>>())
        .bind(approvals.iter().map(|a| a.created_at).collect::<Vec<_>>())
        .bind(approvals.iter().map(|a| a.decided_at).collect::<Vec<_>>())
        .bind(approvals.iter().map(|a| a.updated_at).collect::<Vec<_>>())
        .execute(conn)
        .await?;
        Ok(())
    }
}

/// Loads the undecided approvals of fundings with these references, and of these payouts. Expired ones are among them.
pub async fn load_undecided(
    conn: &mut PgConnection,
    shard: ShardId,
    references: &[&str],
    payouts: &[PayoutId],
) -> Result<Vec<Approval>, sqlx::Error> {
    let by_reference = select("FROM approvals WHERE shard_id = $1 AND status = 'PENDING' AND reference = ANY($2)");
    let mut found: Vec<Approval> = all(by_reference.bind(shard).bind(references), &mut *conn).await?;
    let by_payout = select("FROM approvals WHERE shard_id = $1 AND status = 'PENDING' AND payout_id = ANY($2)");
    found.extend(all(by_payout.bind(shard).bind(payouts), conn).await?);
    Ok(found)
}

/// Finds an approval in a shard.
pub async fn find(pool: &PgPool, shard: ShardId, id: ApprovalId) -> Result<Option<Approval>, sqlx::Error> {
    first(select("FROM approvals WHERE shard_id = $1 AND id = $2").bind(shard).bind(id), pool).await
}

/// Status by which approvals are listed. An undecided one is pending before its expiry, and expired from then on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ListedStatus {
    Pending,
    Expired,
    Granted,
    Rejected,
    Withdrawn,
}

/// Filter of a list of approvals.
#[derive(Clone, Copy, Debug, Default)]
pub struct ApprovalFilter {
    pub status: Option<ListedStatus>,
    pub wallet_id: Option<WalletId>,
    pub payout_id: Option<PayoutId>,
}

/// Lists one page of approvals, newest first, with the total.
pub async fn list(
    pool: &PgPool,
    shard: ShardId,
    filter: ApprovalFilter,
    now: DateTime<Utc>,
    page: Page,
) -> Result<Listed<Approval>, sqlx::Error> {
    let conditions = |query: &mut QueryBuilder<Postgres>| {
        query.push(" FROM approvals WHERE shard_id = ").push_bind(shard);
        let status = filter.status.map(|status| match status {
            ListedStatus::Pending | ListedStatus::Expired => ApprovalStatus::Pending,
            ListedStatus::Granted => ApprovalStatus::Granted,
            ListedStatus::Rejected => ApprovalStatus::Rejected,
            ListedStatus::Withdrawn => ApprovalStatus::Withdrawn,
        });
        page::equals(query, "status", status.map(ApprovalStatus::as_str));
        match filter.status {
            Some(ListedStatus::Pending) => _ = query.push(" AND expires_at > ").push_bind(now),
            Some(ListedStatus::Expired) => _ = query.push(" AND expires_at <= ").push_bind(now),
            _ => {}
        }
        // The account has an index.
        if let Some(id) = filter.wallet_id {
            query.push(" AND account_id = (SELECT account_id FROM wallets WHERE shard_id = ").push_bind(shard);
            query.push(" AND id = ").push_bind(id).push(") AND (requested->>'wallet_id')::bigint = ").push_bind(id);
        }
        if let Some(id) = filter.payout_id {
            query.push(" AND account_id = (SELECT account_id FROM payouts WHERE shard_id = ").push_bind(shard);
            query.push(" AND id = ").push_bind(id).push(") AND payout_id = ").push_bind(id);
        }
    };
    page::fetch(pool, conditions, "id", page).await
}
