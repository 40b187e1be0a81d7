//! The rate limits that count an account, its API keys and its users, with what is used of them.

use chrono::{DateTime, Utc};
use maud::{Markup, html};
use serde::Deserialize;

use super::{account, page};
use crate::pages::call::List;
use crate::pages::outcome::PageResult;
use crate::pages::parts::table;
use crate::pages::parts::values::{time, words};
use crate::pages::site::Site;
use crate::pages::visit::Visit;

/// A limit, as `GET /admin/v1/accounts/:id/limits` returns it.
#[derive(Debug, Deserialize)]
struct Limit {
    rule: String,
    subject: String,
    subject_id: i64,
    limit: i32,
    used: i32,
    remaining: i32,
    closes_at: DateTime<Utc>,
}

pub fn add(site: Site) -> Site {
    site.get("/console/accounts/:id/limits", list)
}

async fn list(visit: Visit) -> PageResult {
    visit.operator()?;
    let id = visit.id("id")?;
    let path = format!("/admin/v1/accounts/{id}/limits");
    let (account, limits): (_, List<Limit>) = futures::try_join!(account(&visit, id), visit.list(&path, "limits"))?;
    let body = html! {
        p { "A limit counts the requests of a window of time. A limit that is not here has counted none lately." }
        @if limits.items.is_empty() { (table::empty("No limit has counted a request of this account lately.", None)) }
        @else { (rows(account.id, &limits.items)) }
        p.actions { a href=(visit.path()) { "Count again" } }
    };
    Ok(page(&visit, &account, &format!("Limits in use by {}", account.name), &body))
}

fn rows(account: i64, limits: &[Limit]) -> Markup {
    let columns =
        [("Limit", false), ("Counts", false), ("Used", true), ("Left", true), ("Share", false), ("Window closes", false)];
    let row = |limit: &Limit| {
        let name = format!("{} of {} used", limit.used, limit.limit);
        vec![
            html! { code { (limit.rule) } },
            counted(account, limit),
            html! { (limit.used) " of " (limit.limit) },
            html! { (limit.remaining) },
            html! { progress value=(limit.used) max=(limit.limit.max(1)) aria-label=(name) {} },
            time(limit.closes_at),
        ]
    };
    table::table("Limits in use", &columns, &limits.iter().map(row).collect::<Vec<_>>())
}

/// Links to the caller that a limit counts.
fn counted(account: i64, limit: &Limit) -> Markup {
    let part = match limit.subject.as_str() {
        "credential" => "credentials",
        "user" => "users",
        _ => return html! { "The whole account" },
    };
    let name = if part == "users" { words("user") } else { "API key".to_owned() };
    html! { a href={ "/console/accounts/" (account) "/" (part) "/" (limit.subject_id) } { (name) " " (limit.subject_id) } }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_limit_leads_to_the_caller_that_it_counts() {
        let limit = |subject: &str| -> Limit {
            let limit = json!({"rule": "orders", "subject": subject, "subject_id": 4, "limit": 60, "used": 12, "remaining": 48,
                "closes_at": "2026-01-31T12:00:00Z"});
            serde_json::from_value(limit).unwrap()
        };
        let markup = rows(3, &[limit("account"), limit("credential"), limit("user")]).0;
        assert!(
            markup.contains("/console/accounts/3/credentials/4") && markup.contains("/console/accounts/3/users/4"),
            "{markup}"
        );
        assert!(markup.contains("12 of 60 used"), "{markup}");
    }
}
