//! The health of webhooks: attempts and latency of each one in the last days.

use maud::{Markup, html};
use serde::Deserialize;

use crate::pages::form::address;
use crate::pages::parts::plot::{Label, Series, bars_by};
use crate::pages::parts::table;
use crate::pages::parts::values::{counted, grouped};
use crate::pages::shared::attempt_days::{AttemptDays, AttemptTotal};
use crate::pages::shared::deactivation::Deactivation;

/// Path of the attempts of all webhooks in the days that the plots show.
pub const ATTEMPTS: &str = "/api/v1/webhooks/stats?days=7";

/// A webhook, as `GET /api/v1/webhooks` returns it.
#[derive(Debug, Deserialize)]
pub struct Webhook {
    pub id: i64,
    pub name: String,
    pub is_active: bool,
    pub deactivation: Option<Deactivation>,
}

/// Attempts of all webhooks by day, as `GET /api/v1/webhooks/stats` returns them.
#[derive(Debug, Deserialize)]
pub struct Attempts {
    webhooks: Vec<OfWebhook>,
}

#[derive(Debug, Deserialize)]
struct OfWebhook {
    webhook_id: i64,
    #[serde(flatten)]
    days: AttemptDays,
}

impl Attempts {
    fn of(&self, webhook: i64) -> AttemptTotal {
        let found = self.webhooks.iter().find(|of| of.webhook_id == webhook);
        found.map(|of| of.days.total()).unwrap_or_default()
    }
}

/// Renders plots of attempts and latency by webhook.
pub fn plots(webhooks: &[Webhook], attempts: &Attempts) -> Markup {
    if webhooks.is_empty() {
        return table::empty("No webhook tells your systems of orders yet.", Some(("/portal/webhooks", "Set up a webhook")));
    }
    let totals: Vec<(&Webhook, AttemptTotal)> = webhooks.iter().map(|webhook| (webhook, attempts.of(webhook.id))).collect();
    let period = attempts.webhooks.first().and_then(|of| of.days.period());
    let Some((first, last)) = period.filter(|_| totals.iter().any(|(_, total)| total.attempts > 0)) else {
        return table::empty(
            "Nothing was sent in the last 7 days. Order something, or send a test.",
            Some(("/portal/webhooks", "Webhooks")),
        );
    };
    let days = (first, last);
    // The drawing shows numbers, because names have any length.
    let label = |(webhook, _): &(&Webhook, AttemptTotal)| Label {
        text: format!("Webhook {}", webhook.id),
        at: None,
        target: Some(attempts_of(webhook.id, days, "")),
    };
    let labels: Vec<Label> = totals.iter().map(label).collect();
    let series = |name, counted, value: fn(&AttemptTotal) -> i64| Series {
        name,
        values: totals.iter().map(|(_, total)| value(total) as f64).collect(),
        counted,
    };
    let outcomes = [
        series("Delivered", Some("outcome=delivered"), |total| total.delivered),
        series("Failed", Some("outcome=failed"), |total| total.failed),
    ];
    let latency = [series("Average", None, |total| total.average_ms), series("Longest", None, |total| total.longest_ms)];
    html! {
        p.quiet {
            "Attempts that ended in the last 7 days (UTC), from " (first) " to " (last) ". The page of a webhook has its attempts by day."
        }
        (rows(&totals, days))
        div.grid {
            (bars_by("Attempts by webhook", "Webhook", "attempts", &labels, &outcomes))
            (bars_by("Response time by webhook, in milliseconds", "Webhook", "ms", &labels, &latency))
        }
    }
}

/// Returns the address of the deliveries of a webhook.
pub fn deliveries_of(webhook: i64) -> String {
    format!("/portal/webhooks/deliveries?webhook_url_id={webhook}")
}

/// Returns the address of the attempts of a webhook that ended in some days. `outcome` may be empty.
fn attempts_of(webhook: i64, (first, last): (&str, &str), outcome: &str) -> String {
    let (from, to) = (format!("{first}T00:00"), format!("{last}T23:59"));
    address(&format!("/portal/webhooks/{webhook}/attempts"), &[("outcome", outcome), ("from", &from), ("to", &to)])
}

fn rows(totals: &[(&Webhook, AttemptTotal)], days: (&str, &str)) -> Markup {
    let columns = [
        ("Webhook", false),
        ("Attempts", true),
        ("Delivered", true),
        ("Failed", true),
        ("Average, ms", true),
        ("Longest, ms", true),
    ];
    let row = |(webhook, total): &(&Webhook, AttemptTotal)| {
        let ended = |count: i64, outcome: &str| counted(count, &attempts_of(webhook.id, days, outcome));
        vec![
            html! { a href={ "/portal/webhooks/" (webhook.id) } { (webhook.name) } " " span.quiet { "(" (webhook.id) ")" } },
            ended(total.attempts, ""),
            ended(total.delivered, "delivered"),
            ended(total.failed, "failed"),
            html! { (grouped(&total.average_ms.to_string())) },
            html! { (grouped(&total.longest_ms.to_string())) },
        ]
    };
    table::table("Health of webhooks", &columns, &totals.iter().map(row).collect::<Vec<_>>())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn webhook(id: i64, name: &str) -> Webhook {
        Webhook { id, name: name.to_owned(), is_active: true, deactivation: None }
    }

    fn attempts(of: &[(i64, i64)]) -> Attempts {
        let day = |day: &str, count: i64| json!({"day": day, "attempts": count, "delivered": 0, "failed": count, "average_ms": null, "longest_ms": null});
        let webhook =
            |(id, count): &(i64, i64)| json!({"webhook_id": id, "days": [day("2026-01-30", *count), day("2026-01-31", 0)]});
        serde_json::from_value(json!({"webhooks": of.iter().map(webhook).collect::<Vec<_>>()})).unwrap()
    }

    #[test]
    fn a_busy_webhook_hides_no_other_one() {
        let markup = plots(&[webhook(1, "a"), webhook(2, "b")], &attempts(&[(2, 90_000), (1, 2)])).0;
        let days = "from=2026-01-30T00%3A00&amp;to=2026-01-31T23%3A59";
        let failed = |id: i64, count: &str| format!("/portal/webhooks/{id}/attempts?outcome=failed&amp;{days}\">{count}<");
        let all = format!("/portal/webhooks/1/attempts?{days}\">2<");
        for text in [all, failed(1, "2"), failed(2, &grouped("90000")), "from 2026-01-30 to 2026-01-31".to_owned()] {
            assert!(markup.contains(&text), "{text}: {markup}");
        }
    }

    #[test]
    fn names_are_escaped() {
        let webhooks = [webhook(1, "<b>shop</b>")];
        let markup = plots(&webhooks, &attempts(&[(1, 3)])).0;
        assert!(!markup.contains("<b>") && markup.contains("Webhook 1"), "{markup}");
        assert!(plots(&webhooks, &attempts(&[(1, 0)])).0.contains("Nothing was sent"));
        assert!(plots(&[], &attempts(&[])).0.contains("Set up a webhook"));
    }
}
