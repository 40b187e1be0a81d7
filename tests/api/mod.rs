//! The HTTP interface.

mod access;
mod away;
mod bodies;
mod documents;
mod idempotency;
mod metadata;
mod operator;
mod orders;
mod webhooks;
