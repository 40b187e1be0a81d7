//! Sending webhooks: what is due is claimed, sent and recorded.

pub mod address;
pub mod claim;
mod queue;
pub mod record;
pub mod schedule;
pub mod sender;
mod share;
pub mod signature;
pub mod worker;
