//! What tests stand on.

pub mod node;
pub mod postgres;
