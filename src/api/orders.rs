//! `/api/v1/orders`: placing, following and cancelling orders.

use chrono::{DateTime, Utc};
use ledger_events::ShardId;
use ledger_events::order::{self, OrderStatus as Status};
use ledger_projections::orders::{self, OrderFilter};
use poem_openapi::param::{Path, Query};
use poem_openapi::{Enum, Object, OpenApi};
use serde::Serialize;

use super::body::{OptionalJson, StrictJson};
use super::error::ApiError;
use super::fields::{Fields, FromFields};
use super::idempotency::IdempotencyKey;
use super::outcome::{respond, unrenderable};
use super::page::Page;
use super::principal::{Caller, ClientOperator};
use super::readers::{integer, json_object, line, number, text};
use super::reply::{Data, Listed, Plural, Reply, Stored, render};
use super::scalars::{JsonObject, Money, Number, Timestamp};
use super::state::{ApiState, State, Tag, amounts, listed, money, not_found, origin, rows_of, time};
use crate::ledger::answer::OrderView;
use crate::ledger::command;
use crate::ledger::texts::{self, CANCEL_REASON, METADATA, Texts};
use crate::ledger::{Answer, Command, Rendered};
use crate::secrets::seal::Private;

/// The largest `metadata`, in bytes of canonical JSON.
pub(super) const MAX_METADATA_BYTES: usize = 4 * 1024;

/// An order, paid from the wallet of the product's currency. The service prices it.
#[derive(Object, Serialize)]
pub struct PlaceOrder {
    /// The product; `GET /api/v1/products` lists them.
    #[oai(validator(minimum(value = "1")))]
    product_id: i64,
    /// The face value of one unit: a number with at most two decimals, read exactly.
    denomination: Number,
    /// How many units, up to the product's `max_quantity`.
    #[oai(validator(minimum(value = "1")))]
    quantity: i32,
    /// Your own name for the order, unique within the account for ever. The same request again
    /// answers 200 with the order that exists; another request under the same name 409.
    #[oai(validator(min_length = 1, max_length = 100))]
    client_reference: Option<String>,
    /// Anything you want to find again with the order: at most 4 KiB of JSON.
    metadata: Option<JsonObject>,
}

impl FromFields for PlaceOrder {
    fn from_fields(fields: &mut Fields<'_>) -> Self {
        let quantity = fields.required("quantity", integer(1..=i64::from(i32::MAX)));
        Self {
            product_id: fields.required("product_id", integer(1..=i64::MAX)),
            denomination: fields.required("denomination", number(2, amounts())),
            quantity: i32::try_from(quantity).unwrap_or_default(),
            client_reference: fields.optional("client_reference", line(1..=100)),
            metadata: fields.optional("metadata", json_object(MAX_METADATA_BYTES)),
        }
    }
}

/// Why an order is cancelled.
#[derive(Object, Serialize)]
pub struct CancelOrder {
    /// For people; comes back as `cancel_reason`.
    #[oai(validator(min_length = 1, max_length = 500))]
    pub reason: Option<String>,
}

impl FromFields for CancelOrder {
    fn from_fields(fields: &mut Fields<'_>) -> Self {
        Self { reason: fields.optional("reason", text(1..=500)) }
    }
}

/// Where an order stands. DELIVERED and CANCELLED are final.
#[derive(Debug, Clone, Copy, Enum, Serialize)]
#[oai(rename_all = "SCREAMING_SNAKE_CASE")]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum OrderStatus {
    /// Placed and paid.
    Pending,
    /// There is nothing to allocate yet.
    Delayed,
    /// Some units are allocated, the rest waits for stock.
    PartiallyDelivered,
    /// Every unit is allocated.
    Delivered,
    /// Ended by the client or an operator; what was not delivered is refunded.
    Cancelled,
}

impl From<Status> for OrderStatus {
    fn from(status: Status) -> Self {
        match status {
            Status::Pending => Self::Pending,
            Status::Delayed => Self::Delayed,
            Status::PartiallyDelivered => Self::PartiallyDelivered,
            Status::Delivered => Self::Delivered,
            Status::Cancelled => Self::Cancelled,
        }
    }
}

impl From<OrderStatus> for Status {
    fn from(status: OrderStatus) -> Self {
        match status {
            OrderStatus::Pending => Self::Pending,
            OrderStatus::Delayed => Self::Delayed,
            OrderStatus::PartiallyDelivered => Self::PartiallyDelivered,
            OrderStatus::Delivered => Self::Delivered,
            OrderStatus::Cancelled => Self::Cancelled,
        }
    }
}

