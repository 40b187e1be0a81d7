//! Queries of deliveries, each with the worker's record.

use ledger_database::FromRow;
use ledger_database::{PgConnection, PgPool, replanned};
use ledger_events::webhook::{Retryable, WebhookEventType};
use ledger_events::{AccountId, Id, ReplayId, ShardId, WebhookId};
use sqlx::postgres::PgRow;
use sqlx::{Postgres, QueryBuilder, Row};
use uuid::Uuid;

use super::deep::{Wanted, nearer};
use super::history;
use super::model::{Attempt, Delivery, DeliveryFilter, DeliveryStatus, FAILED, PENDING, Retry, webhooks_of};
use super::retried::AllRetried;
use super::{pending, period};
use crate::known;
use crate::listing::page_anchors::{DELIVERIES, Span};
use crate::listing::pages::{self, DELIVERY_GROUPS, Group, Thresholds};
use crate::page::{self, Listed, Page};

struct DeliveryRow(Delivery);

impl FromRow<'_, PgRow> for DeliveryRow {
    fn from_row(row: &PgRow) -> Result<DeliveryRow, sqlx::Error> {
        let status: &str = row.try_get("status")?;
        let event_type: &str = row.try_get("event_type")?;
        Ok(DeliveryRow(Delivery {
            id: row.try_get("id")?,
            webhook_id: row.try_get("webhook_id")?,
            order_id: row.try_get("order_id")?,
            event_type: known(WebhookEventType::parse(event_type), event_type)?,
            event_id: row.try_get("event_id")?,
            position: row.try_get("position")?,
            payload: row.try_get("payload")?,
            status: known(DeliveryStatus::parse(status), status)?,
            attempt_count: row.try_get("attempt_count")?,
            response_status: row.try_get("response_status")?,
            response_time_ms: row.try_get("response_time_ms")?,
            delivered_at: row.try_get("delivered_at")?,
            created_at: row.try_get("created_at")?,
            next_attempt_at: row.try_get("next_attempt_at")?,
            response_body: row.try_get("response_body")?,
        }))
    }
}

const COLUMNS: &str =
    "SELECT d.id, d.webhook_id, d.order_id, d.event_type, d.event_id, d.created_at, e.position, e.payload, s.status, s.attempt_count,
        s.response_status, s.response_time_ms, s.delivered_at, s.next_attempt_at, s.response_body";
const STATE: &str = " JOIN delivery_state s ON s.shard_id = d.shard_id AND s.delivery_id = d.id";
const ENVELOPE: &str = " JOIN webhook_envelopes e ON e.shard_id = d.shard_id AND e.event_id = d.event_id";

/// Lists one page of an account's deliveries, newest first, with the total.
pub async fn list(pool: &PgPool, shard: ShardId, filter: &DeliveryFilter, page: Page) -> Result<Listed<Delivery>, sqlx::Error> {
    list_by(pool, shard, filter, page, &Thresholds::default()).await
}

/// Lists a page like [`list`], with the caller's thresholds.
pub async fn list_by(
    pool: &PgPool,
    shard: ShardId,
    filter: &DeliveryFilter,
    page: Page,
    thresholds: &Thresholds,
) -> Result<Listed<Delivery>, sqlx::Error> {
    replanned(|| list_once(pool, shard, filter, page, thresholds)).await
}

