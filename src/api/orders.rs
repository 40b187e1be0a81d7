//! `/api/v1/orders`: placing, listing, retrieving and cancelling orders.

use chrono::{DateTime, Utc};
use ledger_database::PgPool;
use ledger_events::order::{self, OrderStatus as Status};
use ledger_events::{OrderId, ProductId, ShardId};
use ledger_projections::orders::{self, OrderFilter};
use poem_openapi::param::{Path, Query};
use poem_openapi::{Enum, Object, OpenApi};
use serde::Serialize;

use super::body::{OptionalJson, StrictJson};
use super::error::ApiError;
use super::fields::body;
use super::idempotency::IdempotencyKey;
use super::mirror::mirror;
use super::outcome::{Render, respond, unrenderable};
use super::page::Page;
use super::principal::{Caller, ClientOperator};
use super::readers::{integer, json_object, line, number, text};
use super::reply::{Data, Listed, Plural, Reply, Stored, render};
use super::scalars::{JsonObject, Money, Number, Timestamp};
use super::state::{State, Tag, amounts, listed, money, not_found, origin, rows_of, time};
use crate::ledger::command_result::OrderView;
use crate::ledger::commands;
use crate::ledger::reader;
use crate::ledger::reasons::MAX_REASON;
use crate::ledger::texts::{self, CANCEL_REASON, METADATA, Texts};
use crate::ledger::{Command, CommandResult, Idempotency, StoredResponse};
use crate::secrets::seal::{Keyring, Secret};

/// Maximum size of `metadata`, in bytes of canonical JSON.
pub(super) const MAX_METADATA_BYTES: usize = 4 * 1024;
/// Name of the function that renders a placed order.
const PLACED: &str = "placed order";

body! {
    /// An order to place. The service prices it and debits the wallet in the product's currency.
    #[derive(Object, Serialize)]
    pub struct PlaceOrder {
        /// Product to order, from `GET /api/v1/products`.
        product_id: i64 = required(integer(1..=i64::MAX)),
        /// Face value of one unit, as a number with at most two decimals. It is read exactly, without floating-point
        /// rounding.
        denomination: Number = required(number(2, amounts())),
        /// Number of units, from 1 to the product's `max_quantity`.
        quantity: i32 = required(integer(1..=i32::MAX)),
        /// Your own reference for the order, unique within the account forever. Repeating the same request returns the existing
        /// order with status 200. A different request with the same reference fails with 409 `E_DUPLICATE_REFERENCE`.
        client_reference: Option<String> = optional(line(1..=100)),
        /// Additional data of your own to store with the order, as a JSON object of at most 4 KiB. The order returns it.
        metadata: Option<JsonObject> = optional(json_object(MAX_METADATA_BYTES)),
    }
}

body! {
    /// Optional details of a cancellation.
    #[derive(Object, Serialize)]
    pub struct CancelOrder {
        /// Reason for the cancellation. The order shows it as `cancel_reason`.
        pub reason: Option<String> = optional(text(1..=MAX_REASON)),
    }
}

/// Status of an order. `DELIVERED` and `CANCELLED` are final.
///
/// - `PENDING`: placed and paid.
/// - `DELAYED`: waiting for stock; no unit is delivered yet.
/// - `PARTIALLY_DELIVERED`: some units are delivered, the others wait for stock.
/// - `DELIVERED`: all units are delivered.
/// - `CANCELLED`: cancelled by the client or an operator. Undelivered units are refunded.
#[derive(Debug, Clone, Copy, Enum, Serialize)]
#[oai(rename_all = "SCREAMING_SNAKE_CASE")]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum OrderStatus {
    /// Placed and debited from the wallet.
    Pending,
    /// No voucher is in stock yet.
    Delayed,
    /// Some units are delivered; the others wait for stock.
    PartiallyDelivered,
    /// All units are delivered.
    Delivered,
    /// Cancelled by the client or an operator. Undelivered units are refunded.
    Cancelled,
}

mirror!(OrderStatus, Status: Pending, Delayed, PartiallyDelivered, Delivered, Cancelled);

