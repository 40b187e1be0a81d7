//! One order: its facts, its story on one time line, its cancellation and its vouchers.

use maud::{Markup, html};
use poem::Response;
use poem::http::Method;
use serde::Deserialize;
use serde_json::Value;

use crate::pages::call::Refusal;
use crate::pages::form::{Form, Kind};
use crate::pages::outcome::{PageResult, file, redirect};
use crate::pages::parts::fields::Filled;
use crate::pages::parts::values::{badge, copyable, facts, money, time, time_or_none, words};
use crate::pages::parts::{layout, table};
use crate::pages::shared::order::{Order, cancellation, metadata, refunded, units};
use crate::pages::shared::story::{self, Places, Story};
use crate::pages::site::Site;
use crate::pages::visit::{Visit, corrected};
use ledger_events::user::UserRole;

/// Largest number of vouchers on a page, and of bytes that they take there. The CSV has them all.
const MAX_VOUCHERS: usize = 200;
const MAX_VOUCHER_BYTES: usize = 150_000;

/// Addresses to which the story of an order leads.
const PLACES: Places = Places {
    transaction: |movement| format!("/portal/transactions/{}", movement.id),
    deliveries: "/portal/webhooks/deliveries",
    request: |id| html! { code { (id) } },
    moment: |_, _| html! {},
    readings: |_| html! { "The operators of the service can list them all." },
};

/// A voucher, as `GET /api/v1/orders/:id/vouchers` returns it.
#[derive(Debug, Deserialize)]
struct Voucher {
    voucher_reference_number: String,
    card_number: String,
    pin: Option<String>,
    claim_url: Option<String>,
    expires_on: Option<String>,
}

#[derive(Debug, Deserialize)]
struct Vouchers {
    vouchers: Vec<Voucher>,
}

pub fn add(site: Site) -> Site {
    site.get("/portal/orders/:id", show)
        .post("/portal/orders/:id/cancel", cancel)
        .post("/portal/orders/:id/vouchers", reveal)
        .post("/portal/orders/:id/vouchers.csv", download)
}

async fn show(visit: Visit) -> PageResult {
    visit.user()?;
    let (order, story) = load(&visit, visit.id("id")?).await?;
    Ok(page(&visit, &order, &story, &Form::default(), None))
}

async fn load(visit: &Visit, id: i64) -> Result<(Order, Story), Refusal> {
    let (order, story) = (format!("/api/v1/orders/{id}"), format!("/api/v1/orders/{id}/history"));
    let (order, mut story): (Order, Story) = futures::try_join!(visit.get(&order), visit.get(&story))?;
    story.turn_to(format!("/portal/orders/{id}"), &visit.query);
    Ok((order, story))
}

async fn cancel(visit: Visit) -> PageResult {
    visit.user()?;
    let id = visit.id("id")?;
    let body = visit.form.json(&[("reason", Kind::Text)]);
    match visit.change::<Value>(Method::POST, &format!("/api/v1/orders/{id}/cancel"), &body).await {
        Ok(_) => Ok(redirect(&format!("/portal/orders/{id}?done=cancelled"))),
        Err(refusal) => {
            let (order, story) = load(&visit, id).await?;
            corrected(refusal, |refusal| layout::refused(page(&visit, &order, &story, &visit.form, Some(refusal)), refusal))
        }
    }
}

fn page(visit: &Visit, order: &Order, story: &Story, form: &Form, refusal: Option<&Refusal>) -> Response {
    let may_change = visit.user().is_ok_and(|user| user.may(UserRole::Operator));
    let body = html! {
        (layout::live(visit))
        (layout::problem(refusal))
        (facts(&[
            ("Status", html! { (badge(&order.status)) @if !order.sub_status.is_empty() { " " span.quiet { (words(&order.sub_status)) } } }),
            ("Reference", copyable(&order.reference_code)),
            ("Your reference", html! { (order.client_reference.as_deref().unwrap_or("–")) }),
            ("Product", html! { a href={ "/portal/products/" (order.product_id) } { (order.product_name) } }),
            ("Units", units(order)),
            ("Amount", html! {
                a href={ "/portal/transactions/" (order.transaction_id) } { (money(&order.amount, &order.currency)) }
                " (discount " (order.discount) " %)"
            }),
            ("Refunded", refunded(order, story, &PLACES)),
            ("Debit", html! { a href={ "/portal/transactions/" (order.transaction_id) } { "Transaction " (order.transaction_id) } }),
            ("Placed", time(order.created_at)),
            ("Delivered", time_or_none(order.delivered_on)),
            ("Cancelled", html! {
                (time_or_none(order.cancelled_on))
                @if let Some(reason) = &order.cancel_reason { " “" (reason) "”" }
            }),
        ]))
        @if order.delivered_quantity > 0 { (vouchers(order, may_change)) }
        @if order.is_open() && may_change { (cancellation("/portal/orders", order, &Filled { form, refusal })) }
        (metadata(order))
        h2 #story { "What happened" }
        (story::time_line(story, &PLACES))
    };
    layout::page(visit, &format!("Order {}", order.reference_code), &body)
}

