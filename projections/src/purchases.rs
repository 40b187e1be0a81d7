//! `purchases`: the state of every purchase from a supplier, written inline.

use ledger_database::{FromRow, PgConnection, PgPool, replanned};
use ledger_events::purchase::{Purchase, PurchaseEvent, PurchaseRequested, PurchaseStatus, evolve};
use ledger_events::{Currency, Id, Money, OrderId, ProductId, PurchaseId, ShardId};
use rust_decimal::Decimal;
use sqlx::postgres::PgRow;
use sqlx::{PgExecutor, Postgres, QueryBuilder, Row as _};

use crate::page::{self, Listed, Page};
use crate::state::{Row, State, Upsert, state};
use crate::{ProjectionError, known, money};

impl Row for Purchase {
    const COLUMNS: &'static str =
        "id, version, order_id, product_id, currency, denomination, quantity, supplier, sku, reserved, key, status,
        spent, vouchers, usable, supplier_reference, refusal, may_succeed_later, requested_at, updated_at";

    fn read(row: &PgRow) -> Result<Self, sqlx::Error> {
        let (currency, status): (&str, &str) = (row.try_get("currency")?, row.try_get("status")?);
        Ok(Purchase {
            id: row.try_get("id")?,
            version: row.try_get("version")?,
            requested: PurchaseRequested {
                order_id: row.try_get("order_id")?,
                product_id: row.try_get("product_id")?,
                currency: known(currency.parse().ok(), currency)?,
                denomination: money(row.try_get("denomination")?)?,
                quantity: row.try_get("quantity")?,
                supplier: row.try_get("supplier")?,
                sku: row.try_get("sku")?,
                reserved: money(row.try_get("reserved")?)?,
            },
            key: row.try_get("key")?,
            status: known(PurchaseStatus::parse(status), status)?,
            spent: money(row.try_get("spent")?)?,
            vouchers: row.try_get("vouchers")?,
            usable: row.try_get("usable")?,
            supplier_reference: row.try_get("supplier_reference")?,
            refusal: row.try_get("refusal")?,
            may_succeed_later: row.try_get("may_succeed_later")?,
            requested_at: row.try_get("requested_at")?,
            updated_at: row.try_get("updated_at")?,
        })
    }
}

impl State for Purchase {
    state!(PurchaseId, PurchaseEvent, Purchase, evolve, "purchases");
}

impl Upsert for Purchase {
    async fn write(conn: &mut PgConnection, shard: ShardId, purchases: &[&Self]) -> Result<(), ProjectionError> {
        if purchases.is_empty() {
            return Ok(());
        }
        macro_rules! column {
            ($purchase:ident => $value:expr) => {
                purchases.iter().map(|$purchase| $value).collect::<Vec<_>>()
            };
        }
        sqlx::query(
            "INSERT INTO purchases (shard_id, id, version, order_id, product_id, currency, denomination, quantity, supplier, sku, reserved,
                key, status, spent, vouchers, usable, supplier_reference, refusal, may_succeed_later, requested_at, updated_at)
             SELECT $1, new.* FROM unnest($2::bigint[], $3::bigint[], $4::bigint[], $5::bigint[], $6::text[], $7::numeric[], $8::integer[],
                $9::text[], $10::text[], $11::numeric[], $12::uuid[], $13::text[], $14::numeric[], $15::integer[], $16::integer[],
                $17::text[], $18::text[], $19::boolean[], $20::timestamptz[], $21::timestamptz[]) AS new
             ON CONFLICT (shard_id, id) DO UPDATE SET version = excluded.version, status = excluded.status, spent = excluded.spent,
                vouchers = excluded.vouchers, usable = excluded.usable, supplier_reference = excluded.supplier_reference, refusal = excluded.refusal,
                may_succeed_later = excluded.may_succeed_later, updated_at = excluded.updated_at",
        )
        .bind(shard)
        .bind(column!(p => p.id))
        .bind(column!(p => p.version))
        .bind(column!(p => p.requested.order_id))
        .bind(column!(p => p.requested.product_id))
        .bind(column!(p => p.requested.currency.as_str()))
        .bind(column!(p => p.requested.denomination.decimal()))
        .bind(column!(p => p.requested.quantity))
        .bind(column!(p => &*p.requested.supplier))
        .bind(column!(p => &*p.requested.sku))
        .bind(column!(p => p.requested.reserved.decimal()))
        .bind(column!(p => p.key))
        .bind(column!(p => p.status.as_str()))
        .bind(column!(p => p.spent.decimal()))
        .bind(column!(p => p.vouchers))
        .bind(column!(p => p.usable))
        .bind(column!(p => p.supplier_reference.as_deref()))
        .bind(column!(p => p.refusal.as_deref()))
        .bind(column!(p => p.may_succeed_later))
        .bind(column!(p => p.requested_at))
        .bind(column!(p => p.updated_at))
        .execute(conn)
        .await?;
        Ok(())
    }
}

/// An order that waits for vouchers that a supplier has.
#[derive(Clone, Debug, PartialEq)]
pub struct Lacking {
    pub order_id: OrderId,
    pub product_id: ProductId,
    pub denomination: Money,
    pub currency: Currency,
    pub sku: String,
}

#[derive(FromRow)]
struct LackingRow {
    order_id: OrderId,
    product_id: ProductId,
    denomination: Decimal,
    currency: String,
    sku: String,
}

