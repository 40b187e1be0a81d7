//! Purchases from suppliers.

use std::collections::HashMap;

use ledger_events::purchase::Purchase;
use ledger_events::{Currency, Money, ProductId, PurchaseId};
use ledger_projections::purchases::{self, Demand};

use super::{Loader, Slot, Stream, StreamRead, projected};
use crate::ledger::stock;

/// Largest number of free vouchers that is counted. More than any purchase is more than enough.
const MAX_COUNTED: i64 = 10_000;

/// Demand for vouchers, as it is at the head.
#[derive(Debug, Default)]
pub struct Index {
    /// Each with the number of free vouchers, which fulfilment has not given to an order yet.
    pub demand: HashMap<(ProductId, Money), (Demand, i64)>,
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
        for &Asked { product_id, denomination, account } in &read.query.demands {
            let demand = purchases::demand(loader.conn, loader.shard, (product_id, denomination), account).await?;
            let pairs = [(product_id, denomination.decimal())];
            let found = stock::available_pairs(&mut *loader.conn, loader.shard, &pairs, MAX_COUNTED).await?;
            slot.index.demand.insert((product_id, denomination), (demand, found.first().map_or(0, |(.., free)| *free)));
        }
        if !read.query.claims.is_empty() {
            let calls = purchases::calls(&mut *loader.conn, loader.shard, &read.query.claims).await?;
            slot.index.claims.extend(calls.into_iter().map(|calls| (calls.purchase_id, calls.attempts)));
        }
        Ok(())
    }
}