/// An order for units of one product, priced and debited from a wallet when it is placed.
#[derive(Object, Serialize)]
pub struct Order {
    /// Unique identifier of the order.
    id: i64,
    /// Human-readable reference of the order, assigned by the service.
    reference_code: String,
    /// Your own reference for the order, as sent when it was placed.
    client_reference: Option<String>,
    /// Current status of the order.
    status: OrderStatus,
    /// Detail of the status: empty, `OUT_OF_STOCK`, `AWAITING_REMAINDER`, `CANCELLED_BY_CLIENT`, `CANCELLED_BY_OPERATOR` or
    /// `REMAINDER_CANCELLED`. New values may be added; treat an unknown one as information only.
    sub_status: String,
    /// Unique identifier of the product.
    product_id: i64,
    /// Name of the product at the time of the order.
    product_name: String,
    /// Currency of all amounts of the order, as an ISO 4217 code.
    currency: String,
    /// Face value of one unit.
    denomination: Money,
    /// Number of units ordered.
    quantity: i32,
    /// Total face value: `denomination` × `quantity`.
    face_value: Money,
    /// Discount at the time of the order, in percent.
    discount: Money,
    /// Amount saved by the discount: `face_value` − `amount`.
    discount_amount: Money,
    /// Amount debited from the wallet.
    amount: Money,
    /// Amount that the cancellation returned to the wallet; `0.00` if the order is not cancelled.
    refunded_amount: Money,
    /// Unique identifier of the wallet transaction that debited the amount.
    transaction_id: i64,
    /// Number of units delivered so far.
    delivered_quantity: i32,
    /// Time at which the last unit was delivered; null unless the status is `DELIVERED`.
    delivered_on: Option<Timestamp>,
    /// Time of the cancellation; null unless the status is `CANCELLED`.
    cancelled_on: Option<Timestamp>,
    /// Reason given with the cancellation. Null if there was none or the data is erased.
    cancel_reason: Option<String>,
    /// Metadata sent with the order. Null if there was none or the data is erased.
    metadata: Option<JsonObject>,
    /// Time at which the order was placed.
    created_at: Timestamp,
    /// Time of the order's latest change.
    updated_at: Timestamp,
    /// Delivered units, grouped into one item per delivery.
    order_items: Vec<OrderItem>,
}

impl Plural for Order {
    const PLURAL: &'static str = "orders";
}

/// Units of an order that were delivered together.
#[derive(Object, Serialize)]
pub struct OrderItem {
    /// Status of the item, always `DELIVERED`.
    status: String,
    /// Time at which the units were delivered.
    delivered_on: Timestamp,
    /// The vouchers, one per unit.
    vouchers: Vec<VoucherReference>,
}

/// A reference to a delivered voucher, without its codes.
#[derive(Object, Serialize)]
pub struct VoucherReference {
    /// Reference number of the voucher. It does not reveal the code.
    voucher_reference_number: String,
}

impl Order {
    pub fn of(order: order::Order, metadata: Option<&Secret>, cancel_reason: Option<&Secret>) -> Self {
        let placed = order.placed;
        let item = |item: order::OrderItem| OrderItem {
            status: "DELIVERED".to_owned(),
            delivered_on: item.delivered_on.into(),
            vouchers: item
                .vouchers
                .into_iter()
                .map(|reference| VoucherReference { voucher_reference_number: reference })
                .collect(),
        };
        Self {
            id: order.id.0,
            reference_code: placed.reference_code,
            client_reference: placed.client_reference,
            status: order.status.into(),
            sub_status: order.sub_status.to_owned(),
            product_id: placed.product_id.0,
            product_name: placed.product_name,
            currency: placed.currency.as_str().to_owned(),
            denomination: placed.denomination.into(),
            quantity: placed.quantity,
            face_value: placed.face_value.into(),
            discount: placed.discount.into(),
            discount_amount: placed.discount_amount.into(),
            amount: placed.amount.into(),
            refunded_amount: order.refunded_amount.into(),
            transaction_id: placed.transaction_id.0,
            delivered_quantity: order.delivered_quantity,
            delivered_on: order.delivered_on.map(Into::into),
            cancelled_on: order.cancelled_on.map(Into::into),
            cancel_reason: cancel_reason.map(|text| text.expose().to_owned()),
            metadata: metadata.map(|text| JsonObject(text.expose().to_owned())),
            created_at: order.created_at.into(),
            updated_at: order.updated_at.into(),
            order_items: order.items.into_iter().map(item).collect(),
        }
    }

