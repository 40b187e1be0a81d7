//! The HTTP interface.

mod access;
mod access_log;
mod at_rest;
mod audited;
mod away;
mod bodies;
mod callers;
mod charges;
mod documents;
mod gate;
mod idempotency;
mod images;
mod limits;
mod metadata;
mod metrics;
mod operator;
mod orders;
mod payouts;
mod products;
mod queries;
mod reference;
pub mod routes;
mod sessions;
mod signing;
mod statements;
mod webhooks;