/// Finds orders that the stock did not serve, of products that name this supplier and in one of these currencies, oldest first.
/// Leaves out vouchers of which open purchases bring enough, and orders with a purchase that is open, that was refused (for ten
/// minutes if the same request may succeed later, else for a day), or that brought nothing usable (for a day).
pub async fn lacking(
    pool: &PgPool,
    shard: ShardId,
    supplier: &str,
    currencies: &[Currency],
    limit: i64,
) -> Result<Vec<Lacking>, sqlx::Error> {
    if currencies.is_empty() {
        return Ok(vec![]);
    }
    let rows: Vec<LackingRow> = sqlx::query_as(
        "WITH waiting AS (
            SELECT o.id AS order_id, o.product_id, o.denomination, o.currency, p.details->'supplier'->>'sku' AS sku, o.placed_position,
                o.quantity - o.delivered_quantity AS missing
            FROM products p JOIN orders o ON o.shard_id = $1 AND o.product_id = p.id
            WHERE p.details->'supplier'->>'name' = $2 AND p.currency = ANY($3) AND o.is_queued
              AND o.status IN ('PENDING', 'DELAYED', 'PARTIALLY_DELIVERED')),
         short AS (
            SELECT w.product_id, w.denomination FROM waiting w GROUP BY w.product_id, w.denomination
            HAVING sum(w.missing) > (SELECT coalesce(sum(b.quantity), 0) FROM purchases b WHERE b.shard_id = $1
                AND b.product_id = w.product_id AND b.denomination = w.denomination AND b.status IN ('REQUESTED', 'PENDING')))
         SELECT w.order_id, w.product_id, w.denomination, w.currency, w.sku FROM waiting w JOIN short USING (product_id, denomination)
         WHERE NOT EXISTS (SELECT FROM purchases b WHERE b.shard_id = $1 AND b.order_id = w.order_id
              AND (b.status IN ('REQUESTED', 'PENDING')
                OR b.status = 'REFUSED' AND b.updated_at > clock_timestamp()
                    - CASE WHEN b.may_succeed_later THEN interval '10 minutes' ELSE interval '1 day' END
                OR b.status = 'FULFILLED' AND b.usable = 0 AND b.updated_at > clock_timestamp() - interval '1 day'))
         ORDER BY w.placed_position LIMIT $4",
    )
    .bind(shard)
    .bind(supplier)
    .bind(currencies.iter().map(|currency| currency.as_str()).collect::<Vec<_>>())
    .bind(limit)
    .fetch_all(pool)
    .await?;
    let lacking = |row: LackingRow| {
        let LackingRow { order_id, product_id, denomination, currency, sku } = row;
        let currency = known(currency.parse().ok(), &currency)?;
        Ok(Lacking { order_id, product_id, denomination: money(denomination)?, currency, sku })
    };
    rows.into_iter().map(lacking).collect()
}

/// Returns what a supplier's purchases of this day (UTC) count against its budget in each of these currencies, in their order.
pub async fn spent(
    db: impl PgExecutor<'_>,
    shard: ShardId,
    supplier: &str,
    currencies: &[Currency],
) -> Result<Vec<Decimal>, sqlx::Error> {
    sqlx::query_scalar(
        "SELECT (SELECT coalesce(sum(spent), 0) FROM purchases WHERE shard_id = $1 AND supplier = $2 AND currency = wanted.currency
            AND requested_at >= date_trunc('day', clock_timestamp(), 'UTC'))
         FROM unnest($3::text[]) WITH ORDINALITY AS wanted (currency, place) ORDER BY place",
    )
    .bind(shard)
    .bind(supplier)
    .bind(currencies.iter().map(|currency| currency.as_str()).collect::<Vec<_>>())
    .fetch_all(db)
    .await
}

/// Calls of a supplier about a purchase. They are not derived from the log.
#[derive(Clone, Debug, FromRow)]
pub struct Calls {
    pub purchase_id: PurchaseId,
    /// Number of calls so far.
    pub attempts: i32,
    /// Fault after which the outcome of the last call is unknown.
    pub problem: Option<String>,
}

/// Returns the calls about purchases. A purchase without one is left out.
pub async fn calls(db: impl PgExecutor<'_>, shard: ShardId, ids: &[PurchaseId]) -> Result<Vec<Calls>, sqlx::Error> {
    sqlx::query_as("SELECT purchase_id, attempts, problem FROM purchase_calls WHERE shard_id = $1 AND purchase_id = ANY($2)")
        .bind(shard)
        .bind(ids)
        .fetch_all(db)
        .await
}

/// Finds a purchase, with its shard.
pub async fn find(pool: &PgPool, shards: &[ShardId], id: PurchaseId) -> Result<Option<(ShardId, Purchase)>, sqlx::Error> {
    for shard in id.shards_among(shards) {
        let load = async || Purchase::load(&mut *pool.acquire().await?, shard, &[id]).await;
        if let Some(purchase) = replanned(load).await?.pop() {
            return Ok(Some((shard, purchase)));
        }
    }
    Ok(None)
}

/// Filter of a list of purchases.
#[derive(Clone, Debug, Default)]
pub struct PurchaseFilter {
    pub status: Option<PurchaseStatus>,
    pub order_id: Option<OrderId>,
    pub product_id: Option<ProductId>,
    pub supplier: Option<String>,
}

/// Lists one page of purchases, newest first, with the total.
pub async fn list(pool: &PgPool, shard: ShardId, filter: &PurchaseFilter, page: Page) -> Result<Listed<Purchase>, sqlx::Error> {
    let conditions = |query: &mut QueryBuilder<Postgres>| {
        query.push(" FROM purchases WHERE shard_id = ").push_bind(shard);
        page::equals(query, "status", filter.status.map(PurchaseStatus::as_str));
        page::equals(query, "order_id", filter.order_id);
        page::equals(query, "product_id", filter.product_id);
        page::equals(query, "supplier", filter.supplier.clone());
    };
    page::fetch(pool, conditions, "id", page).await
}
