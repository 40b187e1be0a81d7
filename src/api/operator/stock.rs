//! `/admin/v1/products/:id/vouchers` and `/stock`: vouchers for sale.

use std::collections::HashMap;

use ledger_events::Money as Amount;
use ledger_events::ProductId;
use ledger_projections::catalogue;
use poem_openapi::param::{Path, Query};
use poem_openapi::{Object, OpenApi};
use serde::Serialize;

use super::upload::{Defaults, Priced, Upload, Vouchers};
use super::vouchers::{StockedVoucher, VoucherStatus};
use crate::access::Operator;
use crate::api::body::StrictJson;
use crate::api::error::{ApiError, Code};
use crate::api::fields::{Fields, FromFields};
use crate::api::outcome::answered;
use crate::api::page::Page;
use crate::api::principal::{Admin, Caller};
use crate::api::progress::Progress;
use crate::api::readers::{integer, money};
use crate::api::reply::{Listed, Plural, Reply};
use crate::api::scalars::Money;
use crate::api::state::{State, Tag, amounts, listed, not_found, origin, rows_of};
use crate::ledger::{CommandResult, FIRST_SHARD, commands, stock};

/// Maximum number of vouchers in one command, so that its transaction does not delay others.
const CHUNK: usize = 1_000;
/// Maximum number of duplicates whose rows are returned.
const MAX_DUPLICATE_ROWS: usize = 1_000;

/// Result of an upload of vouchers.
#[derive(Default, Object, Serialize)]
struct StockLoaded {
    /// Number of vouchers added to the stock.
    accepted: i64,
    /// Number of vouchers that the product already has. They are not added again.
    duplicates: i64,
    /// Rows of these duplicates, counted from 1 without the header row. Only the first 1,000 are listed.
    duplicate_rows: Vec<i64>,
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
    /// Number of vouchers that expired before an order got them.
    expired: i64,
    /// Number of vouchers that operators have voided.
    voided: i64,
    /// Number of available vouchers below which the stock is low; null if no threshold is set.
    threshold: Option<i32>,
    /// Whether the stock is low: fewer vouchers are available than the threshold.
    is_low: bool,
}

impl Plural for StockLevel {
    const PLURAL: &'static str = "stock";
}

impl StockLevel {
    fn of(level: stock::Level, threshold: Option<i32>) -> Self {
        Self {
            denomination: Money(level.denomination),
            available: level.available,
            allocated: level.allocated,
            expired: level.expired,
            voided: level.voided,
            threshold,
            is_low: threshold.is_some_and(|least| level.available < i64::from(least)),
        }
    }
}

/// Threshold for a warning about low stock.
#[derive(Object, Serialize)]
struct StockThreshold {
    /// Face value of the vouchers.
    denomination: Money,
    /// Number of available vouchers below which the stock is low. Null removes the threshold.
    #[oai(validator(minimum(value = "1"), maximum(value = "1000000")))]
    threshold: Option<i32>,
}

impl FromFields for StockThreshold {
    fn from_fields(fields: &mut Fields<'_>) -> Self {
        Self {
            denomination: fields.required("denomination", money(amounts())),
            threshold: fields.optional("threshold", integer(1..=1_000_000)),
        }
    }
}

pub struct Stock;

