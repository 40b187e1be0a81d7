//! Vouchers: loading them from a CSV, with the result of each row, voiding them, expiring them, and moving them to another product.

use maud::html;
use poem::Response;
use poem::http::Method;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::loaded::{self, Loaded, refused_below};
use super::stock::{at_field, face_value};
use super::{Product, may_change, product_of};
use crate::pages::call::Refusal;
use crate::pages::form::{Form, Kind};
use crate::pages::outcome::PageResult;
use crate::pages::parts::fields::Filled;
use crate::pages::parts::values::figure;
use crate::pages::parts::{layout, table};
use crate::pages::progress::Work;
use crate::pages::site::Site;
use crate::pages::visit::Visit;

/// Largest number of refused vouchers on a page.
const MAX_ROWS: usize = 500;
/// Largest size of the rows of refused vouchers on a page, in bytes.
const MAX_ROW_BYTES: usize = 150_000;

/// The upload, as its page names it.
static LOADING: Work = Work {
    title: "Upload of vouchers",
    to_do: "Vouchers to load",
    done: "Vouchers loaded",
    advice: "The upload stops if you close this page. The vouchers that are loaded by then stay in the stock. The same file can \
        be sent again: no voucher is added twice.",
};

/// Result of a withdrawal, as `POST /admin/v1/products/:id/vouchers/void` returns it.
#[derive(Debug, Deserialize)]
struct Voided {
    voided: i32,
    already_voided: i32,
    refused: Vec<Refused>,
}

/// Result of a new last day, as `POST /admin/v1/products/:id/vouchers/expiry` returns it.
#[derive(Debug, Deserialize)]
struct Expiry {
    changed: i32,
    unchanged: i32,
    refused: Vec<Refused>,
}

/// Result of a transfer, as `POST /admin/v1/products/:id/vouchers/transfer` returns it.
#[derive(Debug, Deserialize)]
struct Transferred {
    transferred: i32,
    already_there: i32,
    refused: Vec<Refused>,
}

#[derive(Debug, Deserialize)]
struct Refused {
    voucher_reference_number: String,
    reason: String,
}

pub fn add(site: Site) -> Site {
    site.get("/console/products/:id/vouchers", load_form)
        .post_long("/console/products/:id/vouchers", &LOADING, load)
        .get("/console/products/:id/vouchers/void", void_form)
        .post("/console/products/:id/vouchers/void", void)
        .get("/console/products/:id/vouchers/expiry", expiry_form)
        .post("/console/products/:id/vouchers/expiry", expire)
        .get("/console/products/:id/vouchers/transfer", transfer_form)
        .post("/console/products/:id/vouchers/transfer", transfer)
}

async fn load_form(visit: Visit) -> PageResult {
    visit.operator()?;
    let product = product_of(&visit, visit.id("id")?).await?;
    Ok(upload_page(&visit, &product, &Filled { form: &visit.query, refusal: None }))
}

async fn load(mut visit: Visit) -> PageResult {
    visit.operator()?;
    let product = product_of(&visit, visit.id("id")?).await?;
    let loaded = match visit.take_file("file") {
        Some(content) => {
            let query = visit.form.only(&["denomination", "cost", "supplier_reference"]);
            let path = format!("/admin/v1/products/{}/vouchers?{query}", product.id);
            visit.upload::<Loaded>(Method::POST, &path, "text/csv", content).await
        }
        None => Err(Refusal::of_field("file", "is required")),
    };
    match loaded {
        Ok(loaded) => Ok(loaded::page(&visit, &product, &loaded)),
        Err(refusal) if !refusal.is_correctable() => Err(refusal.into()),
        Err(refusal) => {
            let refusal = at_file(at_field(refusal, &product));
            let fields = Filled { form: &visit.form, refusal: Some(&refusal) };
            Ok(layout::refused(upload_page(&visit, &product, &fields), &refusal))
        }
    }
}

/// Puts the problems of the whole file at its field.
fn at_file(mut refusal: Refusal) -> Refusal {
    for name in ["body", "card_number"] {
        let problems = refusal.messages.remove(name).unwrap_or_default();
        if !problems.is_empty() {
            let problems =
                problems.into_iter().map(|problem| if name == "body" { problem } else { format!("column {name} {problem}") });
            refusal.messages.entry("file".to_owned()).or_default().extend(problems);
        }
    }
    refusal
}

