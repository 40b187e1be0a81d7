//! `/api/v1/charges`: what an order would cost.

use chrono::Utc;
use ledger_database::PgPool;
use ledger_events::Money as Amount;
use ledger_events::placement::quote;
use ledger_projections::{accounts, catalogue, wallets};
use poem_openapi::{Object, OpenApi};
use serde::Serialize;

use super::body::StrictJson;
use super::error::ApiError;
use super::fields::{Fields, FromFields};
use super::idempotency::IdempotencyKey;
use super::orders::MAX_METADATA_BYTES;
use super::outcome::{respond, unrenderable};
use super::principal::Caller;
use super::readers::{integer, json_object, number};
use super::reply::{Data, Stored, render};
use super::scalars::{JsonObject, Money, Number, Timestamp};
use super::state::{State, Tag, amounts, money, not_found, origin};
use crate::access::Principal;
use crate::ledger::answer::Charge as Quoted;
use crate::ledger::{Answer, Command, Rendered, Reply};

/// An order to be priced.
#[derive(Object, Serialize)]
struct QuoteCharge {
    /// The product; `GET /api/v1/products` lists them.
    #[oai(validator(minimum(value = "1")))]
    product_id: i64,
    /// The face value of one unit: a number with at most two decimals, read exactly.
    denomination: Number,
    /// How many units, up to the product's `max_quantity`.
    #[oai(validator(minimum(value = "1")))]
    quantity: i32,
    /// As an order may have it, at most 4 KiB of JSON. It changes no price, and is not kept.
    #[serde(skip_serializing_if = "Option::is_none")]
    metadata: Option<JsonObject>,
}

impl FromFields for QuoteCharge {
    fn from_fields(fields: &mut Fields<'_>) -> Self {
        let quantity = fields.required("quantity", integer(1..=i64::from(i32::MAX)));
        Self {
            product_id: fields.required("product_id", integer(1..=i64::MAX)),
            denomination: fields.required("denomination", number(2, amounts())),
            quantity: i32::try_from(quantity).unwrap_or_default(),
            metadata: fields.optional("metadata", json_object(MAX_METADATA_BYTES)),
        }
    }
}

/// What an order would cost now. Not binding.
#[derive(Object, Serialize)]
struct Charge {
    /// The product.
    product_id: i64,
    /// The face value of one unit.
    denomination: Money,
    /// How many units.
    quantity: i32,
    /// ISO 4217; of the product, and of the wallet that would pay.
    currency: String,
    /// `denomination` × `quantity`.
    face_value: Money,
    /// The caller's discount in percent.
    discount: Money,
    /// `face_value` − `amount`.
    discount_amount: Money,
    /// What the order would be charged.
    amount: Money,
    /// What the wallet holds.
    wallet_balance: Money,
    /// Whether the wallet's balance covers the amount.
    sufficient_balance: bool,
    /// When it was priced.
    quoted_at: Timestamp,
}

fn quoted(answer: &Answer) -> Result<Rendered, serde_json::Error> {
    let Answer::Charge(charge) = answer else { return unrenderable() };
    let price = charge.price;
    let body = render(&Charge {
        product_id: charge.product_id,
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
    Ok(Rendered { status: 200, body, is_secret: false })
}

pub struct Charges;

#[OpenApi(prefix_path = "/api/v1", tag = "Tag::Orders")]
impl Charges {
    /// Price an order
    ///
    /// As placing the same order now would price it, and refused as that would be, but for a
    /// balance that is too low: `sufficient_balance` tells. Nothing is recorded, so a suspended
    /// account may ask, too.
    #[oai(path = "/charges", method = "post", operation_id = "quote_charge")]
    async fn quote(
        &self,
        caller: Caller,
        state: State<'_>,
        /// A name for this request: the same one again is answered with the first answer.
        #[oai(name = "Idempotency-Key")]
        key: IdempotencyKey,
        body: StrictJson<QuoteCharge>,
    ) -> Result<Stored<Data<Charge>>, ApiError> {
        let (caller, request) = (caller.0, body.0);
        let denomination = money("denomination", request.denomination.0)?;
        let idempotency = key.of(&caller, "/api/v1/charges", &request, quoted)?;
        if idempotency.is_none() {
            let charge = read(state.ledger.pool(), &caller, &request, denomination).await?;
            return respond(Reply::Answer(Box::new(Answer::Charge(charge))), quoted);
        }
        let QuoteCharge { product_id, quantity, .. } = request;
        let command = Command::QuoteCharge { account_id: caller.account_id, product_id, denomination, quantity };
        let reply = state.ledger.submit(caller.shard_id, command, origin(caller.actor()), idempotency).await?;
        respond(reply, quoted)
    }
}

/// A quote that need not be kept need not trouble the writer.
async fn read(pool: &PgPool, caller: &Principal, request: &QuoteCharge, denomination: Amount) -> Result<Quoted, ApiError> {
    let (_, account) = accounts::find(pool, caller.account_id).await?.ok_or_else(not_found)?;
    let product = catalogue::find(pool, request.product_id).await?;
    let wallets = wallets::load_of_accounts(&mut *pool.acquire().await?, caller.shard_id, &[caller.account_id]).await?;
    let wallet_in = |currency| wallets.iter().find(|wallet| wallet.currency == currency);
    let quote = quote(&account, product.as_ref(), wallet_in, denomination, request.quantity)?;
    Ok(Quoted::of(&quote, denomination, request.quantity, Utc::now()))
}
