//! `/admin/v1/products/:id/supplier` and `/admin/v1/purchases`: vouchers that are bought when the stock has none.

use std::collections::HashMap;

use chrono::{DateTime, Utc};
use ledger_events::catalogue::ProductSupplier as Named;
use ledger_events::purchase::{Purchase as Bought, PurchaseAnswer, PurchaseRefused, PurchaseStatus as Status};
use ledger_events::{OrderId, ProductId, PurchaseId};
use ledger_projections::catalogue;
use ledger_projections::purchases::{self, Calls, PurchaseFilter};
use poem_openapi::param::{Path, Query};
use poem_openapi::{Enum, Object, OpenApi};
use serde::Serialize;

use crate::access::Operator;
use crate::api::body::{NoFields, StrictJson};
use crate::api::error::ApiError;
use crate::api::fields::{Fields, FromFields};
use crate::api::mirror::mirror;
use crate::api::outcome::answered;
use crate::api::page::Page;
use crate::api::principal::{Admin, Caller};
use crate::api::readers::line;
use crate::api::reply::{Listed, Plural, Reply};
use crate::api::scalars::{Money, Timestamp};
use crate::api::state::{State, Tag, newest, not_found, origin, rows_of_each};
use crate::ledger::{CommandResult, FIRST_SHARD, commands};

/// Reason of a purchase that an operator has ended.
const CLOSED_BY_OPERATOR: &str = "CLOSED_BY_OPERATOR";

/// Supplier of a product's vouchers.
#[derive(Object, Serialize)]
struct ProductSupplier {
    /// Name of the supplier in the file of suppliers. Null ends purchases.
    #[oai(validator(min_length = 1, max_length = 40, pattern = "^[a-z0-9_-]+$"))]
    supplier: Option<String>,
    /// The supplier's name of the product. Required with a supplier.
    #[oai(validator(min_length = 1, max_length = 100))]
    sku: Option<String>,
}

impl FromFields for ProductSupplier {
    fn from_fields(fields: &mut Fields<'_>) -> Self {
        let body = Self { supplier: fields.optional("supplier", line(1..=40)), sku: fields.optional("sku", line(1..=100)) };
        let is_plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-' || c == '_';
        if body.supplier.as_ref().is_some_and(|name| !name.chars().all(is_plain)) {
            fields.problem("supplier", "must have only a-z, 0-9, - and _");
        }
        if body.supplier.is_some() != body.sku.is_some() {
            fields.problem("sku", "is required with a supplier, and only then");
        }
        body
    }
}

impl From<Option<Named>> for ProductSupplier {
    fn from(named: Option<Named>) -> Self {
        let (supplier, sku) = named.map(|named| (named.name, named.sku)).unzip();
        Self { supplier, sku }
    }
}

/// Status of a purchase.
///
/// - `REQUESTED`: the supplier may know of it or not. It is asked.
/// - `PENDING`: the supplier has accepted it, and delivers later.
/// - `FULFILLED`: its vouchers are in the stock.
/// - `REFUSED`: nothing was bought.
#[derive(Debug, Clone, Copy, Enum, Serialize)]
#[oai(rename_all = "SCREAMING_SNAKE_CASE")]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
enum PurchaseStatus {
    Requested,
    Pending,
    Fulfilled,
    Refused,
}

mirror!(PurchaseStatus, Status: Requested, Pending, Fulfilled, Refused);

/// A purchase of vouchers from a supplier.
#[derive(Object, Serialize)]
struct Purchase {
    /// Unique identifier of the purchase.
    id: i64,
    /// Order that lacked the vouchers.
    order_id: i64,
    /// Product of the vouchers.
    product_id: i64,
    /// Supplier that was asked.
    supplier: String,
    /// The supplier's name of the product.
    sku: String,
    /// Face value of each voucher.
    denomination: Money,
    /// Currency of the amounts, as an ISO 4217 code.
    currency: String,
    /// Number of vouchers that were ordered.
    quantity: i32,
    /// Idempotency key at the supplier.
    idempotency_key: String,
    /// Status of the purchase.
    status: PurchaseStatus,
    /// Number of vouchers that the supplier has delivered.
    vouchers: i32,
    /// Number of those that an order can get: the stock did not have them, and they have not expired.
    usable_vouchers: i32,
    /// Money that counts against the supplier's budget of the day: what is set aside until the cost is known, then the cost.
    spent: Money,
    /// The supplier's reference, if there is one.
    supplier_reference: Option<String>,
    /// The supplier's code for a refusal. `CLOSED_BY_OPERATOR` if an operator has ended the purchase.
    refusal: Option<String>,
    /// Number of calls of the supplier about the purchase so far.
    attempts: i32,
    /// Fault after which the outcome of the last call is unknown; null without one.
    problem: Option<String>,
    /// Time of the request.
    requested_at: Timestamp,
    /// Time of the last change.
    updated_at: Timestamp,
}