async fn list_once(
    pool: &PgPool,
    shard: ShardId,
    filter: &DeliveryFilter,
    page: Page,
    thresholds: &Thresholds,
) -> Result<Listed<Delivery>, sqlx::Error> {
    let mut tx = page::snapshot(pool).await?;
    let retried = AllRetried::find(&mut tx, shard, filter.account_id, &filter.retries).await?;
    let (total, keys) = if filter.order_id.is_some() || filter.replay_id.is_some() {
        of_order_or_replay(&mut tx, shard, filter, &retried, page).await?
    } else if filter.created_from.is_some() || filter.created_to.is_some() {
        period::find(&mut tx, shard, filter, &retried, (page, thresholds)).await?
    } else {
        of_any_time(&mut tx, shard, filter, &retried, (page, thresholds)).await?
    };
    let mut select = QueryBuilder::new(COLUMNS);
    select.push(" FROM unnest(").push_bind(keys).push("::bigint[]) AS wanted (id) JOIN deliveries d ON d.id = wanted.id");
    select.push(STATE).push(ENVELOPE).push(" WHERE d.shard_id = ").push_bind(shard).push(" ORDER BY d.id DESC");
    let rows: Vec<DeliveryRow> = select.build_query_as().fetch_all(&mut *tx).await?;
    tx.commit().await?;
    let mut rows: Vec<Delivery> = rows.into_iter().map(|row| row.0).collect();
    rows.iter_mut().for_each(|delivery| retried.show(delivery));
    Ok(Listed { rows, total })
}

/// Returns the number of deliveries of the groups that a filter selects, and the keys of a page of them.
async fn of_any_time(
    conn: &mut PgConnection,
    shard: ShardId,
    filter: &DeliveryFilter,
    retried: &AllRetried,
    (page, thresholds): (Page, &Thresholds),
) -> Result<(i64, Vec<i64>), sqlx::Error> {
    let (account, event_type) = (filter.account_id, filter.event_type.map(WebhookEventType::as_str));
    let groups = pages::delivery_groups(conn, shard, account, filter.webhook_id, event_type).await?;
    let of_groups = Group::rows_of(&groups);
    let of_account = DELIVERIES.total(conn, shard, account).await?;
    let count = match filter.status {
        None => of_groups,
        Some(status) => count_of_status(conn, shard, (status, event_type), of_groups, &webhooks_of(&groups)).await?,
    };
    let moved = if retried.is_empty() { vec![] } else { retried.ids(filter) };
    let moves = i64::try_from(moved.len()).unwrap_or(i64::MAX);
    let total = match filter.status {
        Some("pending") => count + moves,
        Some("failed") => count - moves,
        _ => count,
    };
    let keys = if total == of_account {
        // The filter excludes nothing, so all deliveries match.
        let span = Span { after: 0, upto: total, after_key: 0, upto_key: i64::MAX };
        DELIVERIES.keys(conn, shard, account, span, page.rows()).await?
    } else if let Some(status @ ("pending" | "failed")) = filter.status
        && !moved.is_empty()
    {
        with_moved(conn, shard, (status, event_type), &webhooks_of(&groups), &moved, page).await?
    } else {
        let wanted = Wanted { total, rows: page.rows() };
        keys(conn, shard, filter, (&groups, of_account), wanted, thresholds).await?
    };
    Ok((total, keys))
}

/// Returns the keys of a page of pending or failed deliveries while some retries are still unprocessed. `moved`
/// deliveries are failed in the worker's record and pending in the log. That state is short and concerns few
/// deliveries, so the query reads and skips everything before the page.
async fn with_moved(
    conn: &mut PgConnection,
    shard: ShardId,
    (status, event_type): (&'static str, Option<&'static str>),
    webhooks: &[WebhookId],
    moved: &[i64],
    page: Page,
) -> Result<Vec<i64>, sqlx::Error> {
    let states = if status == "failed" { FAILED } else { PENDING };
    let mut query = QueryBuilder::new("SELECT key FROM (");
    for (n, state) in states.iter().enumerate() {
        query.push(if n > 0 { " UNION ALL " } else { "" });
        query.push("SELECT delivery_id AS key FROM delivery_state WHERE shard_id = ").push_bind(shard);
        query.push(" AND webhook_id = ANY (").push_bind(webhooks.to_vec()).push(") AND ").push(*state);
        page::equals(&mut query, "event_type", event_type);
    }
    query.push(") AS recorded");
    match status {
        "failed" => query.push(" WHERE key <> ALL (").push_bind(moved.to_vec()).push(")"),
        _ => query.push(" UNION ALL SELECT unnest(").push_bind(moved.to_vec()).push("::bigint[])"),
    };
    query.push(" ORDER BY key DESC LIMIT ").push_bind(page.size).push(" OFFSET ").push_bind(page.offset());
    query.build_query_scalar().persistent(false).fetch_all(conn).await
}

