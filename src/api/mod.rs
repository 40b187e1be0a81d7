//! The HTTP interface. Each resource has one file. All of them share strict body parsing, one error envelope and one
//! outermost middleware.

pub mod allow;
pub mod auth;
mod beneficiaries;
pub mod body;
mod browser_headers;
mod charges;
pub mod compatibility;
mod conditional;
mod credentials;
mod cross_site;
mod deliveries;
pub mod document;
pub mod edge;
pub mod error;
pub mod fields;
mod guides;
pub mod idempotency;
mod images;
mod lifecycle;
mod log;
mod operator;
mod orders;
pub mod outcome;
pub mod page;
mod payouts;
mod portal;
pub mod principal;
mod probes;
mod products;
mod queries;
pub mod readers;
mod reference;
pub mod reply;
pub mod request_id;
mod sandbox;
pub mod scalars;
mod serve;
mod sessions;
mod source;
mod state;
mod statements;
#[cfg(test)]
mod tests;
mod transactions;
mod user_auth;
mod vouchers;
mod wallets;
mod webhooks;

pub(crate) use guides::VECTORS;
pub use lifecycle::Lifecycle;
pub(crate) use operator::{AnyOrder, AnyWallet, OrderHistory};
pub use serve::{Surface, app, documents};
pub use state::ApiState;
