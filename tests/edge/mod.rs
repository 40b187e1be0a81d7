//! The edge between a node and the network: floods, slow clients, early refusals, and input that is not HTTP.

mod floods;
mod operators;
mod outages;
mod refusals;
mod slow;
mod tls;
mod wire;
