//! `bank_statements`: imported statements and the decisions about their lines, written inline.

use chrono::NaiveDate;
use ledger_database::{PgConnection, PgPool};
use ledger_events::reconciliation::{BankStatement, Decision, ReconciliationEvent, StatementFormat, StatementImported, evolve};
use ledger_events::{ShardId, StatementId};
use sqlx::postgres::PgRow;
use sqlx::types::Json;
use sqlx::{Postgres, QueryBuilder, Row as _};

use crate::page::{self, Listed, Page};
use crate::state::{Row, State, Upsert, all, first, select, state};
use crate::{ProjectionError, known};

/// Loads the statements that were imported from files with these fingerprints.
pub async fn load_by_fingerprint(
    conn: &mut PgConnection,
    shard: ShardId,
    fingerprints: &[&str],
) -> Result<Vec<BankStatement>, sqlx::Error> {
    let query = select(
        "FROM unnest($2::text[]) AS wanted (wanted_fingerprint)
         JOIN bank_statements ON shard_id = $1 AND fingerprint = wanted_fingerprint",
    )
    .bind(shard)
    .bind(fingerprints);
    all(query, conn).await
}

/// Loads the statements in which a line has one of these decisions. [`Decision::Ignored`] matches none.
pub async fn load_by_decision(
    conn: &mut PgConnection,
    shard: ShardId,
    decisions: &[Decision],
) -> Result<Vec<BankStatement>, sqlx::Error> {
    let ids = |id: fn(&Decision) -> Option<i64>| decisions.iter().filter_map(id).collect::<Vec<_>>();
    let query = select(
        "FROM bank_statements WHERE shard_id = $1 AND EXISTS (SELECT FROM json_each(decisions) AS d
            WHERE (d.value->>'transaction_id')::bigint = ANY($2) OR (d.value->>'payout_id')::bigint = ANY($3))",
    )
    .bind(shard)
    .bind(ids(|decision| if let Decision::Funding { transaction_id } = decision { Some(transaction_id.0) } else { None }))
    .bind(ids(|decision| if let Decision::Payout { payout_id } = decision { Some(payout_id.0) } else { None }));
    all(query, conn).await
}

/// Lists every decision that matches a line to a funding or payout, with its statement and line.
pub async fn decisions(pool: &PgPool, shard: ShardId) -> Result<Vec<(StatementId, i32, Decision)>, sqlx::Error> {
    let rows: Vec<(StatementId, i32, Json<Decision>)> = sqlx::query_as(
        "SELECT s.id, d.key::int, d.value FROM bank_statements s CROSS JOIN LATERAL json_each(s.decisions) AS d
         WHERE s.shard_id = $1 AND d.value->>'decision' <> 'IGNORED'",
    )
    .bind(shard)
    .fetch_all(pool)
    .await?;
    Ok(rows.into_iter().map(|(id, line, decision)| (id, line, decision.0)).collect())
}

impl Row for BankStatement {
    const COLUMNS: &'static str =
        "id, version, format, fingerprint, lines, first_day, last_day, decisions, created_at, updated_at";

    fn read(row: &PgRow) -> Result<Self, sqlx::Error> {
        let format: &str = row.try_get("format")?;
        Ok(BankStatement {
            id: row.try_get("id")?,
            version: row.try_get("version")?,
            imported: StatementImported {
                format: known(StatementFormat::parse(format), format)?,
                fingerprint: row.try_get("fingerprint")?,
                lines: row.try_get("lines")?,
                first_day: row.try_get("first_day")?,
                last_day: row.try_get("last_day")?,
            },
            decisions: row.try_get::<Json<_>, _>("decisions")?.0,
            created_at: row.try_get("created_at")?,
            updated_at: row.try_get("updated_at")?,
        })
    }
}

impl State for BankStatement {
    state!(StatementId, ReconciliationEvent, Reconciliation, evolve, "bank_statements");
}

impl Upsert for BankStatement {
    async fn write(conn: &mut PgConnection, shard: ShardId, statements: &[&Self]) -> Result<(), ProjectionError> {
        // One statement per row: people make one decision at a time.
        for statement in statements {
            sqlx::query(
                "INSERT INTO bank_statements (shard_id, id, version, format, fingerprint, lines, first_day, last_day, decisions, created_at, updated_at)
                 VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9::text::json, $10, $11)
                 ON CONFLICT (shard_id, id) DO UPDATE SET version = excluded.version, decisions = excluded.decisions, updated_at = excluded.updated_at",
            )
            .bind(shard)
            .bind(statement.id)
            .bind(statement.version)
            .bind(statement.imported.format.as_str())
            .bind(&statement.imported.fingerprint)
            .bind(statement.imported.lines)
            .bind(statement.imported.first_day)
            .bind(statement.imported.last_day)
            .bind(serde_json::to_string(&statement.decisions)?)
            .bind(statement.created_at)
            .bind(statement.updated_at)
            .execute(&mut *conn)
            .await?;
        }
        Ok(())
    }
}

pub async fn find(pool: &PgPool, shard: ShardId, id: StatementId) -> Result<Option<BankStatement>, sqlx::Error> {
    let query = select("FROM bank_statements WHERE shard_id = $1 AND id = $2").bind(shard).bind(id);
    first(query, pool).await
}

/// Lists one page of statements, newest first.
pub async fn list(pool: &PgPool, shard: ShardId, page: Page) -> Result<Listed<BankStatement>, sqlx::Error> {
    let conditions = |query: &mut QueryBuilder<Postgres>| {
        query.push(" FROM bank_statements WHERE shard_id = ").push_bind(shard);
    };
    page::fetch(pool, conditions, "id", page).await
}

/// Lists the statements whose lines may be booked on these days, both inclusive, oldest first.
pub async fn between(
    pool: &PgPool,
    shard: ShardId,
    first_day: NaiveDate,
    last_day: NaiveDate,
) -> Result<Vec<BankStatement>, sqlx::Error> {
    let query = select("FROM bank_statements WHERE shard_id = $1 AND first_day <= $3 AND last_day >= $2 ORDER BY id")
        .bind(shard)
        .bind(first_day)
        .bind(last_day);
    all(query, pool).await
}
