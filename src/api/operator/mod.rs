//! `/admin/v1`: the operators' API. Admins may do everything, finance may move money, and every role may read.

mod accounts;
mod bank_statements;
mod catalogue;
mod credentials;
mod events;
mod history;
mod images;
mod ip_blocks;
mod orders;
mod payouts;
mod receipts;
mod reconciliation;
mod replays;
mod statements;
mod stock;
mod upload;
mod users;
mod wallets;

pub use accounts::Accounts;
pub use bank_statements::BankStatements;
pub use catalogue::Catalogue;
pub use credentials::Credentials;
pub use events::Events;
pub use history::{Histories, OrderHistory};
pub use images::Images;
pub use ip_blocks::IpBlocks;
pub use orders::{AnyOrder, Orders};
pub use payouts::Payouts;
pub use receipts::Receipts;
pub use reconciliation::Reconciliation;
pub use replays::Replays;
pub use statements::Statements;
pub use stock::Stock;
pub use users::Users;
pub use wallets::{AnyWallet, Wallets};