fn upload_page(visit: &Visit, product: &Product, fields: &Filled<'_>) -> Response {
    let path = format!("/console/products/{}", product.id);
    let body = html! {
        (layout::problem(fields.refusal))
        @if may_change(visit) {
            form.card method="post" action={ (path) "/vouchers" } enctype="multipart/form-data" {
                (fields.file("file", "File", ".csv,text/csv", "CSV of at most 16 MiB with a header row."))
                (face_value(product, "Face value of rows without one", Some("Each row has its own"), fields))
                (fields.input("cost", "Cost of rows without one", "text", &format!("What one voucher costs, in {}, such as 9.50. Optional.", product.currency)))
                (fields.input("supplier_reference", "Supplier's reference", "text", "Such as the number of the invoice. Optional."))
                p {
                    "Columns: " code { "card_number" } ", and optionally " code { "pin" } ", " code { "voucher_reference_number" } ", "
                    code { "claim_url" } ", " code { "expires_on" } " (such as 2027-12-31), " code { "denomination" } " and " code { "cost" } "."
                }
                p { "Rows that cannot be read are skipped and listed. A voucher that the product already has is not added again, so the same file can be sent twice." }
                p { "With their cost, the " a href="/console/reconciliation" { "reconciliation" } " shows what the stock is worth, and the margin." }
                button { "Load the vouchers" }
            }
        } @else { p.quiet { "To load vouchers, you need the role admin." } }
        p.actions { a href={ (path) "/stock" } { "Back to the stock" } }
    };
    layout::page(visit, &format!("Load vouchers of {}", product.name), &body)
}

async fn void_form(visit: Visit) -> PageResult {
    visit.operator()?;
    let product = product_of(&visit, visit.id("id")?).await?;
    Ok(void_page(&visit, &product, &Filled { form: &visit.query, refusal: None }))
}

async fn void(visit: Visit) -> PageResult {
    visit.operator()?;
    let product = product_of(&visit, visit.id("id")?).await?;
    let done = |voided: Voided| {
        let counts = [("Voided", voided.voided), ("Voided before", voided.already_voided)];
        result_page(&visit, &product, counts, &voided.refused)
    };
    change(&visit, &product, ("void", &[("reason", Kind::Text)]), void_page, done).await
}

