//! One order: its facts and its story, now or as of a past time, its cancellation, and its receipt.

use chrono::{NaiveDate, NaiveDateTime, SecondsFormat};
use maud::{Markup, html};
use poem::Response;
use poem::http::{Method, StatusCode};
use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;

use super::parts::{account, audit_of, is_admin, needs_admin, request};
use crate::pages::call::Refusal;
use crate::pages::form::{Form, Kind, address};
use crate::pages::outcome::{PageResult, file, redirect};
use crate::pages::parts::fields::Filled;
use crate::pages::parts::layout;
use crate::pages::parts::period::zone_field;
use crate::pages::parts::values::{badge, copyable, facts, money, time, time_or_none, words};
use crate::pages::parts::zone::Zone;
use crate::pages::shared::order::{Order, cancellation, metadata, refunded, units};
use crate::pages::shared::story::{self, Places, Story};
use crate::pages::site::Site;
use crate::pages::visit::{Visit, corrected};

/// Addresses to which the story of an order leads.
const PLACES: Places = Places {
    transaction: |movement| format!("/console/transactions/{}", movement.id),
    deliveries: "/console/deliveries",
    request,
    moment: |order, position| {
        html! { ", " a href={ "/console/orders/" (order) "?as_of=" (position) } { "the order at position " (position) } }
    },
    readings: |order| {
        let all = address("/console/audit", &[("subject", &format!("order/{order}")), ("type", "VouchersRevealed")]);
        html! { a href=(all) { "All readings in the audit" } }
    },
};

/// Forms in which people write a time without a zone.
const TIMES: [&str; 4] = ["%Y-%m-%d %H:%M", "%Y-%m-%d %H:%M:%S", "%Y-%m-%dT%H:%M", "%Y-%m-%dT%H:%M:%S"];

/// A current or past state of an order, as `GET /admin/v1/orders/:id` returns it.
#[derive(Debug, Deserialize)]
struct AnyOrder {
    account_id: i64,
    as_of_position: Option<i64>,
    #[serde(flatten)]
    order: Order,
}

pub fn add(site: Site) -> Site {
    site.get("/console/orders/:id", show).post("/console/orders/:id/cancel", cancel).get("/console/orders/:id/receipt", receipt)
}

/// Returns a point in time as the API reads it. A day or a time is in the time zone, unless it ends with `UTC`.
fn as_of(zone: &Zone, text: &str) -> String {
    let utc = Zone::utc();
    let (text, zone) = text.strip_suffix("UTC").map_or((text, zone), |text| (text.trim_end(), &utc));
    let day = || text.parse::<NaiveDate>().ok().and_then(|day| zone.day(day));
    let time = || TIMES.iter().find_map(|format| NaiveDateTime::parse_from_str(text, format).ok());
    let at = day().or_else(|| zone.first(time()?));
    at.map_or_else(|| text.to_owned(), |at| at.to_rfc3339_opts(SecondsFormat::Secs, true))
}

async fn load(visit: &Visit, id: i64, as_of: Option<&str>) -> Result<(AnyOrder, Story), Refusal> {
    let as_of = as_of.map(|at| ("as_of", at));
    let query: String = url::form_urlencoded::Serializer::new(String::new()).extend_pairs(as_of).finish();
    let (order, story) = (format!("/admin/v1/orders/{id}?{query}"), format!("/admin/v1/orders/{id}/history?{query}"));
    let (order, mut story): (AnyOrder, Story) = futures::try_join!(visit.get(&order), visit.get(&story))?;
    let separator = if query.is_empty() { "" } else { "?" };
    story.turn_to(format!("/console/orders/{id}{separator}{query}"), &visit.query);
    Ok((order, story))
}

