//! Live updates: a stream of server-sent events that asks open pages to look again every few seconds.
//!
//! The pages show all accounts, queues and nodes, which no single reader follows. So the stream is a clock.

use std::time::Duration;

use futures::{Stream, stream};
use poem::http::StatusCode;
use serde::de::IgnoredAny;
use tokio_util::sync::CancellationToken;

use crate::pages::outcome::PageResult;
use crate::pages::shared::live::Streams;
use crate::pages::site::Site;
use crate::pages::visit::Visit;

/// Time between two looks.
const TICK: Duration = Duration::from_secs(5);

pub fn add(site: Site, stop: CancellationToken) -> Site {
    let streams: Streams<i64> = Streams::new(stop);
    site.get("/console/live", move |visit| follow(streams.clone(), visit))
}

async fn follow(streams: Streams<i64>, visit: Visit) -> PageResult {
    let place = streams.place(visit.operator()?.id)?;
    Ok(place.respond(ticks(visit)))
}

/// Ticks until the session has ended. While the service cannot tell, it does not tick.
fn ticks(visit: Visit) -> impl Stream<Item = ()> + Send + 'static {
    stream::unfold(visit, |visit| async move {
        loop {
            tokio::time::sleep(TICK).await;
            match visit.get::<IgnoredAny>("/admin/auth/session").await {
                Ok(_) => return Some(((), visit)),
                Err(refusal) if refusal.status == StatusCode::UNAUTHORIZED => return None,
                Err(refusal) => tracing::debug!(code = refusal.code, "failed to look up the session of a page; retrying"),
            }
        }
    })
}
