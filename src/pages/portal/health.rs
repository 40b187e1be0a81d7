//! The health of webhooks: attempts and latency of their latest deliveries.

use maud::{Markup, html};
use serde::Deserialize;

use crate::pages::form::address;
use crate::pages::parts::plot::{Label, Series, bars_by};
use crate::pages::parts::table;
use crate::pages::shared::deactivation::Deactivation;

/// A webhook, as `GET /api/v1/webhooks` returns it.
#[derive(Debug, Deserialize)]
pub struct Webhook {
    pub id: i64,
    pub name: String,
    pub is_active: bool,
    pub deactivation: Option<Deactivation>,
}

/// A delivery, as `GET /api/v1/webhooks/deliveries` returns it.
#[derive(Debug, Deserialize)]
pub struct Delivery {
    webhook_url_id: i64,
    status: String,
    attempt_count: i16,
    response_time_ms: Option<i32>,
}

/// Figures of one webhook.
#[derive(Debug, Default, PartialEq)]
struct Health {
    deliveries: usize,
    failed: usize,
    pending: usize,
    attempts: i64,
    /// Durations of the latest attempts of its deliveries, in milliseconds: the median, and the longest.
    median: i32,
    longest: i32,
}

impl Health {
    fn of(webhook: i64, deliveries: &[Delivery]) -> Health {
        let own: Vec<&Delivery> = deliveries.iter().filter(|delivery| delivery.webhook_url_id == webhook).collect();
        let with = |status: &str| own.iter().filter(|delivery| delivery.status == status).count();
        let mut durations: Vec<i32> = own.iter().filter_map(|delivery| delivery.response_time_ms).collect();
        durations.sort_unstable();
        Health {
            deliveries: own.len(),
            failed: with("failed"),
            pending: with("pending"),
            attempts: own.iter().map(|delivery| i64::from(delivery.attempt_count)).sum(),
            median: durations.get(durations.len() / 2).copied().unwrap_or_default(),
            longest: durations.last().copied().unwrap_or_default(),
        }
    }
}

/// Renders plots of attempts and latency by webhook. `deliveries` are the account's latest ones.
pub fn plots(webhooks: &[Webhook], deliveries: &[Delivery]) -> Markup {
    if webhooks.is_empty() {
        return table::empty("No webhook tells your systems of orders yet.", Some(("/portal/webhooks", "Set up a webhook")));
    }
    if deliveries.is_empty() {
        return table::empty(
            "Nothing was delivered yet. Order something, or send a test.",
            Some(("/portal/webhooks", "Webhooks")),
        );
    }
    let health: Vec<Health> = webhooks.iter().map(|webhook| Health::of(webhook.id, deliveries)).collect();
    // The drawing shows numbers, because names have any length.
    let label = |(webhook, health): (&Webhook, &Health)| Label {
        text: format!("Webhook {}", webhook.id),
        target: Some(latest(Some(webhook.id), health.deliveries, "")),
    };
    let labels: Vec<Label> = webhooks.iter().zip(&health).map(label).collect();
    let series = |name, value: fn(&Health) -> f64| Series { name, values: health.iter().map(value).collect() };
    let attempts =
        [series("Attempts", |health| health.attempts as f64), series("Failed deliveries", |health| health.failed as f64)];
    let latency = [series("Median", |health| f64::from(health.median)), series("Longest", |health| f64::from(health.longest))];
    html! {
        p.quiet { "Figures of " a href=(latest(None, deliveries.len(), "")) { "the latest " (deliveries.len()) " deliveries" } "." }
        (rows(webhooks, &health))
        div.grid {
            (bars_by("Attempts by webhook", "Webhook", "attempts", &labels, &attempts))
            (bars_by("Response time by webhook, in milliseconds", "Webhook", "ms", &labels, &latency))
        }
    }
}

/// Returns the address of the deliveries of a webhook.
pub fn deliveries_of(webhook: i64) -> String {
    format!("/portal/webhooks/deliveries?webhook_url_id={webhook}")
}

/// Returns the address of the latest deliveries, of a webhook or of all, as many as were counted. `status` may be empty.
pub fn latest(webhook: Option<i64>, count: usize, status: &str) -> String {
    let (limit, webhook) = (count.clamp(1, 100).to_string(), webhook.map(|id| id.to_string()).unwrap_or_default());
    address("/portal/webhooks/deliveries", &[("limit", &limit), ("webhook_url_id", &webhook), ("status", status)])
}

fn rows(webhooks: &[Webhook], health: &[Health]) -> Markup {
    let columns =
        [("Webhook", false), ("Deliveries", true), ("Failed", true), ("Pending", true), ("Attempts", true), ("Median, ms", true)];
    let row = |(webhook, health): (&Webhook, &Health)| {
        let counted = |count: usize, status: &str| {
            // Without one among the latest, a list would show older ones.
            html! { @if count > 0 { a href=(latest(Some(webhook.id), count, status)) { (count) } } @else { "0" } }
        };
        vec![
            html! { a href={ "/portal/webhooks/" (webhook.id) } { (webhook.name) } " " span.quiet { "(" (webhook.id) ")" } },
            counted(health.deliveries, ""),
            counted(health.failed, "failed"),
            counted(health.pending, "pending"),
            html! { (health.attempts) },
            html! { (health.median) },
        ]
    };
    table::table("Health of webhooks", &columns, &webhooks.iter().zip(health).map(row).collect::<Vec<_>>())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn delivery(webhook: i64, status: &str, attempts: i16, duration: Option<i32>) -> Delivery {
        Delivery { webhook_url_id: webhook, status: status.to_owned(), attempt_count: attempts, response_time_ms: duration }
    }

    #[test]
    fn the_health_of_a_webhook_counts_its_own_deliveries() {
        let deliveries = [
            delivery(1, "delivered", 1, Some(10)),
            delivery(1, "failed", 5, Some(900)),
            delivery(1, "pending", 0, None),
            delivery(2, "delivered", 1, Some(1)),
        ];
        let health = Health::of(1, &deliveries);
        assert_eq!(health, Health { deliveries: 3, failed: 1, pending: 1, attempts: 6, median: 900, longest: 900 });
        assert_eq!(Health::of(3, &deliveries), Health::default());
    }

    #[test]
    fn names_are_escaped() {
        let webhooks = [Webhook { id: 1, name: "<b>shop</b>".to_owned(), is_active: true, deactivation: None }];
        let markup = plots(&webhooks, &[delivery(1, "failed", 1, Some(10))]).0;
        assert!(!markup.contains("<b>") && markup.contains("Webhook 1"), "{markup}");
        for link in ["?limit=1\"", "?limit=1&amp;webhook_url_id=1\"", "?limit=1&amp;webhook_url_id=1&amp;status=failed"] {
            assert!(markup.contains(&format!("/portal/webhooks/deliveries{link}")), "{link}: {markup}");
        }
        assert!(plots(&[], &[]).0.contains("Set up a webhook"));
    }
}
