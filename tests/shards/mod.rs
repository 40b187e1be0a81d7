//! Several shards: how one is added, how its ids look, and what the shards do side by side.

mod growing;
mod ids;
mod lifecycle;
mod stock;
