//! Nodes after an asynchronous failover that lost commits: the log continues with other events than those that a node
//! has seen.

mod followers;
mod hosts;
mod incident;
mod signers;
mod standby;
mod writer;
