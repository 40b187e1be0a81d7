//! Webhooks: their list, and the registration of a new one.

mod attempts;
mod explanation;
mod one;
mod replays;

use maud::{Markup, html};
use poem::Response;
use serde::Deserialize;
use serde_json::{Value, json};

use super::api_keys::ApiKey;
use super::webhook::{ALL, EVENTS, Webhook, may};
use crate::api::document::webhook_examples;
use crate::pages::call::{List, Refusal};
use crate::pages::form::{Form, KEY, Kind, new_key};
use crate::pages::outcome::PageResult;
use crate::pages::parts::fields::Filled;
use crate::pages::parts::values::{MAX_LISTED, beginning, once, time};
use crate::pages::parts::{layout, table};
use crate::pages::shared::delivery::excerpt;
use crate::pages::site::Site;
use crate::pages::visit::{Visit, corrected};
use ledger_events::user::UserRole;

/// A new webhook with its token.
#[derive(Debug, Deserialize)]
struct Registered {
    id: i64,
    name: String,
    token: String,
}

pub fn add(site: Site) -> Site {
    let site = site.get("/portal/webhooks", list).get("/portal/webhooks/new", blank).post("/portal/webhooks", register);
    attempts::add(replays::add(explanation::add(one::add(site))))
}

async fn list(visit: Visit) -> PageResult {
    visit.user()?;
    let webhooks: List<Webhook> = visit.list(ALL, "webhooks").await?;
    let may_change = may(&visit, UserRole::Operator);
    let body = html! {
        (layout::live(&visit))
        p { "A webhook tells your systems of each event of your orders, payouts and wallets, with a signed HTTP request." }
        p.actions {
            @if may_change && !webhooks.items.is_empty() { a.button href="/portal/webhooks/new" { "Set up a webhook" } }
            a.button.plain href="/portal/webhooks/deliveries" { "Deliveries" }
            a href="/docs/guides/webhooks" { "Receiving webhooks" }
        }
        @if webhooks.items.is_empty() {
            (table::empty("You have no webhook yet.", may_change.then_some(("/portal/webhooks/new", "Set up a webhook"))))
        } @else { (rows(&webhooks.items)) }
    };
    Ok(layout::page(&visit, "Webhooks", &body))
}

fn rows(webhooks: &[Webhook]) -> Markup {
    let columns = [("Webhook", false), ("URL", false), ("Events", false), ("Changed", false), ("Status", false)];
    let row = |webhook: &Webhook| {
        vec![
            html! { a href={ "/portal/webhooks/" (webhook.id) } { (webhook.name) } },
            html! { code { (beginning(&webhook.url, MAX_LISTED)) } },
            html! { (webhook.events.join(", ")) },
            time(webhook.updated_at),
            webhook.state(),
        ]
    };
    table::table("Webhooks", &columns, &webhooks.iter().map(row).collect::<Vec<_>>())
}

/// Reads the API keys that the user may link to a webhook: all of them for an owner, and none for others.
async fn linkable(visit: &Visit) -> Result<Vec<ApiKey>, Refusal> {
    match may(visit, UserRole::Owner) {
        true => Ok(visit.list("/client/api/api-keys?limit=100", "api_keys").await?.items),
        false => Ok(vec![]),
    }
}

async fn blank(visit: Visit) -> PageResult {
    visit.user()?;
    let keys = linkable(&visit).await?;
    Ok(new_page(&visit, &keys, &new_key(), None))
}

fn new_page(visit: &Visit, keys: &[ApiKey], key: &str, refusal: Option<&Refusal>) -> Response {
    let fields = Filled { form: &visit.form, refusal };
    let body = html! {
        (layout::problem(refusal))
        @if may(visit, UserRole::Operator) {
            form.card method="post" action="/portal/webhooks" {
                (inputs(&fields))
                (headers(&fields, &[]))
                (signing(&fields, keys, None))
                input type="hidden" name=(KEY) value=(key);
                button { "Create the webhook" }
            }
        } @else { p.quiet { "To set up webhooks, you need the role operator or owner." } }
        p { a href="/portal/webhooks" { "All webhooks" } }
    };
    layout::page(visit, "New webhook", &body)
}

