//! `/admin/v1/products/:id/vouchers` and `/stock`: vouchers for sale.

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
use crate::ledger::commands::NewVoucher;
use crate::ledger::{CommandResult, FIRST_SHARD, commands, stock};

/// Maximum number of vouchers in one command, so that its transaction does not delay others.
const CHUNK: usize = 1_000;

/// Result of an upload of vouchers.
#[derive(Default, Object, Serialize)]
struct StockLoaded {
    /// Number of vouchers added to the stock.
    accepted: i64,
    /// Number of vouchers that the product already has. They are not added again.
    duplicates: i64,
    /// Rows that were refused, each with the reason.
    rejected: Vec<RejectedRow>,
}

impl StockLoaded {
    /// Builds the error for an upload of which a later part fails.
    fn broken_off(&self, error: ApiError) -> ApiError {
        if self.accepted + self.duplicates == 0 {
            return error;
        }
        let added = format!("The upload was interrupted after {} of its vouchers were added.", self.accepted);
        match error.code {
            // These codes say that nothing happened, which is not true of the whole upload.
            Code::Unavailable | Code::OutcomeUnknown => ApiError::new(Code::OutcomeUnknown)
                .message(format!("{added} Send the whole upload again: no voucher is added twice.")),
            _ => {
                let message = format!("{} {added}", error.message);
                error.message(message)
            }
        }
    }
}

/// A row that was refused.
#[derive(Object, Serialize)]
struct RejectedRow {
    /// Number of the row, from 1. The header row is not counted.
    row: i64,
    /// Reason for the refusal.
    reason: String,
}

/// Stock of vouchers of one denomination.
#[derive(Object, Serialize)]
struct StockLevel {
    /// Face value of each voucher.
    denomination: Money,
    /// Number of vouchers that are neither expired nor allocated to an order.
    available: i64,
    /// Number of vouchers allocated to orders.
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
    /// Adds vouchers to a product's stock, as JSON or CSV of at most 16 MiB. Vouchers that the product already has are
    /// counted but not added. An interrupted upload (504 if a part was or may have been added) can therefore be sent
    /// again as a whole.
    #[oai(path = "/products/:id/vouchers", method = "post", operation_id = "load_vouchers")]
    async fn load(
        &self,
        caller: Caller<Admin>,
        state: State<'_>,
        /// Unique identifier of the product.
        id: Path<i64>,
        /// Face value of CSV rows without a `denomination`.
        denomination: Query<Option<String>>,
        body: Upload,
    ) -> Result<Reply<StockLoaded>, ApiError> {
        let default = denomination.0.as_deref().map(face_value).transpose()?;
        let Vouchers { good, rejected } = body.vouchers(default)?;
        let product = catalogue::find(state.ledger.pool(), id.0).await?.ok_or_else(not_found)?;
        let mut loaded = StockLoaded::default();
        loaded.rejected.extend(rejected.into_iter().map(|(row, reason)| RejectedRow { row, reason }));
        // If no row has a valid denomination, the whole upload is refused before anything is added.
        let includes = |denomination| product.details.denominations.include(denomination);
        if !good.is_empty() && good.iter().all(|(denomination, _)| !includes(*denomination)) {
            return Err(ApiError::new(Code::InvalidDenomination));
        }
        let mut chunks: Vec<(Amount, Vec<NewVoucher>)> = Vec::new();
        for (denomination, voucher) in good {
            if !includes(denomination) {
                let reason = "denomination is not available for this product".to_owned();
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
            let command = commands::LoadVouchers { product_id: id.0, denomination, vouchers };
            let answer = state.ledger.execute(FIRST_SHARD, command, origin(caller.0.0.actor())).await;
            let answer = answer.map_err(|error| loaded.broken_off(error.into()))?;
            let chunk = answered!(answer, CommandResult::Stock(chunk) => chunk)?;
            loaded.accepted += i64::from(chunk.accepted);
            loaded.duplicates += i64::from(chunk.duplicates);
            loaded
                .rejected
                .extend(chunk.rejected.into_iter().map(|(row, reason)| RejectedRow { row, reason: reason.to_owned() }));
        }
        loaded.rejected.sort_by_key(|rejected| rejected.row);
        Ok(Reply(loaded))
    }

    /// Retrieve the stock
    ///
    /// Returns the stock of a product by denomination, smallest first.
    #[oai(path = "/products/:id/stock", method = "get", operation_id = "get_stock")]
    async fn levels(
        &self,
        _caller: Caller<Operator>,
        state: State<'_>,
        /// Unique identifier of the product.
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
