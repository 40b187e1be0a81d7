//! Rolling upgrades: the schema grows under nodes that work, and nodes of the last release work beside those of this build.

mod collation;
mod columns;
mod expansion;
mod load;
mod locks;
mod upgrade;
