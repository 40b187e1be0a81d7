//! Tests of the library: against the vectors, a scripted server, the web frameworks, and a live sandbox.
#![allow(clippy::unwrap_used)]

mod calls;
mod lists;
mod retries;
mod sandbox;
mod secrets;
mod server;
mod vectors;
mod webhooks;
