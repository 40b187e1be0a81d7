//! Fast pagination of an account's orders and deliveries, whatever their number.
//!
//! Two kinds of derived data make it fast: page anchors at every [`ROWS_PER_ANCHOR`]th row (tables `order_marks` and
//! `delivery_marks`), and counts. A reader adds the rows and changes that are newer than this data, in one
//! snapshot. Its totals are therefore exact, however far behind the data is.
//!
//! Placing an order writes none of it. Rows are never deleted and their keys only grow, so an ordinal stays valid
//! forever. The counts of orders follow the log.

pub mod maintain;
pub mod moves;
pub mod page_anchors;
pub mod pages;
pub mod segments;

/// Number of rows from one anchor to the next.
pub const ROWS_PER_ANCHOR: i64 = 500;
