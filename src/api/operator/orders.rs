//! `/admin/v1/orders`: orders of every account.

use chrono::{DateTime, Utc};
use ledger_events::{AccountId, OrderId, ProductId, order};
use ledger_projections::orders::{self, OrderFilter, PlacedOrder};
use poem_openapi::param::{Path, Query};
use poem_openapi::{Object, OpenApi};
use serde::Serialize;

use super::history::as_of_position;
use crate::access::Operator;
use crate::api::body::OptionalJson;
use crate::api::error::ApiError;
use crate::api::orders::{CancelOrder, Order, OrderStatus, texts_of};
use crate::api::outcome::answered;
use crate::api::page::Page;
use crate::api::principal::{Admin, Caller};
use crate::api::reply::{Listed, Plural, Reply};
use crate::api::state::{State, Tag, newest, not_found, origin, rows_of_each, time};
use crate::ledger::texts::Texts;
use crate::ledger::{CommandResult, commands, history, reader};
use crate::secrets::seal::Secret;

/// An order with the account that it belongs to.
#[derive(Object, Serialize)]
struct AccountOrder {
    /// Account that the order belongs to.
    account_id: i64,
    #[oai(flatten)]
    #[serde(flatten)]
    order: Order,
}

/// A current or past state of an order, with the account that it belongs to.
#[derive(Object, Serialize)]
pub struct AnyOrder {
    /// Account that the order belongs to.
    account_id: i64,
    /// Position of the log that the state belongs to; null for the current state.
    as_of_position: Option<i64>,
    #[oai(flatten)]
    #[serde(flatten)]
    order: Order,
}

impl AnyOrder {
    pub fn of(order: order::Order, as_of_position: Option<i64>, texts: &Texts) -> Self {
        Self { account_id: order.placed.account_id.0, as_of_position, order: Order::with_texts(order, texts) }
    }
}

impl Plural for AccountOrder {
    const PLURAL: &'static str = "orders";
}

impl AccountOrder {
    fn with_texts(order: order::Order, texts: &Texts) -> Self {
        Self { account_id: order.placed.account_id.0, order: Order::with_texts(order, texts) }
    }
}

/// Finds the place in the log of the order before which a page begins.
async fn placed_order(state: &State<'_>, id: Option<OrderId>) -> Result<Option<PlacedOrder>, ApiError> {
    let Some(id) = id else { return Ok(None) };
    if let Some(shard) = state.ledger.shard_of_order(id).await?
        && let Some(order) = orders::find(state.ledger.pool(), shard, id, None).await?
    {
        return Ok(Some(PlacedOrder { shard, position: order.placed_position, created_at: order.created_at }));
    }
    Err(ApiError::invalid("before", "is not the identifier of an order"))
}

pub struct Orders;

