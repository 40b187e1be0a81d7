//! The HTTP interface.

mod access;
mod bodies;
mod documents;
mod idempotency;
mod operator;
mod orders;
mod webhooks;
