//! Webhook dispatch: the worker claims due deliveries, sends them and records the results.

pub mod claim;
pub mod days;
pub mod failing;
pub mod oldest;
pub mod overview;
pub mod queue;
pub mod record;
pub mod replay;
pub mod retention;
pub mod schedule;
mod scheduler;
mod share;
pub mod worker;
