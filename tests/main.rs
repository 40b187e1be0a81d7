//! Everything against a real Postgres.
#![allow(clippy::unwrap_used)]

mod audit;
mod log;
mod support;
