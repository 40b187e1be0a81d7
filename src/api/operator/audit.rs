//! `/admin/v1/audit`: who did what, from the log.

use std::collections::HashSet;

use chrono::{DateTime, Utc};
use ledger_database::PgPool;
use ledger_events::catalogue::ProductEvent;
use ledger_events::wallet::WalletEvent;
use ledger_events::{AccountId, Actor, Event, Recorded, ShardId};
use poem_openapi::param::Query;
use poem_openapi::{Object, OpenApi};
use serde::Serialize;

use super::events::types;
use crate::access::Operator;
use crate::api::error::ApiError;
use crate::api::page::Page;
use crate::api::principal::Caller;
use crate::api::reply::Reply;
use crate::api::scalars::Timestamp;
use crate::api::state::{State, Tag, time};
use crate::export::Stream;
use crate::export::selection::Range;
use crate::ledger::actors::{self, ActorNames};
use crate::ledger::history;
use crate::ledger::reader::audit::{self, Criteria};
use crate::ledger::reader::{self, ReadError, Stored};
use crate::ledger::reasons::{self, Reasons};
use crate::secrets::seal::{Keyring, Secret};

/// Kinds of actors. Those before `fulfilment` have an id.
const ACTORS: [&str; 7] = ["credential", "user", "operator", "fulfilment", "replay", "sandbox", "service"];

/// An action and its actor.
#[derive(Object, Serialize)]
pub(super) struct AuditEntry {
    /// Position of the event in the log.
    position: i64,
    /// Unique identifier of the event.
    event_id: String,
    /// Type of the event, such as `VouchersRevealed`.
    r#type: String,
    /// Kind of the actor: `credential`, `user`, `operator`, `fulfilment`, `replay`, `sandbox` or `service`.
    actor_type: String,
    /// Unique identifier of the actor, if its kind has one. Operator 0 is the service's configuration.
    actor_id: Option<i64>,
    /// Name or email address of the actor, unless it was erased.
    actor_name: Option<String>,
    /// Subject of the action, such as `order/42`.
    subject: String,
    /// Account that the action belongs to.
    account_id: Option<i64>,
    /// Reference of a funding, or the supplier's reference of a load of vouchers; null for other actions, and if none was given.
    reference: Option<String>,
    /// Reason or note that the actor gave; null if there is none, or if it was erased.
    reason: Option<String>,
    /// `X-Request-ID` of the request, or the name of the command or background process.
    request_id: String,
    /// Time at which the event was recorded.
    recorded_at: Timestamp,
}

/// A page of actions, newest first.
#[derive(Object, Serialize)]
struct AuditPage {
    /// Actions of this page. It can be empty although older actions follow.
    entries: Vec<AuditEntry>,
    /// Value of `before` for the next page. Null at the end.
    next_before: Option<i64>,
    /// Shard whose log has these actions.
    shard_id: i16,
    /// All shards of the ledger. Each has a log of its own.
    shard_ids: Vec<i16>,
}

impl AuditEntry {
    /// Builds the entries of these events of a shard, with the names of their actors and the reasons that these gave.
    pub(super) async fn of_events(
        pool: &PgPool,
        keyring: &Keyring,
        shard: ShardId,
        events: &[&Stored],
    ) -> Result<Vec<Self>, ApiError> {
        let recorded = events.iter().map(|stored| stored.decode()).collect::<Result<Vec<Recorded>, ReadError>>()?;
        let actors: HashSet<Actor> = recorded.iter().map(|recorded| recorded.metadata.actor).collect();
        let names = actors::names(pool, Some(keyring), shard, &actors).await?;
        let reasons = reasons::load(pool, keyring, shard, &recorded).await?;
        let entries = events.iter().zip(recorded).map(|(stored, recorded)| Self::of(stored, recorded, &names, &reasons));
        Ok(entries.collect())
    }

    fn of(stored: &Stored, recorded: Recorded, names: &ActorNames, reasons: &Reasons) -> Self {
        let Recorded { event, metadata, .. } = recorded;
        let (actor_type, actor_id) = metadata.actor.kind();
        let text = |text: &Secret| text.expose().to_owned();
        Self {
            position: stored.position,
            event_id: stored.event_id.to_string(),
            r#type: stored.event_type.clone(),
            actor_type: actor_type.to_owned(),
            actor_id,
            actor_name: names.get(&metadata.actor).map(text),
            subject: format!("{}/{}", stored.stream_type, stored.stream_id),
            account_id: metadata.account_id.map(|id| id.0),
            reference: reference(event),
            reason: reasons.get(&stored.position).map(text),
            request_id: metadata.request_id,
            recorded_at: stored.recorded_at.into(),
        }
    }
}

/// Returns the reference that an event records for people.
fn reference(event: Event) -> Option<String> {
    match event {
        Event::Wallet(WalletEvent::WalletFunded(funded)) => Some(funded.reference),
        Event::Product(ProductEvent::VoucherStockLoaded(loaded)) => loaded.supplier_reference,
        _ => None,
    }
}