/// Shows an order as of the time of the query. For a time at which there was none, the page shows the present one.
async fn show(visit: Visit) -> PageResult {
    visit.operator()?;
    let id = visit.id("id")?;
    let asked = visit.query.text("as_of");
    let loaded = async {
        let at = asked.map(|text| Zone::of(&visit.query).map(|zone| as_of(&zone, text))).transpose()?;
        load(&visit, id, at.as_deref()).await
    };
    let refusal = match loaded.await {
        Ok(loaded) => return Ok(page(&visit, &loaded, &Form::default(), None)),
        Err(refusal) if asked.is_none() => return Err(refusal.into()),
        Err(refusal) if refusal.status == StatusCode::NOT_FOUND => Refusal::of_field("as_of", "is before the order"),
        Err(refusal) => refusal,
    };
    if !refusal.is_correctable() {
        return Err(refusal.into());
    }
    let loaded = load(&visit, id, None).await?;
    corrected(refusal, |refusal| layout::refused(page(&visit, &loaded, &Form::default(), Some(refusal)), refusal))
}

async fn cancel(visit: Visit) -> PageResult {
    visit.operator()?;
    let id = visit.id("id")?;
    let body = visit.form.json(&[("reason", Kind::Text)]);
    match visit.change::<Value>(Method::POST, &format!("/admin/v1/orders/{id}/cancel"), &body).await {
        Ok(_) => Ok(redirect(&format!("/console/orders/{id}?done=cancelled"))),
        Err(refusal) if !refusal.is_correctable() => Err(refusal.into()),
        Err(refusal) => {
            let loaded = load(&visit, id, None).await?;
            Ok(layout::refused(page(&visit, &loaded, &visit.form, Some(&refusal)), &refusal))
        }
    }
}

/// Sends the receipt, which proves to anybody that the log contains the order.
async fn receipt(visit: Visit) -> PageResult {
    visit.operator()?;
    let id = visit.id("id")?;
    // The numbers of a receipt stay as they are written.
    let receipt: Box<RawValue> = visit.get(&format!("/admin/v1/orders/{id}/receipt?{}", visit.query.only(&["quorum"]))).await?;
    Ok(file(&format!("receipt-{id}.json"), "application/json", receipt.get().to_owned()))
}

/// Renders an order. `form` has the fields of a refused cancellation; a refusal of a page that is read is about its time.
fn page(visit: &Visit, (any, story): &(AnyOrder, Story), form: &Form, refusal: Option<&Refusal>) -> Response {
    let (order, of_time, of_change) = match visit.is_read() {
        true => (&any.order, refusal, None),
        false => (&any.order, None, refusal),
    };
    let is_past = any.as_of_position.is_some();
    let body = html! {
        @if !is_past { (layout::live(visit)) }
        (layout::problem(refusal))
        @if let Some(position) = any.as_of_position {
            p.notice.wait {
                "This is the order as it was at position " (position) " of the log. "
                a href={ "/console/orders/" (order.id) } { "Show the order as it is now" }
            }
        }
        (details(any, story))
        (at_a_time(order.id, &Filled { form: &visit.query, refusal: of_time }))
        @if order.is_open() && !is_past {
            @if is_admin(visit) { (cancellation("/console/orders", order, &Filled { form, refusal: of_change })) }
            @else { (needs_admin("cancel the order")) }
        }
        (proof(order.id))
        (metadata(order))
        h2 #story { "What happened" }
        (story::time_line(story, &PLACES))
        p.actions { a href=(audit_of("subject", &format!("order/{}", order.id))) { "The events of this order in the audit" } }
    };
    layout::page(visit, &format!("Order {}", order.reference_code), &body)
}

