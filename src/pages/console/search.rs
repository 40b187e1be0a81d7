//! The search over everything that support staff get from clients.

use maud::{Markup, html};
use poem::Response;
use serde::Deserialize;

use super::parts::subject;
use crate::pages::call::Refusal;
use crate::pages::form::Form;
use crate::pages::outcome::{PageResult, redirect};
use crate::pages::parts::fields::Filled;
use crate::pages::parts::{layout, table};
use crate::pages::site::Site;
use crate::pages::visit::{Visit, corrected};

/// Kinds of results, with their headings.
const KINDS: [(&str, &str); 8] = [
    ("order", "Orders"),
    ("account", "Accounts"),
    ("user", "Users"),
    ("credential", "API keys"),
    ("webhook", "Webhooks"),
    ("payout", "Payouts"),
    ("transaction", "Fundings"),
    ("event", "Events"),
];
/// Largest number of results of one kind, by which the API limits them.
const MAX_HITS: usize = 20;

/// A result, as `GET /admin/v1/search` returns it.
#[derive(Debug, Deserialize)]
struct Found {
    kind: String,
    id: i64,
    account_id: Option<i64>,
    title: String,
    shard_id: Option<i16>,
    stream: Option<String>,
}

impl Found {
    /// Returns the address of the page that shows the result.
    fn target(&self) -> String {
        let of_account = |part: &str| match self.account_id {
            Some(account) => format!("/console/accounts/{account}/{part}/{}", self.id),
            None => "/console/accounts".to_owned(),
        };
        match self.kind.as_str() {
            "order" => format!("/console/orders/{}", self.id),
            "account" => format!("/console/accounts/{}", self.id),
            "user" => of_account("users"),
            "credential" => of_account("credentials"),
            "webhook" => format!("/console/webhooks/{}", self.id),
            "payout" => format!("/console/payouts/{}", self.id),
            "transaction" => format!("/console/transactions/{}", self.id),
            _ => format!("/console/events/{}/{}", self.shard_id.unwrap_or_default(), self.id),
        }
    }

    /// Names the result. Its title is empty after an erasure.
    fn name(&self) -> String {
        match (&*self.kind, &*self.title) {
            ("event", title) => format!("{title} at {}", self.id),
            (_, "") => format!("Number {}", self.id),
            (_, title) => title.to_owned(),
        }
    }
}

pub fn add(site: Site) -> Site {
    site.get("/console/search", show)
}

/// The box that searches. It stands on the start page too.
pub fn search_box(fields: &Filled<'_>) -> Markup {
    let hint = "An order's number or reference, a payout's or a funding's reference, an account's number or name, the first 8 characters of an API key, a user's email, \
        a webhook's number, an event's ID, or a request's ID.";
    html! {
        form.card role="search" method="get" action="/console/search" {
            (fields.input("q", "Search for", "search", hint))
            button { "Search" }
        }
    }
}

/// Searches. A single result leads to its page at once.
async fn show(visit: Visit) -> PageResult {
    visit.operator()?;
    if visit.query.text("q").is_none() {
        return Ok(page(&visit, None, None));
    }
    match visit.list::<Found>(&format!("/admin/v1/search?{}", visit.query.only(&["q"])), "results").await {
        Ok(found) => match &*found.items {
            [only] => Ok(redirect(&only.target())),
            found => Ok(page(&visit, Some(found), None)),
        },
        Err(refusal) => corrected(refusal, |refusal| layout::refused(page(&visit, None, Some(refusal)), refusal)),
    }
}

fn page(visit: &Visit, found: Option<&[Found]>, refusal: Option<&Refusal>) -> Response {
    let body = html! {
        (layout::problem(refusal))
        (search_box(&Filled { form: &visit.query, refusal }))
        @if let Some(found) = found {
            @if found.is_empty() { (nothing(&visit.query)) }
            @for (kind, heading) in KINDS { (group(heading, &found.iter().filter(|one| one.kind == kind).collect::<Vec<_>>())) }
        }
    };
    layout::page(visit, "Search", &body)
}

fn nothing(query: &Form) -> Markup {
    let text = format!("Nothing has the number, name or ID “{}”.", query.value("q"));
    table::empty(&text, Some(("/console/orders", "Filter the orders instead")))
}

/// A table of results of one kind.
fn group(heading: &'static str, found: &[&Found]) -> Markup {
    let columns = [("Result", false), ("Account", false), ("Subject", false)];
    let width = if found.iter().any(|one| one.stream.is_some()) { 3 } else { 2 };
    let row = |one: &&Found| {
        let account = html! { @match one.account_id { Some(account) => (super::parts::account(account)), None => "–" } };
        let mut cells = vec![html! { a href=(one.target()) { (one.name()) } }, account];
        cells.extend(one.stream.as_deref().map(subject));
        cells
    };
    html! {
        @if !found.is_empty() {
            h2 { (heading) }
            (table::table(heading, &columns[..width], &found.iter().map(row).collect::<Vec<_>>()))
            @if found.len() >= MAX_HITS { p.quiet { "The first " (MAX_HITS) " are shown." } }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn found(kind: &str, title: &str) -> Found {
        let found = json!({"kind": kind, "id": 5, "account_id": 3, "title": title, "shard_id": 1, "event_id": null,
            "stream": if kind == "event" { Some("order/9") } else { None }});
        serde_json::from_value(found).unwrap()
    }

    #[test]
    fn each_kind_leads_to_its_page() {
        for (kind, target) in [
            ("order", "/console/orders/5"),
            ("account", "/console/accounts/5"),
            ("user", "/console/accounts/3/users/5"),
            ("credential", "/console/accounts/3/credentials/5"),
            ("webhook", "/console/webhooks/5"),
            ("payout", "/console/payouts/5"),
            ("transaction", "/console/transactions/5"),
            ("event", "/console/events/1/5"),
        ] {
            assert_eq!(found(kind, "").target(), target);
        }
    }

    #[test]
    fn titles_are_escaped_and_an_erased_one_has_a_name() {
        let (hostile, erased, event) = (found("account", "<b>"), found("user", ""), found("event", "OrderPlaced"));
        let markup = group("Results", &[&hostile, &erased, &event]).0;
        assert!(!markup.contains("<b>") && markup.contains("Number 5") && markup.contains("OrderPlaced at 5"), "{markup}");
        assert!(markup.contains("/console/orders/9"), "{markup}");
    }
}
