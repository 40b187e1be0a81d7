//! An event-sourced order ledger for digital rewards, on Postgres. Start with `ARCHITECTURE.md`.

pub mod access;
pub mod api;
pub mod audit;
mod batching;
pub mod cli;
pub mod config;
pub mod delivery;
mod duration;
pub mod embedded;
pub mod export;
pub mod fulfilment;
pub mod heartbeat;
pub mod http;
mod key_rotation;
pub mod ledger;
pub mod mail;
pub mod node;
pub mod pages;
pub mod reconciliation;
mod response_body;
pub mod sandbox;
pub mod secrets;
mod spreadsheet;
pub mod telemetry;
pub mod transparency;
