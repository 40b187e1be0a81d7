//! Rolling upgrades: the schema expands under running nodes, nodes of the last release work beside nodes of this build, and
//! nodes behind a load balancer restart one by one.

mod collation;
mod columns;
mod expansion;
mod load;
mod locks;
mod plans;
mod restarts;
mod upgrade;
