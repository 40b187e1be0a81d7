//! Streams of server-sent events that tell an open page that something has changed. A person has a bounded number of them.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures::{Stream, StreamExt};
use poem::http::StatusCode;
use poem::web::sse::{Event, SSE};
use poem::{IntoResponse, Response};
use tokio_util::sync::CancellationToken;

use crate::pages::call::Refusal;

/// Largest number of streams of one person. A browser has six connections to a service, and each open page takes one.
const MAX_OF_PERSON: usize = 16;
/// Longest duration of a stream. The browser then opens another one, if the session still exists.
const LIFETIME: Duration = Duration::from_secs(600);
/// Interval of comments that keep proxies from closing the connection.
const KEEP_ALIVE: Duration = Duration::from_secs(20);

/// Open streams, by person. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Streams<P> {
    open: Arc<Mutex<HashMap<P, usize>>>,
    stop: CancellationToken,
}

impl<P: Copy + Eq + Hash + Send + 'static> Streams<P> {
    /// Creates the bookkeeping. All streams end when `stop` is cancelled.
    pub fn new(stop: CancellationToken) -> Streams<P> {
        Streams { open: Arc::default(), stop }
    }

    fn open(&self) -> MutexGuard<'_, HashMap<P, usize>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes a place among a person's streams.
    ///
    /// # Errors
    /// 429 if all of them are taken.
    pub fn place(&self, person: P) -> Result<Place<P>, Refusal> {
        let mut open = self.open();
        let streams = open.entry(person).or_default();
        if *streams >= MAX_OF_PERSON {
            let message = format!("At most {MAX_OF_PERSON} pages of a person are updated at a time.");
            return Err(Refusal::new(StatusCode::TOO_MANY_REQUESTS, "E_TOO_MANY_STREAMS", &message));
        }
        *streams += 1;
        drop(open);
        Ok(Place { streams: self.clone(), person })
    }
}

/// A place among a person's streams. Dropping it frees the place.
#[derive(Debug)]
pub struct Place<P: Copy + Eq + Hash + Send + 'static> {
    streams: Streams<P>,
    person: P,
}

impl<P: Copy + Eq + Hash + Send + 'static> Drop for Place<P> {
    fn drop(&mut self) {
        let mut open = self.streams.open();
        if let Some(streams) = open.get_mut(&self.person) {
            *streams -= 1;
            if *streams == 0 {
                open.remove(&self.person);
            }
        }
    }
}

impl<P: Copy + Eq + Hash + Send + 'static> Place<P> {
    /// Responds with a stream that says `changed` for each change.
    pub fn respond(self, changes: impl Stream<Item = ()> + Send + 'static) -> Response {
        SSE::new(self.events(changes)).keep_alive(KEEP_ALIVE).into_response()
    }

    /// Makes events of changes. They end with the changes, with the node, and after the lifetime of a stream.
    fn events(self, changes: impl Stream<Item = ()> + Send + 'static) -> impl Stream<Item = Event> + Send + 'static {
        let end = async move {
            let stop = self.streams.stop.clone();
            // The place is taken for as long as this future exists, which is as long as the stream does.
            let _place = self;
            // Either outcome ends the stream.
            _ = tokio::time::timeout(LIFETIME, stop.cancelled()).await;
        };
        changes.map(|()| Event::message("1").event_type("changed")).take_until(end)
    }
}

#[cfg(test)]
mod tests {
    use futures::stream;

    use super::*;

    #[test]
    fn a_person_has_a_bounded_number_of_streams() {
        let streams = Streams::new(CancellationToken::new());
        let places: Vec<_> = (0..MAX_OF_PERSON).filter_map(|_| streams.place(1).ok()).collect();
        assert_eq!((places.len(), streams.place(1).is_err(), streams.place(2).is_ok()), (MAX_OF_PERSON, true, true));
        drop(places);
        assert!(streams.open().is_empty());
        assert!(streams.place(1).is_ok());
    }

    #[tokio::test]
    async fn a_stream_tells_changes_ends_with_the_node_and_frees_its_place() {
        let streams = Streams::new(CancellationToken::new());
        let Ok(place) = streams.place(1) else { panic!("a place is free") };
        let changes = stream::iter([()]).chain(stream::pending());
        let mut events = Box::pin(place.events(changes));
        let event = events.next().await.map(|event| event.to_string()).unwrap_or_default();
        assert!(event.contains("event: changed") && event.contains("data: 1"), "{event}");
        assert_eq!(streams.open().get(&1), Some(&1));
        streams.stop.cancel();
        assert!(events.next().await.is_none());
        drop(events);
        assert!(streams.open().is_empty());
    }
}
