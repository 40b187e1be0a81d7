//! `/admin/v1/ip-blocks`: blocks of IP addresses after too many logins.

use std::net::IpAddr;

use poem_openapi::param::Path;
use poem_openapi::{Object, OpenApi};
use serde::Serialize;

use crate::access::limits::source_network;
use crate::api::body::NoFields;
use crate::api::error::ApiError;
use crate::api::outcome::answered;
use crate::api::principal::{Admin, Caller};
use crate::api::reply::Reply;
use crate::api::state::{State, Tag, not_found, origin};
use crate::ledger::{CommandResult, FIRST_SHARD, commands};

/// A login block that was lifted.
#[derive(Object, Serialize)]
struct LiftedIpBlock {
    /// IP address whose block was lifted.
    ip: String,
}

pub struct IpBlocks;

#[OpenApi(prefix_path = "/admin/v1", tag = "Tag::Accounts")]
impl IpBlocks {
    /// Lift a login block
    ///
    /// The address can call again immediately, and its login counter is reset. An IPv6 address stands for its /64
    /// network, which is blocked as a whole.
    #[oai(path = "/ip-blocks/:ip", method = "delete", operation_id = "lift_ip_block")]
    async fn lift(
        &self,
        caller: Caller<Admin>,
        state: State<'_>,
        /// Blocked IP address.
        ip: Path<String>,
        _no_fields: NoFields,
    ) -> Result<Reply<LiftedIpBlock>, ApiError> {
        let ip: IpAddr = ip.0.parse().map_err(|_| not_found())?;
        let ip = ip.to_canonical();
        // The counter is reset before the block is lifted. Meanwhile nothing is counted, and nothing is lost if the next
        // step fails.
        let network = source_network(ip);
        state.gate.forget_logins(network).await?;
        let lift = commands::LiftIpBlock { ip: network };
        let answer = state.ledger.execute(FIRST_SHARD, lift, origin(caller.0.0.actor())).await?;
        answered!(answer, CommandResult::IpBlockLifted => ())?;
        Ok(Reply(LiftedIpBlock { ip: ip.to_string() }))
    }
}
