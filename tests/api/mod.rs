//! The HTTP interface.

mod access;
mod at_rest;
mod away;
mod bodies;
mod documents;
mod idempotency;
mod limits;
mod metadata;
mod metrics;
mod operator;
mod orders;
mod payouts;
mod products;
mod routes;
mod sessions;
mod signing;
mod webhooks;
