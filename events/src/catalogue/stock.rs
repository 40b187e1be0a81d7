//! Events of the voucher stock.

use chrono::NaiveDate;
use serde::{Deserialize, Serialize};

use crate::Money;

/// An addition of vouchers to the stock. The vault stores their sealed codes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct VoucherStockLoaded {
    pub denomination: Money,
    pub accepted: i32,
    pub duplicates: i32,
}

/// A withdrawal of vouchers from the stock. No order gets them any more.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct VouchersVoided {
    /// References of the vouchers.
    pub vouchers: Vec<String>,
    /// Salted hash of the reason. The vault keeps the reason under the position of this event.
    pub reason_hash: String,
}

/// An earlier last day of vouchers. No order gets them after it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct VoucherExpirySet {
    /// References of the vouchers.
    pub vouchers: Vec<String>,
    /// Last day (UTC) of the vouchers.
    pub expires_on: NaiveDate,
}

/// A new threshold for a warning about low stock. `least` is `None` to remove the threshold.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StockThresholdSet {
    pub denomination: Money,
    pub least: Option<i32>,
}
