//! Things that pages of clients and of operators show alike.

pub mod attempt_days;
pub mod attempts;
pub mod counting;
pub mod deactivation;
pub mod delivery;
pub mod delivery_headers;
pub mod live;
pub mod order;
pub mod replay;
pub mod story;
pub mod transaction;
