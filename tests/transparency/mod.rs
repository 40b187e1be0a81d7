//! The transparency log: what is published, what is refused, what is found.

mod growth;
mod interoperability;
mod mirror;
mod processes;
mod proofs;
mod published;
mod refusals;
mod signed;
mod tampering;
mod witnesses;
