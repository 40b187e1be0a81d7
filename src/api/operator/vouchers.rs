//! Vouchers of the stock without their codes, as `GET /admin/v1/products/:id/vouchers` lists them.

use chrono::NaiveDate;
use poem_openapi::{Enum, Object};
use serde::Serialize;

use crate::api::mirror::mirror;
use crate::api::reply::Plural;
use crate::api::scalars::Money;
use crate::ledger::stock::{self, VoucherState};

/// Status of a voucher.
///
/// - `AVAILABLE`: an order can get it.
/// - `ALLOCATED`: an order has it.
/// - `EXPIRED`: it expired before an order got it.
/// - `VOIDED`: an operator has withdrawn it.
#[derive(Clone, Copy, Debug, Enum, Serialize)]
#[oai(rename_all = "SCREAMING_SNAKE_CASE")]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum VoucherStatus {
    Available,
    Allocated,
    Expired,
    Voided,
}

mirror!(VoucherStatus, VoucherState: Available, Allocated, Expired, Voided);

/// A voucher of the stock.
#[derive(Object, Serialize)]
pub struct StockedVoucher {
    /// Reference number of the voucher.
    voucher_reference_number: String,
    /// Face value.
    denomination: Money,
    /// Status of the voucher.
    status: VoucherStatus,
    /// Last day (UTC); null without one.
    expires_on: Option<NaiveDate>,
    /// Order that has the voucher; null unless the status is `ALLOCATED`.
    order_id: Option<i64>,
}

impl Plural for StockedVoucher {
    const PLURAL: &'static str = "vouchers";
}

impl From<stock::StockedVoucher> for StockedVoucher {
    fn from(voucher: stock::StockedVoucher) -> Self {
        Self {
            voucher_reference_number: voucher.reference,
            denomination: Money(voucher.denomination),
            status: voucher.state.into(),
            expires_on: voucher.expires_on,
            order_id: voucher.order_id.map(|order| order.0),
        }
    }
}
