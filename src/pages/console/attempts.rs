//! Attempts of deliveries to the webhooks of all accounts, by minute and outcome.

use chrono::{DateTime, Utc};
use maud::{Markup, html};
use poem::Response;
use serde::Deserialize;

use crate::pages::call::Refusal;
use crate::pages::form::Form;
use crate::pages::outcome::PageResult;
use crate::pages::parts::fields::Filled;
use crate::pages::parts::period::{minutes, rfc3339};
use crate::pages::parts::values::{badge, time, words};
use crate::pages::parts::{layout, table};
use crate::pages::shared::delivery::{Attempt, number};
use crate::pages::site::Site;
use crate::pages::visit::{Visit, corrected};

const PATH: &str = "/console/attempts";
/// Outcomes of attempts.
const OUTCOMES: [&str; 4] = ["delivered", "failed", "in_flight", "unknown"];
/// Number of attempts on a page.
const ON_PAGE: usize = 50;

/// An attempt, as `GET /admin/v1/attempts` returns it.
#[derive(Debug, Deserialize)]
struct AnyAttempt {
    account_id: i64,
    webhook_url_id: i64,
    delivery_id: i64,
    event_type: String,
    shard_id: i16,
    position: i64,
    outcome: String,
    finished_at: Option<DateTime<Utc>>,
    #[serde(flatten)]
    attempt: Attempt,
}

#[derive(Debug, Deserialize)]
struct Part {
    attempts: Vec<AnyAttempt>,
    next_before: Option<String>,
}

pub fn add(site: Site) -> Site {
    site.get(PATH, list)
}

/// Returns the address of the attempts that ended in these minutes (UTC), such as `2026-01-31T12:00`. Both are included.
pub fn ended(from: &str, to: &str) -> String {
    let query = url::form_urlencoded::Serializer::new(String::new()).extend_pairs([("from", from), ("to", to)]).finish();
    format!("{PATH}?{query}")
}

/// Returns the filters of a query as a query of the API.
fn filters(query: &Form) -> Result<String, Refusal> {
    let mut filters = url::form_urlencoded::Serializer::new(query.only(&["outcome", "before"]));
    for (parameter, at) in ["since", "until"].into_iter().zip(minutes(query)?) {
        filters.extend_pairs(at.map(|at| (parameter, rfc3339(at))));
    }
    filters.append_pair("limit", &ON_PAGE.to_string());
    Ok(filters.finish())
}

async fn load(visit: &Visit) -> Result<Part, Refusal> {
    visit.get(&format!("/admin/v1/attempts?{}", filters(&visit.query)?)).await
}

async fn list(visit: Visit) -> PageResult {
    visit.operator()?;
    match load(&visit).await {
        Ok(part) => Ok(page(&visit, Some(&part), None)),
        Err(refusal) => corrected(refusal, |refusal| layout::refused(page(&visit, None, Some(refusal)), refusal)),
    }
}

fn page(visit: &Visit, part: Option<&Part>, refusal: Option<&Refusal>) -> Response {
    let fields = Filled { form: &visit.query, refusal };
    let any = std::iter::once(("", "Any".to_owned()));
    let outcomes: Vec<(&str, String)> = any.chain(OUTCOMES.map(|outcome| (outcome, words(outcome)))).collect();
    let body = html! {
        (layout::problem(refusal))
        p {
            "Attempts of all nodes to deliver events to the webhooks of all accounts. Those that a node took up last come first. A \
             period has those that ended in it, as the plots of " a href="/console/operations" { "operations" } " count them."
        }
        (table::filters(PATH, &html! {
            (fields.select("outcome", "Outcome", &outcomes, ""))
            (fields.input("from", "From (UTC)", "datetime-local", ""))
            (fields.input("to", "Until (UTC)", "datetime-local", ""))
        }))
        @if let Some(part) = part { (content(&visit.query, part)) }
    };
    layout::page(visit, "Delivery attempts", &body)
}

