//! The one integration binary: a real Postgres, real HTTPS receivers, the program itself.
#![allow(clippy::unwrap_used)]

mod api;
mod cli;
mod kill;
mod support;
mod writer;
