//! The HTTP interface.

mod access;
mod access_log;
mod at_rest;
mod audited;
mod away;
mod bodies;
mod callers;
mod charges;
mod cross_site;
mod documents;
mod gate;
mod guessing;
mod idempotency;
mod images;
mod limits;
mod metadata;
mod metrics;
mod operator;
mod orders;
mod payouts;
mod products;
mod reference;
pub mod routes;
mod sessions;
mod signing;
mod statements;
mod webhooks;
