//! Rolling upgrades: the schema expands under running nodes, and nodes of the last release work beside nodes of this
//! build.

mod collation;
mod columns;
mod expansion;
mod load;
mod locks;
mod upgrade;
