//! The HTTP interface.

mod access;
mod at_rest;
mod bodies;
mod documents;
mod idempotency;
mod operator;
mod orders;
mod webhooks;
