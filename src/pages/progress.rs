//! Pages of long work. The response begins after a while with a page that shows the progress, and ends with the outcome.
//!
//! This needs no script, and nothing is kept between requests. The response sends a step for each progress, and then the outcome.
//! The style sheet hides a step that another one follows, and all of them before the outcome.
//!
//! A browser does not say when a response breaks off, and runs no script then. So the response sends something every second, and
//! the style sheet shows a notice once nothing has come for some seconds.
//!
//! Short work answers with its outcome alone. So does a request that is refused, because no page begins before the API has
//! checked the request.

use std::future::{self, Future};
use std::io;
use std::pin::Pin;
use std::time::Duration;

use futures::{StreamExt, stream};
use maud::{Markup, PreEscaped, html};
use poem::{Body, Response};
use tokio::sync::watch;

use super::parts::layout;
use super::parts::values::grouped;
use super::visit::Visit;
use crate::api::{LateOutcome, Reached, carry};

/// Time that work takes before its page begins.
const PATIENCE: Duration = Duration::from_millis(300);
/// Shortest time between two steps.
const PAUSE: Duration = Duration::from_millis(500);
/// Longest time between two parts of a page. The style sheet shows the notice of [`overdue`] after five times as long.
const KEEP_ALIVE: Duration = Duration::from_secs(1);
/// End of the elements that [`opening`] leaves open.
const CLOSING: &str = "</div></div>";

/// Long work, in the words of its page.
#[derive(Debug)]
pub struct Work {
    /// Title of the page.
    pub title: &'static str,
    /// Name of the things to do, such as `Vouchers to load`.
    pub to_do: &'static str,
    /// Name of the things that are done, such as `Vouchers loaded`.
    pub done: &'static str,
    /// Advice for the person who waits.
    pub advice: &'static str,
}

type Outcome = Pin<Box<dyn Future<Output = Response> + Send>>;
type Progress = watch::Receiver<Option<Reached>>;

/// A request for a page whose work is followed.
#[derive(Debug)]
pub struct Followed {
    work: &'static Work,
    /// The page up to its content.
    beginning: String,
    progress: Progress,
    patience: Duration,
    pause: Duration,
    keep_alive: Duration,
}

impl Followed {
    pub fn new(work: &'static Work, visit: &mut Visit) -> Followed {
        let progress = visit.follow();
        let beginning = layout::beginning(visit, work.title);
        Followed { work, beginning, progress, patience: PATIENCE, pause: PAUSE, keep_alive: KEEP_ALIVE }
    }

    /// Answers with the outcome of the work, or with a page that shows the progress first if the work takes long.
    pub async fn answer(mut self, outcome: impl Future<Output = Response> + Send + 'static) -> Response {
        let mut outcome: Outcome = Box::pin(carry(outcome));
        let begun = tokio::select! {
            biased;
            response = &mut outcome => return response,
            reached = next(self.patience, &mut self.progress) => reached,
        };
        let first = format!("{}{}{}{}", self.beginning, opening(self.work).0, step(self.work, begun).0, overdue().0);
        let late = LateOutcome::default();
        let Followed { work, progress, pause, keep_alive, .. } = self;
        let sending = Sending { work, outcome, progress, pause, keep_alive, late: late.clone() };
        let rest = stream::unfold(Some(sending), |sending| async move {
            let (part, rest) = sending?.next().await;
            Some((Ok::<_, io::Error>(part), rest))
        });
        let parts = stream::once(future::ready(Ok(first))).chain(rest);
        let mut response = Response::builder().content_type("text/html; charset=utf-8").body(Body::from_bytes_stream(parts));
        response.set_data(late);
        response
    }
}

/// A page whose beginning is sent. Dropping it ends the work, for example if the client leaves.
struct Sending {
    work: &'static Work,
    outcome: Outcome,
    progress: Progress,
    pause: Duration,
    keep_alive: Duration,
    late: LateOutcome,
}

impl Sending {
    /// Waits for the next part of the page: a step, a sign that the connection is there, or the outcome, which is the last part.
    async fn next(mut self) -> (String, Option<Sending>) {
        let response = tokio::select! {
            biased;
            response = &mut self.outcome => response,
            reached = next(self.pause, &mut self.progress) => {
                return (format!("{}{}", step(self.work, reached).0, overdue().0), Some(self));
            }
            () = tokio::time::sleep(self.keep_alive) => return (overdue().0, Some(self)),
        };
        self.late.end(response.status());
        let rest = layout::rest(self.work.title, response).await;
        (format!("{CLOSING}{rest}"), None)
    }
}

/// Waits for this time, and then for progress that was not returned yet. Never returns if there is none.
async fn next(pause: Duration, progress: &mut Progress) -> Reached {
    tokio::time::sleep(pause).await;
    while progress.changed().await.is_ok() {
        let reached = *progress.borrow_and_update();
        if let Some(reached) = reached {
            return reached;
        }
    }
    future::pending().await
}

