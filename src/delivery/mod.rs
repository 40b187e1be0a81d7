//! Webhook dispatch: the worker claims due deliveries, sends them and records the results.

pub mod claim;
mod queue;
pub mod record;
pub mod replay;
pub mod retention;
pub mod schedule;
mod share;
pub mod worker;
