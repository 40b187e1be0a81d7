//! What a node does after an asynchronous failover that lost commits: the log goes on with other events than those that
//! the node knows of.

mod followers;
mod incident;
mod signers;
mod writer;
