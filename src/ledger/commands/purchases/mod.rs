//! Purchases of vouchers from suppliers.

mod receive;
mod record;
mod request;

pub use receive::ReceivePurchase;
pub use record::RecordPurchase;
pub use request::RequestPurchase;
