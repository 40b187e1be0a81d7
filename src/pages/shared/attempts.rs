//! A list of attempts by minute and outcome. The list of all webhooks can be limited to one of them.

use chrono::{DateTime, Utc};
use maud::{Markup, html};
use serde::Deserialize;

use super::delivery::{Attempt, number};
use crate::pages::call::Refusal;
use crate::pages::form::Form;
use crate::pages::parts::fields::Filled;
use crate::pages::parts::period::{minute_fields, minutes, rfc3339};
use crate::pages::parts::table;
use crate::pages::parts::values::{badge, time, words};

/// Outcomes of attempts.
const OUTCOMES: [&str; 4] = ["delivered", "failed", "in_flight", "unknown"];
/// Number of attempts on a page.
const ON_PAGE: usize = 50;

/// An attempt, as the lists of the API have it.
#[derive(Debug, Deserialize)]
pub struct ListedAttempt {
    pub delivery_id: i64,
    pub event_type: String,
    pub outcome: String,
    pub finished_at: Option<DateTime<Utc>>,
    #[serde(flatten)]
    pub attempt: Attempt,
}

/// Part of a list of attempts.
#[derive(Debug, Deserialize)]
pub struct Part<A> {
    pub attempts: Vec<A>,
    pub next_before: Option<String>,
}

/// A list of attempts at `path`, as `query` filters it: of a webhook, or of all webhooks, one of which may be chosen.
#[derive(Clone, Copy, Debug)]
pub struct AttemptList<'a> {
    pub path: &'a str,
    pub query: &'a Form,
    pub is_of_all: bool,
}

impl AttemptList<'_> {
    /// Returns the names of the filters that the API has, too.
    fn names(self) -> &'static [&'static str] {
        if self.is_of_all { &["webhook_url_id", "outcome"] } else { &["outcome"] }
    }

    /// Returns the query of the API.
    ///
    /// # Errors
    /// A refusal that names the minute which is none.
    pub fn filters(self) -> Result<String, Refusal> {
        let mut filters = url::form_urlencoded::Serializer::new(self.query.only(&[self.names(), &["before"]].concat()));
        for (parameter, at) in ["since", "until"].into_iter().zip(minutes(self.query)?) {
            filters.extend_pairs(at.map(|at| (parameter, rfc3339(at))));
        }
        filters.append_pair("limit", &ON_PAGE.to_string());
        Ok(filters.finish())
    }

    /// Renders the form of the filters.
    pub fn form(self, refusal: Option<&Refusal>) -> Markup {
        let fields = Filled { form: self.query, refusal };
        let any = std::iter::once(("", "Any".to_owned()));
        let outcomes: Vec<(&str, String)> = any.chain(OUTCOMES.map(|outcome| (outcome, words(outcome)))).collect();
        let inputs = html! {
            @if self.is_of_all { (fields.input("webhook_url_id", "Webhook number", "search", "")) }
            (fields.select("outcome", "Outcome", &outcomes, ""))
            (minute_fields(&fields))
        };
        table::filters(self.path, &inputs)
    }

    /// Renders a part of the list, with `rows` as its table. `none` stands instead of a whole list that is empty, with a link to
    /// `next`.
    pub fn content<A>(self, part: &Part<A>, rows: impl Fn(&[A]) -> Markup, (none, next): (&str, Option<(&str, &str)>)) -> Markup {
        let has_filter = !self.query.only(&[self.names(), &["from", "to"]].concat()).is_empty();
        let note = html! { "Retention removes old attempts. Those from before the upgrade that brought this list are left out." };
        html! {
            @if !part.attempts.is_empty() { (rows(&part.attempts)) }
            @else if part.next_before.is_some() { p.quiet { "No attempt of this part matches. Look at older ones." } }
            @else if has_filter { (table::empty("No attempt matches these filters.", Some((self.path, "Show all attempts")))) }
            @else { (table::empty(none, next)) }
            (table::parts(self.path, self.query, &note, part.next_before.as_deref()))
        }
    }
}

/// Renders the time of an attempt: its end, or its beginning if it has no recorded end.
pub fn at(listed: &ListedAttempt) -> Markup {
    html! { @match listed.finished_at { Some(at) => (time(at)), None => { "Sent " (time(listed.attempt.started_at)) } } }
}

/// Columns of [`result`].
pub const RESULT: [(&str, bool); 4] = [("Attempt", true), ("Response", true), ("Duration, ms", true), ("Outcome", false)];

/// Renders the number of an attempt and what came of it.
pub fn result(listed: &ListedAttempt) -> [Markup; 4] {
    [
        html! { (listed.attempt.attempt) },
        number(listed.attempt.response_status),
        number(listed.attempt.response_time_ms),
        html! {
            (badge(&listed.outcome))
            @if let (Some(error), false) = (&listed.attempt.error, listed.outcome == "unknown") { " " (error) }
        },
    ]
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::pages::parts::period::during;

    fn list(query: &Form) -> AttemptList<'_> {
        AttemptList { path: "/attempts", query, is_of_all: true }
    }

    #[test]
    fn the_list_of_a_webhook_has_no_filter_of_webhooks() {
        let query = Form::parse(b"webhook_url_id=3");
        let part = Part::<ListedAttempt> { attempts: vec![], next_before: None };
        let text = |is_of_all| AttemptList { is_of_all, ..list(&query) }.content(&part, |_| html! {}, ("None.", None)).0;
        assert!(text(false).contains("None.") && text(true).contains("No attempt matches these filters."));
    }

    #[test]
    fn an_attempt_without_an_end_has_its_beginning() {
        let attempt = json!({"delivery_id": 11, "event_type": "order.created", "outcome": "unknown", "finished_at": null, "attempt": 1,
            "request_id": "r", "started_at": "2026-01-31T12:00:00Z", "response_status": null, "response_time_ms": null,
            "error": "the outcome is not known"});
        let attempt: ListedAttempt = serde_json::from_value(attempt).unwrap();
        assert!(at(&attempt).0.contains("Sent "));
        let [.., outcome] = result(&attempt);
        assert!(outcome.0.contains("Unknown") && !outcome.0.contains("the outcome"), "{}", outcome.0);
    }

    #[test]
    fn a_part_without_a_match_is_not_the_end() {
        let query = Form::parse(b"outcome=failed");
        let text = |next_before: Option<&str>| {
            let part = Part::<ListedAttempt> { attempts: vec![], next_before: next_before.map(ToOwned::to_owned) };
            list(&query).content(&part, |_| html! {}, ("None.", None)).0
        };
        assert!(text(Some("1-a")).contains("Look at older ones") && text(None).contains("Show all attempts"));
    }

    #[test]
    fn the_link_to_older_attempts_keeps_the_filters() {
        let query = Form::parse(b"outcome=failed&before=2-b");
        let part = Part::<ListedAttempt> { attempts: vec![], next_before: Some("1-a".to_owned()) };
        let markup = list(&query).content(&part, |_| html! {}, ("None.", None)).0;
        assert!(markup.contains("/attempts?outcome=failed&amp;before=1-a"), "{markup}");
    }

    #[test]
    fn both_minutes_are_included() {
        let target = during("/attempts", "2026-01-31T12:05", "2026-01-31T12:05");
        let query = Form::parse(target.split_once('?').unwrap().1.as_bytes());
        let minute = "since=2026-01-31T12%3A05%3A00Z&until=2026-01-31T12%3A06%3A00Z&limit=50";
        assert_eq!(list(&query).filters().unwrap(), minute);
    }
}
