//! `/admin/v1/ip-blocks`: blocks of IP addresses after too many logins.

use std::net::IpAddr;

use ledger_events::AccountId;
use poem_openapi::param::{Path, Query};
use poem_openapi::{Object, OpenApi};
use serde::Serialize;

use crate::access::Operator;
use crate::access::blocks::{self, ActiveBlock};
use crate::access::limits::source_network;
use crate::api::body::NoFields;
use crate::api::error::ApiError;
use crate::api::outcome::answered;
use crate::api::page::Page;
use crate::api::principal::{Admin, Caller};
use crate::api::reply::{Listed, Plural, Reply};
use crate::api::scalars::Timestamp;
use crate::api::state::{State, Tag, listed, not_found, origin, rows_of};
use crate::ledger::{CommandResult, FIRST_SHARD, commands};

/// An active login block. All requests from the address are refused until it ends.
#[derive(Object, Serialize)]
pub struct IpBlock {
    /// Blocked IP address. An IPv6 address stands for its /64 network.
    ip: String,
    /// Time at which the block began.
    started_at: Timestamp,
    /// Time at which the block ends.
    ends_at: Timestamp,
}

impl Plural for IpBlock {
    const PLURAL: &'static str = "ip_blocks";
}

impl From<ActiveBlock> for IpBlock {
    fn from(block: ActiveBlock) -> Self {
        Self { ip: block.ip, started_at: block.started_at.into(), ends_at: block.ends_at.into() }
    }
}

/// A login block that was lifted.
#[derive(Object, Serialize)]
struct LiftedIpBlock {
    /// IP address whose block was lifted.
    ip: String,
}

pub struct IpBlocks;

#[OpenApi(prefix_path = "/admin/v1", tag = "Tag::Accounts")]
impl IpBlocks {
    /// List login blocks
    ///
    /// Returns the active blocks of IP addresses, newest first. With `account_id`, these are the blocks of the addresses from
    /// which the account's users are signed in, according to the 100 newest sessions.
    #[oai(path = "/ip-blocks", method = "get", operation_id = "list_ip_blocks")]
    async fn list(
        &self,
        _caller: Caller<Operator>,
        state: State<'_>,
        /// Page number, from 1. Default: 1.
        page: Query<Option<i64>>,
        /// Blocks per page, 1 to 100. Default: 20.
        limit: Query<Option<i64>>,
        /// Only blocks of addresses from which users of this account are signed in.
        account_id: Query<Option<i64>>,
    ) -> Result<Listed<IpBlock>, ApiError> {
        let page = Page::of(page.0, limit.0, 20, 100)?;
        let networks = match account_id.0 {
            Some(id) => Some(state.sessions.networks_of(AccountId(id)).await?),
            None => None,
        };
        let found = blocks::list(state.ledger.pool(), networks.as_deref(), rows_of(page)).await?;
        Ok(listed(found, page, IpBlock::from))
    }

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
