//! `/admin/v1/products/:id/vouchers/void`, `/expiry` and `/transfer`: changes of vouchers that an operator names by their references.

use chrono::NaiveDate;
use ledger_events::ProductId;
use poem_openapi::param::Path;
use poem_openapi::{Object, OpenApi};
use serde::Serialize;

use crate::api::body::StrictJson;
use crate::api::error::ApiError;
use crate::api::fields::{Fields, FromFields};
use crate::api::outcome::answered;
use crate::api::principal::{Admin, Caller};
use crate::api::readers::{date, integer, line, list, text};
use crate::api::reply::Reply;
use crate::api::state::{State, Tag, origin};
use crate::ledger::reasons::MAX_REASON;
use crate::ledger::{CommandResult, FIRST_SHARD, commands};
use crate::secrets::seal::Secret;

/// Maximum number of vouchers in a request, so that its transaction does not delay others.
const MAX_VOUCHERS: usize = 1_000;

/// Reads the reference numbers that each of the requests has.
fn references(fields: &mut Fields<'_>) -> Vec<String> {
    fields.required("vouchers", list(1..=MAX_VOUCHERS, || line(1..=100)))
}

/// Vouchers to withdraw from the stock.
#[derive(Object)]
struct VoidVouchers {
    /// Reference numbers of the vouchers, at most 1,000.
    #[oai(validator(min_items = 1, max_items = 1000))]
    vouchers: Vec<String>,
    /// Reason for the withdrawal. Stored encrypted.
    #[oai(validator(min_length = 1, max_length = 500))]
    reason: String,
}

impl FromFields for VoidVouchers {
    fn from_fields(fields: &mut Fields<'_>) -> Self {
        Self { vouchers: references(fields), reason: fields.required("reason", text(1..=MAX_REASON)) }
    }
}

/// Result of a withdrawal of vouchers.
#[derive(Object, Serialize)]
struct StockVoided {
    /// Number of vouchers that were voided.
    voided: i32,
    /// Number of vouchers that were voided before.
    already_voided: i32,
    /// Vouchers that stay as they are, each with the reason.
    refused: Vec<RefusedVoucher>,
}

/// A voucher that stays as it is.
#[derive(Object, Serialize)]
struct RefusedVoucher {
    /// Reference number of the voucher.
    voucher_reference_number: String,
    /// Reason for the refusal.
    reason: String,
}

impl RefusedVoucher {
    fn all(refused: Vec<(String, String)>) -> Vec<RefusedVoucher> {
        let one = |(voucher_reference_number, reason)| RefusedVoucher { voucher_reference_number, reason };
        refused.into_iter().map(one).collect()
    }
}

/// Vouchers, and their new last day.
#[derive(Object)]
struct SetVoucherExpiry {
    /// Reference numbers of the vouchers, at most 1,000.
    #[oai(validator(min_items = 1, max_items = 1000))]
    vouchers: Vec<String>,
    /// Last day (UTC) of the vouchers. A day in the past expires them at once.
    expires_on: NaiveDate,
}

impl FromFields for SetVoucherExpiry {
    fn from_fields(fields: &mut Fields<'_>) -> Self {
        Self { vouchers: references(fields), expires_on: fields.required("expires_on", date) }
    }
}

/// Result of setting the last day of vouchers.
#[derive(Object, Serialize)]
struct StockExpiry {
    /// Number of vouchers with a new last day.
    changed: i32,
    /// Number of vouchers that have this last day already.
    unchanged: i32,
    /// Vouchers that stay as they are, each with the reason.
    refused: Vec<RefusedVoucher>,
}

/// Vouchers to move to another product.
#[derive(Object)]
struct TransferVouchers {
    /// Reference numbers of the vouchers, at most 1,000.
    #[oai(validator(min_items = 1, max_items = 1000))]
    vouchers: Vec<String>,
    /// Unique identifier of the product that gets the vouchers. It has the same currency.
    to_product_id: i64,
    /// Reason for the transfer. Stored encrypted.
    #[oai(validator(min_length = 1, max_length = 500))]
    reason: String,
}

impl FromFields for TransferVouchers {
    fn from_fields(fields: &mut Fields<'_>) -> Self {
        Self {
            vouchers: references(fields),
            to_product_id: fields.required("to_product_id", integer(1..=i64::MAX)),
            reason: fields.required("reason", text(1..=MAX_REASON)),
        }
    }
}

