//! Blocks of IPs that logged in too often.

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
use crate::ledger::{Answer, Command, FIRST_SHARD};

/// A block that was lifted.
#[derive(Object, Serialize)]
struct LiftedIpBlock {
    /// The address that may call again.
    ip: String,
}

pub struct IpBlocks;

#[OpenApi(prefix_path = "/admin/v1", tag = "Tag::Accounts")]
impl IpBlocks {
    /// Lift a login block
    ///
    /// The address may call again at once, and its logins are counted anew. An IPv6 address stands for its /64, which is blocked
    /// as a whole.
    #[oai(path = "/ip-blocks/:ip", method = "delete", operation_id = "lift_ip_block")]
    async fn lift(
        &self,
        caller: Caller<Admin>,
        state: State<'_>,
        /// The blocked IP address.
        ip: Path<String>,
        _no_fields: NoFields,
    ) -> Result<Reply<LiftedIpBlock>, ApiError> {
        let ip: IpAddr = ip.0.parse().map_err(|_| not_found())?;
        let ip = ip.to_canonical();
        // Before it is lifted: meanwhile nothing is counted, and nothing lost if it goes no further.
        let network = source_network(ip);
        state.gate.forget_logins(network).await?;
        let lift = Command::LiftIpBlock { ip: network };
        let answer = state.ledger.execute(FIRST_SHARD, lift, origin(caller.0.0.actor())).await?;
        answered!(answer, Answer::IpBlockLifted => ())?;
        Ok(Reply(LiftedIpBlock { ip: ip.to_string() }))
    }
}
