//! Sending webhooks: what is due is claimed, sent and recorded.

pub mod address;
pub mod sender;
pub mod signature;
