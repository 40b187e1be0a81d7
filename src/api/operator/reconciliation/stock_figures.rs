//! The voucher stock of a reconciliation.

use chrono::NaiveDate;
use poem_openapi::Object;
use serde::Serialize;

use crate::api::scalars::Money;
use crate::reconciliation::{StockDay, StockFigures, StockLot};

/// A number of vouchers, and what they cost.
#[derive(Object, Serialize)]
struct StockCount {
    /// Number of vouchers.
    vouchers: i64,
    /// Number of those without a known cost.
    unpriced: i64,
    /// Cost of the others.
    cost: Money,
}

impl From<StockLot> for StockCount {
    fn from(lot: StockLot) -> Self {
        Self { vouchers: lot.vouchers, unpriced: lot.unpriced, cost: lot.cost.into() }
    }
}

/// Voucher stock of a currency: `opening` + `loaded` − `allocated` − `voided` − `expired` = `closing`.
#[derive(Object, Serialize)]
pub(super) struct StockTotals {
    /// Currency, as an ISO 4217 code.
    currency: String,
    /// Stock at the start of the first day.
    opening: StockCount,
    /// Vouchers that were added.
    loaded: StockCount,
    /// Vouchers that orders got.
    allocated: StockCount,
    /// Vouchers that operators voided.
    voided: StockCount,
    /// Vouchers that expired before an order got them. Recorded once vouchers are loaded with a cost.
    expired: StockCount,
    /// Vouchers that moved from one product of the currency to another one. They change no sum.
    transferred: StockCount,
    /// Stock at the end of the last day.
    closing: StockCount,
    /// Money that customers paid for the allocated vouchers.
    sales: Money,
    /// `sales` minus the cost of the allocated vouchers. Vouchers without a known cost count as free.
    margin: Money,
}

impl From<StockFigures> for StockTotals {
    fn from(figures: StockFigures) -> Self {
        Self {
            currency: figures.currency,
            opening: figures.opening.into(),
            loaded: figures.loaded.into(),
            allocated: figures.allocated.into(),
            voided: figures.voided.into(),
            expired: figures.expired.into(),
            transferred: figures.transferred.into(),
            closing: figures.closing.into(),
            sales: figures.sales.into(),
            margin: figures.margin.into(),
        }
    }
}

/// Voucher stock of a currency on a day.
#[derive(Object, Serialize)]
pub(super) struct StockDayTotals {
    /// UTC day.
    day: NaiveDate,
    #[oai(flatten)]
    #[serde(flatten)]
    figures: StockTotals,
}

impl From<StockDay> for StockDayTotals {
    fn from(of: StockDay) -> Self {
        Self { day: of.day, figures: of.figures.into() }
    }
}