/// Result of a transfer of vouchers.
#[derive(Object, Serialize)]
struct StockTransferred {
    /// Number of vouchers that were moved.
    transferred: i32,
    /// Number of vouchers that the other product has already.
    already_there: i32,
    /// Vouchers that stay as they are, each with the reason.
    refused: Vec<RefusedVoucher>,
}

pub struct NamedVouchers;

#[OpenApi(prefix_path = "/admin/v1", tag = "Tag::Catalogue")]
impl NamedVouchers {
    /// Void vouchers
    ///
    /// Withdraws vouchers from a product's stock, so that no order gets them. A voucher that is allocated to an order
    /// cannot be voided. Voiding cannot be undone.
    #[oai(path = "/products/:id/vouchers/void", method = "post", operation_id = "void_vouchers")]
    async fn void(
        &self,
        caller: Caller<Admin>,
        state: State<'_>,
        /// Unique identifier of the product.
        id: Path<i64>,
        body: StrictJson<VoidVouchers>,
    ) -> Result<Reply<StockVoided>, ApiError> {
        let VoidVouchers { vouchers: references, reason } = body.0;
        let command = commands::VoidVouchers { product_id: ProductId(id.0), references, reason: Secret::new(reason) };
        let answer = state.ledger.execute(FIRST_SHARD, command, origin(caller.0.0.actor())).await?;
        let result = answered!(answer, CommandResult::StockVoided(result) => result)?;
        Ok(Reply(StockVoided {
            voided: result.voided,
            already_voided: result.already_voided,
            refused: RefusedVoucher::all(result.refused),
        }))
    }

    /// Expire vouchers
    ///
    /// Gives vouchers of a product's stock an earlier last day, so that no order gets them after it. A voucher that is unknown,
    /// voided, allocated to an order, or that expires earlier, stays as it is. This cannot be undone: a last day cannot be later.
    #[oai(path = "/products/:id/vouchers/expiry", method = "post", operation_id = "set_voucher_expiry")]
    async fn set_expiry(
        &self,
        caller: Caller<Admin>,
        state: State<'_>,
        /// Unique identifier of the product.
        id: Path<i64>,
        body: StrictJson<SetVoucherExpiry>,
    ) -> Result<Reply<StockExpiry>, ApiError> {
        let SetVoucherExpiry { vouchers: references, expires_on } = body.0;
        let command = commands::SetVoucherExpiry { product_id: ProductId(id.0), references, expires_on };
        let answer = state.ledger.execute(FIRST_SHARD, command, origin(caller.0.0.actor())).await?;
        let result = answered!(answer, CommandResult::StockExpiry(result) => result)?;
        Ok(Reply(StockExpiry {
            changed: result.changed,
            unchanged: result.unchanged,
            refused: RefusedVoucher::all(result.refused),
        }))
    }

    /// Transfer vouchers
    ///
    /// Moves vouchers from a product's stock to that of another product of the same currency, such as its successor. Orders of the
    /// other product then get them, those that wait within seconds. A voucher that is unknown, voided, expired or allocated to an
    /// order stays where it is, and so does one whose face value the other product lacks, or whose card number it has.
    #[oai(path = "/products/:id/vouchers/transfer", method = "post", operation_id = "transfer_vouchers")]
    async fn transfer(
        &self,
        caller: Caller<Admin>,
        state: State<'_>,
        /// Unique identifier of the product that gives the vouchers.
        id: Path<i64>,
        body: StrictJson<TransferVouchers>,
    ) -> Result<Reply<StockTransferred>, ApiError> {
        let TransferVouchers { vouchers: references, to_product_id, reason } = body.0;
        let (product_id, to_product_id, reason) = (ProductId(id.0), ProductId(to_product_id), Secret::new(reason));
        let command = commands::TransferVouchers { product_id, to_product_id, references, reason };
        let answer = state.ledger.execute(FIRST_SHARD, command, origin(caller.0.0.actor())).await?;
        let result = answered!(answer, CommandResult::StockTransferred(result) => result)?;
        Ok(Reply(StockTransferred {
            transferred: result.transferred,
            already_there: result.already_there,
            refused: RefusedVoucher::all(result.refused),
        }))
    }
}
