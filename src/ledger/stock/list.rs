//! The vouchers of a product, one by one, without their codes.

use chrono::NaiveDate;
use ledger_database::{PgPool, replanned};
use ledger_events::{Money, OrderId, ProductId, ShardId};
use ledger_projections::page::{self, Listed, Page};
use rust_decimal::Decimal;
use sqlx::{Postgres, QueryBuilder};

use super::levels::in_state;
use crate::ledger::clock::expiry_day;

/// State of a voucher.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VoucherState {
    /// An order can get it.
    Available,
    Allocated,
    Expired,
    Voided,
}

impl VoucherState {
    const ALL: [VoucherState; 4] = [Self::Available, Self::Allocated, Self::Expired, Self::Voided];

    fn condition(self) -> &'static str {
        match self {
            Self::Available => in_state!(available),
            Self::Allocated => in_state!(allocated),
            Self::Expired => in_state!(expired),
            Self::Voided => in_state!(voided),
        }
    }
}

/// A voucher of the stock.
#[derive(Clone, Debug)]
pub struct StockedVoucher {
    pub reference: String,
    pub denomination: Decimal,
    pub state: VoucherState,
    pub expires_on: Option<NaiveDate>,
    /// Order that has the voucher.
    pub order_id: Option<OrderId>,
}

/// A row of a voucher. The last column is the place of its state in [`VoucherState::ALL`], from 1.
type Row = (String, Decimal, Option<NaiveDate>, Option<OrderId>, Option<i32>);

fn voucher((reference, denomination, expires_on, order_id, place): Row) -> Result<StockedVoucher, sqlx::Error> {
    let place = place.and_then(|place| usize::try_from(place - 1).ok());
    let state = place.and_then(|place| VoucherState::ALL.get(place).copied());
    let state = state.ok_or_else(|| sqlx::Error::Decode("a voucher is in no state".into()))?;
    let order_id = order_id.filter(|_| state == VoucherState::Allocated);
    Ok(StockedVoucher { reference, denomination, state, expires_on, order_id })
}

/// Lists a page of a product's vouchers over all shards, the last one that was added first.
///
/// # Errors
/// Any error of the database.
pub async fn list(
    pool: &PgPool,
    shards: &[ShardId],
    product: ProductId,
    (denomination, state): (Option<Money>, Option<VoucherState>),
    page: Page,
) -> Result<Listed<StockedVoucher>, sqlx::Error> {
    let conditions = |query: &mut QueryBuilder<Postgres>| {
        query.push(concat!(" FROM vault.vouchers CROSS JOIN (SELECT ", expiry_day!(), " AS today) AS day WHERE shard_id = ANY("));
        query.push_bind(shards.to_vec()).push(") AND product_id = ").push_bind(product);
        page::equals(query, "denomination", denomination.map(Money::decimal));
        if let Some(state) = state {
            query.push(" AND ").push(state.condition());
        }
    };
    let listed = async || {
        let mut tx = page::planned_snapshot(pool).await?;
        let total = page::count(&mut tx, &conditions).await?;
        let states = VoucherState::ALL.map(VoucherState::condition).join(", ");
        let mut select = QueryBuilder::new("SELECT reference, denomination, expires_on, order_id, array_position(ARRAY[");
        select.push(states).push("], true)");
        conditions(&mut select);
        select.push(" ORDER BY id DESC LIMIT ").push_bind(page.size).push(" OFFSET ").push_bind(page.offset());
        let rows: Vec<Row> = select.build_query_as().fetch_all(&mut *tx).await?;
        tx.commit().await?;
        let rows = rows.into_iter().map(voucher).collect::<Result<_, _>>()?;
        Ok::<_, sqlx::Error>(Listed { rows, total })
    };
    replanned(listed).await
}
