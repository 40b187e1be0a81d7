//! The integration tests, but for the models in `tests/models`. They use a real Postgres, real HTTPS receivers, and the
//! program itself.
#![allow(clippy::unwrap_used)]

mod api;
mod architecture;
mod audit;
mod backup;
mod cli;
mod contract;
mod delivery;
mod edge;
mod erasure;
mod export;
mod failover;
mod faults;
mod fulfilment;
mod handover;
mod histories;
mod history;
mod keys;
mod kill;
mod lists;
mod log;
mod pages;
mod payouts;
mod pooler;
mod reconciliation;
mod recovery;
mod rollout;
mod sandbox;
mod shards;
mod support;
mod takeover;
mod traces;
mod transparency;
mod writer;
