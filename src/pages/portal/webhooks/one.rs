//! One webhook: its facts, its attempts and their latency by day, its latest deliveries, and its changes.

use maud::{Markup, html};
use poem::Response;
use poem::http::Method;
use serde::Deserialize;
use serde_json::{Value, json};

use super::attempts::of_day;
use super::{body, headers, inputs, linkable, signing};
use crate::pages::call::{List, Refusal};
use crate::pages::form::{Form, KEY, Kind, new_key};
use crate::pages::outcome::{PageResult, redirect};
use crate::pages::parts::fields::Filled;
use crate::pages::parts::values::{copyable, facts, once, time};
use crate::pages::parts::{layout, table};
use crate::pages::portal::api_keys::ApiKey;
use crate::pages::portal::deliveries;
use crate::pages::portal::health::deliveries_of;
use crate::pages::portal::webhook::{Webhook, may, overlap};
use crate::pages::shared::attempt_days::AttemptDays;
use crate::pages::shared::deactivation::Deactivation;
use crate::pages::shared::delivery::Delivery;
use crate::pages::site::Site;
use crate::pages::visit::{Visit, corrected};
use ledger_events::user::UserRole;

/// Number of deliveries on the page of a webhook.
const LATEST: u64 = 10;

#[derive(Debug, Deserialize)]
struct Rotated {
    token: String,
}

/// A webhook with everything that its page shows.
#[derive(Debug)]
struct Shown {
    webhook: Webhook,
    statistics: AttemptDays,
    deliveries: List<Delivery>,
    keys: Vec<ApiKey>,
}

pub fn add(site: Site) -> Site {
    site.get("/portal/webhooks/:id", show)
        .post("/portal/webhooks/:id", edit)
        .post("/portal/webhooks/:id/test", test)
        .post("/portal/webhooks/:id/switch", switch)
        .post("/portal/webhooks/:id/rotate-token", rotate)
        .get("/portal/webhooks/:id/delete", confirm)
        .post("/portal/webhooks/:id/delete", delete)
}

async fn load(visit: &Visit, id: i64) -> Result<Shown, Refusal> {
    let (webhook, statistics) = (format!("/api/v1/webhooks/{id}"), format!("/api/v1/webhooks/{id}/stats?days=30"));
    let deliveries = format!("/api/v1/webhooks/deliveries?webhook_url_id={id}&limit={LATEST}");
    let (webhook, statistics, deliveries, keys) =
        futures::try_join!(visit.get(&webhook), visit.get(&statistics), visit.list(&deliveries, "deliveries"), linkable(visit),)?;
    Ok(Shown { webhook, statistics, deliveries, keys })
}

async fn show(visit: Visit) -> PageResult {
    visit.user()?;
    let shown = load(&visit, visit.id("id")?).await?;
    Ok(page(&visit, &shown, None, None))
}

/// Shows the webhook again with the refusal of a change. `form` has the fields of a refused edit.
async fn again(visit: &Visit, id: i64, form: Option<&Form>, refusal: Refusal) -> PageResult {
    if !refusal.is_correctable() {
        return Err(refusal.into());
    }
    let shown = load(visit, id).await?;
    corrected(refusal, |refusal| layout::refused(page(visit, &shown, form, Some(refusal)), refusal))
}

async fn edit(visit: Visit) -> PageResult {
    visit.user()?;
    let id = visit.id("id")?;
    let path = format!("/api/v1/webhooks/{id}");
    let webhook: Webhook = visit.get(&path).await?;
    let mut body = body(&visit.form, webhook.credential_id);
    for name in ["name", "url"] {
        // The API keeps a field that is left out, so an empty one is sent for it to refuse.
        if visit.form.text(name).is_none() {
            body[name] = "".into();
        }
    }
    match visit.change::<Value>(Method::PUT, &path, &body).await {
        Ok(_) => Ok(redirect(&format!("/portal/webhooks/{id}?done=changed"))),
        Err(refusal) => again(&visit, id, Some(&visit.form), refusal).await,
    }
}

/// Sends a test, and leads to its delivery.
async fn test(visit: Visit) -> PageResult {
    visit.user()?;
    let id = visit.id("id")?;
    let key = visit.form.key();
    match visit.change_once::<Value>(&format!("/api/v1/webhooks/{id}/test"), &key, &json!({})).await {
        // The delivery has no page of its own before it is projected.
        Ok(_) => Ok(redirect(&format!("/portal/webhooks/{id}?done=sent"))),
        Err(refusal) => again(&visit, id, None, refusal).await,
    }
}

