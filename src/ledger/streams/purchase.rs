//! Purchases from suppliers.

use std::collections::HashMap;

use ledger_database::FromRow;
use ledger_events::purchase::Purchase;
use ledger_events::{Currency, Money, ProductId, PurchaseId, ShardId};
use ledger_projections::purchases;
use rust_decimal::Decimal;

use super::{Loader, Slot, Stream, StreamRead, projected};
use crate::ledger::FIRST_SHARD;
use crate::ledger::clock::expiry_day;
use crate::ledger::shard_load::is_announced;

/// Largest number of free vouchers that is counted. More than any purchase is more than enough.
const MAX_COUNTED: i64 = 10_000;

/// Demand for vouchers, as it is at the head.
#[derive(Clone, Copy, Debug, Default)]
pub struct Demand {
    /// Vouchers that waiting orders of the shard lack, less its free ones and those that its open purchases bring. Fulfilment has
    /// not given the free ones to an order yet.
    pub lacking: i64,
    /// Vouchers that all shards between which stock moves lack in the same way: what another one can spare moves to the order.
    pub lacking_everywhere: i64,
    /// Cost of the supplier's purchases for the shard on this day (UTC).
    pub spent: Decimal,
}

#[derive(Debug, Default)]
pub struct Index {
    pub demand: HashMap<(ProductId, Money), Demand>,
    /// Number of claims of each purchase so far.
    pub claims: HashMap<PurchaseId, i32>,
}

/// Vouchers whose demand a command asks for.
#[derive(Debug)]
pub struct Asked<'a> {
    pub product_id: ProductId,
    pub denomination: Money,
    /// Supplier and currency of the budget.
    pub account: (&'a str, Currency),
}

/// Reads of purchases beside the streams themselves.
#[derive(Debug, Default)]
pub struct Query<'a> {
    pub demands: Vec<Asked<'a>>,
    /// Purchases whose number of claims a command asks for.
    pub claims: Vec<PurchaseId>,
}

impl Stream for Purchase {
    type Index = Index;
    type Query<'a> = Query<'a>;

    const NAME: &'static str = "purchase";
    const SEQUENCE: Option<&'static str> = Some("purchase_ids");

    projected!(written);

    async fn fetch(slot: &mut Slot<Self>, read: &mut StreamRead<'_, Self>, loader: &mut Loader<'_>) -> Result<(), sqlx::Error> {
        slot.load_missing(read, loader).await?;
        for asked in &read.query.demands {
            slot.index.demand.insert((asked.product_id, asked.denomination), demand(loader, asked).await?);
        }
        if !read.query.claims.is_empty() {
            let calls = purchases::calls(&mut *loader.conn, loader.shard, &read.query.claims).await?;
            slot.index.claims.extend(calls.into_iter().map(|calls| (calls.purchase_id, calls.attempts)));
        }
        Ok(())
    }
}

/// Part of a shard in the demand.
#[derive(FromRow)]
struct ShardDemand {
    shard_id: ShardId,
    /// Whether stock moves between the shard and others.
    is_announced: bool,
    lacking: i64,
}

/// Reads the demand for vouchers, in all shards at one moment: a voucher that moves meanwhile counts once. No other purchase
/// can be made until the transaction ends.
async fn demand(loader: &mut Loader<'_>, asked: &Asked<'_>) -> Result<Demand, sqlx::Error> {
    let shards: Vec<ShardDemand> = sqlx::query_as(concat!(
        "SELECT h.shard_id, ",
        is_announced!(),
        " AS is_announced, waiting.missing - opened.ordered - stock.vouchers AS lacking
         FROM log_head h LEFT JOIN shards s ON s.shard_id = $1 AND s.id = h.shard_id
         CROSS JOIN LATERAL
            (SELECT coalesce(sum(o.quantity - o.delivered_quantity), 0)::bigint AS missing FROM orders o
             WHERE o.shard_id = h.shard_id AND o.product_id = $3 AND o.denomination = $4 AND o.is_queued
               AND o.status IN ('PENDING', 'DELAYED', 'PARTIALLY_DELIVERED')) AS waiting
         CROSS JOIN LATERAL
            (SELECT coalesce(sum(p.quantity), 0)::bigint AS ordered FROM purchases p
             WHERE p.shard_id = h.shard_id AND p.product_id = $3 AND p.denomination = $4
               AND p.status IN ('REQUESTED', 'PENDING')) AS opened
         CROSS JOIN LATERAL
            (SELECT count(*) AS vouchers FROM
                (SELECT FROM vault.vouchers v
                 WHERE v.shard_id = h.shard_id AND v.product_id = $3 AND v.denomination = $4 AND v.order_id IS NULL
                   AND v.expired_at IS NULL AND (v.expires_on IS NULL OR v.expires_on >= ",
        expiry_day!(),
        ") ORDER BY v.id LIMIT $5) AS counted) AS stock
         WHERE h.shard_id = $2 OR ",
        is_announced!()
    ))
    .bind(FIRST_SHARD)
    .bind(loader.shard)
    .bind(asked.product_id)
    .bind(asked.denomination.decimal())
    .bind(MAX_COUNTED)
    .fetch_all(&mut *loader.conn)
    .await?;
    let own = shards.iter().find(|demand| demand.shard_id == loader.shard).ok_or(sqlx::Error::RowNotFound)?;
    let lacking_everywhere = match own.is_announced {
        true => shards.iter().map(|demand| demand.lacking).sum(),
        false => own.lacking,
    };
    let (supplier, currency) = asked.account;
    let spent = purchases::spent(&mut *loader.conn, loader.shard, supplier, &[currency]).await?;
    Ok(Demand { lacking: own.lacking, lacking_everywhere, spent: spent.first().copied().unwrap_or_default() })
}
