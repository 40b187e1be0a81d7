//! Parts that several pages of the console share: the rights of an operator, and links to what events name.

use maud::{Markup, html};

use crate::access::Role;
use crate::pages::call::Refusal;
use crate::pages::form::{Form, address};
use crate::pages::parts::fields::Filled;
use crate::pages::parts::values::grouped;
use crate::pages::visit::Visit;

/// Number of characters of a request's ID in a table.
const SHORT: usize = 12;
/// Kinds of streams that have pages, with the paths of the pages.
const PAGES: [(&str, &str); 8] = [
    ("order", "/console/orders"),
    ("account", "/console/accounts"),
    ("webhook", "/console/webhooks"),
    ("wallet", "/console/wallets"),
    ("product", "/console/products"),
    ("payout", "/console/payouts"),
    ("approval", "/console/approvals"),
    ("purchase", "/console/purchases"),
];

/// Returns whether the operator may change everything.
pub fn is_admin(visit: &Visit) -> bool {
    visit.operator().is_ok_and(|operator| operator.may(Role::Admin))
}

/// Says that a change needs the role admin. `purpose` names the change.
pub fn needs_admin(purpose: &str) -> Markup {
    html! { p.quiet { "To " (purpose) ", you need the role admin." } }
}

/// Forms that change the role and the password of a person, whom `who` names. Both go to `target`.
pub fn sign_in_changes(
    visit: &Visit,
    target: &str,
    who: &str,
    role: &str,
    roles: &[(&str, &str)],
    refusal: Option<&Refusal>,
) -> Markup {
    let stored = Form::from_pairs(vec![("role".to_owned(), role.to_owned())]);
    let is_tried = |field: &str| refusal.is_some() && visit.form.text(field).is_some();
    let fields = Filled { form: &stored, refusal };
    html! {
        details.card open[is_tried("role")] {
            summary { "Change the role" }
            form method="post" action=(target) {
                (fields.select("role", "Role", roles, ""))
                p { "The change ends all sessions of the " (who) ", who has to sign in again." }
                button { "Change the role" }
            }
        }
        details.card open[is_tried("password")] {
            summary { "Set a password" }
            form method="post" action=(target) {
                (fields.new_password("password", "New password", "8 to 128 characters, and not a common one."))
                p { "The change ends all sessions of the " (who) ", who has to sign in with the new password." }
                button { "Set the password" }
            }
        }
    }
}

/// Returns the address of the audit with this field.
pub fn audit_of(field: &str, value: &str) -> String {
    address("/console/audit", &[(field, value)])
}

/// Links to the subject of an event, such as `order/42`: to its page, or to its events.
pub fn subject(text: &str) -> Markup {
    let page = text.split_once('/').and_then(|(kind, id)| {
        let (_, path) = PAGES.iter().find(|(known, _)| *known == kind)?;
        Some(format!("{path}/{}", id.parse::<i64>().ok()?))
    });
    html! { a href=(page.unwrap_or_else(|| audit_of("subject", text))) { (text) } }
}

/// Links to everything that a request did.
pub fn request(id: &str) -> Markup {
    html! { a href=(search_for(id)) { code { (id) } } }
}

/// Links to everything that a request did, with the beginning of its ID, for tables.
pub fn short_request(id: &str) -> Markup {
    let end = id.char_indices().nth(SHORT).map(|(at, _)| at);
    html! { a href=(search_for(id)) title=(id) { (&id[..end.unwrap_or(id.len())]) @if end.is_some() { "…" } } }
}

fn search_for(text: &str) -> String {
    address("/console/search", &[("q", text)])
}

/// Returns the name in a verifier key of the log or of a witness.
pub fn key_name(verifier_key: &str) -> &str {
    verifier_key.split('+').next().unwrap_or_default()
}

/// Links to the event at a position of the log of a shard. Position 0 has none.
pub fn position(shard: i16, position: i64) -> Markup {
    let shown = grouped(&position.to_string());
    html! { @if position > 0 { a href={ "/console/events/" (shard) "/" (position) } { (shown) } } @else { (shown) } }
}

/// Returns the address of a webhook's deliveries in a state, such as `due`.
pub fn deliveries_of_webhook(webhook: i64, state: &str) -> String {
    format!("/console/webhooks/{webhook}/queue?part={state}")
}

/// Returns the address of the deliveries in a state: of a shard, or of all shards.
pub fn deliveries_of_shard(shard: Option<i16>, state: &str) -> String {
    let shard = shard.map(|shard| format!("&shard_id={shard}")).unwrap_or_default();
    format!("/console/queue?part={state}{shard}")
}

/// Links to an account.
pub fn account(id: i64) -> Markup {
    html! { a href={ "/console/accounts/" (id) } { "Account " (id) } }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_request_is_cut_between_characters() {
        assert!(short_request("äöüäöüäöüäöüß").0.contains(">äöüäöüäöüäöü…<"));
        assert!(short_request("fulfilment").0.contains("href=\"/console/search?q=fulfilment\" title=\"fulfilment\">fulfilment<"));
    }

    #[test]
    fn a_subject_leads_to_its_page_or_to_its_events() {
        assert!(subject("order/42").0.contains("href=\"/console/orders/42\""));
        assert!(subject("replay/3").0.contains("href=\"/console/audit?subject=replay%2F3\""));
        let hostile = subject("order/<b>").0;
        assert!(hostile.contains("/console/audit?subject=order%2F%3Cb%3E") && !hostile.contains("<b>"), "{hostile}");
    }
}