fn content(query: &Form, part: &Part) -> Markup {
    let has_filter = !query.only(&["outcome", "from", "to"]).is_empty();
    html! {
        @if !part.attempts.is_empty() { (rows(&part.attempts)) }
        @else if part.next_before.is_some() { p.quiet { "No attempt of this part matches. Look at older ones." } }
        @else if has_filter { (table::empty("No attempt matches these filters.", Some((PATH, "Show all attempts")))) }
        @else { (table::empty("No attempt is listed yet. It needs a webhook, and an order.", None)) }
        (table::parts(PATH, query, &html! { "Retention removes old attempts. Those from before the upgrade that brought this list are left out." }, part.next_before.as_deref()))
    }
}

fn rows(attempts: &[AnyAttempt]) -> Markup {
    let columns = [
        ("Ended", false),
        ("Account", false),
        ("Webhook", false),
        ("Delivery", false),
        ("Event", false),
        ("Attempt", true),
        ("Response", true),
        ("Duration, ms", true),
        ("Outcome", false),
    ];
    let row = |any: &AnyAttempt| {
        vec![
            html! { @match any.finished_at { Some(at) => (time(at)), None => { "Sent " (time(any.attempt.started_at)) } } },
            html! { a href={ "/console/accounts/" (any.account_id) } { "Account " (any.account_id) } },
            html! { a href={ "/console/webhooks/" (any.webhook_url_id) } { "Webhook " (any.webhook_url_id) } },
            html! { a href={ "/console/deliveries/" (any.delivery_id) } { "Delivery " (any.delivery_id) } },
            html! { a href={ "/console/events/" (any.shard_id) "/" (any.position) } { (any.event_type) } },
            html! { (any.attempt.attempt) },
            number(any.attempt.response_status),
            number(any.attempt.response_time_ms),
            html! {
                (badge(&any.outcome))
                @if let (Some(error), false) = (&any.attempt.error, any.outcome == "unknown") { " " (error) }
            },
        ]
    };
    table::table("Attempts of all accounts", &columns, &attempts.iter().map(row).collect::<Vec<_>>())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn part(finished_at: Option<&str>, outcome: &str, error: Option<&str>) -> Part {
        let attempt = json!({"account_id": 5, "webhook_url_id": 6, "delivery_id": 11, "event_type": "order.created", "shard_id": 2,
            "position": 17, "outcome": outcome, "finished_at": finished_at, "attempt": 1, "request_id": "r",
            "started_at": "2026-01-31T12:00:00Z", "response_status": null, "response_time_ms": null, "error": error});
        serde_json::from_value(json!({"attempts": [attempt], "next_before": "1-a"})).unwrap()
    }

    #[test]
    fn an_attempt_leads_to_its_event_and_its_delivery() {
        let markup =
            content(&Form::parse(b"outcome=failed&before=2-b"), &part(Some("2026-01-31T12:00:01Z"), "failed", Some("<b>"))).0;
        for link in ["/console/accounts/5", "/console/webhooks/6", "/console/deliveries/11", "/console/events/2/17"] {
            assert!(markup.contains(&format!("\"{link}\"")), "{link}: {markup}");
        }
        assert!(markup.contains("badge bad") && markup.contains("&lt;b&gt;"), "{markup}");
        assert!(markup.contains("/console/attempts?outcome=failed&amp;before=1-a"), "{markup}");
        let unknown = rows(&part(None, "unknown", Some("the outcome is not known")).attempts).0;
        assert!(unknown.contains("Sent ") && !unknown.contains("the outcome"), "{unknown}");
    }

    #[test]
    fn a_part_without_a_match_is_not_the_end() {
        let query = Form::parse(b"outcome=failed");
        let text = |next_before: Option<&str>| {
            content(&query, &Part { attempts: vec![], next_before: next_before.map(ToOwned::to_owned) }).0
        };
        assert!(text(Some("1-a")).contains("Look at older ones") && text(None).contains("Show all attempts"));
    }

    #[test]
    fn both_minutes_are_included() {
        let target = ended("2026-01-31T12:05", "2026-01-31T12:05");
        let query = Form::parse(target.split_once('?').unwrap().1.as_bytes());
        assert_eq!(filters(&query).unwrap(), "since=2026-01-31T12%3A05%3A00Z&until=2026-01-31T12%3A06%3A00Z&limit=50");
    }
}
