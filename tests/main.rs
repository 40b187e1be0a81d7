//! One binary for all integration tests, against a real Postgres and real HTTPS receivers.
#![allow(clippy::unwrap_used)]

mod delivery;
mod fulfilment;
mod support;
