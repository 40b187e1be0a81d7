//! Things that pages of clients and of operators show alike.

pub mod attempts;
pub mod counting;
pub mod deactivation;
pub mod delivery;
pub mod live;
pub mod order;
pub mod story;
pub mod transaction;