#[OpenApi(prefix_path = "/admin/v1", tag = "Tag::Catalogue")]
impl Stock {
    /// Load vouchers
    ///
    /// Adds vouchers to a product's stock, as JSON or CSV of at most 16 MiB. Vouchers that the product already has are
    /// counted but not added. An interrupted upload (504 if a part was or may have been added) can therefore be sent again as a
    /// whole. With the `cost` of a voucher, the reconciliation shows the value of the stock and the margin.
    #[oai(path = "/products/:id/vouchers", method = "post", operation_id = "load_vouchers")]
    #[allow(clippy::too_many_arguments)] // each is a parameter
    async fn load(
        &self,
        caller: Caller<Admin>,
        state: State<'_>,
        progress: Progress,
        /// Unique identifier of the product.
        id: Path<i64>,
        /// Face value of CSV rows without a `denomination`.
        denomination: Query<Option<String>>,
        /// Cost of CSV rows without a `cost`, in the product's currency. Default: unknown.
        cost: Query<Option<String>>,
        /// Reference of a CSV upload at the supplier, such as the number of an invoice.
        #[oai(validator(min_length = 1, max_length = 100))]
        supplier_reference: Query<Option<String>>,
        body: Upload,
    ) -> Result<Reply<StockLoaded>, ApiError> {
        let id = ProductId(id.0);
        let defaults = Defaults {
            denomination: denomination.0.as_deref().map(face_value).transpose()?,
            cost: cost.0.as_deref().map(price).transpose()?,
            supplier_reference: supplier_reference.0.map(one_line).transpose()?,
        };
        let Vouchers { good, supplier_reference, rejected } = body.vouchers(defaults)?;
        let product = catalogue::find(state.ledger.pool(), id).await?.ok_or_else(not_found)?;
        let mut loaded = StockLoaded::default();
        loaded.rejected.extend(rejected.into_iter().map(|(row, reason)| RejectedRow { row, reason }));
        // If no row has a valid denomination, the whole upload is refused before anything is added.
        let includes = |denomination| product.details.denominations.include(denomination);
        if !good.is_empty() && good.iter().all(|priced| !includes(priced.denomination)) {
            return Err(ApiError::new(Code::InvalidDenomination));
        }
        let mut chunks: Vec<commands::LoadVouchers> = Vec::new();
        for Priced { denomination, cost, voucher } in good {
            if !includes(denomination) {
                let reason = "denomination is not available for this product".to_owned();
                loaded.rejected.push(RejectedRow { row: voucher.row, reason });
                continue;
            }
            let is_open = |chunk: &&mut commands::LoadVouchers| {
                (chunk.denomination, chunk.cost) == (denomination, cost) && chunk.vouchers.len() < CHUNK
            };
            if let Some(chunk) = chunks.iter_mut().rev().find(is_open) {
                chunk.vouchers.push(voucher);
            } else {
                let (vouchers, supplier_reference) = (vec![voucher], supplier_reference.clone());
                chunks.push(commands::LoadVouchers { product_id: id, denomination, vouchers, cost, supplier_reference });
            }
        }
        let total = chunks.iter().map(|chunk| chunk.vouchers.len()).sum();
        let mut done = 0;
        for command in chunks {
            progress.tell(done, total);
            done += command.vouchers.len();
            let answer = state.ledger.execute(FIRST_SHARD, command, origin(caller.0.0.actor())).await;
            let answer = answer.map_err(|error| loaded.broken_off(error.into()))?;
            let chunk = answered!(answer, CommandResult::Stock(chunk) => chunk)?;
            loaded.accepted += i64::from(chunk.accepted);
            loaded.duplicates += i64::from(chunk.duplicates);
            loaded.duplicate_rows.extend(chunk.duplicate_rows);
            loaded
                .rejected
                .extend(chunk.rejected.into_iter().map(|(row, reason)| RejectedRow { row, reason: reason.to_owned() }));
        }
        loaded.rejected.sort_by_key(|rejected| rejected.row);
        loaded.duplicate_rows.sort_unstable();
        loaded.duplicate_rows.truncate(MAX_DUPLICATE_ROWS);
        Ok(Reply(loaded))
    }

    /// Retrieve the stock
    ///
    /// Returns the stock of a product by denomination, smallest first. A denomination with a threshold is included even if
    /// there has never been a voucher of it.
    #[oai(path = "/products/:id/stock", method = "get", operation_id = "get_stock")]
    async fn levels(
        &self,
        _caller: Caller<Operator>,
        state: State<'_>,
        /// Unique identifier of the product.
        id: Path<i64>,
    ) -> Result<Listed<StockLevel>, ApiError> {
        let id = ProductId(id.0);
        let pool = state.ledger.pool();
        let details = catalogue::find(pool, id).await?.ok_or_else(not_found)?.details;
        let shards = state.ledger.shards();
        let mut levels = stock::levels(pool, &shards, id).await?;
        for threshold in &details.stock_thresholds {
            let denomination = threshold.denomination.decimal();
            if levels.iter().all(|level| level.denomination != denomination) {
                levels.push(stock::Level { denomination, available: 0, allocated: 0, expired: 0, voided: 0 });
            }
        }
        levels.sort_by_key(|level| level.denomination);
        let thresholds: HashMap<_, _> =
            details.stock_thresholds.iter().map(|threshold| (threshold.denomination.decimal(), threshold.least)).collect();
        let level = |level: stock::Level| {
            let threshold = thresholds.get(&level.denomination).copied();
            StockLevel::of(level, threshold)
        };
        Ok(Listed::whole(levels.into_iter().map(level).collect()))
    }

