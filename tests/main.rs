//! The service as a whole, against a real Postgres.
#![allow(clippy::unwrap_used, unreachable_pub)]

mod api;
mod support;
