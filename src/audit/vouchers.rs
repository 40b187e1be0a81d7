//! Compares the stock in the vault with the vouchers that the orders' events delivered.

use std::collections::{HashMap, HashSet};

use ledger_database::PgConnection;
use ledger_events::order::Order;
use ledger_events::{OrderId, ProductId, ShardId};
use rust_decimal::Decimal;

use super::{Difference, Findings};

#[derive(ledger_database::FromRow)]
struct Claimed {
    order_id: Option<OrderId>,
    reference: String,
    product_id: ProductId,
    denomination: Decimal,
}

/// Compares the orders with ids in a range, in the caller's snapshot. `after` is exclusive, `to` is inclusive. Returns
/// the number of their vouchers.
pub async fn check(
    conn: &mut PgConnection,
    shard: ShardId,
    (after, to): (OrderId, OrderId),
    orders: &HashMap<OrderId, Order>,
    findings: &mut Findings,
) -> Result<u64, sqlx::Error> {
    let delivered: Vec<(&Order, &str)> = orders
        .values()
        .flat_map(|order| order.items.iter().flat_map(move |item| item.vouchers.iter().map(move |v| (order, v.as_str()))))
        .collect();
    // Two queries: with an OR, neither index would be used.
    let claimed: Vec<Claimed> = sqlx::query_as(
        "SELECT order_id, reference, product_id, denomination FROM vault.vouchers
         WHERE shard_id = $1 AND order_id > $2 AND order_id <= $3 AND voided_at IS NULL
         UNION
         SELECT order_id, reference, product_id, denomination FROM vault.vouchers WHERE shard_id = $1 AND reference = ANY($4)",
    )
    .bind(shard)
    .bind(after)
    .bind(to)
    .bind(delivered.iter().map(|(_, reference)| *reference).collect::<Vec<_>>())
    .fetch_all(conn)
    .await?;
    let stock: HashMap<&str, &Claimed> = claimed.iter().map(|voucher| (voucher.reference.as_str(), voucher)).collect();
    let mut seen = HashSet::new();
    for (order, reference) in &delivered {
        let problem = match stock.get(reference) {
            _ if !seen.insert((order.id, *reference)) => "is delivered twice".to_owned(),
            None => "is not in the stock".to_owned(),
            Some(voucher) if voucher.order_id != Some(order.id) => match voucher.order_id {
                Some(other) => format!("is assigned to order {other}"),
                None => "is not assigned to an order in the stock".to_owned(),
            },
            Some(voucher) if voucher.product_id != order.placed.product_id => {
                format!("belongs to product {} instead of {}", voucher.product_id, order.placed.product_id)
            }
            Some(voucher) if voucher.denomination != order.placed.denomination.decimal() => {
                format!("is worth {} instead of {}", voucher.denomination, order.placed.denomination)
            }
            Some(_) => continue,
        };
        findings.add(Difference::Voucher { shard, order_id: order.id, reference: (*reference).to_owned(), problem });
    }
    for voucher in &claimed {
        if let Some(order_id) = voucher.order_id.filter(|id| *id > after && *id <= to)
            && !seen.contains(&(order_id, voucher.reference.as_str()))
        {
            let problem = "is assigned to the order in the stock, but no event delivered it".to_owned();
            findings.add(Difference::Voucher { shard, order_id, reference: voucher.reference.clone(), problem });
        }
    }
    Ok(u64::try_from(delivered.len()).unwrap_or_default())
}
