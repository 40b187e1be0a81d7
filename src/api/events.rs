//! `/api/v1/events`: the envelopes of an account's webhooks in the order of the log, for clients that pull.

use std::time::Duration;

use chrono::{DateTime, Utc};
use ledger_events::Position;
use ledger_events::webhook::WebhookEventType;
use poem::Request;
use poem_openapi::param::Query;
use poem_openapi::{Object, OpenApi};
use serde::Serialize;
use tokio::time::Instant;

use super::auth::{X_SIGNATURE, verify_signature};
use super::error::{ApiError, Code};
use super::page::Page;
use super::principal::Caller;
use super::reply::Signed;
use super::scalars::JsonObject;
use super::state::{ApiState, State, Tag, time};
use crate::access::{ClientIdentity, Principal};
use crate::ledger::feed::{self, FeedPage};
use crate::ledger::reader;
use crate::secrets::SIGNING_SECRET;
use crate::secrets::seal::{SealError, Secret};

/// Longest wait for an event, in seconds.
pub const MAX_WAIT: u64 = 30;
/// Value of `after` that means the end of the log.
const LATEST: &str = "latest";

/// Part of the account's events, oldest first.
#[derive(Object, Serialize)]
struct EventPage {
    /// Event envelopes: the same JSON, byte for byte, that webhooks receive. A test delivery is not among them.
    events: Vec<JsonObject>,
    /// Sequence of each event in `events`, in the same order. Order events by it: it grows with every event of the account,
    /// and is not consecutive. The header `X-Event-Sequence` of a webhook has the same value.
    sequences: Vec<i64>,
    /// Cursor to send as `after` in the next request. Store it after you have processed the events. It never expires.
    cursor: String,
    /// Whether the log goes on after the cursor. If it does, request the next part at once, even if `events` is empty.
    has_more: bool,
}

impl From<SealError> for ApiError {
    fn from(error: SealError) -> ApiError {
        match error {
            SealError::NotCurrent => ApiError::new(Code::Unavailable),
            error => ApiError::internal(error),
        }
    }
}

/// Reads a comma-separated list of event types. Without one, all types are wanted.
fn types(text: Option<&str>) -> Result<Vec<WebhookEventType>, ApiError> {
    let Some(text) = text.filter(|text| !text.is_empty()) else { return Ok(WebhookEventType::ALL.to_vec()) };
    let named = text.split(',').map(|name| WebhookEventType::parse(name.trim())).collect::<Option<Vec<_>>>();
    named.ok_or_else(|| ApiError::invalid("types", "must be event types, such as order.delivered, separated by commas"))
}

/// Reads the number of seconds to wait.
fn wait(seconds: Option<i64>) -> Result<Duration, ApiError> {
    let wait = u64::try_from(seconds.unwrap_or_default()).ok().filter(|seconds| *seconds <= MAX_WAIT);
    let wait = wait.ok_or_else(|| ApiError::invalid("wait", format!("must be between 0 and {MAX_WAIT}")))?;
    Ok(Duration::from_secs(wait))
}

/// Returns the position after which the caller wants events.
async fn position(
    state: &ApiState,
    caller: &Principal,
    after: Option<&str>,
    since: Option<DateTime<Utc>>,
) -> Result<Position, ApiError> {
    let pool = state.ledger.pool();
    match (after, since) {
        (None, None) => Ok(0),
        (None, Some(since)) => Ok(reader::position_at(pool, caller.shard_id, since).await? - 1),
        (Some(_), Some(_)) => Err(ApiError::invalid("since", "must not be given together with `after`")),
        (Some(LATEST), None) => Ok(reader::head(pool, caller.shard_id).await?),
        (Some(cursor), None) => {
            let position = state.keyring.cursor_position(caller.shard_id, caller.account_id, cursor)?;
            let problem = "must be the cursor of an earlier response to this account, or `latest`";
            position.ok_or_else(|| ApiError::invalid("after", problem))
        }
    }
}

/// Returns the next events. If there are none, waits for one until the deadline.
async fn next(
    state: &ApiState,
    caller: &Principal,
    after: Position,
    types: &[WebhookEventType],
    limit: usize,
    wait: Duration,
) -> Result<FeedPage, ApiError> {
    let (pool, owner) = (state.ledger.pool(), (caller.shard_id, caller.account_id));
    let deadline = Instant::now() + wait;
    let mut page = feed::page_after(pool, owner, after, types, limit).await?;
    if !page.events.is_empty() || page.is_more || wait.is_zero() {
        return Ok(page);
    }
    let waiter = state.feed.wait(caller.shard_id, caller.account_id, page.reached);
    let mut waiter =
        waiter.map_err(|problem| ApiError::new(Code::Unavailable).message(format!("Not waiting: {problem}.")).retry_after(5))?;
    while page.events.is_empty() && !page.is_more && waiter.has_news_before(deadline).await {
        page = feed::page_after(pool, owner, page.reached, types, limit).await?;
    }
    Ok(page)
}