async fn switch(visit: Visit) -> PageResult {
    visit.user()?;
    let id = visit.id("id")?;
    let body = json!({"is_active": visit.form.value("to") == "on"});
    match visit.change::<Value>(Method::PUT, &format!("/api/v1/webhooks/{id}"), &body).await {
        Ok(_) => Ok(redirect(&format!("/portal/webhooks/{id}?done=changed"))),
        Err(refusal) => again(&visit, id, None, refusal).await,
    }
}

/// Replaces the token, and shows the new one. It is in this response alone, so no redirect follows.
async fn rotate(visit: Visit) -> PageResult {
    visit.user()?;
    let id = visit.id("id")?;
    let key = visit.form.key();
    let body = visit.form.json(&[("previous_valid_hours", Kind::Number)]);
    let rotated = match visit.change_once::<Rotated>(&format!("/api/v1/webhooks/{id}/rotate-token"), &key, &body).await {
        Ok(rotated) => rotated,
        Err(refusal) => return again(&visit, id, None, refusal).await,
    };
    let body = html! {
        p { "The new token signs every delivery from now on." }
        (once(&[("Token", &rotated.token)]))
        p { a.button href={ "/portal/webhooks/" (id) } { "To the webhook" } }
    };
    Ok(layout::page(&visit, "The webhook's new token", &body))
}

async fn confirm(visit: Visit) -> PageResult {
    visit.user()?;
    let webhook: Webhook = visit.get(&format!("/api/v1/webhooks/{}", visit.id("id")?)).await?;
    let body = html! {
        p { "“" (webhook.name) "” sends to " code { (webhook.url) } "." }
        p { "After the deletion, it receives no events. Its pending deliveries fail. The history of its deliveries is kept." }
        div.actions {
            form method="post" action={ "/portal/webhooks/" (webhook.id) "/delete" } { button.danger { "Delete the webhook" } }
            a.button.plain href={ "/portal/webhooks/" (webhook.id) } { "Keep it" }
        }
    };
    Ok(layout::page(&visit, "Delete this webhook?", &body))
}

async fn delete(visit: Visit) -> PageResult {
    visit.user()?;
    let id = visit.id("id")?;
    visit.change::<Value>(Method::DELETE, &format!("/api/v1/webhooks/{id}"), &json!({})).await?;
    Ok(redirect("/portal/webhooks?done=deleted"))
}

fn page(visit: &Visit, shown: &Shown, form: Option<&Form>, refusal: Option<&Refusal>) -> Response {
    let Shown { webhook, statistics, deliveries, keys } = shown;
    let stored = stored(webhook);
    let fields = Filled { form: form.unwrap_or(&stored), refusal };
    let body = html! {
        (layout::problem(refusal))
        @if let Some(deactivation) = &webhook.deactivation { (deactivated(webhook, deactivation)) }
        (facts(&[
            ("Status", webhook.state()),
            ("URL", copyable(&webhook.url)),
            ("Events", html! { (webhook.events.join(", ")) }),
            ("Signed with", html! {
                @match webhook.credential_id {
                    Some(key) => { "the signing secret of " a href="/portal/api-keys" { "API key " (key) } },
                    None => "a token of its own",
                }
            }),
            ("Headers of your own", html! { @if webhook.header_names.is_empty() { "none" } @else { (webhook.header_names.join(", ")) } }),
            ("Created", time(webhook.created_at)),
            ("Changed", time(webhook.updated_at)),
        ]))
        @if may(visit, UserRole::Operator) {
            (actions(webhook))
            details.card open[form.is_some()] {
                summary { "Edit this webhook" }
                form method="post" action={ "/portal/webhooks/" (webhook.id) } {
                    (inputs(&fields))
                    (headers(&fields, &webhook.header_names))
                    (signing(&fields, keys, webhook.credential_id))
                    button { "Save" }
                }
            }
        } @else { p.quiet { "To change webhooks, you need the role operator or owner." } }
        (question(webhook))
        h2 { "Attempts" }
        (statistics.plots(|day| of_day(webhook.id, day)))
        p { a href={ "/portal/webhooks/" (webhook.id) "/attempts" } { "All attempts of this webhook" } }
        h2 { "Latest deliveries" }
        @if deliveries.items.is_empty() { (table::empty("Nothing was sent to this webhook yet. Send a test.", None)) }
        @else {
            (deliveries::rows("Latest deliveries", &deliveries.items, std::slice::from_ref(webhook)))
            p { a href=(deliveries_of(webhook.id)) { "All deliveries of this webhook" } }
        }
    };
    layout::page(visit, &webhook.name, &body)
}