    /// List the vouchers of a product
    ///
    /// Returns the vouchers of a product's stock without their codes, the last one that was added first. `GET
    /// /admin/v1/products/{id}/stock` counts the same vouchers.
    #[oai(path = "/products/:id/vouchers", method = "get", operation_id = "list_stocked_vouchers")]
    #[allow(clippy::too_many_arguments)] // each is a parameter
    async fn list(
        &self,
        _caller: Caller<Operator>,
        state: State<'_>,
        /// Unique identifier of the product.
        id: Path<i64>,
        /// Page number, from 1. Default: 1.
        page: Query<Option<i64>>,
        /// Vouchers per page, 1 to 100. Default: 20.
        limit: Query<Option<i64>>,
        /// Only vouchers of this face value.
        denomination: Query<Option<String>>,
        /// Only vouchers with this status.
        status: Query<Option<VoucherStatus>>,
    ) -> Result<Listed<StockedVoucher>, ApiError> {
        let page = Page::of(page.0, limit.0, 20, 100)?;
        let denomination = denomination.0.as_deref().map(face_value).transpose()?;
        let id = ProductId(id.0);
        catalogue::find(state.ledger.pool(), id).await?.ok_or_else(not_found)?;
        let shards = state.ledger.shards();
        let filter = (denomination, status.0.map(Into::into));
        let found = stock::list(&state.read_pool(), &shards, id, filter, rows_of(page)).await?;
        Ok(listed(found, page, StockedVoucher::from))
    }

    /// Set a stock threshold
    ///
    /// Sets the number of available vouchers of one denomination below which the stock is low. Low stock is shown with the
    /// stock and by the metric `ledger_stock_low`.
    #[oai(path = "/products/:id/stock-threshold", method = "put", operation_id = "set_stock_threshold")]
    async fn set_threshold(
        &self,
        caller: Caller<Admin>,
        state: State<'_>,
        /// Unique identifier of the product.
        id: Path<i64>,
        body: StrictJson<StockThreshold>,
    ) -> Result<Reply<StockThreshold>, ApiError> {
        let StockThreshold { denomination, threshold } = body.0;
        let face_value = crate::api::state::money("denomination", denomination.0)?;
        let command = commands::SetStockThreshold { product_id: ProductId(id.0), denomination: face_value, least: threshold };
        let answer = state.ledger.execute(FIRST_SHARD, command, origin(caller.0.0.actor())).await?;
        answered!(answer, CommandResult::Product(_) => ())?;
        Ok(Reply(StockThreshold { denomination, threshold }))
    }
}

fn price(text: &str) -> Result<Amount, ApiError> {
    let amount = text.parse::<Amount>().ok().filter(|amount| *amount >= Amount::ZERO);
    amount.ok_or_else(|| ApiError::invalid("cost", "must be an amount such as 95.50"))
}

fn one_line(text: String) -> Result<String, ApiError> {
    match text.chars().any(char::is_control) || text.chars().all(char::is_whitespace) || text.chars().count() > 100 {
        true => Err(ApiError::invalid("supplier_reference", "must be a line of at most 100 characters")),
        false => Ok(text),
    }
}

fn face_value(text: &str) -> Result<Amount, ApiError> {
    let amount = text.parse::<Amount>().ok().filter(|amount| amount.is_positive());
    amount.ok_or_else(|| ApiError::invalid("denomination", "must be an amount such as 100.00"))
}
