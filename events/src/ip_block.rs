//! Blocks of IPs that logged in too often. They come and go by themselves, which is no event; that
//! an operator lifts one is.

use serde::{Deserialize, Serialize};

/// An operator ended the block before its time.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct IpBlockLifted {
    /// Of the address, which stands in the vault.
    pub ip_hash: String,
}

crate::codec::stream_events! {
    /// What can happen to a block.
    IpBlockEvent {
        IpBlockLifted = 1,
    }
}