/// An order.
#[derive(Object, Serialize)]
pub struct Order {
    /// Its id.
    id: i64,
    /// For people; made by the service.
    reference_code: String,
    /// The client's own name for it.
    client_reference: Option<String>,
    /// Where it stands.
    status: OrderStatus,
    /// Empty, or `OUT_OF_STOCK`, `AWAITING_REMAINDER`, `CANCELLED_BY_CLIENT`,
    /// `CANCELLED_BY_OPERATOR`, `REMAINDER_CANCELLED`. New values are informational.
    sub_status: String,
    /// The product.
    product_id: i64,
    /// The product's name when it was ordered.
    product_name: String,
    /// ISO 4217.
    currency: String,
    /// The face value of one unit.
    denomination: Money,
    /// Units that were ordered.
    quantity: i32,
    /// `denomination` × `quantity`.
    face_value: Money,
    /// The discount in percent.
    discount: Money,
    /// `face_value` − `amount`.
    discount_amount: Money,
    /// What was debited from the wallet.
    amount: Money,
    /// What a cancellation gave back to the wallet.
    refunded_amount: Money,
    /// The debit's transaction.
    transaction_id: i64,
    /// Units that were delivered so far.
    delivered_quantity: i32,
    /// Null until DELIVERED.
    delivered_on: Option<Timestamp>,
    /// Null unless CANCELLED.
    cancelled_on: Option<Timestamp>,
    /// The reason that came with the cancellation; null, too, once it was erased.
    cancel_reason: Option<String>,
    /// What the client sent with the order; null, too, once it was erased.
    metadata: Option<JsonObject>,
    /// When it was made.
    created_at: Timestamp,
    /// When it last changed.
    updated_at: Timestamp,
    /// What was delivered, one item for each time that units were.
    order_items: Vec<OrderItem>,
}

impl Plural for Order {
    const PLURAL: &'static str = "orders";
}

/// Units that were delivered together.
#[derive(Object, Serialize)]
pub struct OrderItem {
    /// Always `DELIVERED`.
    status: String,
    /// When they were delivered.
    delivered_on: Timestamp,
    /// The vouchers, one a unit.
    vouchers: Vec<VoucherReference>,
}

/// A voucher without its codes.
#[derive(Object, Serialize)]
pub struct VoucherReference {
    /// Names the voucher without telling its code.
    voucher_reference_number: String,
}

impl Order {
    pub fn of(order: order::Order, metadata: Option<&Private>, cancel_reason: Option<&Private>) -> Self {
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
            id: order.id,
            reference_code: placed.reference_code,
            client_reference: placed.client_reference,
            status: order.status.into(),
            sub_status: order.sub_status.to_owned(),
            product_id: placed.product_id,
            product_name: placed.product_name,
            currency: placed.currency.as_str().to_owned(),
            denomination: placed.denomination.into(),
            quantity: placed.quantity,
            face_value: placed.face_value.into(),
            discount: placed.discount.into(),
            discount_amount: placed.discount_amount.into(),
            amount: placed.amount.into(),
            refunded_amount: order.refunded_amount.into(),
            transaction_id: placed.transaction_id,
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

    /// The order with its texts out of a page's.
    pub fn with_texts(order: order::Order, texts: &Texts) -> Self {
        let (metadata, reason) = (texts.get(&(METADATA, order.id)), texts.get(&(CANCEL_REASON, order.id)));
        Self::of(order, metadata, reason)
    }
}

/// The texts of orders of one shard, in one query; none if none of them has any.
pub async fn texts_of(state: &ApiState, shard: ShardId, orders: &[order::Order]) -> Result<Texts, ApiError> {
    let mut wanted = Vec::new();
    for order in orders {
        wanted.extend(order.placed.metadata_hash.is_some().then_some((METADATA, order.id)));
        wanted.extend(order.cancelled_on.is_some().then_some((CANCEL_REASON, order.id)));
    }
    Ok(texts::load(state.ledger.pool(), &state.keyring, shard, &wanted).await?)
}

fn placed(answer: &Answer) -> Result<Rendered, serde_json::Error> {
    let Answer::Order(view) = answer else { return unrenderable() };
    rendered(view, if view.is_new { 201 } else { 200 })
}

fn cancelled(answer: &Answer) -> Result<Rendered, serde_json::Error> {
    let Answer::Order(view) = answer else { return unrenderable() };
    rendered(view, 200)
}

/// Free text from people stands sealed wherever it is kept, in a stored answer too.
fn rendered(view: &OrderView, status: u16) -> Result<Rendered, serde_json::Error> {
    let is_secret = view.metadata.is_some() || view.cancel_reason.is_some();
    Ok(Rendered { status, body: render(&Order::of_view(view))?, is_secret })
}

pub struct Orders;

#[OpenApi(prefix_path = "/api/v1", tag = "Tag::Orders")]
impl Orders {
    /// Place an order
    ///
    /// Prices the order, debits the wallet of the product's currency and records both, or does
    /// none of it. 201 with the new order, which is always PENDING; 200 with the order that
    /// exists, when the same request was sent under the same `client_reference` before.
    #[oai(path = "/orders", method = "post", operation_id = "place_order")]
    async fn place(
        &self,
        caller: Caller<ClientOperator>,
        state: State<'_>,
        /// A name for this request: the same one again is answered with the first answer.
        #[oai(name = "Idempotency-Key")]
        key: IdempotencyKey,
        body: StrictJson<PlaceOrder>,
    ) -> Result<Stored<Data<Order>, 201, 200>, ApiError> {
        let (caller, request) = (caller.0, body.0);
        let idempotency = key.of(&caller, "/api/v1/orders", &request, placed)?;
        let command = Command::PlaceOrder(command::PlaceOrder {
            account_id: caller.account_id,
            product_id: request.product_id,
            denomination: money("denomination", request.denomination.0)?,
            quantity: request.quantity,
            client_reference: request.client_reference,
            metadata: request.metadata.map(|json| Private::new(json.0)),
        });
        let reply = state.ledger.submit(caller.shard_id, command, origin(caller.actor()), idempotency).await?;
        respond(reply, placed)
    }