impl Plural for Purchase {
    const PLURAL: &'static str = "purchases";
}

impl Purchase {
    /// Creates it from its state, and from the calls about it.
    fn new(bought: Bought, calls: Option<Calls>) -> Self {
        let time = |at: DateTime<Utc>| Timestamp::from(at);
        let requested = bought.requested;
        Self {
            id: bought.id.0,
            order_id: requested.order_id.0,
            product_id: requested.product_id.0,
            supplier: requested.supplier,
            sku: requested.sku,
            denomination: Money(requested.denomination.decimal()),
            currency: requested.currency.as_str().to_owned(),
            quantity: requested.quantity,
            idempotency_key: bought.key.to_string(),
            status: bought.status.into(),
            vouchers: bought.vouchers,
            usable_vouchers: bought.usable,
            spent: Money(bought.spent.decimal()),
            supplier_reference: bought.supplier_reference,
            refusal: bought.refusal,
            attempts: calls.as_ref().map_or(0, |calls| calls.attempts),
            problem: calls.and_then(|calls| calls.problem),
            requested_at: time(bought.requested_at),
            updated_at: time(bought.updated_at),
        }
    }
}

pub struct Supply;

#[OpenApi(prefix_path = "/admin/v1", tag = "Tag::Catalogue")]
impl Supply {
    /// Retrieve the supplier of a product
    ///
    /// Returns the supplier from whom vouchers are bought when the stock has none, or nulls.
    #[oai(path = "/products/:id/supplier", method = "get", operation_id = "get_product_supplier")]
    async fn supplier(
        &self,
        _caller: Caller<Operator>,
        state: State<'_>,
        /// Unique identifier of the product.
        id: Path<i64>,
    ) -> Result<Reply<ProductSupplier>, ApiError> {
        let product = catalogue::find(state.ledger.pool(), ProductId(id.0)).await?.ok_or_else(not_found)?;
        Ok(Reply(product.details.supplier.into()))
    }

    /// Set the supplier of a product
    ///
    /// Vouchers that orders of the product lack are bought from this supplier. The stock comes first. The file of suppliers
    /// (`--suppliers-file`) describes each one, with its budget.
    #[oai(path = "/products/:id/supplier", method = "put", operation_id = "set_product_supplier")]
    async fn set_supplier(
        &self,
        caller: Caller<Admin>,
        state: State<'_>,
        /// Unique identifier of the product.
        id: Path<i64>,
        body: StrictJson<ProductSupplier>,
    ) -> Result<Reply<ProductSupplier>, ApiError> {
        let ProductSupplier { supplier, sku } = body.0;
        let supplier = supplier.zip(sku).map(|(name, sku)| Named { name, sku });
        let command = commands::SetProductSupplier { product_id: ProductId(id.0), supplier };
        let answer = state.ledger.execute(FIRST_SHARD, command, origin(caller.0.0.actor())).await?;
        let product = answered!(answer, CommandResult::Product(product) => product)?;
        Ok(Reply(product.details.supplier.into()))
    }