#[OpenApi(prefix_path = "/admin/v1", tag = "Tag::Orders")]
impl Orders {
    /// List orders
    ///
    /// Returns the orders of all accounts, newest first.
    #[oai(path = "/orders", method = "get", operation_id = "list_all_orders")]
    #[allow(clippy::too_many_arguments)] // each is a parameter
    async fn list(
        &self,
        _caller: Caller<Operator>,
        state: State<'_>,
        /// Page number, from 1. Default: 1.
        page: Query<Option<i64>>,
        /// Orders per page, 1 to 100. Default: 20.
        limit: Query<Option<i64>>,
        /// Only orders of this account.
        account_id: Query<Option<i64>>,
        /// Only orders with this status.
        status: Query<Option<OrderStatus>>,
        /// Only orders of this product.
        product_id: Query<Option<i64>>,
        /// Only the order with this reference code.
        reference_code: Query<Option<String>>,
        /// Only orders with this client reference.
        client_reference: Query<Option<String>>,
        /// Only orders placed at or after this time.
        created_from: Query<Option<DateTime<Utc>>>,
        /// Only orders placed before this time.
        created_to: Query<Option<DateTime<Utc>>>,
        /// Identifier of the order before which the page begins, in place of `page`. With the last order of each page, the
        /// next page of a long list takes no longer than the first. The pagination counts all orders of the list. Not with
        /// `account_id`, `reference_code` or `client_reference`.
        before: Query<Option<i64>>,
    ) -> Result<Listed<AccountOrder>, ApiError> {
        if before.is_some() && (page.is_some() || account_id.is_some() || reference_code.is_some() || client_reference.is_some())
        {
            return Err(ApiError::invalid("before", "cannot be combined with page, account_id or a reference"));
        }
        let page = Page::of(page.0, limit.0, 20, 100)?;
        let filter = OrderFilter {
            account_id: account_id.0.map(AccountId),
            status: status.0.map(Into::into),
            product_id: product_id.0.map(ProductId),
            reference_code: reference_code.0,
            client_reference: client_reference.0,
            created_from: time("created_from", created_from.0)?,
            created_to: time("created_to", created_to.0)?,
            before: placed_order(&state, before.0.map(OrderId)).await?,
        };
        let shards = state.shards_of(filter.account_id).await?;
        let (pool, mut found, mut total) = (state.read_pool(), Vec::new(), 0);
        for shard in &shards {
            let part = reader::list_orders(&pool, *shard, &filter, rows_of_each(page, shards.len())).await?;
            found.push((*shard, part.rows));
            total += u64::try_from(part.total).unwrap_or_default();
        }
        let found = newest(found, page, |order: &order::Order| order.created_at);
        let mut texts = Texts::new();
        for shard in shards {
            let of_shard: Vec<order::Order> =
                found.iter().filter(|(at, _)| *at == shard).map(|(_, order)| order.clone()).collect();
            texts.extend(texts_of(&pool, &state.keyring, shard, &of_shard).await?);
        }
        let items = found.into_iter().map(|(_, order)| AccountOrder::with_texts(order, &texts)).collect();
        Ok(Listed::page(items, page, total))
    }

    /// Retrieve an order
    ///
    /// Returns the order of any account, in its current state or, with `as_of`, in a past one. Returns 404 if the order
    /// was placed later than `as_of`, and 400 if the log has not reached the position.
    #[oai(path = "/orders/:id", method = "get", operation_id = "get_any_order")]
    async fn get(
        &self,
        _caller: Caller<Operator>,
        state: State<'_>,
        /// Unique identifier of the order.
        id: Path<i64>,
        /// Point in time of the state: a position of the log, an RFC 3339 time, or a date (midnight UTC). A position
        /// means right after its event. Default: the current state.
        as_of: Query<Option<String>>,
    ) -> Result<Reply<AnyOrder>, ApiError> {
        let id = OrderId(id.0);
        let pool = state.ledger.pool();
        let shard = state.ledger.shard_of_order(id).await?.ok_or_else(not_found)?;
        let as_of_position = as_of_position(pool, shard, as_of.0.as_deref()).await?;
        let order = match as_of_position {
            Some(position) => history::order_at(pool, shard, id, position).await?,
            None => orders::find(pool, shard, id, None).await?,
        };
        let order = order.ok_or_else(not_found)?;
        let texts = texts_of(state.ledger.pool(), &state.keyring, shard, std::slice::from_ref(&order)).await?;
        Ok(Reply(AnyOrder::of(order, as_of_position, &texts)))
    }

    /// Cancel an order
    ///
    /// Refunds the undelivered units to the account's wallet. This also works for a suspended account.
    #[oai(path = "/orders/:id/cancel", method = "post", operation_id = "cancel_any_order")]
    async fn cancel(
        &self,
        caller: Caller<Admin>,
        state: State<'_>,
        /// Unique identifier of the order.
        id: Path<i64>,
        body: OptionalJson<CancelOrder>,
    ) -> Result<Reply<AccountOrder>, ApiError> {
        let id = OrderId(id.0);
        let shard = state.ledger.shard_of_order(id).await?.ok_or_else(not_found)?;
        let command = commands::CancelOrder { account_id: None, order_id: id, reason: body.0.reason.map(Secret::new) };
        let answer = state.ledger.execute(shard, command, origin(caller.0.0.actor())).await?;
        let view = answered!(answer, CommandResult::Order(view) => view)?;
        Ok(Reply(AccountOrder { account_id: view.order.placed.account_id.0, order: Order::of_view(&view) }))
    }
}
