//! A webhook as several pages show it.

use chrono::{DateTime, Utc};
use maud::{Markup, html};
use serde::Deserialize;

use crate::pages::form::Form;
use crate::pages::parts::fields::Filled;
use crate::pages::parts::values::badge;
use crate::pages::shared::deactivation::Deactivation;
use crate::pages::visit::Visit;
use ledger_events::user::UserRole;

/// Types of events that a webhook can subscribe to, with their occasions.
pub const EVENTS: [(&str, &str); 10] = [
    ("order.created", "An order is placed"),
    ("order.pending", "Fulfilment starts"),
    ("order.partially_delivered", "Some units are delivered"),
    ("order.delivered", "All units are delivered"),
    ("order.cancelled", "An order is cancelled"),
    ("payout.requested", "A payout is requested"),
    ("payout.paid", "The money of a payout is sent"),
    ("payout.failed", "A payout fails, and the money returns"),
    ("payout.cancelled", "A payout is cancelled, and the money returns"),
    ("wallet.low_balance", "A balance falls below the amount of its notice"),
];

/// The choice of the time for which a replaced secret signs deliveries, too.
pub fn overlap() -> Markup {
    let times = [("", "Not at all"), ("1", "For 1 hour"), ("24", "For 24 hours"), ("168", "For 7 days")];
    let form = Form::default();
    let fields = Filled { form: &form, refusal: None };
    fields.select("previous_valid_hours", "Sign deliveries with the old one, too", &times, "In the header X-Signature-Previous.")
}

/// Path of the list that has all webhooks of an account.
pub const ALL: &str = "/api/v1/webhooks?limit=100";

/// A webhook, as `GET /api/v1/webhooks` returns it.
#[derive(Debug, Deserialize)]
pub struct Webhook {
    pub id: i64,
    pub name: String,
    pub url: String,
    pub events: Vec<String>,
    pub credential_id: Option<i64>,
    #[serde(default)]
    pub header_names: Vec<String>,
    pub is_active: bool,
    pub deactivation: Option<Deactivation>,
    pub created_at: DateTime<Utc>,
    pub updated_at: DateTime<Utc>,
}

impl Webhook {
    /// Renders whether the webhook receives events.
    pub fn state(&self) -> Markup {
        html! {
            (badge(if self.is_active { "active" } else { "inactive" }))
            @if self.deactivation.is_some() { " after failures" }
        }
    }
}

/// Returns whether the user has at least this role.
pub fn may(visit: &Visit, role: UserRole) -> bool {
    visit.user().is_ok_and(|user| user.may(role))
}

/// Names a webhook. Links to its page, unless it is deleted.
pub fn named(webhooks: &[Webhook], id: i64) -> Markup {
    html! {
        @match webhooks.iter().find(|webhook| webhook.id == id) {
            Some(webhook) => a href={ "/portal/webhooks/" (id) } { (webhook.name) },
            None => { "Webhook " (id) " (deleted)" },
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use ledger_events::webhook::WebhookEventType;

    use super::*;

    #[test]
    fn each_type_of_event_is_offered_once() {
        let offered: BTreeSet<&str> = EVENTS.iter().map(|(event, _)| *event).collect();
        assert_eq!(offered, BTreeSet::from(WebhookEventType::ALL.map(WebhookEventType::as_str)));
        assert_eq!(offered.len(), EVENTS.len());
    }
}