/// Says why the service switched the webhook off, and what to do.
fn deactivated(webhook: &Webhook, deactivation: &Deactivation) -> Markup {
    html! {
        div.notice.wait {
            p { (deactivation.told()) " It receives no events until somebody switches it on." }
            ol {
                li { "Look at the latest deliveries for what your endpoint answered, and repair it." }
                li { "Switch the webhook on, and send a test." }
                li { a href={ "/portal/webhooks/" (webhook.id) "/replays" } { "Deliver again what failed or was missed" } "." }
            }
        }
    }
}

/// Returns the fields of a webhook as a form has them.
fn stored(webhook: &Webhook) -> Form {
    let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
    let mut pairs = vec![pair("name", &webhook.name), pair("url", &webhook.url)];
    pairs.extend(webhook.events.iter().map(|event| pair("events", event)));
    pairs.extend(webhook.credential_id.map(|key| pair("credential_id", &key.to_string())));
    Form::from_pairs(pairs)
}

fn actions(webhook: &Webhook) -> Markup {
    let action = |name: &str| format!("/portal/webhooks/{}/{name}", webhook.id);
    html! {
        div.actions {
            @if webhook.is_active {
                form method="post" action=(action("test")) {
                    input type="hidden" name=(KEY) value=(new_key());
                    button.plain { "Send a test" }
                }
            } @else {
                form method="post" action=(action("switch")) {
                    input type="hidden" name="to" value="on";
                    button { "Switch on" }
                }
            }
            a.button.plain href=(action("replays")) { "Deliver again what failed or was missed" }
            a.button.plain href=(action("delete")) { "Delete" }
        }
        @if webhook.is_active {
            details.card {
                summary { "Switch off" }
                p { "A webhook that is off receives no events, not even later. Its pending deliveries fail." }
                form method="post" action=(action("switch")) {
                    input type="hidden" name="to" value="off";
                    button.danger { "Switch the webhook off" }
                }
            }
        }
        @if webhook.credential_id.is_none() {
            details.card {
                summary { "Rotate the token" }
                p { "The new token signs every delivery from then on. Your endpoint must know it, or verify the second signature that you can have made with the old one for a while." }
                form method="post" action=(action("rotate-token")) {
                    input type="hidden" name=(KEY) value=(new_key());
                    (overlap())
                    button.danger { "Replace the token" }
                }
            }
        }
    }
}

/// A form that asks for the explanation of an order's events.
fn question(webhook: &Webhook) -> Markup {
    let blank = Form::default();
    let fields = Filled { form: &blank, refusal: None };
    html! {
        details.card {
            summary { "Why did (didn't) I get this?" }
            form method="get" action={ "/portal/webhooks/" (webhook.id) "/explanation" } {
                (fields.input("order_id", "Order", "text", "Its number or its reference."))
                button.plain { "Explain" }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn webhook(is_active: bool, credential_id: Option<i64>) -> Webhook {
        let webhook = json!({"id": 6, "name": "<b>", "url": "https://shop.example", "events": ["order.created"],
            "credential_id": credential_id, "is_active": is_active, "created_at": "2026-01-31T12:00:00Z",
            "updated_at": "2026-01-31T12:00:00Z"});
        serde_json::from_value(webhook).unwrap()
    }

    #[test]
    fn an_edit_begins_with_the_stored_fields() {
        let body = body(&stored(&webhook(true, Some(5))), Some(5));
        assert_eq!(body, json!({"name": "<b>", "url": "https://shop.example", "events": ["order.created"]}));
    }

    #[test]
    fn a_deactivation_says_since_when_and_what_to_do() {
        let deactivation =
            json!({"reason": "failing", "failing_since": "2026-01-26T11:58:00Z", "deactivated_at": "2026-01-31T12:00:00Z"});
        let markup = deactivated(&webhook(false, None), &serde_json::from_value(deactivation).unwrap()).0;
        assert!(markup.contains("2026-01-26 11:58 UTC") && markup.contains("2026-01-31 12:00 UTC"), "{markup}");
        assert!(markup.contains("/portal/webhooks/6/replays"), "{markup}");
    }

    #[test]
    fn actions_follow_the_state() {
        let (on, off) = (actions(&webhook(true, None)).0, actions(&webhook(false, Some(5))).0);
        assert!(on.contains("Send a test") && on.contains("Replace the token") && !on.contains("Switch on"), "{on}");
        assert!(off.contains("Switch on") && !off.contains("Send a test") && !off.contains("Replace the token"), "{off}");
    }
}
