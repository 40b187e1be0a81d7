//! Live updates: a stream of server-sent events that says when the account's log has advanced.
//!
//! One task per account waits for events, however many pages are open, because an account may have only few requests
//! that wait. It ends with the last page.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures::{Stream, stream};
use ledger_events::{AccountId, UserId};
use poem::IntoResponse;
use poem::http::StatusCode;
use poem::web::sse::{Event, SSE};
use serde::Deserialize;
use serde::de::IgnoredAny;
use tokio::sync::watch;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::access::ClientIdentity;
use crate::pages::call::Refusal;
use crate::pages::outcome::{PageResult, Stop};
use crate::pages::site::Site;
use crate::pages::visit::Visit;

/// Largest number of streams of one user. A browser has six connections to a service, and each open page takes one.
const MOST_OF_USER: usize = 16;
/// Longest duration of a stream. The browser then opens another one, if the session still exists.
const LIFETIME: Duration = Duration::from_secs(600);
/// Interval of comments that keep proxies from closing the connection.
const KEEP_ALIVE: Duration = Duration::from_secs(20);
/// Shortest time between two changes.
const PAUSE: Duration = Duration::from_secs(1);
/// Time until the next attempt after a failed one.
const RETRY: Duration = Duration::from_secs(5);
/// Seconds that one request waits for an event.
const WAIT: u64 = 25;

/// Part of the account's events, as `GET /api/v1/events` returns it.
#[derive(Debug, Deserialize)]
struct Events {
    events: Vec<IgnoredAny>,
    cursor: String,
}

/// Open streams, by user, and the accounts that they follow. Cheap to clone.
#[derive(Clone, Debug)]
struct Live(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    open: Mutex<Open>,
    stop: CancellationToken,
}

#[derive(Debug, Default)]
struct Open {
    streams: HashMap<UserId, usize>,
    accounts: HashMap<AccountId, watch::Sender<()>>,
}

pub fn add(site: Site, stop: CancellationToken) -> Site {
    let live = Live(Arc::new(Shared { open: Mutex::default(), stop }));
    site.get("/portal/live", move |visit| follow(live.clone(), visit))
}

async fn follow(live: Live, visit: Visit) -> PageResult {
    let user = visit.user()?;
    let ClientIdentity::User { id, .. } = user.identity else { return Err(Stop::NotFound) };
    let place = live.place(id).ok_or_else(|| {
        let message = format!("At most {MOST_OF_USER} pages of a user are updated at a time.");
        Refusal::new(StatusCode::TOO_MANY_REQUESTS, "E_TOO_MANY_STREAMS", &message)
    })?;
    let (news, is_first) = live.subscribe(user.account_id);
    if is_first {
        tokio::spawn(live.clone().watch(user.account_id, visit));
    }
    let stream = changes(news, live.0.stop.clone(), place);
    Ok(SSE::new(stream).keep_alive(KEEP_ALIVE).into_response())
}

/// Returns the stream of changes. It ends with the node, and after its lifetime.
fn changes(news: watch::Receiver<()>, stop: CancellationToken, place: Place) -> impl Stream<Item = Event> + Send + 'static {
    let end = Instant::now() + LIFETIME;
    stream::unfold((news, stop, place), move |(mut news, stop, place)| async move {
        let changed = tokio::select! {
            () = stop.cancelled() => return None,
            () = tokio::time::sleep_until(end) => return None,
            changed = news.changed() => changed,
        };
        changed.ok()?;
        Some((Event::message("1").event_type("changed"), (news, stop, place)))
    })
}

/// A place among a user's streams. Dropping it frees the place.
#[derive(Debug)]
struct Place {
    live: Live,
    user: UserId,
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut open = self.live.open();
        if let Some(streams) = open.streams.get_mut(&self.user) {
            *streams -= 1;
            if *streams == 0 {
                open.streams.remove(&self.user);
            }
        }
    }
}

