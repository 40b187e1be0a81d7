//! Live updates: a stream of server-sent events that says when the account's log has advanced.
//!
//! One task per account waits for events, however many pages are open, because an account may have only few requests
//! that wait. It ends with the last page. A stream ends with the first change after the end of its visitor's session.
//!
//! A stream says so once at its beginning, too: an order can advance after the page has read it and before its stream begins.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures::{Stream, stream};
use ledger_events::{AccountId, UserId};
use poem::http::StatusCode;
use serde::Deserialize;
use serde::de::IgnoredAny;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::access::ClientIdentity;
use crate::heartbeat::Heartbeats;
use crate::pages::outcome::{PageResult, Stop};
use crate::pages::shared::live::Streams;
use crate::pages::site::Site;
use crate::pages::visit::Visit;

/// Shortest time between two changes.
const PAUSE: Duration = Duration::from_secs(1);
/// Time until the next attempt after a failed one.
const RETRY: Duration = Duration::from_secs(5);
/// Seconds that one request waits for an event.
const WAIT: u64 = 25;
/// Largest number of sessions in a list of the API, newest first.
const MAX_LISTED: usize = 100;

/// Part of the account's events, as `GET /api/v1/events` returns it.
#[derive(Debug, Deserialize)]
struct Events {
    events: Vec<IgnoredAny>,
    cursor: String,
}

/// A session of the user, as `GET /client/api/sessions` returns it.
#[derive(Debug, Deserialize)]
struct Session {
    is_current: bool,
}

/// Open streams, and the accounts that they follow. Cheap to clone.
#[derive(Clone, Debug)]
struct Live {
    streams: Streams<UserId>,
    accounts: Arc<Mutex<HashMap<AccountId, watch::Sender<()>>>>,
    heartbeats: Heartbeats,
    stop: CancellationToken,
}

pub fn add(site: Site, heartbeats: Heartbeats, stop: CancellationToken) -> Site {
    let live = Live::new(heartbeats, stop);
    site.get("/portal/live", move |visit| follow(live.clone(), visit))
}

async fn follow(live: Live, visit: Visit) -> PageResult {
    let user = visit.user()?;
    let ClientIdentity::User { id, .. } = user.identity else { return Err(Stop::NotFound) };
    let place = live.streams.place(id)?;
    let (news, is_first) = live.subscribe(user.account_id);
    let visit = Arc::new(visit);
    if is_first {
        tokio::spawn(live.clone().watch(user.account_id, visit.clone()));
    }
    Ok(place.respond(changes(news, visit)))
}

/// Tells changes until the visitor's session has ended.
fn changes(news: watch::Receiver<()>, visit: Arc<Visit>) -> impl Stream<Item = ()> + Send + 'static {
    stream::unfold((news, visit), |(mut news, visit)| async move {
        news.changed().await.ok()?;
        (!has_ended(&visit).await).then_some(((), (news, visit)))
    })
}

/// Returns whether the visitor's session has ended. While the service cannot tell, it has not: the page that is told a change
/// asks again.
///
/// A full list of sessions may leave out this one. So the stream of a user with 100 or more sessions stays open until its own
/// end. It says only that something has changed: without a session, a page cannot read what.
async fn has_ended(visit: &Visit) -> bool {
    match visit.list::<Session>("/client/api/sessions", "sessions").await {
        Ok(sessions) => sessions.items.len() < MAX_LISTED && !sessions.items.iter().any(|session| session.is_current),
        Err(refusal) => refusal.status == StatusCode::UNAUTHORIZED,
    }
}

impl Live {
    fn new(heartbeats: Heartbeats, stop: CancellationToken) -> Live {
        Live { streams: Streams::new(stop.clone()), accounts: Arc::default(), heartbeats, stop }
    }

    fn accounts(&self) -> MutexGuard<'_, HashMap<AccountId, watch::Sender<()>>> {
        self.accounts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Subscribes to the changes of an account. Returns whether nobody follows the account yet. If somebody does, the receiver
    /// has a change at once.
    fn subscribe(&self, account: AccountId) -> (watch::Receiver<()>, bool) {
        let mut accounts = self.accounts();
        if let Some(sender) = accounts.get(&account) {
            let mut receiver = sender.subscribe();
            receiver.mark_changed();
            return (receiver, false);
        }
        let (sender, receiver) = watch::channel(());
        accounts.insert(account, sender);
        (receiver, true)
    }

    /// Follows the account's events until nobody subscribes to them any longer. `visit` is the first subscriber's: it makes
    /// the calls, also after that person's session has ended, because the others still need them.
    async fn watch(self, account: AccountId, visit: Arc<Visit>) {
        // The first call finds the latest position. The pages look again once it is known.
        let (mut cursor, mut wait) = ("latest".to_owned(), 0);
        let heartbeat = self.heartbeats.background("live pages");
        while self.is_followed(account) {
            heartbeat.beat();
            let path = format!("/api/v1/events?after={cursor}&wait={wait}&limit=100");
            let polled = tokio::select! {
                () = self.stop.cancelled() => break,
                polled = visit.get::<Events>(&path) => polled,
            };
            let pause = match polled {
                Ok(events) => {
                    if wait == 0 || !events.events.is_empty() {
                        self.announce(account);
                    }
                    wait = WAIT;
                    cursor = url::form_urlencoded::byte_serialize(events.cursor.as_bytes()).collect();
                    PAUSE
                }
                Err(refusal) => {
                    tracing::debug!(code = refusal.code, "failed to wait for events of a page; retrying");
                    RETRY
                }
            };
            tokio::select! {
                () = self.stop.cancelled() => break,
                () = tokio::time::sleep(pause) => {}
            }
        }
    }

    /// Returns whether anybody subscribes to an account's changes. If not, forgets the account, so that the next subscriber
    /// starts another task.
    fn is_followed(&self, account: AccountId) -> bool {
        let mut accounts = self.accounts();
        let is_followed = accounts.get(&account).is_some_and(|sender| sender.receiver_count() > 0);
        if !is_followed {
            accounts.remove(&account);
        }
        is_followed
    }

    fn announce(&self, account: AccountId) {
        if let Some(sender) = self.accounts().get(&account) {
            sender.send_replace(());
        }
    }
}

#[cfg(test)]
mod tests {
    use futures::StreamExt;
    use poem::Request;

    use super::*;
    use crate::api::Inner;

    #[tokio::test]
    async fn subscribers_are_told_changes() {
        let live = Live::new(Heartbeats::default(), CancellationToken::new());
        let (news, is_first) = live.subscribe(AccountId(7));
        assert!(is_first && !live.subscribe(AccountId(7)).1 && live.is_followed(AccountId(7)));
        // An API that cannot tell whether the session has ended.
        let visit = Visit::read(Inner::closed(), Request::default()).await.expect("a request without a form");
        let visit = Arc::new(visit);
        let mut changes_of_first = Box::pin(changes(news, visit.clone()));
        live.announce(AccountId(7));
        assert_eq!(changes_of_first.next().await, Some(()));
        let mut changes_of_second = Box::pin(changes(live.subscribe(AccountId(7)).0, visit));
        assert_eq!(changes_of_second.next().await, Some(()), "what it may have missed");
    }

    #[test]
    fn an_account_without_pages_is_forgotten() {
        let live = Live::new(Heartbeats::default(), CancellationToken::new());
        let (news, _) = live.subscribe(AccountId(7));
        drop(news);
        assert!(!live.is_followed(AccountId(7)) && live.accounts().is_empty());
        assert!(live.subscribe(AccountId(7)).1);
    }
}