    /// List orders
    ///
    /// Newest first.
    #[oai(path = "/orders", method = "get", operation_id = "list_orders")]
    #[allow(clippy::too_many_arguments)] // each is a parameter
    async fn list(
        &self,
        caller: Caller,
        state: State<'_>,
        /// From 1.
        page: Query<Option<i64>>,
        /// Orders on a page: 1 to 100, by default 20.
        limit: Query<Option<i64>>,
        /// Only orders of this status.
        status: Query<Option<OrderStatus>>,
        /// Only orders of this product.
        product_id: Query<Option<i64>>,
        /// Only the order with this reference.
        reference_code: Query<Option<String>>,
        /// Only the order with this reference of yours.
        client_reference: Query<Option<String>>,
        /// Only orders placed at this time or later.
        created_from: Query<Option<DateTime<Utc>>>,
        /// Only orders placed before this time.
        created_to: Query<Option<DateTime<Utc>>>,
    ) -> Result<Listed<Order>, ApiError> {
        let page = Page::of(page.0, limit.0, 20, 100)?;
        let filter = OrderFilter {
            account_id: Some(caller.0.account_id),
            status: status.0.map(Into::into),
            product_id: product_id.0,
            reference_code: reference_code.0,
            client_reference: client_reference.0,
            created_from: time("created_from", created_from.0)?,
            created_to: time("created_to", created_to.0)?,
        };
        let shard = caller.0.shard_id;
        let found = orders::list(state.ledger.pool(), shard, &filter, rows_of(page)).await?;
        let texts = texts_of(&state, shard, &found.rows).await?;
        Ok(listed(found, page, |order| Order::with_texts(order, &texts)))
    }

    /// Find an order
    #[oai(path = "/orders/:id", method = "get", operation_id = "get_order")]
    async fn get(
        &self,
        caller: Caller,
        state: State<'_>,
        /// The order's id.
        id: Path<i64>,
    ) -> Result<Reply<Order>, ApiError> {
        let shard = caller.0.shard_id;
        let found = orders::find(state.ledger.pool(), shard, id.0, Some(caller.0.account_id)).await?;
        let order = found.ok_or_else(not_found)?;
        let texts = texts_of(&state, shard, std::slice::from_ref(&order)).await?;
        Ok(Reply(Order::with_texts(order, &texts)))
    }

    /// Cancel an order
    ///
    /// Refunds what was not delivered to the wallet; what was delivered stays valid.
    #[oai(path = "/orders/:id/cancel", method = "post", operation_id = "cancel_order")]
    async fn cancel(
        &self,
        caller: Caller<ClientOperator>,
        state: State<'_>,
        /// The order's id.
        id: Path<i64>,
        /// A name for this request: the same one again is answered with the first answer.
        #[oai(name = "Idempotency-Key")]
        key: IdempotencyKey,
        body: OptionalJson<CancelOrder>,
    ) -> Result<Stored<Data<Order>>, ApiError> {
        let (caller, request) = (caller.0, body.0);
        let path = format!("/api/v1/orders/{}/cancel", id.0);
        let idempotency = key.of(&caller, &path, &request, cancelled)?;
        let reason = request.reason.map(Private::new);
        let command = Command::CancelOrder { account_id: Some(caller.account_id), order_id: id.0, reason };
        let reply = state.ledger.submit(caller.shard_id, command, origin(caller.actor()), idempotency).await?;
        respond(reply, cancelled)
    }
}
