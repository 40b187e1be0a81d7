//! `/admin/v1/products/:id/vouchers` and `/stock`: the vouchers to sell.

use ledger_events::Money as Amount;
use ledger_projections::catalogue;
use poem_openapi::param::{Path, Query};
use poem_openapi::{Object, OpenApi};
use serde::Serialize;

use super::upload::{Upload, Vouchers};
use crate::access::Operator;
use crate::api::error::{ApiError, Code};
use crate::api::outcome::answered;
use crate::api::principal::{Admin, Caller};
use crate::api::reply::{Listed, Plural, Reply};
use crate::api::scalars::Money;
use crate::api::state::{State, Tag, not_found, origin};
use crate::ledger::command::NewVoucher;
use crate::ledger::{Answer, Command, FIRST_SHARD, stock};

/// Vouchers in one command: what one transaction holds without keeping others waiting.
const CHUNK: usize = 1_000;

/// What became of an upload.
#[derive(Default, Object, Serialize)]
struct StockLoaded {
    /// Vouchers that were added.
    accepted: i64,
    /// Vouchers that the product has already.
    duplicates: i64,
    /// Rows that were not added, with the reason.
    rejected: Vec<RejectedRow>,
}

impl StockLoaded {
    /// What an upload that has come so far ends with, when its next part fails so.
    fn broken_off(&self, error: ApiError) -> ApiError {
        if self.accepted + self.duplicates == 0 {
            return error;
        }
        let added = format!("The upload broke off after {} of its vouchers had been added.", self.accepted);
        match error.code {
            // Of the whole upload it is not true that nothing happened.
            Code::Unavailable | Code::OutcomeUnknown => ApiError::new(Code::OutcomeUnknown)
                .message(format!("{added} Send all of it again: what the product has already is counted, not added twice.")),
            _ => {
                let message = format!("{} {added}", error.message);
                error.message(message)
            }
        }
    }
}

/// A row that was not added.
#[derive(Object, Serialize)]
struct RejectedRow {
    /// From 1; the line of column names does not count.
    row: i64,
    /// Why it was not added.
    reason: String,
}

/// How many vouchers of one denomination there are.
#[derive(Object, Serialize)]
struct StockLevel {
    /// The face value of one voucher.
    denomination: Money,
    /// Not expired, and not allocated to an order.
    available: i64,
    /// Allocated to orders.
    allocated: i64,
}

impl Plural for StockLevel {
    const PLURAL: &'static str = "stock";
}

impl From<stock::Level> for StockLevel {
    fn from(level: stock::Level) -> Self {
        Self { denomination: Money(level.denomination), available: level.available, allocated: level.allocated }
    }
}

pub struct Stock;

#[OpenApi(prefix_path = "/admin/v1", tag = "Tag::Catalogue")]
impl Stock {
    /// Load vouchers
    ///
    /// As JSON, or as CSV, up to 16 MiB. What the product has already is counted, not added, so an
    /// upload that broke off (504, when a part of it was added or may have been) can be sent again whole.
    #[oai(path = "/products/:id/vouchers", method = "post", operation_id = "load_vouchers")]
    async fn load(
        &self,
        caller: Caller<Admin>,
        state: State<'_>,
        /// The product's id.
        id: Path<i64>,
        /// The face value of CSV rows that do not name their own.
        denomination: Query<Option<String>>,
        body: Upload,
    ) -> Result<Reply<StockLoaded>, ApiError> {
        let default = denomination.0.as_deref().map(face_value).transpose()?;
        let Vouchers { good, rejected } = body.vouchers(default)?;
        let product = catalogue::find(state.ledger.pool(), id.0).await?.ok_or_else(not_found)?;
        let mut loaded = StockLoaded::default();
        loaded.rejected.extend(rejected.into_iter().map(|(row, reason)| RejectedRow { row, reason }));
        // An upload of one wrong face value is refused whole, before anything is added.
        let includes = |denomination| product.details.denominations.include(denomination);
        if !good.is_empty() && good.iter().all(|(denomination, _)| !includes(*denomination)) {
            return Err(ApiError::new(Code::InvalidDenomination));
        }
        let mut chunks: Vec<(Amount, Vec<NewVoucher>)> = Vec::new();
        for (denomination, voucher) in good {
            if !includes(denomination) {
                let reason = "denomination is not one of the product's".to_owned();
                loaded.rejected.push(RejectedRow { row: voucher.row, reason });
                continue;
            }
            let open = chunks.iter_mut().rev().find(|(of, chunk)| *of == denomination && chunk.len() < CHUNK);
            match open {
                Some((_, chunk)) => chunk.push(voucher),
                None => chunks.push((denomination, vec![voucher])),
            }
        }
        for (denomination, vouchers) in chunks {
            let command = Command::LoadVouchers { product_id: id.0, denomination, vouchers };
            let answer = state.ledger.execute(FIRST_SHARD, command, origin(caller.0.0.actor())).await;
            let answer = answer.map_err(|error| loaded.broken_off(error.into()))?;
            let chunk = answered!(answer, Answer::Stock(chunk) => chunk)?;
            loaded.accepted += i64::from(chunk.accepted);
            loaded.duplicates += i64::from(chunk.duplicates);
            loaded
                .rejected
                .extend(chunk.rejected.into_iter().map(|(row, reason)| RejectedRow { row, reason: reason.to_owned() }));
        }
        loaded.rejected.sort_by_key(|rejected| rejected.row);
        Ok(Reply(loaded))
    }

    /// See the stock
    ///
    /// By denomination, smallest first.
    #[oai(path = "/products/:id/stock", method = "get", operation_id = "get_stock")]
    async fn levels(
        &self,
        _caller: Caller<Operator>,
        state: State<'_>,
        /// The product's id.
        id: Path<i64>,
    ) -> Result<Listed<StockLevel>, ApiError> {
        let pool = state.ledger.pool();
        catalogue::find(pool, id.0).await?.ok_or_else(not_found)?;
        let shards: Vec<_> = state.ledger.shards().collect();
        let levels = stock::levels(pool, &shards, id.0).await?;
        Ok(Listed::whole(levels.into_iter().map(Into::into).collect()))
    }
}

fn face_value(text: &str) -> Result<Amount, ApiError> {
    let amount = text.parse::<Amount>().ok().filter(|amount| amount.is_positive());
    amount.ok_or_else(|| ApiError::invalid("denomination", "must be an amount such as 100.00"))
}
