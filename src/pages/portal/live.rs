//! Live updates: a stream of server-sent events that says when the account's log has advanced.
//!
//! One task per account waits for events, however many pages are open, because an account may have only few requests
//! that wait. It ends with the last page.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures::{Stream, stream};
use ledger_events::{AccountId, UserId};
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

/// Part of the account's events, as `GET /api/v1/events` returns it.
#[derive(Debug, Deserialize)]
struct Events {
    events: Vec<IgnoredAny>,
    cursor: String,
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
    if is_first {
        tokio::spawn(live.clone().watch(user.account_id, visit));
    }
    Ok(place.respond(changes(news)))
}

fn changes(news: watch::Receiver<()>) -> impl Stream<Item = ()> + Send + 'static {
    stream::unfold(news, |mut news| async move {
        news.changed().await.ok()?;
        Some(((), news))
    })
}

impl Live {
    fn new(heartbeats: Heartbeats, stop: CancellationToken) -> Live {
        Live { streams: Streams::new(stop.clone()), accounts: Arc::default(), heartbeats, stop }
    }

    fn accounts(&self) -> MutexGuard<'_, HashMap<AccountId, watch::Sender<()>>> {
        self.accounts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Subscribes to the changes of an account. Returns whether nobody follows the account yet.
    fn subscribe(&self, account: AccountId) -> (watch::Receiver<()>, bool) {
        let mut accounts = self.accounts();
        if let Some(sender) = accounts.get(&account) {
            return (sender.subscribe(), false);
        }
        let (sender, receiver) = watch::channel(());
        accounts.insert(account, sender);
        (receiver, true)
    }

    /// Follows the account's events until nobody subscribes to them any longer. `visit` is the first subscriber's: it makes
    /// the calls.
    async fn watch(self, account: AccountId, visit: Visit) {
        let mut cursor = "latest".to_owned();
        let heartbeat = self.heartbeats.background("live pages");
        while self.is_followed(account) {
            heartbeat.beat();
            let path = format!("/api/v1/events?after={cursor}&wait={WAIT}&limit=100");
            let polled = tokio::select! {
                () = self.stop.cancelled() => break,
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

    use super::*;

    #[tokio::test]
    async fn subscribers_are_told_changes() {
        let live = Live::new(Heartbeats::default(), CancellationToken::new());
        let (news, is_first) = live.subscribe(AccountId(7));
        assert!(is_first && !live.subscribe(AccountId(7)).1 && live.is_followed(AccountId(7)));
        let mut changes = Box::pin(changes(news));
        live.announce(AccountId(7));
        assert_eq!(changes.next().await, Some(()));
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
