//! `/admin/v1/shards`: the shards of the ledger, and which of them get new accounts.

use ledger_events::ShardId;
use ledger_events::shard::NUMBERS;
use poem_openapi::param::Path;
use poem_openapi::{Enum, Object, OpenApi};
use serde::Serialize;

use crate::access::Operator;
use crate::api::body::StrictJson;
use crate::api::error::{ApiError, Code};
use crate::api::fields::body;
use crate::api::outcome::answered;
use crate::api::principal::{Admin, Caller};
use crate::api::readers::{boolean, integer};
use crate::api::reply::{Created, Listed, Plural, Reply};
use crate::api::scalars::Timestamp;
use crate::api::state::{ApiState, State, Tag, not_found, origin};
use crate::ledger::shard_load::{self, ShardLoad};
use crate::ledger::{CommandResult, FIRST_SHARD, WriteError, commands};

/// Status of a shard.
///
/// - `open`: the shard gets new accounts.
/// - `draining`: the shard gets no new accounts. Those that it has stay in it, and work as before.
/// - `unannounced`: somebody has made the shard by hand, and no event adds it. It gets no new accounts until it is added.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Enum, Serialize)]
#[oai(rename_all = "lowercase")]
#[serde(rename_all = "lowercase")]
enum ShardStatus {
    Open,
    Draining,
    Unannounced,
}

body! {
    /// A new shard.
    #[derive(Object)]
    struct AddShard {
        /// Number of the shard, which no shard has.
        shard_id: i16 = required(integer(NUMBERS)),
    }
}

body! {
    /// Change of the drain of a shard.
    #[derive(Object)]
    struct SetShardDrain {
        /// Whether the shard gets no new accounts.
        draining: bool = required(boolean),
    }
}

/// A shard: a part of the ledger with a log of its own, in which accounts live.
#[derive(Object, Serialize)]
struct Shard {
    /// Number of the shard.
    id: i16,
    /// Status of the shard.
    status: ShardStatus,
    /// Number of accounts in the shard.
    accounts: i64,
    /// Number of events in the shard's log.
    events: i64,
    /// Number of events of the last 24 hours. New accounts go to the open shard with the fewest.
    events_last_day: i64,
    /// Number of orders that wait for vouchers, at most 10,001.
    waiting_orders: i64,
    /// Number of vouchers in the shard that an order can get, at most 10,001.
    available_vouchers: i64,
    /// Whether a node leads the shard, which takes the orders of all nodes. False without `--node-listen`.
    has_leader: bool,
    /// Time at which the shard was added; null for the first one, which every ledger has, and for an unannounced one.
    added_at: Option<Timestamp>,
}

impl Plural for Shard {
    const PLURAL: &'static str = "shards";
}

impl From<ShardLoad> for Shard {
    fn from(load: ShardLoad) -> Self {
        let status = match load {
            ShardLoad { is_announced: false, .. } => ShardStatus::Unannounced,
            ShardLoad { draining: true, .. } => ShardStatus::Draining,
            _ => ShardStatus::Open,
        };
        Self {
            id: load.shard_id,
            status,
            accounts: load.accounts,
            events: load.events,
            events_last_day: load.events_last_day,
            waiting_orders: load.waiting_orders,
            available_vouchers: load.available_vouchers,
            has_leader: load.has_leader,
            added_at: load.added_at.map(Into::into),
        }
    }
}

/// Returns a shard as it is after a change. A failed read is no 503, which would say that nothing has changed.
async fn shown(state: &ApiState, shard: ShardId) -> Result<Shard, ApiError> {
    let load = shard_load::list(state.ledger.pool(), Some(shard)).await.map_err(|_| WriteError::OutcomeUnknown)?;
    load.into_iter().next().map(Shard::from).ok_or_else(not_found)
}

/// Returns the shard of a new account: the one that an operator names, or else the open one with the least load. The accounts of
/// a sandbox are in the first shard, which it fills with vouchers.
///
/// # Errors
/// 400 for an unknown shard, 409 for a draining one, and 503 while this node knows no open shard.
pub(super) async fn placement(state: &ApiState, named: Option<ShardId>) -> Result<ShardId, ApiError> {
    let pool = state.ledger.pool();
    if let Some(shard) = named {
        return match shard_load::is_draining(pool, shard).await? {
            Some(false) => Ok(shard),
            Some(true) => Err(ApiError::conflict("The shard is draining. Name another one, or none.")),
            None => Err(ApiError::invalid("shard_id", "is not a shard of this ledger")),
        };
    }
    let known = state.ledger.shards();
    if state.is_sandbox || known == [FIRST_SHARD] {
        return Ok(FIRST_SHARD);
    }
    let open = shard_load::least_loaded(pool, &known).await?;
    open.ok_or_else(|| ApiError::new(Code::Unavailable))
}

pub struct Shards;

#[OpenApi(prefix_path = "/admin/v1", tag = "Tag::Operations")]
impl Shards {
    /// List shards
    ///
    /// Returns all shards with their load, in the order of their numbers.
    #[oai(path = "/shards", method = "get", operation_id = "list_shards")]
    async fn list(&self, _caller: Caller<Operator>, state: State<'_>) -> Result<Listed<Shard>, ApiError> {
        let loads = shard_load::list(state.ledger.pool(), None).await?;
        Ok(Listed::whole(loads.into_iter().map(Shard::from).collect()))
    }

    /// Add a shard
    ///
    /// Orders of two shards do not wait for one another, so a further shard raises the orders per second of the ledger. Every node
    /// works on it within a second. A shard that somebody has made by hand is added under its number. Returns 409 for a shard that
    /// was added before, so a repeated request adds nothing. A shard cannot be removed.
    #[oai(path = "/shards", method = "post", operation_id = "add_shard")]
    async fn add(&self, caller: Caller<Admin>, state: State<'_>, body: StrictJson<AddShard>) -> Result<Created<Shard>, ApiError> {
        let shard_id = body.0.shard_id;
        let answer = state.ledger.execute(FIRST_SHARD, commands::AddShard { shard_id }, origin(caller.0.0.actor())).await?;
        answered!(answer, CommandResult::ShardSet => ())?;
        Ok(Created(shown(&state, shard_id).await?))
    }

    /// Drain a shard, or end its drain
    ///
    /// A draining shard gets no new accounts. Its accounts stay in it and work as before, because an account belongs to one shard
    /// for life. Returns 409 if no other shard gets new accounts.
    #[oai(path = "/shards/:id/drain", method = "put", operation_id = "set_shard_drain")]
    async fn drain(
        &self,
        caller: Caller<Admin>,
        state: State<'_>,
        /// Number of the shard.
        id: Path<i64>,
        body: StrictJson<SetShardDrain>,
    ) -> Result<Reply<Shard>, ApiError> {
        let shard_id = ShardId::try_from(id.0).map_err(|_| not_found())?;
        let drain = commands::SetShardDrain { shard_id, draining: body.0.draining };
        let answer = state.ledger.execute(FIRST_SHARD, drain, origin(caller.0.0.actor())).await?;
        answered!(answer, CommandResult::ShardSet => ())?;
        Ok(Reply(shown(&state, shard_id).await?))
    }
}