impl Live {
    fn open(&self) -> MutexGuard<'_, Open> {
        self.0.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes a place among a user's streams, if one is free.
    fn place(&self, user: UserId) -> Option<Place> {
        let mut open = self.open();
        let streams = open.streams.entry(user).or_default();
        if *streams >= MOST_OF_USER {
            return None;
        }
        *streams += 1;
        drop(open);
        Some(Place { live: self.clone(), user })
    }

    /// Subscribes to the changes of an account. Returns whether nobody follows the account yet.
    fn subscribe(&self, account: AccountId) -> (watch::Receiver<()>, bool) {
        let mut open = self.open();
        if let Some(sender) = open.accounts.get(&account) {
            return (sender.subscribe(), false);
        }
        let (sender, receiver) = watch::channel(());
        open.accounts.insert(account, sender);
        (receiver, true)
    }

    /// Follows the account's events until nobody subscribes to them any longer. `visit` is the first subscriber's: it makes
    /// the calls.
    async fn watch(self, account: AccountId, visit: Visit) {
        let mut cursor = "latest".to_owned();
        while self.is_followed(account) {
            let path = format!("/api/v1/events?after={cursor}&wait={WAIT}&limit=100");
            let polled = tokio::select! {
                () = self.0.stop.cancelled() => break,
                polled = visit.get::<Events>(&path) => polled,
            };
            let pause = match polled {
                Ok(events) => {
                    if !events.events.is_empty() {
                        self.announce(account);
                    }
                    cursor = url::form_urlencoded::byte_serialize(events.cursor.as_bytes()).collect();
                    PAUSE
                }
                Err(refusal) => {
                    tracing::debug!(code = refusal.code, "failed to wait for events of a page; retrying");
                    RETRY
                }
            };
            tokio::select! {
                () = self.0.stop.cancelled() => break,
                () = tokio::time::sleep(pause) => {}
            }
        }
    }

    /// Returns whether anybody subscribes to an account's changes. If not, forgets the account, so that the next subscriber
    /// starts another task.
    fn is_followed(&self, account: AccountId) -> bool {
        let mut open = self.open();
        let is_followed = open.accounts.get(&account).is_some_and(|sender| sender.receiver_count() > 0);
        if !is_followed {
            open.accounts.remove(&account);
        }
        is_followed
    }

    fn announce(&self, account: AccountId) {
        if let Some(sender) = self.open().accounts.get(&account) {
            sender.send_replace(());
        }
    }
}

#[cfg(test)]
mod tests {
    use futures::StreamExt;

    use super::*;

    fn live() -> Live {
        Live(Arc::new(Shared { open: Mutex::default(), stop: CancellationToken::new() }))
    }

    #[test]
    fn a_user_has_a_bounded_number_of_streams() {
        let live = live();
        let places: Vec<_> = (0..MOST_OF_USER).filter_map(|_| live.place(UserId(1))).collect();
        assert_eq!((places.len(), live.place(UserId(1)).is_none(), live.place(UserId(2)).is_some()), (MOST_OF_USER, true, true));
        drop(places);
        assert!(live.open().streams.is_empty());
        assert!(live.place(UserId(1)).is_some());
    }

    #[tokio::test]
    async fn a_stream_tells_changes_and_ends_with_the_node() {
        let live = live();
        let (news, is_first) = live.subscribe(AccountId(7));
        assert!(is_first && !live.subscribe(AccountId(7)).1 && live.is_followed(AccountId(7)));
        let mut stream = std::pin::pin!(changes(news, live.0.stop.clone(), live.place(UserId(1)).unwrap()));
        live.announce(AccountId(7));
        let event = stream.next().await.unwrap().to_string();
        assert!(event.contains("event: changed") && event.contains("data: 1"), "{event}");
        live.0.stop.cancel();
        assert!(stream.next().await.is_none());
    }

    #[test]
    fn an_account_without_pages_is_forgotten() {
        let live = live();
        let (news, _) = live.subscribe(AccountId(7));
        drop(news);
        assert!(!live.is_followed(AccountId(7)) && live.open().accounts.is_empty());
        assert!(live.subscribe(AccountId(7)).1);
    }
}
