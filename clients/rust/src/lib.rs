#![doc = include_str!("../README.md")]

pub mod amount;
mod call;
mod client;
mod error;
mod feed;
pub mod models;
mod operations;
mod retry;
mod secret;
pub mod signing;
pub mod webhook;

pub use amount::Amount;
pub use call::{Call, Page, Response};
pub use client::{Client, Credentials, Reply, Request};
pub use error::{ApiError, Error};
pub use feed::{EventFeed, FeedEvent};
pub use operations::*;
pub use retry::RetryPolicy;
pub use rust_decimal::Decimal;
pub use secret::Secret;
