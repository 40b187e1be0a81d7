//! The HTTP interface.

mod access;
mod at_rest;
mod bodies;
mod documents;
mod idempotency;
mod metrics;
mod operator;
mod orders;
mod products;
mod webhooks;
