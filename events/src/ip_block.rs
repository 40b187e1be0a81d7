//! Blocks of IP addresses that attempted too many logins. Blocks start and expire without an event; only the
//! lifting of a block by an operator is one.

use serde::{Deserialize, Serialize};

/// An early end of a block, by an operator.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct IpBlockLifted {
    /// Hash of the IP address. The vault stores the address.
    pub ip_hash: String,
}

crate::codec::stream_events! {
    /// Events of an IP block.
    IpBlockEvent {
        IpBlockLifted = 1,
    }
}
