//! Sending webhooks: what is due is claimed, sent and recorded.

pub mod address;
pub mod claim;
pub mod record;
pub mod replay;
pub mod retention;
pub mod schedule;
pub mod sender;
pub mod signature;
pub mod worker;