fn vouchers(order: &Order, may_reveal: bool) -> Markup {
    html! {
        h2 { "Vouchers" }
        @if may_reveal {
            p { "Everybody who can see the codes can use the vouchers. Each reading is recorded with your name." }
            div.actions {
                form method="post" action={ "/portal/orders/" (order.id) "/vouchers" } { button.plain { "Show the voucher codes" } }
                form method="post" action={ "/portal/orders/" (order.id) "/vouchers.csv" } { button.plain { "Download the codes as CSV" } }
            }
        } @else { p.quiet { "To read the codes, you need the role operator or owner." } }
    }
}

/// Shows the codes of the vouchers. The API records the reading, so only a form leads here.
async fn reveal(visit: Visit) -> PageResult {
    visit.user()?;
    let id = visit.id("id")?;
    let Vouchers { vouchers } = visit.get(&format!("/api/v1/orders/{id}/vouchers")).await?;
    let body = html! {
        p.notice.wait { "This reading is recorded. The codes are gone from this page when you leave it." }
        (codes(&vouchers))
        div.actions {
            form method="post" action={ "/portal/orders/" (id) "/vouchers.csv" } { button.plain { "Download the codes as CSV" } }
            a href={ "/portal/orders/" (id) } { "Back to the order" }
        }
    };
    Ok(layout::page(&visit, "Voucher codes", &body))
}

fn codes(vouchers: &[Voucher]) -> Markup {
    let columns = [("Voucher", false), ("Code", false), ("PIN", false), ("Claim at", false), ("Valid until", false)];
    let row = |voucher: &Voucher| {
        vec![
            html! { (voucher.voucher_reference_number) },
            copyable(&voucher.card_number),
            html! { @match &voucher.pin { Some(pin) => (copyable(pin)), None => "–" } },
            html! { @match &voucher.claim_url { Some(url) => a href=(url) rel="noreferrer" { "Claim" }, None => "–" } },
            html! { (voucher.expires_on.as_deref().unwrap_or("–")) },
        ]
    };
    let rows = table::fitting(vouchers.iter().take(MAX_VOUCHERS).map(row), MAX_VOUCHER_BYTES);
    html! {
        (table::table("Voucher codes", &columns, &rows))
        @if vouchers.len() > rows.len() {
            p { "The page shows the first " (rows.len()) " of " (vouchers.len()) " vouchers. The CSV has all of them." }
        }
    }
}

async fn download(visit: Visit) -> PageResult {
    visit.user()?;
    let id = visit.id("id")?;
    let codes = visit.bytes(&format!("/api/v1/orders/{id}/vouchers"), "text/csv").await?;
    Ok(file(&format!("vouchers-{id}.csv"), "text/csv; charset=utf-8; header=present", codes.into_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_escaped() {
        let voucher = Voucher {
            voucher_reference_number: "VR-1".to_owned(),
            card_number: "<b>".to_owned(),
            pin: None,
            claim_url: Some("https://claim.example/\"x".to_owned()),
            expires_on: None,
        };
        let markup = codes(&[voucher]).0;
        assert!(!markup.contains("<b>") && !markup.contains("/\"x"), "{markup}");
    }

    #[test]
    fn the_page_of_the_largest_codes_is_small() {
        let voucher = |_| Voucher {
            voucher_reference_number: "VR-1".to_owned(),
            card_number: "\"".repeat(100),
            pin: None,
            claim_url: Some(format!("https://claim.example/?{}", "&".repeat(2_000))),
            expires_on: None,
        };
        let markup = codes(&(0..1_000).map(voucher).collect::<Vec<_>>()).0;
        assert!(markup.len() < 170_000 && markup.contains(" of 1000 vouchers"), "{}", markup.len());
    }
}