/// Creates a webhook, and shows its token. The token is in this response alone, so no redirect follows.
async fn register(visit: Visit) -> PageResult {
    visit.user()?;
    let body = body(&visit.form, None);
    let key = visit.form.key();
    let registered = visit.answer_once("/api/v1/webhooks", &key, &body).await;
    match registered.and_then(|answered| answered.json::<Registered>()) {
        Ok(webhook) => {
            let body = html! {
                p { "The webhook “" (webhook.name) "” exists. Its token signs every delivery." }
                (once(&[("Token", &webhook.token)]))
                p { a.button href={ "/portal/webhooks/" (webhook.id) } { "To the webhook" } }
            };
            Ok(layout::page(&visit, "The webhook's token", &body))
        }
        Err(refusal) => {
            let keys = linkable(&visit).await?;
            corrected(refusal, |refusal| layout::refused(new_page(&visit, &keys, &new_key(), Some(refusal)), refusal))
        }
    }
}

/// Builds the body that a form stands for. A webhook stays linked to the credential `linked` without saying so.
fn body(form: &Form, linked: Option<i64>) -> Value {
    let mut body = form.json(&[("name", Kind::Text), ("url", Kind::Text), ("credential_id", Kind::Number)]);
    body["events"] = json!(form.all("events").collect::<Vec<_>>());
    match form.text("headers") {
        Some(lines) => body["headers"] = lines.lines().filter(|line| !line.trim().is_empty()).map(header).collect(),
        None if !form.value("remove_headers").is_empty() => body["headers"] = json!([]),
        None => {}
    }
    if let Some(fields) = body.as_object_mut()
        && linked.is_some_and(|linked| form.value("credential_id") == linked.to_string())
    {
        fields.remove("credential_id");
    }
    body
}

/// Reads a header from a line such as `Authorization: Bearer abc`.
fn header(line: &str) -> Value {
    let (name, value) = line.split_once(':').unwrap_or((line, ""));
    json!({"name": name.trim(), "value": value.trim()})
}

/// The headers of a webhook, one a line. Their values are never shown, so those that exist can only be replaced or removed.
fn headers(fields: &Filled<'_>, names: &[String]) -> Markup {
    html! {
        (fields.area("headers", "Headers of your own", "One a line, such as Authorization: Bearer abc. Their values are not shown again."))
        @if !names.is_empty() {
            p.hint { "Now: " (names.join(", ")) ". Leave the field empty to keep them." }
            label.tick { input type="checkbox" name="remove_headers" value="on"; span { "Remove them" } }
        }
    }
}

/// The fields of a webhook: its name, its URL, and its events as tick boxes.
fn inputs(fields: &Filled<'_>) -> Markup {
    html! {
        (fields.input("name", "Name", "text", "For you to recognize it."))
        (fields.input("url", "URL", "url", "It begins with https:// and receives the events."))
        (fields.ticks("events", "Events", "", &EVENTS.map(|(event, occasion)| (event, occasion))))
        (examples())
    }
}

/// An example of the body that each event is sent with, as in the API's document.
fn examples() -> Markup {
    html! {
        details {
            summary { "What each event looks like" }
            @for (event, body) in webhook_examples() { h3 { code { (event) } } (excerpt(&format!("{body:#}"))) }
        }
    }
}