    pub fn of_view(view: &OrderView) -> Self {
        Self::of(view.order.clone(), view.metadata.as_ref(), view.cancel_reason.as_ref())
    }

    /// Builds an order, taking its metadata and cancel reason from the texts of a whole page.
    pub fn with_texts(order: order::Order, texts: &Texts) -> Self {
        let (metadata, reason) = (texts.get(&(METADATA, order.id.0)), texts.get(&(CANCEL_REASON, order.id.0)));
        Self::of(order, metadata, reason)
    }
}

/// Loads the metadata and cancel reasons of one shard's orders, in one query. Orders without texts cost no query.
pub async fn texts_of(pool: &PgPool, keyring: &Keyring, shard: ShardId, orders: &[order::Order]) -> Result<Texts, ApiError> {
    let mut wanted = Vec::new();
    for order in orders {
        wanted.extend(order.placed.metadata_hash.is_some().then_some((METADATA, order.id.0)));
        wanted.extend(order.cancelled_on.is_some().then_some((CANCEL_REASON, order.id.0)));
    }
    Ok(texts::load(pool, keyring, shard, &wanted).await?)
}

/// Returns the function with this name, which renders the response to a command that another node has handed over.
pub fn renderer(name: &str) -> Option<Render> {
    (name == PLACED).then_some(placed)
}

fn placed(answer: &CommandResult) -> Result<StoredResponse, serde_json::Error> {
    let CommandResult::Order(view) = answer else { return unrenderable() };
    rendered(view, if view.is_new { 201 } else { 200 })
}

fn cancelled(answer: &CommandResult) -> Result<StoredResponse, serde_json::Error> {
    let CommandResult::Order(view) = answer else { return unrenderable() };
    rendered(view, 200)
}

/// Renders an order. The stored response is sealed if it contains free text from people, as such text is everywhere.
fn rendered(view: &OrderView, status: u16) -> Result<StoredResponse, serde_json::Error> {
    let is_secret = view.metadata.is_some() || view.cancel_reason.is_some();
    Ok(StoredResponse { status, body: render(&Order::of_view(view))?, is_secret })
}

pub struct Orders;

#[OpenApi(prefix_path = "/api/v1", tag = "Tag::Orders")]
impl Orders {
    /// Place an order
    ///
    /// Prices the order, debits the wallet in the product's currency and records both in one step. If any part fails,
    /// nothing happens. Returns 201 with the new order, whose status is always `PENDING`. Returns 200 with the existing
    /// order if the same request was sent with the same `client_reference` before.
    #[oai(path = "/orders", method = "post", operation_id = "place_order")]
    async fn place(
        &self,
        caller: Caller<ClientOperator>,
        state: State<'_>,
        /// Unique key that makes retries safe: a repeated request with the same key returns the first response.
        #[oai(name = "Idempotency-Key")]
        key: IdempotencyKey,
        body: StrictJson<PlaceOrder>,
    ) -> Result<Stored<Data<Order>, 201, 200>, ApiError> {
        let (caller, request) = (caller.0, body.0);
        let idempotency = key.of(&caller, "/api/v1/orders", &request, placed)?;
        let idempotency = idempotency.map(|key| Idempotency { renderer: Some(PLACED), ..key });
        let command = Command::PlaceOrder(commands::PlaceOrder {
            account_id: caller.account_id,
            product_id: ProductId(request.product_id),
            denomination: money("denomination", request.denomination.0)?,
            quantity: request.quantity,
            client_reference: request.client_reference,
            metadata: request.metadata.map(|json| Secret::new(json.0)),
        });
        let reply = state.ledger.submit(caller.shard_id, command, origin(caller.actor()), idempotency).await?;
        respond(reply, placed)
    }