fn details(AnyOrder { account_id, order, .. }: &AnyOrder, story: &Story) -> Markup {
    facts(&[
        (
            "Status",
            html! { (badge(&order.status)) @if !order.sub_status.is_empty() { " " span.quiet { (words(&order.sub_status)) } } },
        ),
        ("Account", account(*account_id)),
        ("Reference", copyable(&order.reference_code)),
        ("Client's reference", html! { (order.client_reference.as_deref().unwrap_or("–")) }),
        ("Product", html! { a href={ "/console/products/" (order.product_id) } { (order.product_name) } }),
        ("Units", units(order)),
        (
            "Amount",
            html! {
                a href={ "/console/transactions/" (order.transaction_id) } { (money(&order.amount, &order.currency)) }
                " (discount " (order.discount) " %)"
            },
        ),
        ("Refunded", refunded(order, story, &PLACES)),
        ("Debit", html! { a href={ "/console/transactions/" (order.transaction_id) } { "Transaction " (order.transaction_id) } }),
        ("Placed", time(order.created_at)),
        ("Delivered", time_or_none(order.delivered_on)),
        (
            "Cancelled",
            html! {
                (time_or_none(order.cancelled_on))
                @if let Some(reason) = &order.cancel_reason { " “" (reason) "”" }
            },
        ),
    ])
}

/// A form that asks for the order as of a past time.
fn at_a_time(id: i64, fields: &Filled<'_>) -> Markup {
    let hint = "A time such as 2026-01-31 12:00, in the time zone that you choose, or a position of the log.";
    html! {
        details.card open[fields.refusal.is_some() || fields.form.text("as_of").is_some()] {
            summary { "Show a past time" }
            form method="get" action={ "/console/orders/" (id) } {
                (fields.input("as_of", "As of", "text", hint))
                (zone_field(fields))
                button.plain { "Show the order then" }
            }
        }
    }
}

/// A form that downloads the receipt of an order.
fn proof(id: i64) -> Markup {
    let blank = Form::default();
    let fields = Filled { form: &blank, refusal: None };
    html! {
        details.card {
            summary { "Receipt" }
            p {
                "The receipt proves to anybody that the log contains the events of this order. Check it with "
                code { "rewards-ledger verify --receipt FILE --key KEY" } "."
            }
            form method="get" action={ "/console/orders/" (id) "/receipt" } {
                (fields.input("quorum", "Witnesses", "number", "Optional. Number of witnesses that must have cosigned the log."))
                button.plain { "Download the receipt" }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::pages::shared::order::tests::order;

    #[test]
    fn a_time_is_in_the_zone_that_is_chosen() {
        let utc = Zone::utc();
        for (text, sent) in [
            ("2026-01-31 12:00", "2026-01-31T12:00:00Z"),
            ("2026-01-31 12:00:05 UTC", "2026-01-31T12:00:05Z"),
            ("2026-01-31T12:00", "2026-01-31T12:00:00Z"),
            ("2026-01-31T12:00:00+02:00", "2026-01-31T12:00:00+02:00"),
            ("2026-01-31", "2026-01-31T00:00:00Z"),
            ("17", "17"),
            ("soon", "soon"),
        ] {
            assert_eq!(as_of(&utc, text), sent);
        }
        let tokyo = Zone::of(&Form::parse(b"zone=Asia/Tokyo")).unwrap();
        for (text, sent) in [
            ("2026-01-31 12:00", "2026-01-31T03:00:00Z"),
            ("2026-01-31", "2026-01-30T15:00:00Z"),
            ("2026-01-31 12:00 UTC", "2026-01-31T12:00:00Z"),
            ("2026-01-31T12:00:00+02:00", "2026-01-31T12:00:00+02:00"),
            ("17", "17"),
        ] {
            assert_eq!(as_of(&tokyo, text), sent);
        }
    }

    #[test]
    fn texts_of_people_are_escaped() {
        let mut order = order(5);
        order.client_reference = Some("<b>".to_owned());
        order.cancel_reason = Some("<i>".to_owned());
        let story = json!({"order_id": 5, "entries": [], "entries_left_out": 0});
        let story: Story = serde_json::from_value(story).unwrap();
        let markup = details(&AnyOrder { account_id: 3, as_of_position: None, order }, &story).0;
        assert!(!markup.contains("<b>") && !markup.contains("<i>") && markup.contains("/console/accounts/3"), "{markup}");
    }
}
