//! Events of the voucher stock, in the stream of their product.

use chrono::NaiveDate;
use serde::{Deserialize, Serialize};

use super::ProductEvent;
use crate::{Money, Position, ProductId, ShardId};

/// An addition of vouchers to the stock. The vault stores their sealed codes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct VoucherStockLoaded {
    pub denomination: Money,
    pub accepted: i32,
    pub duplicates: i32,
    /// Cost of each voucher, in the product's currency. This field and the next two are newer than the others. The payload
    /// omits them if nobody has given them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cost: Option<Money>,
    /// The supplier's name of the load, such as the number of an invoice.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub supplier_reference: Option<String>,
    /// References of the accepted vouchers, if they have a cost. The cost of a voucher that leaves the stock follows from them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub vouchers: Vec<String>,
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

/// Vouchers that leave the stock of a product for that of another one. The other product's stream has the
/// [`VouchersTransferredIn`] of the same command.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct VouchersTransferredOut {
    pub to_product_id: ProductId,
    /// References of the vouchers.
    pub vouchers: Vec<String>,
    /// Salted hash of the reason. The vault keeps the reason under the position of this event.
    pub reason_hash: String,
}

/// Vouchers that come from the stock of another product.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct VouchersTransferredIn {
    pub from_product_id: ProductId,
    /// References of the vouchers.
    pub vouchers: Vec<String>,
}

/// Vouchers that leave the stock of a shard for that of another one, where orders wait for them. One transaction appends this
/// event, and the [`VouchersMovedIn`] to the log of the other shard.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct VouchersMovedOut {
    pub to_shard: ShardId,
    /// Position of the other event, in the log of the other shard.
    pub position: Position,
    /// References of the vouchers.
    pub vouchers: Vec<String>,
}

/// Vouchers that come from the stock of another shard.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct VouchersMovedIn {
    pub from_shard: ShardId,
    /// Position of the [`VouchersMovedOut`], in the log of the other shard.
    pub position: Position,
    pub denomination: Money,
    pub lots: Vec<MovedLot>,
}

/// Vouchers of one cost. The loads that name it are in the log of another shard.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct MovedLot {
    /// Cost of each voucher, in the product's currency. The payload omits it if it is unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cost: Option<Money>,
    /// References of the vouchers.
    pub vouchers: Vec<String>,
}

/// The end of vouchers that have expired before an order got them.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct VouchersExpired {
    /// References of the vouchers.
    pub vouchers: Vec<String>,
}

/// Supplier from whom vouchers are bought when the stock has none, and the supplier's name of the product.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProductSupplier {
    /// Name of the supplier in the settings.
    pub name: String,
    pub sku: String,
}

/// A new supplier of a product. `supplier` is `None` if nothing is to be bought any more.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ProductSupplierSet {
    pub supplier: Option<ProductSupplier>,
}

/// A new threshold for a warning about low stock. `least` is `None` to remove the threshold.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StockThresholdSet {
    pub denomination: Money,
    pub least: Option<i32>,
}

impl ProductEvent {
    /// Returns whether the event changes a product's stock, and not the product. In shards other than the first, the product's
    /// stream has only such events.
    pub fn is_of_stock(&self) -> bool {
        match self {
            Self::VoucherStockLoaded(_)
            | Self::VouchersVoided(_)
            | Self::VoucherExpirySet(_)
            | Self::VouchersExpired(_)
            | Self::VouchersTransferredOut(_)
            | Self::VouchersTransferredIn(_)
            | Self::VouchersMovedOut(_)
            | Self::VouchersMovedIn(_) => true,
            Self::ProductAdded(_)
            | Self::ProductChanged(_)
            | Self::ProductImageSet(_)
            | Self::StockThresholdSet(_)
            | Self::ProductSupplierSet(_) => false,
        }
    }
}
