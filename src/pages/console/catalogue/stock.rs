//! The stock of a product: its levels as a plot and as a table, and the thresholds below which it is low.

use maud::{Markup, html};
use poem::Response;
use poem::http::Method;
use serde::Deserialize;
use serde_json::{Value, json};

use super::{Product, audit_of, may_change, product_of, stocked};
use crate::pages::call::{List, Refusal};
use crate::pages::console::audit::{self, Entry};
use crate::pages::form::{Form, number};
use crate::pages::outcome::{PageResult, redirect};
use crate::pages::parts::fields::Filled;
use crate::pages::parts::plot::{Label, Series, bars_by};
use crate::pages::parts::values::{grouped, time};
use crate::pages::parts::{layout, table};
use crate::pages::site::Site;
use crate::pages::visit::Visit;

/// Largest number of face values in a plot.
const MAX_BARS: usize = 24;
/// Types of the events with which operators and suppliers change the stock.
const CHANGES: &str = "VoucherStockLoaded,VouchersVoided,VouchersTransferredOut,VouchersTransferredIn,VoucherExpirySet";
/// Number of changes on the page. The audit has all of them.
const MAX_CHANGES: usize = 10;

/// Stock of vouchers of one face value, as `GET /admin/v1/products/:id/stock` returns it.
#[derive(Debug, Deserialize)]
pub struct Level {
    pub denomination: String,
    pub available: i64,
    allocated: i64,
    expired: i64,
    voided: i64,
    threshold: Option<i32>,
    is_low: bool,
}

impl Level {
    /// Renders whether the stock suffices.
    pub fn badge(&self) -> Markup {
        html! {
            @match (self.available, self.is_low) {
                (0, _) => span.badge.bad { "Empty" },
                (_, true) => span.badge.wait { "Low" },
                (_, false) => span.badge.good { "In stock" },
            }
        }
    }
}

pub fn add(site: Site) -> Site {
    site.get("/console/products/:id/stock", show).post("/console/products/:id/threshold", set_threshold)
}

async fn show(visit: Visit) -> PageResult {
    visit.operator()?;
    let stock = load(&visit, visit.id("id")?).await?;
    Ok(page(&visit, &stock, &Filled { form: &visit.query, refusal: None }))
}

/// The stock of a product, with its latest changes.
struct Stock {
    product: Product,
    levels: List<Level>,
    /// With the shard of each.
    changes: Vec<(i16, Entry)>,
}

async fn load(visit: &Visit, id: i64) -> Result<Stock, Refusal> {
    let (stock, subject) = (format!("/admin/v1/products/{id}/stock"), format!("product/{id}"));
    let changes = audit::newest(visit, &subject, CHANGES, MAX_CHANGES);
    let (product, levels, changes) = futures::try_join!(product_of(visit, id), visit.list(&stock, "stock"), changes)?;
    Ok(Stock { product, levels, changes })
}

async fn set_threshold(visit: Visit) -> PageResult {
    visit.operator()?;
    let id = visit.id("id")?;
    let path = format!("/admin/v1/products/{id}/stock-threshold");
    match visit.change::<Value>(Method::PUT, &path, &body(&visit.form)).await {
        Ok(_) => Ok(redirect(&format!("/console/products/{id}/stock?done=changed"))),
        Err(refusal) if !refusal.is_correctable() => Err(refusal.into()),
        Err(refusal) => {
            let stock = load(&visit, id).await?;
            let refusal = at_field(refusal, &stock.product);
            let fields = Filled { form: &visit.form, refusal: Some(&refusal) };
            Ok(layout::refused(page(&visit, &stock, &fields), &refusal))
        }
    }
}

/// Returns the body of the call. An empty threshold removes it.
fn body(form: &Form) -> Value {
    json!({"denomination": form.text("denomination"), "threshold": form.text("threshold").map(number)})
}

/// Puts the refusal of a face value that the product does not have at its field.
pub fn at_field(mut refusal: Refusal, product: &Product) -> Refusal {
    if refusal.code == "E_INVALID_DENOMINATION" {
        let problem = format!("must be {} {}", product.face_values(), product.currency);
        refusal.messages.entry("denomination".to_owned()).or_default().push(problem);
    }
    refusal
}

