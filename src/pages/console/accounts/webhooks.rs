//! The webhooks of an account, and one of them with its attempts by day.

use chrono::{DateTime, Utc};
use maud::{Markup, html};
use serde::Deserialize;

use super::{account, deliveries, page};
use crate::pages::call::List;
use crate::pages::console::attempts;
use crate::pages::console::parts::{audit_of, deliveries_of_webhook};
use crate::pages::outcome::PageResult;
use crate::pages::parts::table;
use crate::pages::parts::values::{MAX_LISTED, badge, beginning, copyable, facts, time};
use crate::pages::shared::attempt_days::AttemptDays;
use crate::pages::shared::deactivation::Deactivation;
use crate::pages::shared::delivery::Delivery;
use crate::pages::site::Site;
use crate::pages::visit::Visit;

/// Number of deliveries on the page of a webhook.
const LATEST: u64 = 10;

/// A webhook, as `GET /admin/v1/accounts/:id/webhooks` returns it.
#[derive(Debug, Deserialize)]
struct Webhook {
    id: i64,
    name: String,
    url: String,
    events: Vec<String>,
    credential_id: Option<i64>,
    is_active: bool,
    deactivation: Option<Deactivation>,
    created_at: DateTime<Utc>,
    updated_at: DateTime<Utc>,
}

/// A webhook with its account, as `GET /admin/v1/webhooks/:id` returns it.
#[derive(Debug, Deserialize)]
struct AnyWebhook {
    account_id: i64,
    is_deleted: bool,
    #[serde(flatten)]
    webhook: Webhook,
}

impl Webhook {
    /// Returns the name, or the number if the name is erased.
    fn title(&self) -> String {
        if self.name.is_empty() { format!("Webhook {}", self.id) } else { self.name.clone() }
    }

    fn state(&self) -> Markup {
        html! {
            (badge(if self.is_active { "active" } else { "inactive" }))
            @if self.deactivation.is_some() { " after failures" }
        }
    }
}

pub fn add(site: Site) -> Site {
    site.get("/console/accounts/:id/webhooks", list).get("/console/webhooks/:id", show)
}

async fn list(visit: Visit) -> PageResult {
    visit.operator()?;
    let id = visit.id("id")?;
    let path = format!("/admin/v1/accounts/{id}/webhooks?{}", visit.query.only(&["page"]));
    let (account, webhooks): (_, List<Webhook>) = futures::try_join!(account(&visit, id), visit.list(&path, "webhooks"))?;
    let body = html! {
        @if webhooks.items.is_empty() {
            (table::empty("The account has no webhook. Its people set one up in the portal, its programs through the API.", None))
        } @else {
            (rows(&webhooks.items))
            (table::pager(&webhooks, visit.path(), &visit.query))
        }
    };
    Ok(page(&visit, &account, &format!("Webhooks of {}", account.name), &body))
}

fn rows(webhooks: &[Webhook]) -> Markup {
    let columns = [("Webhook", false), ("URL", false), ("Events", false), ("Changed", false), ("Status", false)];
    let row = |webhook: &Webhook| {
        vec![
            html! { a href={ "/console/webhooks/" (webhook.id) } { (webhook.title()) } },
            html! { code { (beginning(&webhook.url, MAX_LISTED)) } },
            html! { (webhook.events.join(", ")) },
            time(webhook.updated_at),
            webhook.state(),
        ]
    };
    table::table("Webhooks", &columns, &webhooks.iter().map(row).collect::<Vec<_>>())
}

async fn show(visit: Visit) -> PageResult {
    visit.operator()?;
    let AnyWebhook { account_id, is_deleted, webhook } = visit.get(&format!("/admin/v1/webhooks/{}", visit.id("id")?)).await?;
    let latest = format!("/admin/v1/accounts/{account_id}/deliveries?webhook_url_id={}&limit={LATEST}", webhook.id);
    let days = format!("/admin/v1/webhooks/{}/stats?days=30", webhook.id);
    let (account, latest, days): (_, List<Delivery>, AttemptDays) =
        futures::try_join!(account(&visit, account_id), visit.list(&latest, "deliveries"), visit.get(&days))?;
    let key = |key: i64| {
        html! { "the signing secret of " a href={ "/console/accounts/" (account_id) "/credentials/" (key) } { "API key " (key) } }
    };
    let body = html! {
        @if let Some(deactivation) = webhook.deactivation.filter(|_| !is_deleted) {
            p.notice.wait {
                (deactivation.told()) " Owners of the account get a mail. They repair their endpoint, and switch the webhook on in "
                "the portal."
            }
        }
        (facts(&[
            ("Status", if is_deleted { badge("deleted") } else { webhook.state() }),
            ("Account", html! { a href={ "/console/accounts/" (account_id) } { (account.name) } }),
            ("Number", copyable(&webhook.id.to_string())),
            ("URL", copyable(&webhook.url)),
            ("Events", html! { (webhook.events.join(", ")) }),
            ("Signed with", webhook.credential_id.map_or_else(|| html! { "a token of its own" }, key)),
            ("Created", time(webhook.created_at)),
            ("Changed", time(webhook.updated_at)),
        ]))
        h2 { "Attempts" }
        (days.plots(|day| attempts::of_day(webhook.id, day)))
        p { a href=(attempts::of_webhook(webhook.id)) { "All attempts of this webhook" } }
        h2 { "Latest deliveries" }
        @if latest.items.is_empty() { (table::empty("Nothing was sent to this webhook yet. The next event that it is subscribed to is.", None)) }
        @else {
            (deliveries::rows("Latest deliveries", &latest.items))
            p { a href={ "/console/accounts/" (account_id) "/deliveries?webhook_url_id=" (webhook.id) } { "All deliveries of this webhook" } }
        }
        p.actions {
            a href=(deliveries_of_webhook(webhook.id, "due")) { "Deliveries that wait" }
            a href={ "/console/replays?webhook_id=" (webhook.id) } { "Replays to this webhook" }
            a href=(audit_of("subject", &format!("webhook/{}", webhook.id))) { "Changes of this webhook in the audit" }
        }
    };
    Ok(page(&visit, &account, &webhook.title(), &body))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn names_and_urls_are_escaped() {
        let webhook = |name: &str| -> Webhook {
            let url = format!("https://shop.example/<i>{}", "&".repeat(2_000));
            let webhook = json!({"id": 6, "name": name, "url": url, "events": ["order.created"],
                "credential_id": null, "is_active": false, "created_at": "2026-01-31T12:00:00Z",
                "updated_at": "2026-01-31T12:00:00Z"});
            serde_json::from_value(webhook).unwrap()
        };
        let markup = rows(&[webhook("<b>"), webhook("")]).0;
        assert!(!markup.contains("<b>") && !markup.contains("<i>") && markup.contains("Webhook 6"), "{markup}");
        assert!(markup.len() < 5_000 && markup.contains("&amp;…"), "a long URL is cut: {}", markup.len());
    }
}
