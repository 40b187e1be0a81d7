//! What makes the pages of an account's orders and deliveries fast, however many there are: marks
//! at every [`EVERY`]th row, and counts. A reader adds what came after them, in one snapshot, so
//! its totals are true however far behind they are.
//!
//! Nothing of it is written with an order. Rows are never deleted and their keys only grow, so an
//! ordinal, once given, stands; and the counts of orders follow the log.

pub mod derive;
pub mod marks;
pub mod pages;
pub mod stretches;

/// Rows from one mark to the next.
pub const EVERY: i64 = 500;