/// Reads an actor such as `operator/3`, or a kind such as `operator`.
fn actor(text: &str) -> Result<(String, Option<i64>), ApiError> {
    let (kind, id) = text.split_once('/').map_or((text, None), |(kind, id)| (kind, Some(id)));
    let id = id.map(str::parse::<i64>).transpose();
    match (ACTORS.contains(&kind), id) {
        (true, Ok(id)) => Ok((kind.to_owned(), id)),
        _ => Err(ApiError::invalid("actor", "must be a kind and an id, such as operator/3, or one of the kinds of actors")),
    }
}

/// Checks the parameter `before` of a list that ends below a position.
///
/// # Errors
/// 400 for a number that no position has.
pub(super) fn position_before(before: Option<i64>) -> Result<Option<i64>, ApiError> {
    match before {
        Some(..1) => Err(ApiError::invalid("before", "must be a position, 1 or more")),
        before => Ok(before),
    }
}

pub struct Audit;

#[OpenApi(prefix_path = "/admin/v1", tag = "Tag::Events")]
impl Audit {
    /// Audit who did what
    ///
    /// Returns the actions of clients, operators and background processes from the log, newest first. Reveals of secrets are
    /// among them: `reveals=true`. A request that is repeated under its `Idempotency-Key` is not another action, even if the
    /// stored response has a secret. A page ends after a bounded scan of the log, so continue until `next_before` is null.
    #[oai(path = "/audit", method = "get", operation_id = "audit_events")]
    #[allow(clippy::too_many_arguments)] // each is a parameter
    async fn audit(
        &self,
        _caller: Caller<Operator>,
        state: State<'_>,
        /// Only actions of this actor, such as `operator/3`, or of this kind, such as `operator`.
        actor: Query<Option<String>>,
        /// Only actions on this subject, such as `order/42`.
        subject: Query<Option<String>>,
        /// Only actions of these event types, separated by commas.
        #[oai(name = "type")]
        event_types: Query<Option<String>>,
        /// Whether only reveals of secrets are wanted: the codes of vouchers, keys, tokens and signing secrets that were
        /// created or rotated, and second factors that were enrolled. Default: false.
        reveals: Query<Option<bool>>,
        /// Only actions that belong to this account.
        account_id: Query<Option<i64>>,
        /// Only actions at or after this time.
        since: Query<Option<DateTime<Utc>>>,
        /// Only actions before this time.
        until: Query<Option<DateTime<Utc>>>,
        /// Only actions before this position: `next_before` of the previous page.
        before: Query<Option<i64>>,
        /// Actions per page, 1 to 100. Default: 20.
        limit: Query<Option<i64>>,
        /// Shard whose log to read. Default: the shard of the subject, or the first shard.
        shard_id: Query<Option<i16>>,
    ) -> Result<Reply<AuditPage>, ApiError> {
        let limit = usize::try_from(Page::of(None, limit.0, 20, 100)?.limit).unwrap_or(20);
        let pool = &state.read_pool();
        let subject = subject.0.map(|text| text.parse::<Stream>()).transpose();
        let subject = subject.map_err(|problem| ApiError::invalid("subject", problem))?;
        let of_subject = match &subject {
            Some(subject) if shard_id.0.is_none() => {
                history::shard_of_stream(pool, &subject.stream_type, subject.stream_id).await?
            }
            _ => None,
        };
        let shard = state.shard_named(shard_id.0.or(of_subject))?;
        let criteria = Criteria {
            actor: actor.0.as_deref().map(self::actor).transpose()?,
            subject: subject.map(|subject| (subject.stream_type, subject.stream_id)),
            account_id: account_id.0.map(AccountId),
            types: types(event_types.0.as_deref())?,
            reveals: reveals.0.unwrap_or_default(),
        };
        let to = position_before(before.0)?.map(|before| before - 1);
        let range = Range { from: None, to, since: time("since", since.0)?, until: time("until", until.0)? };
        let head = reader::head(pool, shard).await?;
        let bounds = range.resolve(pool, shard, head).await?;
        let page = audit::page(pool, shard, bounds, &criteria, limit).await?;
        let events: Vec<&Stored> = page.events.iter().collect();
        let entries = AuditEntry::of_events(pool, &state.keyring, shard, &events).await?;
        let shard_ids = state.ledger.shards();
        Ok(Reply(AuditPage { entries, next_before: page.next_before, shard_id: shard, shard_ids }))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn an_actor_is_a_kind_with_or_without_an_id() {
        assert_eq!(actor("operator/3").unwrap(), ("operator".to_owned(), Some(3)));
        assert_eq!(actor("fulfilment").unwrap(), ("fulfilment".to_owned(), None));
        for wrong in ["", "operator/", "operator/x", "king", "king/1", "/1", "operator/1/2"] {
            assert!(actor(wrong).is_err(), "{wrong}");
        }
    }
}