/// Renders the beginning of the content. Its elements stay open for the steps.
fn opening(work: &Work) -> Markup {
    html! {
        (PreEscaped("<div class=\"working\">"))
        h1 { (work.title) }
        p { (work.advice) }
        (PreEscaped("<div role=\"status\">"))
    }
}

/// Renders a step. While nothing is done, its bar has no value.
fn step(work: &Work, Reached { done, total }: Reached) -> Markup {
    let number = |number: usize| grouped(&number.to_string());
    html! {
        div.step {
            @if done == 0 {
                p { (work.to_do) ": " (number(total)) }
                progress aria-label="Progress" {}
            } @else {
                p { (work.done) ": " (number(done)) " of " (number(total)) }
                progress aria-label="Progress" max=(total) value=(done) {}
            }
        }
    }
}

/// Renders a notice that the style sheet shows if no other part of the page follows in time.
fn overdue() -> Markup {
    html! { p.overdue { "No news for 5 seconds. The connection may have broken off, and the work with it. If nothing follows, start again." } }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;

    use poem::http::StatusCode;
    use serde_json::json;
    use tokio::sync::oneshot;

    use super::*;
    use crate::api::Progress as Told;
    use crate::pages::outcome::redirect;

    static WORK: Work = Work { title: "Upload", to_do: "Things to load", done: "Things loaded", advice: "Wait." };

    fn followed() -> (Told, Followed) {
        let (told, progress) = Told::followed();
        let beginning = "<main>".to_owned();
        let keep_alive = Duration::from_secs(3_600);
        (told, Followed { work: &WORK, beginning, progress, patience: Duration::ZERO, pause: Duration::ZERO, keep_alive })
    }

    fn refused() -> Response {
        let page = layout::error_page("/console", StatusCode::CONFLICT, &json!({"message": "It was broken off."}));
        Response::builder().status(StatusCode::CONFLICT).body(page)
    }

    #[tokio::test]
    async fn short_work_and_work_that_does_not_begin_answer_with_their_outcome_alone() {
        let (told, form) = followed();
        told.tell(0, 1_000);
        assert_eq!(form.answer(future::ready(refused())).await.status(), StatusCode::CONFLICT);
        let (_told, form) = followed();
        let slow = async {
            tokio::time::sleep(Duration::from_millis(20)).await;
            refused()
        };
        assert_eq!(form.answer(slow).await.status(), StatusCode::CONFLICT);
    }

    #[tokio::test]
    async fn a_page_of_long_work_brings_its_steps_and_then_its_outcome() {
        let (told, form) = followed();
        let (end, ended) = oneshot::channel();
        told.tell(0, 1_000);
        let mut page = form.answer(async move { ended.await.unwrap() }).await;
        assert_eq!(page.status(), StatusCode::OK);
        let mut parts = pin!(page.take_body().into_bytes_stream());
        let mut part = async || String::from_utf8(parts.next().await.unwrap().unwrap().to_vec()).unwrap();
        let begun = part().await;
        assert!(begun.starts_with("<main><div class=\"working\"><h1>Upload</h1><p>Wait.</p>"), "{begun}");
        let is_whole = begun.ends_with(&format!("></progress></div>{}", overdue().0));
        assert!(begun.contains("Things to load: 1\u{202f}000") && is_whole, "{begun}");
        assert!(!begun.contains("value="), "{begun}");
        told.tell(400, 1_000);
        told.tell(500, 1_000);
        let half = part().await;
        assert!(half.contains("Things loaded: 500 of 1\u{202f}000") && half.contains("max=\"1000\" value=\"500\""), "{half}");
        end.send(refused()).unwrap();
        let rest = part().await;
        assert!(rest.starts_with("</div></div><h1>The request failed</h1>"), "{rest}");
        assert!(rest.contains("It was broken off.") && rest.ends_with("</div></main></body></html>"), "{rest}");
        assert!(parts.next().await.is_none());
    }

    #[tokio::test]
    async fn a_page_of_long_work_sends_something_even_without_progress() {
        let (told, form) = followed();
        let form = Followed { keep_alive: Duration::ZERO, ..form };
        told.tell(0, 1);
        let mut page = form.answer(future::pending()).await;
        let mut parts = pin!(page.take_body().into_bytes_stream());
        assert!(parts.next().await.is_some());
        for _ in 0..2 {
            assert_eq!(parts.next().await.unwrap().unwrap(), overdue().0.as_bytes());
        }
    }

    #[tokio::test]
    async fn a_page_of_long_work_leads_where_its_outcome_leads() {
        let (told, form) = followed();
        let (end, ended) = oneshot::channel();
        told.tell(0, 1);
        let mut page = form.answer(async move { ended.await.unwrap() }).await;
        end.send(redirect("/console/bank-statements/7?done=imported")).unwrap();
        let page = page.take_body().into_string().await.unwrap();
        assert!(page.contains("href=\"/console/bank-statements/7?done=imported\" data-follow>Continue</a>"), "{page}");
        assert!(page.ends_with("</main></body></html>"), "{page}");
    }
}
