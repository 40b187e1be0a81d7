//! Shards: logs with a head each, so that their orders do not wait for one another. The first shard's log records the others, so
//! that none disappears unnoticed.

use std::ops::RangeInclusive;

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};

use crate::{MAX_SHARD, Moment, Rejection, ShardId};

/// Numbers that a new shard can have.
pub const NUMBERS: RangeInclusive<ShardId> = 2..=MAX_SHARD;

/// The addition of a shard. The stream id is its number.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ShardAdded {}

/// The beginning or the end of a drain. A shard that drains gets no new accounts, and keeps those that it has.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ShardDrainSet {
    pub draining: bool,
}

/// State of a shard: the fold of its stream, and the row of the table `shards`.
#[derive(Clone, Debug, PartialEq)]
pub struct Shard {
    /// Number of the shard.
    pub id: ShardId,
    pub version: i64,
    pub draining: bool,
    /// Time at which the shard was added. `None` for the first shard, which every ledger has.
    pub added_at: Option<DateTime<Utc>>,
}

/// Adds a shard, whose state is `known` if its stream has begun.
///
/// # Errors
/// Fails if no new shard can have this number, or if the shard was added before.
pub fn add(number: ShardId, known: Option<&Shard>) -> Result<ShardEvent, Rejection> {
    if !NUMBERS.contains(&number) {
        return Err(Rejection::InvalidField { field: "shard_id", problem: "must be between 2 and 900" });
    }
    match known {
        Some(Shard { added_at: Some(_), .. }) => Err(Rejection::Conflict("the shard was added before")),
        _ => Ok(ShardAdded {}.into()),
    }
}

/// Sets whether a shard gets new accounts. Returns no event if that is set already. `is_last_open` says that no other
/// shard gets new accounts.
///
/// # Errors
/// Fails if no shard would get new accounts.
pub fn set_drain(known: Option<&Shard>, draining: bool, is_last_open: bool) -> Result<Option<ShardEvent>, Rejection> {
    if known.is_some_and(|shard| shard.draining) == draining {
        return Ok(None);
    }
    if draining && is_last_open {
        return Err(Rejection::Conflict("no other shard takes new accounts"));
    }
    Ok(Some(ShardDrainSet { draining }.into()))
}

/// Folds an event into the state. This is the only fold of the shard stream. Returns `None` for a number that no shard has.
pub fn evolve(state: Option<Shard>, id: i64, event: &ShardEvent, at: &Moment) -> Option<Shard> {
    let id = ShardId::try_from(id).ok()?;
    let mut shard = state.unwrap_or(Shard { id, version: 0, draining: false, added_at: None });
    match event {
        ShardEvent::ShardAdded(_) => shard.added_at = Some(at.recorded_at),
        ShardEvent::ShardDrainSet(set) => shard.draining = set.draining,
    }
    shard.version = at.version;
    Some(shard)
}

crate::codec::stream_events! {
    /// Events of a shard.
    ShardEvent {
        ShardAdded = 1,
        ShardDrainSet = 1,
    }
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;

    fn folded(events: &[ShardEvent]) -> Option<Shard> {
        let recorded_at = DateTime::<Utc>::UNIX_EPOCH;
        (1..).zip(events).fold(None, |state, (version, event)| {
            evolve(state, 2, event, &Moment { position: version, event_id: Uuid::nil(), version, recorded_at })
        })
    }

    #[test]
    fn a_shard_is_added_once_and_under_a_number_of_shards() {
        assert_eq!(add(2, None), Ok(ShardAdded {}.into()));
        let added = folded(&[ShardAdded {}.into()]);
        assert_eq!(add(2, added.as_ref()), Err(Rejection::Conflict("the shard was added before")));
        // A drain alone does not add a shard.
        assert_eq!(add(2, folded(&[ShardDrainSet { draining: true }.into()]).as_ref()), Ok(ShardAdded {}.into()));
        for number in [ShardId::MIN, 0, 1, 901] {
            assert!(matches!(add(number, None), Err(Rejection::InvalidField { field: "shard_id", .. })), "{number}");
        }
    }

    #[test]
    fn a_drain_leaves_a_shard_for_new_accounts() {
        let added = folded(&[ShardAdded {}.into()]);
        let drain = ShardDrainSet { draining: true };
        assert_eq!(set_drain(added.as_ref(), true, false), Ok(Some(drain.clone().into())));
        assert_eq!(set_drain(added.as_ref(), true, true), Err(Rejection::Conflict("no other shard takes new accounts")));
        assert_eq!(set_drain(added.as_ref(), false, true), Ok(None), "the shard is open already");
        let drained = folded(&[ShardAdded {}.into(), drain.into()]);
        assert_eq!(drained.as_ref().map(|shard| (shard.version, shard.draining)), Some((2, true)));
        assert_eq!(set_drain(drained.as_ref(), true, false), Ok(None), "the shard drains already");
        assert_eq!(set_drain(drained.as_ref(), false, false), Ok(Some(ShardDrainSet { draining: false }.into())));
        assert_eq!(set_drain(None, true, false), Ok(Some(ShardDrainSet { draining: true }.into())), "the first shard");
    }
}
