//! `/api/v1/charges`: the price of an order before it is placed.

use chrono::Utc;
use ledger_database::{PgPool, replanned};
use ledger_events::placement::quote;
use ledger_events::wallet::Wallet;
use ledger_events::{Money as Amount, ProductId};
use ledger_projections::state::load_of_accounts;
use ledger_projections::{accounts, catalogue};
use poem_openapi::{Object, OpenApi};
use serde::Serialize;

use super::body::StrictJson;
use super::error::ApiError;
use super::fields::body;
use super::idempotency::IdempotencyKey;
use super::orders::MAX_METADATA_BYTES;
use super::outcome::{respond, unrenderable};
use super::principal::Caller;
use super::readers::{integer, json_object, number};
use super::reply::{Data, Stored, render};
use super::scalars::{JsonObject, Money, Number, Timestamp};
use super::state::{State, Tag, amounts, money, not_found, origin};
use crate::access::Principal;
use crate::ledger::command_result::Charge as Quoted;
use crate::ledger::{CommandResult, Reply, StoredResponse, commands};

body! {
    /// An order to price.
    #[derive(Object, Serialize)]
    struct QuoteCharge {
        /// Product to price, from `GET /api/v1/products`.
        product_id: i64 = required(integer(1..=i64::MAX)),
        /// Face value of one unit, as a number with at most two decimals. It is read exactly, without floating-point
        /// rounding.
        denomination: Number = required(number(2, amounts())),
        /// Number of units, from 1 to the product's `max_quantity`.
        quantity: i32 = required(integer(1..=i32::MAX)),
        /// Metadata as in an order, at most 4 KiB of JSON. It does not affect the price and is not stored.
        #[serde(skip_serializing_if = "Option::is_none")]
        metadata: Option<JsonObject> = optional(json_object(MAX_METADATA_BYTES)),
    }
}

/// Current price of an order. A charge is an estimate and reserves nothing.
#[derive(Object, Serialize)]
struct Charge {
    /// Unique identifier of the product.
    product_id: i64,
    /// Face value of one unit.
    denomination: Money,
    /// Number of units.
    quantity: i32,
    /// Currency of the product and of the wallet that would pay, as an ISO 4217 code.
    currency: String,
    /// Total face value: `denomination` × `quantity`.
    face_value: Money,
    /// The account's discount, in percent.
    discount: Money,
    /// Amount saved by the discount: `face_value` − `amount`.
    discount_amount: Money,
    /// Amount that the order would cost.
    amount: Money,
    /// Current balance of the wallet that would pay.
    wallet_balance: Money,
    /// Whether the wallet's balance covers the amount.
    sufficient_balance: bool,
    /// Time at which the order was priced.
    quoted_at: Timestamp,
}

fn quoted(answer: &CommandResult) -> Result<StoredResponse, serde_json::Error> {
    let CommandResult::Charge(charge) = answer else { return unrenderable() };
    let price = charge.price;
    let body = render(&Charge {
        product_id: charge.product_id.0,
        denomination: charge.denomination.into(),
        quantity: charge.quantity,
        currency: charge.currency.as_str().to_owned(),
        face_value: price.face_value.into(),
        discount: price.discount.into(),
        discount_amount: price.discount_amount.into(),
        amount: price.amount.into(),
        wallet_balance: charge.wallet_balance.into(),
        sufficient_balance: charge.wallet_balance >= price.amount,
        quoted_at: charge.quoted_at.into(),
    })?;
    Ok(StoredResponse { status: 200, body, is_secret: false })
}

pub struct Charges;

#[OpenApi(prefix_path = "/api/v1", tag = "Tag::Orders")]
impl Charges {
    /// Price an order
    ///
    /// Prices the order as if it were placed now, and fails for the same reasons. The only exception is a low balance,
    /// which `sufficient_balance` reports instead. Nothing is recorded, so a suspended account can also price orders.
    #[oai(path = "/charges", method = "post", operation_id = "quote_charge")]
    async fn quote(
        &self,
        caller: Caller,
        state: State<'_>,
        /// Unique key that makes retries safe: a repeated request with the same key returns the first response.
        #[oai(name = "Idempotency-Key")]
        key: IdempotencyKey,
        body: StrictJson<QuoteCharge>,
    ) -> Result<Stored<Data<Charge>>, ApiError> {
        let (caller, request) = (caller.0, body.0);
        let denomination = money("denomination", request.denomination.0)?;
        let idempotency = key.of(&caller, "/api/v1/charges", &request, quoted)?;
        if idempotency.is_none() {
            let charge = read(state.ledger.pool(), &caller, &request, denomination).await?;
            return respond(Reply::Result(Box::new(CommandResult::Charge(charge))), quoted);
        }
        let QuoteCharge { product_id, quantity, .. } = request;
        let command =
            commands::QuoteCharge { account_id: caller.account_id, product_id: ProductId(product_id), denomination, quantity };
        let reply = state.ledger.submit(caller.shard_id, command, origin(caller.actor()), idempotency).await?;
        respond(reply, quoted)
    }
}

/// Prices the order without the writer, because a quote without an idempotency key is not stored.
async fn read(pool: &PgPool, caller: &Principal, request: &QuoteCharge, denomination: Amount) -> Result<Quoted, ApiError> {
    let (_, account) = accounts::find(pool, caller.account_id).await?.ok_or_else(not_found)?;
    let product = catalogue::find(pool, ProductId(request.product_id)).await?;
    let accounts = [caller.account_id];
    let load = async || load_of_accounts::<Wallet>(&mut *pool.acquire().await?, caller.shard_id, &accounts).await;
    let wallets = replanned(load).await?;
    let wallet_in = |currency| wallets.iter().find(|wallet| wallet.currency == currency);
    let quote = quote(&account, product.as_ref(), wallet_in, denomination, request.quantity)?;
    Ok(Quoted::of(&quote, denomination, request.quantity, Utc::now()))
}
