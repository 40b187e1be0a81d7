//! The HTTP interface: one file per resource, on a small foundation of strict bodies, one error
//! envelope and one edge.

pub mod allow;
pub mod auth;
pub mod body;
pub mod document;
pub mod edge;
pub mod error;
pub mod fields;
pub mod page;
pub mod principal;
pub mod readers;
pub mod reply;
pub mod request_id;
pub mod scalars;
#[cfg(test)]
mod tests;
