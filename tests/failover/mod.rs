//! Nodes after an asynchronous failover that lost commits: the log continues with other events than those that a node
//! has seen. Nodes that read from a standby, and servers that take over from each other.

mod followers;
mod hosts;
mod incident;
mod reads;
mod routing;
mod signers;
mod standby;
mod writer;