    /// List purchases
    ///
    /// Returns the purchases of vouchers from suppliers, newest first.
    #[oai(path = "/purchases", method = "get", operation_id = "list_purchases")]
    #[allow(clippy::too_many_arguments)] // each is a parameter
    async fn list(
        &self,
        _caller: Caller<Operator>,
        state: State<'_>,
        /// Page number, from 1. Default: 1.
        page: Query<Option<i64>>,
        /// Purchases per page, 1 to 100. Default: 20.
        limit: Query<Option<i64>>,
        /// Only purchases with this status.
        status: Query<Option<PurchaseStatus>>,
        /// Only purchases for this order.
        order_id: Query<Option<i64>>,
        /// Only purchases of this product.
        product_id: Query<Option<i64>>,
        /// Only purchases from this supplier.
        supplier: Query<Option<String>>,
    ) -> Result<Listed<Purchase>, ApiError> {
        let page = Page::of(page.0, limit.0, 20, 100)?;
        let filter = PurchaseFilter {
            status: status.0.map(Into::into),
            order_id: order_id.0.map(OrderId),
            product_id: product_id.0.map(ProductId),
            supplier: supplier.0,
        };
        let shards = state.ledger.shards();
        let (pool, mut found, mut total) = (state.read_pool(), Vec::new(), 0);
        for shard in &shards {
            let part = purchases::list(&pool, *shard, &filter, rows_of_each(page, shards.len())).await?;
            found.push((*shard, part.rows));
            total += u64::try_from(part.total).unwrap_or_default();
        }
        let found = newest(found, page, |purchase: &Bought| purchase.requested_at);
        let mut calls = HashMap::new();
        for shard in &shards {
            let ids: Vec<PurchaseId> = found.iter().filter(|(of, _)| of == shard).map(|(_, purchase)| purchase.id).collect();
            let found = purchases::calls(&pool, *shard, &ids).await?;
            calls.extend(found.into_iter().map(|calls| (calls.purchase_id, calls)));
        }
        let purchases = found.into_iter().map(|(_, purchase)| {
            let calls = calls.remove(&purchase.id);
            Purchase::new(purchase, calls)
        });
        Ok(Listed::page(purchases.collect(), page, total))
    }

    /// Retrieve a purchase
    ///
    /// Returns a purchase of vouchers from a supplier.
    #[oai(path = "/purchases/:id", method = "get", operation_id = "get_purchase")]
    async fn get(
        &self,
        _caller: Caller<Operator>,
        state: State<'_>,
        /// Unique identifier of the purchase.
        id: Path<i64>,
    ) -> Result<Reply<Purchase>, ApiError> {
        let shards = state.ledger.shards();
        let pool = state.ledger.pool();
        let (shard, purchase) = purchases::find(pool, &shards, PurchaseId(id.0)).await?.ok_or_else(not_found)?;
        let calls = purchases::calls(pool, shard, &[purchase.id]).await?.pop();
        Ok(Reply(Purchase::new(purchase, calls)))
    }

    /// Close a purchase
    ///
    /// Ends a purchase that is open and about which the supplier no longer says anything: it counts as refused, and the supplier is
    /// not asked about it again. First make sure that the supplier has sold nothing under its idempotency key. Vouchers that it has
    /// sold are uploaded to the stock before. An order that still waits is bought again after a day. A purchase that has ended stays
    /// as it is.
    #[oai(path = "/purchases/:id/close", method = "post", operation_id = "close_purchase")]
    async fn close(
        &self,
        caller: Caller<Admin>,
        state: State<'_>,
        /// Unique identifier of the purchase.
        id: Path<i64>,
        _no_fields: NoFields,
    ) -> Result<Reply<Purchase>, ApiError> {
        let shards = state.ledger.shards();
        let (shard, purchase) = purchases::find(state.ledger.pool(), &shards, PurchaseId(id.0)).await?.ok_or_else(not_found)?;
        let refused = PurchaseRefused { reason: CLOSED_BY_OPERATOR.to_owned(), may_succeed_later: false };
        let answer = PurchaseAnswer::Refused(refused);
        let command = commands::RecordPurchase { purchase_id: purchase.id, answer, attempt: None };
        let result = state.ledger.execute(shard, command, origin(caller.0.0.actor())).await?;
        let purchase = answered!(result, CommandResult::Purchase(Some(purchase)) => purchase)?;
        let calls = purchases::calls(state.ledger.pool(), shard, &[purchase.id]).await?.pop();
        Ok(Reply(Purchase::new(*purchase, calls)))
    }
}