/// Returns the total and the page's keys of the deliveries of one order or replay. These are all read, whatever else the filter
/// selects.
async fn of_order_or_replay(
    conn: &mut PgConnection,
    shard: ShardId,
    filter: &DeliveryFilter,
    retried: &AllRetried,
    page: Page,
) -> Result<(i64, Vec<i64>), sqlx::Error> {
    let moved = retried.ids(filter);
    let matching = |query: &mut QueryBuilder<Postgres>| {
        query.push(" FROM deliveries d").push(if filter.status.is_some() { STATE } else { "" });
        query.push(" WHERE d.shard_id = ").push_bind(shard);
        page::equals(query, "d.account_id", Some(filter.account_id));
        page::equals(query, "d.order_id", filter.order_id);
        if let Some(replay) = filter.replay_id {
            // The first condition is that of the partial index.
            query.push(" AND d.replay_id > 0 AND d.replay_id = ").push_bind(replay);
        }
        if let Some(status) = filter.status {
            query.push(" AND CASE WHEN d.id = ANY (").push_bind(moved.clone());
            query.push(") THEN 'pending' ELSE s.status END = ").push_bind(status);
        }
        page::equals(query, "d.event_type", filter.event_type.map(WebhookEventType::as_str));
        page::equals(query, "d.webhook_id", filter.webhook_id);
        page::between(query, "d.created_at", filter.created_from, filter.created_to);
    };
    // One pass for both.
    let mut select = QueryBuilder::new("SELECT d.id, count(*) OVER ()");
    matching(&mut select);
    select.push(" ORDER BY d.id DESC LIMIT ").push_bind(page.size).push(" OFFSET ").push_bind(page.offset());
    let found: Vec<(i64, i64)> = select.build_query_as().fetch_all(&mut *conn).await?;
    if let Some((_, total)) = found.first() {
        return Ok((*total, found.into_iter().map(|(id, _)| id).collect()));
    }
    let mut count = QueryBuilder::new("SELECT count(*)");
    matching(&mut count);
    Ok((count.build_query_scalar().fetch_one(conn).await?, vec![]))
}

/// Counts the deliveries with a status, among the `of_groups` deliveries of all statuses. The partial indexes
/// count pending and failed ones; the rest is delivered.
async fn count_of_status(
    conn: &mut PgConnection,
    shard: ShardId,
    (status, event_type): (&'static str, Option<&'static str>),
    of_groups: i64,
    webhooks: &[WebhookId],
) -> Result<i64, sqlx::Error> {
    match status {
        "delivered" => {
            let pending = count_state(conn, shard, webhooks, PENDING, event_type).await?;
            Ok(of_groups - pending - count_state(conn, shard, webhooks, FAILED, event_type).await?)
        }
        "failed" => count_state(conn, shard, webhooks, FAILED, event_type).await,
        _ => count_state(conn, shard, webhooks, PENDING, event_type).await,
    }
}

/// Returns the wanted keys of the deliveries that match a filter. `groups` contains them, and the account has
/// `of_account` deliveries.
async fn keys(
    conn: &mut PgConnection,
    shard: ShardId,
    filter: &DeliveryFilter,
    (groups, of_account): (&[Group<WebhookId>], i64),
    wanted: Wanted,
    thresholds: &Thresholds,
) -> Result<Vec<i64>, sqlx::Error> {
    let owner = (shard, filter.account_id);
    let in_all = wanted.total;
    let (upto, wanted) = nearer(conn, owner, filter.status, (groups, of_account), wanted, thresholds).await?;
    let grouped = match filter.status {
        None => DELIVERY_GROUPS,
        Some("delivered") => pages::DELIVERED,
        Some("failed") => pages::FAILED,
        Some(_) => {
            let of = (groups, filter.event_type.map(WebhookEventType::as_str));
            return pending::keys(conn, owner, of, upto, (in_all, wanted), thresholds).await;
        }
    };
    grouped.keys(conn, owner, groups, (0, upto), (wanted.total, wanted.rows), thresholds).await
}

