//! The one integration binary: a real Postgres, real HTTPS receivers, the program itself.
#![allow(clippy::unwrap_used)]

mod api;
mod kill;
mod support;
mod writer;