/// Calls an action on the vouchers that a form names, with the form's other fields. A refused form is shown by `form_page`.
async fn change<T: DeserializeOwned>(
    visit: &Visit,
    product: &Product,
    (action, others): (&str, &[(&str, Kind)]),
    form_page: fn(&Visit, &Product, &Filled<'_>) -> Response,
    done: impl FnOnce(T) -> Response,
) -> PageResult {
    let path = format!("/admin/v1/products/{}/vouchers/{action}", product.id);
    match visit.change(Method::POST, &path, &voucher_request(&visit.form, others)).await {
        Ok(result) => Ok(done(result)),
        Err(refusal) if !refusal.is_correctable() => Err(refusal.into()),
        Err(refusal) => {
            let refusal = at_lines(refusal);
            let fields = Filled { form: &visit.form, refusal: Some(&refusal) };
            Ok(layout::refused(form_page(visit, product, &fields), &refusal))
        }
    }
}

/// Returns the body of a call that names vouchers, one for each line, with the form's other fields.
fn voucher_request(form: &Form, others: &[(&str, Kind)]) -> Value {
    let lines: Vec<&str> = form.value("vouchers").lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    let mut body = form.json(others);
    body["vouchers"] = lines.into();
    body
}

/// Puts the problems of single lines at their field.
fn at_lines(mut refusal: Refusal) -> Refusal {
    let nested: Vec<String> = refusal.messages.keys().filter(|name| name.starts_with("vouchers[")).cloned().collect();
    let problems: Vec<String> = nested.iter().filter_map(|name| refusal.messages.remove(name)).flatten().collect();
    if !problems.is_empty() {
        refusal.messages.entry("vouchers".to_owned()).or_default().extend(problems);
    }
    refusal
}

fn void_page(visit: &Visit, product: &Product, fields: &Filled<'_>) -> Response {
    let path = format!("/console/products/{}", product.id);
    let body = html! {
        (layout::problem(fields.refusal))
        @if may_change(visit) {
            p.notice.wait { "No order gets a voided voucher. Voiding cannot be undone. A voucher that an order already has cannot be voided." }
            form.card method="post" action={ (path) "/vouchers/void" } {
                (fields.area("vouchers", "Reference numbers", "One in each line, at most 1000."))
                (fields.input("reason", "Reason", "text", "Stored with the event."))
                button.danger { "Void these vouchers" }
            }
        } @else { p.quiet { "To void vouchers, you need the role admin." } }
        p.actions { a href={ (path) "/stock" } { "Back to the stock" } }
    };
    layout::page(visit, &format!("Void vouchers of {}", product.name), &body)
}

async fn expiry_form(visit: Visit) -> PageResult {
    visit.operator()?;
    let product = product_of(&visit, visit.id("id")?).await?;
    Ok(expiry_page(&visit, &product, &Filled { form: &visit.query, refusal: None }))
}

async fn expire(visit: Visit) -> PageResult {
    visit.operator()?;
    let product = product_of(&visit, visit.id("id")?).await?;
    let done = |expiry: Expiry| {
        let counts = [("With a new last day", expiry.changed), ("With this day before", expiry.unchanged)];
        result_page(&visit, &product, counts, &expiry.refused)
    };
    change(&visit, &product, ("expiry", &[("expires_on", Kind::Text)]), expiry_page, done).await
}

fn expiry_page(visit: &Visit, product: &Product, fields: &Filled<'_>) -> Response {
    let path = format!("/console/products/{}", product.id);
    let body = html! {
        (layout::problem(fields.refusal))
        @if may_change(visit) {
            p.notice.wait { "No order gets a voucher after its last day. The new day can only be earlier, so this cannot be undone. A voucher that an order already has keeps its day." }
            form.card method="post" action={ (path) "/vouchers/expiry" } {
                (fields.area("vouchers", "Reference numbers", "One in each line, at most 1000."))
                (fields.input("expires_on", "Last day (UTC)", "date", "A day in the past expires them at once."))
                button.danger { "Set the last day" }
            }
        } @else { p.quiet { "To expire vouchers, you need the role admin." } }
        p.actions { a href={ (path) "/stock" } { "Back to the stock" } }
    };
    layout::page(visit, &format!("Expire vouchers of {}", product.name), &body)
}

async fn transfer_form(visit: Visit) -> PageResult {
    visit.operator()?;
    let product = product_of(&visit, visit.id("id")?).await?;
    Ok(transfer_page(&visit, &product, &Filled { form: &visit.query, refusal: None }))
}

async fn transfer(visit: Visit) -> PageResult {
    visit.operator()?;
    let product = product_of(&visit, visit.id("id")?).await?;
    let done = |moved: Transferred| {
        let counts = [("Moved", moved.transferred), ("There before", moved.already_there)];
        result_page(&visit, &product, counts, &moved.refused)
    };
    let others = [("to_product_id", Kind::Number), ("reason", Kind::Text)];
    change(&visit, &product, ("transfer", &others), transfer_page, done).await
}

fn transfer_page(visit: &Visit, product: &Product, fields: &Filled<'_>) -> Response {
    let path = format!("/console/products/{}", product.id);
    let body = html! {
        (layout::problem(fields.refusal))
        @if may_change(visit) {
            p.notice { "The vouchers move to the stock of another product in " (product.currency) ", such as the successor of this one. Orders that wait there get them. A voucher that an order already has stays here." }
            form.card method="post" action={ (path) "/vouchers/transfer" } {
                (fields.area("vouchers", "Reference numbers", "One in each line, at most 1000."))
                (fields.input("to_product_id", "Number of the other product", "text", "It stands in the address of its page."))
                (fields.input("reason", "Reason", "text", "Stored with the event."))
                button { "Move these vouchers" }
            }
        } @else { p.quiet { "To move vouchers, you need the role admin." } }
        p.actions { a href={ (path) "/stock" } { "Back to the stock" } }
    };
    layout::page(visit, &format!("Move vouchers of {}", product.name), &body)
}

/// Shows what became of the vouchers that a form names. The counts lead to the latest changes of the stock, in all shards.
fn result_page(visit: &Visit, product: &Product, counts: [(&str, i32); 2], refused: &[Refused]) -> Response {
    let target = format!("/console/products/{}/stock#changes", product.id);
    let columns = [("Voucher", false), ("Reason", false)];
    let row = |refused: &Refused| vec![html! { (refused.voucher_reference_number) }, html! { (refused.reason) }];
    let rows = table::fitting(refused.iter().take(MAX_ROWS).map(row), MAX_ROW_BYTES);
    let body = html! {
        div.figures role="status" {
            @for (name, count) in counts { (figure(name, &html! { a href=(&target) { (count) } })) }
            (figure("Refused", &refused_below(refused.len())))
        }
        @if !rows.is_empty() {
            h2 #refused { "Refused vouchers" }
            (table::table("Refused vouchers", &columns, &rows))
            @if refused.len() > rows.len() { p { "And " (refused.len() - rows.len()) " more." } }
        }
        p.actions { a.button href={ "/console/products/" (product.id) "/stock" } { "To the stock" } }
    };
    layout::page(visit, &format!("Vouchers of {}", product.name), &body)
}

#[cfg(test)]
mod tests {
    use poem::http::StatusCode;
    use serde_json::json;

    use super::*;

    #[test]
    fn each_line_is_a_voucher() {
        let form = Form::parse(b"vouchers=VCH-1%0D%0A%0D%0A+VCH+2+&reason=stolen");
        assert_eq!(
            voucher_request(&form, &[("reason", Kind::Text)]),
            json!({"vouchers": ["VCH-1", "VCH 2"], "reason": "stolen"})
        );
    }

    #[test]
    fn problems_stand_at_the_fields_of_the_forms() {
        let refusal = |name: &str| {
            let mut refusal = Refusal::new(StatusCode::BAD_REQUEST, "E_VALIDATION_FAILURE", "No.");
            refusal.messages.insert(name.to_owned(), vec!["is wrong".to_owned()]);
            refusal
        };
        assert_eq!(at_file(refusal("body")).messages["file"], ["is wrong"]);
        assert_eq!(at_file(refusal("card_number")).messages["file"], ["column card_number is wrong"]);
        assert_eq!(at_lines(refusal("vouchers[7]")).messages["vouchers"], ["is wrong"]);
    }
}
