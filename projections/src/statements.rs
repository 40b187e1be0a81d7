//! `bank_statements`: imported statements and the decisions about their lines, written inline.

use std::collections::{HashMap, HashSet};

use chrono::NaiveDate;
use ledger_database::FromRow;
use ledger_database::{PgConnection, PgPool};
use ledger_events::reconciliation::{Decision, Statement, StatementFormat, StatementImported, evolve};
use ledger_events::{Event, Recorded, ShardId, StatementId};
use sqlx::postgres::PgRow;
use sqlx::types::Json;
use sqlx::{Postgres, QueryBuilder, Row};

use crate::page::{self, Listed, Page};
use crate::{ProjectionError, known};

/// The columns of [`StatementRow`], as a literal for `concat!`.
macro_rules! statement_columns {
    () => {
        "id, version, format, fingerprint, lines, first_day, last_day, decisions, created_at, updated_at"
    };
}

pub async fn load(conn: &mut PgConnection, shard: ShardId, ids: &[StatementId]) -> Result<Vec<Statement>, sqlx::Error> {
    let rows: Vec<StatementRow> = sqlx::query_as(concat!(
        "SELECT ",
        statement_columns!(),
        " FROM unnest($2::bigint[]) AS wanted (wanted_id) JOIN bank_statements ON shard_id = $1 AND id = wanted_id"
    ))
    .bind(shard)
    .bind(ids)
    .fetch_all(conn)
    .await?;
    Ok(rows.into_iter().map(|row| row.0).collect())
}

/// Loads the statements that were imported from files with these fingerprints.
pub async fn load_by_fingerprint(
    conn: &mut PgConnection,
    shard: ShardId,
    fingerprints: &[&str],
) -> Result<Vec<Statement>, sqlx::Error> {
    let rows: Vec<StatementRow> = sqlx::query_as(concat!(
        "SELECT ",
        statement_columns!(),
        " FROM unnest($2::text[]) AS wanted (wanted_fingerprint)
         JOIN bank_statements ON shard_id = $1 AND fingerprint = wanted_fingerprint"
    ))
    .bind(shard)
    .bind(fingerprints)
    .fetch_all(conn)
    .await?;
    Ok(rows.into_iter().map(|row| row.0).collect())
}

/// Loads the statements in which a line has one of these decisions. [`Decision::Ignored`] matches none.
pub async fn load_by_decision(
    conn: &mut PgConnection,
    shard: ShardId,
    decisions: &[Decision],
) -> Result<Vec<Statement>, sqlx::Error> {
    let ids = |id: fn(&Decision) -> Option<i64>| decisions.iter().filter_map(id).collect::<Vec<_>>();
    let rows: Vec<StatementRow> = sqlx::query_as(concat!(
        "SELECT ",
        statement_columns!(),
        " FROM bank_statements WHERE shard_id = $1 AND EXISTS (SELECT FROM json_each(decisions) AS d
            WHERE (d.value->>'transaction_id')::bigint = ANY($2) OR (d.value->>'payout_id')::bigint = ANY($3))"
    ))
    .bind(shard)
    .bind(ids(|decision| if let Decision::Funding { transaction_id } = decision { Some(*transaction_id) } else { None }))
    .bind(ids(|decision| if let Decision::Payout { payout_id } = decision { Some(*payout_id) } else { None }))
    .fetch_all(conn)
    .await?;
    Ok(rows.into_iter().map(|row| row.0).collect())
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

/// Writes statements as rows: inserts new ones, and replaces known ones.
pub async fn write(conn: &mut PgConnection, shard: ShardId, statements: &[&Statement]) -> Result<(), ProjectionError> {
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

/// Folds the next events of the log into the table.
pub async fn apply(conn: &mut PgConnection, shard: ShardId, events: &[Recorded]) -> Result<(), ProjectionError> {
    let ids: HashSet<StatementId> =
        events.iter().filter(|r| matches!(r.event, Event::Reconciliation(_))).map(|r| r.stream_id).collect();
    if ids.is_empty() {
        return Ok(());
    }
    let ids: Vec<StatementId> = ids.into_iter().collect();
    let mut statements: HashMap<StatementId, Statement> = load(conn, shard, &ids).await?.into_iter().map(|s| (s.id, s)).collect();
    for recorded in events {
        fold(&mut statements, recorded);
    }
    write(conn, shard, &statements.values().collect::<Vec<_>>()).await
}

/// Folds one event into a map of statements.
pub fn fold(statements: &mut HashMap<StatementId, Statement>, recorded: &Recorded) {
    if let Event::Reconciliation(event) = &recorded.event {
        let before = statements.remove(&recorded.stream_id);
        if let Some(after) = evolve(before, recorded.stream_id, event, &recorded.moment) {
            statements.insert(recorded.stream_id, after);
        }
    }
}

struct StatementRow(Statement);

impl FromRow<'_, PgRow> for StatementRow {
    fn from_row(row: &PgRow) -> Result<StatementRow, sqlx::Error> {
        let format: &str = row.try_get("format")?;
        Ok(StatementRow(Statement {
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
        }))
    }
}

pub async fn find(pool: &PgPool, shard: ShardId, id: StatementId) -> Result<Option<Statement>, sqlx::Error> {
    let found: Option<StatementRow> =
        sqlx::query_as(concat!("SELECT ", statement_columns!(), " FROM bank_statements WHERE shard_id = $1 AND id = $2"))
            .bind(shard)
            .bind(id)
            .fetch_optional(pool)
            .await?;
    Ok(found.map(|row| row.0))
}

/// Lists one page of statements, newest first.
pub async fn list(pool: &PgPool, shard: ShardId, page: Page) -> Result<Listed<Statement>, sqlx::Error> {
    let conditions = |query: &mut QueryBuilder<Postgres>| {
        query.push(" FROM bank_statements WHERE shard_id = ").push_bind(shard);
    };
    let listed: Listed<StatementRow> = page::fetch(pool, statement_columns!(), conditions, "id", page).await?;
    Ok(listed.map(|row| row.0))
}

/// Lists the statements whose lines may be booked on these days, both inclusive, oldest first.
pub async fn between(
    pool: &PgPool,
    shard: ShardId,
    first_day: NaiveDate,
    last_day: NaiveDate,
) -> Result<Vec<Statement>, sqlx::Error> {
    let rows: Vec<StatementRow> = sqlx::query_as(concat!(
        "SELECT ",
        statement_columns!(),
        " FROM bank_statements WHERE shard_id = $1 AND first_day <= $3 AND last_day >= $2 ORDER BY id"
    ))
    .bind(shard)
    .bind(first_day)
    .bind(last_day)
    .fetch_all(pool)
    .await?;
    Ok(rows.into_iter().map(|row| row.0).collect())
}
