//! Webhook dispatch: the worker claims due deliveries, sends them and records the results.

pub mod address;
pub mod claim;
mod connections;
mod queue;
pub mod record;
pub mod replay;
pub(crate) mod resolver;
pub mod retention;
pub mod schedule;
pub mod sender;
mod share;
pub mod signature;
pub mod worker;