fn page(visit: &Visit, stock: &Stock, fields: &Filled<'_>) -> Response {
    let Stock { product, levels, changes } = stock;
    let path = format!("/console/products/{}", product.id);
    let body = html! {
        (layout::problem(fields.refusal))
        p.actions {
            @if may_change(visit) {
                a.button href={ (path) "/vouchers" } { "Load vouchers" }
                a.button.plain href={ (path) "/vouchers/void" } { "Void vouchers" }
                a.button.plain href={ (path) "/vouchers/expiry" } { "Expire vouchers" }
                a.button.plain href={ (path) "/vouchers/transfer" } { "Move vouchers" }
            }
            a href=(path) { "Back to the product" }
        }
        @if levels.items.is_empty() {
            (table::empty("The product has no vouchers yet. Orders wait until there are some.", None))
        } @else {
            (plot(product.id, &levels.items, &product.currency))
            (rows(product.id, &levels.items))
            p.actions {
                a.button.plain href=(audit_of(product.id, "")) { "Audit of this product" }
                a.button.plain href=(stocked::of_product(product.id, "", "")) { "All vouchers" }
                a.button.plain href={ "/console/orders?product_id=" (product.id) } { "Orders of this product" }
            }
        }
        @if !changes.is_empty() { h2 #changes { "Latest changes" } (latest(changes)) }
        @if may_change(visit) { (threshold(product, &path, fields)) }
        @else { p.quiet { "To change the stock, you need the role admin." } }
    };
    layout::page(visit, &format!("Stock of {}", product.name), &body)
}

fn plot(product: i64, levels: &[Level], currency: &str) -> Markup {
    let shown = &levels[..levels.len().min(MAX_BARS)];
    let text = |level: &Level| format!("{} {currency}", grouped(&level.denomination));
    let target = |level: &Level| Some(stocked::of_product(product, &level.denomination, ""));
    let labels: Vec<Label> = shown.iter().map(|level| Label { text: text(level), at: None, target: target(level) }).collect();
    let series = |name, counted, count: fn(&Level) -> i64| Series {
        name,
        values: shown.iter().map(|level| count(level) as f64).collect(),
        counted,
    };
    let all = [
        series("Available", Some("status=AVAILABLE"), |level| level.available),
        series("Allocated to orders", Some("status=ALLOCATED"), |level| level.allocated),
        // No list has the vouchers of two statuses. The table below leads to those of each.
        series("Expired or voided", None, |level| level.expired + level.voided),
    ];
    html! {
        (bars_by("Vouchers by face value", "Face value", "vouchers", &labels, &all))
        @if levels.len() > MAX_BARS { p.quiet { "The plot shows the " (MAX_BARS) " smallest face values." } }
    }
}

/// Renders the levels. Each number leads to the vouchers that it counts.
fn rows(product: i64, levels: &[Level]) -> Markup {
    let columns = [
        ("Face value", true),
        ("Available", true),
        ("Allocated", true),
        ("Expired", true),
        ("Voided", true),
        ("Low below", true),
        ("Level", false),
    ];
    let row = |level: &Level| {
        let counted =
            |count: i64, status: &str| html! { a href=(stocked::of_product(product, &level.denomination, status)) { (count) } };
        vec![
            html! { (grouped(&level.denomination)) },
            counted(level.available, "AVAILABLE"),
            counted(level.allocated, "ALLOCATED"),
            counted(level.expired, "EXPIRED"),
            counted(level.voided, "VOIDED"),
            html! { @if let Some(threshold) = level.threshold { (threshold) } @else { "–" } },
            level.badge(),
        ]
    };
    html! {
        (table::table("Stock by face value", &columns, &levels.iter().map(row).collect::<Vec<_>>()))
        p.quiet {
            "A voucher expires by itself: after the day in its expires_on, and shortly before, no order gets it. Nobody has to do anything. "
            "To withdraw vouchers earlier, void them."
        }
    }
}

/// Renders changes of the stock with the references, reasons and notes that were given for them. Each leads to its event.
fn latest(changes: &[(i16, Entry)]) -> Markup {
    let columns = [("Time", false), ("Change", false), ("By", false), ("Reference or reason", false)];
    let row = |(shard, change): &(i16, Entry)| {
        vec![
            time(change.recorded_at),
            change.event(*shard),
            change.by(),
            html! { @for (name, text) in change.texts() { div { (name) ": " (text) } } },
        ]
    };
    table::table("Latest changes", &columns, &changes.iter().map(row).collect::<Vec<_>>())
}

/// Renders the field for a face value: a choice if the product has fixed ones.
pub fn face_value(product: &Product, label: &str, none: Option<&str>, fields: &Filled<'_>) -> Markup {
    let value = |value: &String| (value.clone(), format!("{} {}", grouped(value), product.currency));
    let none = none.map(|text| (String::new(), text.to_owned()));
    let options: Vec<(String, String)> = none.into_iter().chain(product.denominations.iter().map(value)).collect();
    match product.denominations.is_empty() {
        true => fields.input("denomination", label, "text", &format!("{} {}", product.face_values(), product.currency)),
        false => fields.select("denomination", label, &options, ""),
    }
}

fn threshold(product: &Product, path: &str, fields: &Filled<'_>) -> Markup {
    html! {
        h2 { "Warn about low stock" }
        form.card method="post" action={ (path) "/threshold" } {
            (face_value(product, "Face value", None, fields))
            (fields.input("threshold", "Low below", "number", "Number of available vouchers. Leave it empty to remove the warning."))
            p { "Low stock stands here and in the metrics. It stops no order." }
            button { "Save the threshold" }
        }
    }
}

#[cfg(test)]
mod tests {
    use poem::http::StatusCode;

    use super::super::tests::product;
    use super::*;

    fn level(available: i64, threshold: Option<i32>) -> Level {
        let is_low = threshold.is_some_and(|least| available < i64::from(least));
        Level { denomination: "10.00".to_owned(), available, allocated: 1, expired: 0, voided: 0, threshold, is_low }
    }

    #[test]
    fn a_level_says_whether_it_suffices() {
        for (level, text) in [(level(0, None), "Empty"), (level(4, Some(5)), "Low"), (level(5, Some(5)), "In stock")] {
            assert!(level.badge().0.contains(text), "{level:?}");
        }
    }

    #[test]
    fn an_empty_threshold_removes_it() {
        let form = Form::parse(b"denomination=10.00&threshold=");
        assert_eq!(body(&form), json!({"denomination": "10.00", "threshold": null}));
        assert_eq!(body(&Form::parse(b"denomination=10.00&threshold=5"))["threshold"], json!(5));
    }

    #[test]
    fn a_face_value_that_the_product_lacks_is_named_at_the_field() {
        let refusal = Refusal::new(StatusCode::UNPROCESSABLE_ENTITY, "E_INVALID_DENOMINATION", "No.");
        let refusal = at_field(refusal, &product(json!({"denominations": ["10.00"]})));
        assert_eq!(refusal.messages["denomination"], ["must be 10.00 EUR"]);
    }
}
