//! Several nodes on one database: one leads the shard, and the others hand their commands to it. Outcomes mean the same through
//! every node, also while the leader dies, stops, or is paused.

mod ends;
mod fulfilment;
mod load;
mod nodes;
mod outcomes;
mod paused;
mod reads;
mod settings;
mod strangers;
mod wiretap;
