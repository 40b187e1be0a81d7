//! `/admin/v1/search`: one search over orders, accounts, credentials, users, webhooks and events.

use std::collections::HashMap;

use ledger_events::ShardId;
use poem_openapi::param::Query;
use poem_openapi::{Enum, Object, OpenApi};
use serde::Serialize;

use crate::access::Operator;
use crate::api::error::ApiError;
use crate::api::principal::Caller;
use crate::api::reply::{Listed, Plural};
use crate::api::state::{ApiState, State, Tag};
use crate::ledger::search::{self, Found, Kind, Terms};
use crate::ledger::texts::{self, EMAIL, Texts, WEBHOOK_NAME};
use crate::secrets::seal::Secret;

/// Maximum length of a search term, in characters.
const MAX_CHARACTERS: usize = 200;

/// Kind of a search result.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Enum, Serialize)]
#[oai(rename_all = "snake_case")]
#[serde(rename_all = "snake_case")]
enum ResultKind {
    Order,
    Account,
    Credential,
    User,
    Webhook,
    Payout,
    /// A movement of money that has the reference of a funding.
    Transaction,
    /// An event of the log. Results for a request ID are the events of the request.
    Event,
}

impl From<Kind> for ResultKind {
    fn from(kind: Kind) -> Self {
        match kind {
            Kind::Order => Self::Order,
            Kind::Account => Self::Account,
            Kind::Credential => Self::Credential,
            Kind::User => Self::User,
            Kind::Webhook => Self::Webhook,
            Kind::Payout => Self::Payout,
            Kind::Transaction => Self::Transaction,
            Kind::Event => Self::Event,
        }
    }
}

/// Something that the search term names.
#[derive(Object, Serialize)]
struct SearchResult {
    /// Kind of the resource.
    kind: ResultKind,
    /// Unique identifier of the resource. For an event, its position in the log of its shard.
    id: i64,
    /// Account that the resource belongs to; null if it belongs to none.
    account_id: Option<i64>,
    /// Title for people: a reference code with the status, a name, an email address, or an event type. Empty if it is
    /// erased.
    title: String,
    /// Shard of an event; null for other kinds.
    shard_id: Option<i16>,
    /// ID of an event; null for other kinds.
    event_id: Option<String>,
    /// Stream of an event, such as `order/42`; null for other kinds.
    stream: Option<String>,
}

impl Plural for SearchResult {
    const PLURAL: &'static str = "results";
}

impl SearchResult {
    fn of(found: Found, texts: &HashMap<ShardId, Texts>) -> Self {
        let sealed = |kind| texts.get(&found.shard).and_then(|texts| texts.get(&(kind, found.id))).map_or("", Secret::expose);
        let title = match found.kind {
            Kind::User => sealed(EMAIL).to_owned(),
            Kind::Webhook => sealed(WEBHOOK_NAME).to_owned(),
            _ => found.text.clone(),
        };
        Self {
            kind: found.kind.into(),
            id: found.id,
            account_id: found.account_id.map(|id| id.0),
            title,
            shard_id: found.event.as_ref().map(|_| found.shard),
            event_id: found.event.as_ref().map(|event| event.event_id.to_string()),
            stream: found.event.as_ref().map(|event| format!("{}/{}", event.stream_type, event.stream_id)),
        }
    }
}

/// Loads the titles that are sealed in the vault, in one query for each shard.
async fn titles(state: &ApiState, found: &[Found]) -> Result<HashMap<ShardId, Texts>, ApiError> {
    let mut wanted: HashMap<ShardId, Vec<(&'static str, i64)>> = HashMap::new();
    for found in found {
        let kind = match found.kind {
            Kind::User => EMAIL,
            Kind::Webhook => WEBHOOK_NAME,
            _ => continue,
        };
        wanted.entry(found.shard).or_default().push((kind, found.id));
    }
    let mut titles = HashMap::new();
    for (shard, wanted) in wanted {
        titles.insert(shard, texts::load(state.ledger.pool(), &state.keyring, shard, &wanted).await?);
    }
    Ok(titles)
}

pub struct Search;

#[OpenApi(prefix_path = "/admin/v1", tag = "Tag::Accounts")]
impl Search {
    /// Search
    ///
    /// Finds what a term names: an order by its number, its reference code or the client's reference, a payout by the client's
    /// reference, a funding by its reference, an account by its number or the beginning of its name, a credential by its key
    /// prefix, a user by email address, a webhook by its number, an event by its ID, and the events of a request by its
    /// request ID. Returns at most 20 results of each kind.
    #[oai(path = "/search", method = "get", operation_id = "search")]
    async fn search(
        &self,
        _caller: Caller<Operator>,
        state: State<'_>,
        /// Term to search for, 1 to 200 characters.
        #[oai(validator(min_length = 1, max_length = 200))]
        q: Query<String>,
    ) -> Result<Listed<SearchResult>, ApiError> {
        let text = q.0.trim();
        if text.is_empty() || text.chars().count() > MAX_CHARACTERS {
            return Err(ApiError::invalid("q", format!("must have 1 to {MAX_CHARACTERS} characters")));
        }
        let terms = Terms::of(text);
        let email_lookup = terms.email.as_deref().map(|email| state.sessions.email_lookup(email));
        let shards = state.ledger.shards();
        let found = search::find(state.ledger.pool(), &shards, &terms, email_lookup).await?;
        let titles = titles(&state, &found).await?;
        Ok(Listed::whole(found.into_iter().map(|found| SearchResult::of(found, &titles)).collect()))
    }
}