pub(super) async fn count_state(
    conn: &mut PgConnection,
    shard: ShardId,
    webhooks: &[WebhookId],
    states: &[&'static str],
    event_type: Option<&'static str>,
) -> Result<i64, sqlx::Error> {
    let mut counted = 0;
    for state in states {
        let mut query = QueryBuilder::new("SELECT count(*) FROM delivery_state WHERE shard_id = ");
        query.push_bind(shard).push(" AND webhook_id = ANY (").push_bind(webhooks.to_vec()).push(") AND ").push(*state);
        page::equals(&mut query, "event_type", event_type);
        counted += query.build_query_scalar::<i64>().persistent(false).fetch_one(&mut *conn).await?;
    }
    Ok(counted)
}

/// Finds one delivery of the account, with every attempt and its response body. `retries` are those of the account that
/// the projection has not processed yet.
pub async fn find(
    pool: &PgPool,
    shard: ShardId,
    account: AccountId,
    id: i64,
    retries: &[Retry],
) -> Result<Option<(Delivery, Vec<Attempt>)>, sqlx::Error> {
    let mut query = QueryBuilder::new(COLUMNS);
    query.push(" FROM deliveries d").push(STATE).push(ENVELOPE).push(" WHERE d.shard_id = ").push_bind(shard);
    page::equals(&mut query, "d.account_id", Some(account));
    page::equals(&mut query, "d.id", Some(id));
    let found: Option<DeliveryRow> = query.build_query_as().fetch_optional(pool).await?;
    let Some(DeliveryRow(mut delivery)) = found else { return Ok(None) };
    if !retries.is_empty() {
        let find = async || AllRetried::find(&mut *pool.acquire().await?, shard, account, retries).await;
        replanned(find).await?.show(&mut delivery);
    }
    let attempts = history::attempts(pool, shard, &[id], true).await?.remove(&id).unwrap_or_default();
    Ok(Some((delivery, attempts)))
}

/// Finds the shard and the account of a delivery. Operators name a delivery without its account.
pub async fn owner(pool: &PgPool, shards: &[ShardId], id: i64) -> Result<Option<(ShardId, AccountId)>, sqlx::Error> {
    sqlx::query_as("SELECT shard_id, account_id FROM deliveries WHERE shard_id = ANY($1) AND id = $2")
        .bind(id.shards_among(shards))
        .bind(id)
        .fetch_optional(pool)
        .await
}

/// Loads deliveries with their account, webhook and the state that decides a retry. The last value is the version
/// of the webhook at which that state holds.
pub async fn retryable(
    conn: &mut PgConnection,
    shard: ShardId,
    ids: &[i64],
) -> Result<Vec<(i64, AccountId, WebhookId, Retryable, i64)>, sqlx::Error> {
    type Row = (i64, AccountId, WebhookId, Uuid, ReplayId, bool, i16, i64);
    let rows: Vec<Row> = sqlx::query_as(
        "SELECT d.id, d.account_id, d.webhook_id, d.event_id, d.replay_id, s.status = 'failed', s.attempt_count, a.version
         FROM unnest($2::bigint[]) AS wanted (id) JOIN deliveries d ON d.shard_id = $1 AND d.id = wanted.id
         JOIN delivery_state s ON s.shard_id = $1 AND s.delivery_id = wanted.id
         JOIN webhook_audience a ON a.shard_id = $1 AND a.webhook_id = d.webhook_id",
    )
    .bind(shard)
    .bind(ids)
    .fetch_all(conn)
    .await?;
    let delivery = |(id, account_id, webhook_id, event_id, replay_id, has_failed, attempt_count, version)| {
        (id, account_id, webhook_id, Retryable { event_id, replay_id, has_failed, attempt_count }, version)
    };
    Ok(rows.into_iter().map(delivery).collect())
}