/// Returns the signing secret of the caller's API key if it has signed the request. The key need not require signatures.
async fn signing_secret(state: &ApiState, caller: &Principal, request: &Request) -> Result<Option<Secret>, ApiError> {
    let ClientIdentity::Credential(id) = caller.identity else { return Ok(None) };
    if !request.headers().contains_key(&X_SIGNATURE) {
        return Ok(None);
    }
    let sealed = feed::sealed_signing_secret(state.ledger.pool(), id).await?;
    let secret = sealed.map(|sealed| state.keyring.open_text(SIGNING_SECRET, id.0, &sealed)).transpose()?;
    Ok(secret.filter(|secret| verify_signature(request, secret, b"").is_ok()))
}

pub struct Events;

#[OpenApi(prefix_path = "/api/v1", tag = "Tag::Events")]
impl Events {
    /// List events
    ///
    /// Returns the account's events in the order in which they happened, oldest first, with the same envelopes as webhooks.
    /// No webhook is needed. Begin without `after`, with `since` to begin at a time, or with `after=latest` to skip the past.
    /// Continue with the `cursor` of each response. A cursor survives restarts and upgrades of the service. Events are kept
    /// as long as the ledger exists.
    ///
    /// With `wait`, a request that finds no event waits for one. It is answered as soon as there is one, or with an empty
    /// list after that time. At most 10 requests of an account can wait at a time. Further ones fail with 503.
    ///
    /// If the request is signed, the service signs the page with the same secret, as it signs a webhook. Verify `X-Signature`
    /// and `X-Timestamp` over the raw body. See [Receiving webhooks](/docs/guides/webhooks).
    #[oai(path = "/events", method = "get", operation_id = "list_events")]
    #[allow(clippy::too_many_arguments)] // each is a parameter
    async fn list(
        &self,
        caller: Caller,
        state: State<'_>,
        request: &Request,
        /// Only events after this cursor. `latest` means the events from now on. Default: all events.
        after: Query<Option<String>>,
        /// Only events recorded at or after this time. If there is none yet, the events from now on. Cannot be combined with
        /// `after`.
        since: Query<Option<DateTime<Utc>>>,
        /// Seconds to wait for an event if there is none yet, 0 to 30. Default: 0.
        wait: Query<Option<i64>>,
        /// Only events of these types, separated by commas, such as `order.delivered,order.cancelled`.
        types: Query<Option<String>>,
        /// Maximum number of events, 1 to 100. Default: 20.
        limit: Query<Option<i64>>,
    ) -> Result<Signed<EventPage>, ApiError> {
        let caller = caller.0;
        let limit = usize::try_from(Page::of(None, limit.0, 20, 100)?.limit).unwrap_or(1);
        let (types, wait) = (self::types(types.0.as_deref())?, self::wait(wait.0)?);
        let since = time("since", since.0)?;
        let after = position(&state, &caller, after.0.as_deref(), since).await?;
        let secret = signing_secret(&state, &caller, request).await?;
        let page = next(&state, &caller, after, &types, limit, wait).await?;
        let cursor = state.keyring.cursor(caller.shard_id, caller.account_id, page.reached)?;
        let (sequences, events) = page.events.into_iter().map(|event| (event.position, JsonObject(event.envelope))).unzip();
        let data = EventPage { events, sequences, cursor, has_more: page.is_more };
        Ok(Signed { data, secret })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn event_types_are_a_list_of_known_names() {
        let read = |text| types(Some(text)).ok();
        for all in [None, Some("")] {
            assert_eq!(types(all).ok(), Some(WebhookEventType::ALL.to_vec()), "{all:?}");
        }
        assert_eq!(
            read("order.delivered, order.created"),
            Some(vec![WebhookEventType::OrderDelivered, WebhookEventType::OrderCreated])
        );
        for wrong in ["order.unknown", "order.created,", "OrderPlaced"] {
            assert_eq!(read(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn a_wait_is_bounded() {
        assert_eq!(wait(None), Ok(Duration::ZERO));
        assert_eq!(wait(Some(30)), Ok(Duration::from_secs(30)));
        assert!(wait(Some(31)).is_err() && wait(Some(-1)).is_err());
    }
}
