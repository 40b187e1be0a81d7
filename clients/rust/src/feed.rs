//! The account's events, pulled from a cursor on.

use std::collections::VecDeque;

use chrono::{DateTime, Utc};
use futures::stream::{self, Stream};

use crate::client::Client;
use crate::error::Error;
use crate::models::{EventPage, WebhookEnvelope, WebhookEventType, WebhookOrder};
use crate::operations::ListEventsQuery;

/// Longest wait for an event that the service allows, in seconds.
const WAIT_SECS: i64 = 30;

/// The account's events after a cursor, oldest first. It waits for events that have not happened yet.
#[derive(Clone, Debug)]
pub struct EventFeed {
    client: Client,
    query: ListEventsQuery,
    /// Whether the log goes on after the cursor, as far as it is known.
    has_more: bool,
}

/// An event with the place after it.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct FeedEvent {
    pub envelope: WebhookEnvelope,
    /// Place of the event in the order of all events, as the header `X-Event-Sequence` of a webhook says it. None if the page
    /// does not say it.
    pub sequence: Option<i64>,
    /// Cursor to store once the event is processed, and to begin with next time. Events within a page share the cursor
    /// before them, so an interruption may repeat some: deduplicate on `event_id`. None is the beginning.
    pub cursor: Option<String>,
}

impl Client {
    /// Returns the events after a cursor: none for all events, and `"latest"` for those from now on.
    pub fn events(&self, after: Option<&str>) -> EventFeed {
        let query = ListEventsQuery { after: after.map(str::to_owned), limit: Some(100), ..Default::default() };
        EventFeed { client: self.clone(), query, has_more: true }
    }
}

impl EventFeed {
    /// Limits the events to some types.
    pub fn of_types(mut self, types: &[WebhookEventType]) -> EventFeed {
        self.query.types = Some(types.iter().map(WebhookEventType::as_str).collect::<Vec<_>>().join(","));
        self
    }

    /// Begins with the events recorded at or after a time, if the feed has no cursor yet.
    pub fn since(mut self, time: DateTime<Utc>) -> EventFeed {
        self.query.since = self.query.after.is_none().then_some(time);
        self
    }

    /// Returns the cursor after the latest page. Store it once the events of the page are processed.
    pub fn cursor(&self) -> Option<&str> {
        self.query.after.as_deref()
    }

    /// Returns the next events. If there is none yet, waits up to 30 seconds for one, and returns an empty page if none
    /// comes. After an error, the same events are requested again.
    ///
    /// # Errors
    /// As for any other call.
    pub async fn next_page(&mut self) -> Result<EventPage, Error> {
        self.query.wait = (!self.has_more).then_some(WAIT_SECS);
        let page = self.client.list_events(&self.query).await?;
        self.query.after = Some(page.cursor.clone());
        self.query.since = None;
        self.has_more = page.has_more;
        Ok(page)
    }

    /// Returns all events from now on, one by one. The stream ends only after an error; begin another from the cursor of
    /// the last event.
    pub fn stream(self) -> impl Stream<Item = Result<FeedEvent, Error>> + Send {
        stream::try_unfold((self, VecDeque::new()), |(mut feed, mut events)| async move {
            loop {
                if let Some(event) = events.pop_front() {
                    return Ok(Some((event, (feed, events))));
                }
                let before = feed.query.after.clone();
                let page = feed.next_page().await?;
                let last = page.events.len().saturating_sub(1);
                events = page
                    .events
                    .into_iter()
                    .enumerate()
                    .map(|(position, envelope)| {
                        let cursor = if position == last { feed.query.after.clone() } else { before.clone() };
                        FeedEvent { envelope, sequence: page.sequences.get(position).copied(), cursor }
                    })
                    .collect();
            }
        })
    }
}

impl WebhookEnvelope {
    /// Reads the state of the order right after the event, which `data` is for the event types `order.…`.
    ///
    /// # Errors
    /// If the data have another form.
    pub fn order(&self) -> Result<WebhookOrder, serde_json::Error> {
        serde::Deserialize::deserialize(&self.data)
    }
}
