//! The transparency log: publication, refusals, and detection of changes.

mod growth;
mod interoperability;
mod mirror;
mod processes;
mod proofs;
mod published;
mod refusals;
mod signed;
mod tampering;
pub mod witnesses;