    /// List orders
    ///
    /// Returns the account's orders, newest first.
    #[oai(path = "/orders", method = "get", operation_id = "list_orders")]
    #[allow(clippy::too_many_arguments)] // each is a parameter
    async fn list(
        &self,
        caller: Caller,
        state: State<'_>,
        /// Page number, from 1. Default: 1.
        page: Query<Option<i64>>,
        /// Orders per page, 1 to 100. Default: 20.
        limit: Query<Option<i64>>,
        /// Only orders with this status.
        status: Query<Option<OrderStatus>>,
        /// Only orders of this product.
        product_id: Query<Option<i64>>,
        /// Only the order with this reference code.
        reference_code: Query<Option<String>>,
        /// Only the order with this client reference.
        client_reference: Query<Option<String>>,
        /// Only orders placed at or after this time.
        created_from: Query<Option<DateTime<Utc>>>,
        /// Only orders placed before this time.
        created_to: Query<Option<DateTime<Utc>>>,
    ) -> Result<Listed<Order>, ApiError> {
        let page = Page::of(page.0, limit.0, 20, 100)?;
        let filter = OrderFilter {
            account_id: Some(caller.0.account_id),
            status: status.0.map(Into::into),
            product_id: product_id.0.map(ProductId),
            reference_code: reference_code.0,
            client_reference: client_reference.0,
            created_from: time("created_from", created_from.0)?,
            created_to: time("created_to", created_to.0)?,
            before: None,
        };
        let shard = caller.0.shard_id;
        let pool = state.read_pool();
        let found = reader::list_orders(&pool, shard, &filter, rows_of(page)).await?;
        let texts = texts_of(&pool, &state.keyring, shard, &found.rows).await?;
        Ok(listed(found, page, |order| Order::with_texts(order, &texts)))
    }

    /// Retrieve an order
    ///
    /// Returns the order as it is now. To learn of changes, prefer a webhook. If you poll, wait at least 10 seconds between
    /// requests, or 60 seconds while the order is `DELAYED`.
    #[oai(path = "/orders/:id", method = "get", operation_id = "get_order")]
    async fn get(
        &self,
        caller: Caller,
        state: State<'_>,
        /// Unique identifier of the order.
        id: Path<i64>,
    ) -> Result<Reply<Order>, ApiError> {
        let shard = caller.0.shard_id;
        let found = orders::find(state.ledger.pool(), shard, OrderId(id.0), Some(caller.0.account_id)).await?;
        let order = found.ok_or_else(not_found)?;
        let texts = texts_of(state.ledger.pool(), &state.keyring, shard, std::slice::from_ref(&order)).await?;
        Ok(Reply(Order::with_texts(order, &texts)))
    }

    /// Cancel an order
    ///
    /// Cancels the undelivered units and refunds them to the wallet. Vouchers that are already delivered stay valid. Fails
    /// with 409 `E_ORDER_NOT_CANCELLABLE` if the order is `DELIVERED` or `CANCELLED`.
    #[oai(path = "/orders/:id/cancel", method = "post", operation_id = "cancel_order")]
    async fn cancel(
        &self,
        caller: Caller<ClientOperator>,
        state: State<'_>,
        /// Unique identifier of the order.
        id: Path<i64>,
        /// Unique key that makes retries safe: a repeated request with the same key returns the first response.
        #[oai(name = "Idempotency-Key")]
        key: IdempotencyKey,
        body: OptionalJson<CancelOrder>,
    ) -> Result<Stored<Data<Order>>, ApiError> {
        let (caller, request) = (caller.0, body.0);
        let path = format!("/api/v1/orders/{}/cancel", id.0);
        let idempotency = key.of(&caller, &path, &request, cancelled)?;
        let reason = request.reason.map(Secret::new);
        let command = commands::CancelOrder { account_id: Some(caller.account_id), order_id: OrderId(id.0), reason };
        let reply = state.ledger.submit(caller.shard_id, command, origin(caller.actor()), idempotency).await?;
        respond(reply, cancelled)
    }
}