/// The choice of the secret that signs deliveries, for users who may link keys. A linked webhook cannot be unlinked.
fn signing(fields: &Filled<'_>, keys: &[ApiKey], linked: Option<i64>) -> Markup {
    let own = linked.is_none().then(|| (String::new(), "A token of its own".to_owned()));
    let offered = keys.iter().filter(|key| !key.is_revoked || linked == Some(key.id));
    let options: Vec<(String, String)> = own
        .into_iter()
        .chain(
            offered
                .map(|key| (key.id.to_string(), format!("The signing secret of the API key {} ({}…)", key.name, key.key_prefix))),
        )
        .collect();
    html! {
        @if !keys.is_empty() {
            (fields.select("credential_id", "Signed with", &options, "The URL receives this secret. A link to a key is permanent."))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pages::portal::webhook::named;

    #[test]
    fn a_form_becomes_a_webhook() {
        let form =
            Form::parse(b"name=Shop&url=https%3A%2F%2Fshop.example&events=order.created&events=order.cancelled&credential_id=5");
        let events = ["order.created", "order.cancelled"];
        let expected = json!({"name": "Shop", "url": "https://shop.example", "events": events, "credential_id": 5});
        assert_eq!(body(&form, None), expected);
        assert!(body(&form, Some(5)).get("credential_id").is_none());
        assert_eq!(body(&Form::default(), None), json!({"events": []}));
    }

    #[test]
    fn lines_become_headers_and_are_kept_unless_they_change() {
        let form = Form::parse(b"headers=Authorization%3A+Bearer+a%3Ab%0D%0A%0D%0AX-Shop%3A7");
        let expected = json!([{"name": "Authorization", "value": "Bearer a:b"}, {"name": "X-Shop", "value": "7"}]);
        assert_eq!(body(&form, None)["headers"], expected);
        assert_eq!(body(&Form::parse(b"remove_headers=on"), None)["headers"], json!([]));
        assert_eq!(body(&Form::parse(b"name=a"), None).get("headers"), None);
        let refusal = Refusal::of_field("headers[0].name", "is set by HTTP");
        let markup = headers(&Filled { form: &Form::default(), refusal: Some(&refusal) }, &["x-<a>".to_owned()]).0;
        assert!(markup.contains("is set by HTTP") && markup.contains("x-&lt;a&gt;"), "{markup}");
    }

    #[test]
    fn problems_with_events_stand_at_the_events() {
        let form = Form::parse(b"events=order.created");
        let refusal = Refusal::of_field("events", "must not be empty");
        let markup = inputs(&Filled { form: &form, refusal: Some(&refusal) }).0;
        assert!(markup.contains("Events must not be empty") && markup.contains("value=\"order.created\" checked"), "{markup}");
    }

    #[test]
    fn the_list_of_the_longest_urls_is_small() {
        let webhook = json!({"id": 1, "name": "&".repeat(100), "url": format!("https://shop.example/?{}", "&".repeat(2_027)),
            "events": EVENTS.map(|(event, _)| event), "credential_id": null, "is_active": true,
            "created_at": "2026-01-31T12:00:00Z", "updated_at": "2026-01-31T12:00:00Z"});
        let webhooks: Vec<Webhook> = serde_json::from_value(json!(vec![webhook; 20])).unwrap();
        let markup = rows(&webhooks).0;
        assert!(markup.len() < 100_000 && markup.contains("&amp;…"), "{}", markup.len());
    }

    #[test]
    fn names_and_secrets_are_escaped() {
        let webhook = json!({"id": 1, "name": "<b>", "url": "https://shop.example/<i>", "events": ["order.created"],
            "credential_id": null, "is_active": true, "created_at": "2026-01-31T12:00:00Z", "updated_at": "2026-01-31T12:00:00Z"});
        let webhooks: Vec<Webhook> = serde_json::from_value(json!([webhook])).unwrap();
        for markup in [rows(&webhooks).0, named(&webhooks, 1).0, once(&[("Token", "<b>")]).0] {
            assert!(!markup.contains("<b>") && !markup.contains("<i>"), "{markup}");
        }
        assert_eq!(named(&webhooks, 2).0, "Webhook 2 (deleted)");
    }
}
