//! Bulk orders from a CSV: upload, preview, and placing in steps with progress.
//!
//! Nothing is stored. Each page carries the file in its canonical form and the outcomes so far. Each line has an idempotency
//! key that follows from the file, so a step that is repeated, or a file that is sent again, places nothing twice.

mod lines;
mod outcomes;
mod part;
mod preview;

use std::future;

use futures::{StreamExt, stream};
use maud::{Markup, html};
use poem::http::StatusCode;
use poem::{Body, Response};
use serde::Deserialize;
use serde_json::json;

use super::overview::Wallet;
use super::products::Product;
use crate::pages::call::Refusal;
use crate::pages::form::{Form, number};
use crate::pages::outcome::{PageResult, file, redirect};
use crate::pages::parts::fields::Filled;
use crate::pages::parts::{layout, table};
use crate::pages::site::Site;
use crate::pages::visit::Visit;
use ledger_events::user::UserRole;
use lines::{COLUMNS, Line, MAX_LINES, MAX_PROBLEMS, Problem};
use outcomes::Outcomes;
use part::FROM;

/// Field for a file.
const FILE: &str = "file";
/// Field for lines that are pasted, or corrected after a refusal.
const PASTED: &str = "lines";
/// Field of a form that places all lines again.
const AGAIN: &str = "again";
/// Number of lines that one request places.
const STEP: usize = 50;
/// Number of orders of a step that are placed at the same time.
const AT_ONCE: usize = 25;

#[derive(Debug, Deserialize)]
struct Placed {
    id: i64,
}

pub fn add(site: Site) -> Site {
    site.get("/portal/orders/bulk", show)
        .post("/portal/orders/bulk", check)
        .get("/portal/orders/bulk/place", begin)
        .post("/portal/orders/bulk/place", place)
        .post("/portal/orders/bulk/results.csv", download)
}

async fn show(visit: Visit) -> PageResult {
    visit.user()?;
    Ok(upload(&visit, &Form::default(), FILE, &[]))
}

/// Leads a browser that reads the address of a step again to the beginning.
async fn begin(visit: Visit) -> PageResult {
    visit.user()?;
    Ok(redirect("/portal/orders/bulk"))
}

/// Renders the form. `sent` is the field that had the problems.
fn upload(visit: &Visit, form: &Form, sent: &str, problems: &[Problem]) -> Response {
    let refusal = (!problems.is_empty()).then(|| refusal(sent, problems));
    let fields = Filled { form, refusal: refusal.as_ref() };
    let may_order = visit.user().is_ok_and(|user| user.may(UserRole::Operator));
    let example = format!("{}\n7,25.00,3,basket-1\n", COLUMNS.join(","));
    let body = html! {
        (layout::problem(refusal.as_ref()))
        (of_lines(problems))
        p {
            "Send up to " (MAX_LINES) " orders as CSV. The first line names the columns. Line 1 is the first one below it. \
             You see prices and totals before anything is placed."
        }
        pre tabindex="0" role="region" aria-label="Example" { (example) }
        p {
            "A file that you send again within 24 hours places nothing twice. A line with a client_reference is never placed \
             twice. Find the numbers of products in the " a href="/portal/products" { "catalogue" } "."
        }
        @if may_order {
            form.card method="post" action="/portal/orders/bulk" enctype="multipart/form-data" {
                (fields.file(FILE, "CSV file", ".csv,text/csv", ""))
                (fields.area(PASTED, "Pasted CSV", "Used if there is no file."))
                button { "Check the orders" }
            }
        } @else { p.notice { "To place orders, you need the role operator or owner." } }
    };
    let page = layout::page(visit, "Order many at once", &body);
    match &refusal {
        Some(refusal) => layout::refused(page, refusal),
        None => page,
    }
}

/// Creates the refusal of a file or of pasted lines. A problem of the whole stands at the field that was sent.
fn refusal(sent: &str, problems: &[Problem]) -> Refusal {
    match problems.iter().find(|problem| problem.line.is_none()) {
        Some(problem) => Refusal::of_field(sent, &problem.text),
        None => {
            let message = "Nothing is placed until every line is valid. Correct these lines and send the file again.";
            Refusal::new(StatusCode::BAD_REQUEST, "E_VALIDATION_FAILURE", message)
        }
    }
}

/// Renders the problems of single lines.
fn of_lines(problems: &[Problem]) -> Markup {
    let of_lines: Vec<&Problem> = problems.iter().filter(|problem| problem.line.is_some()).collect();
    let row = |problem: &&Problem| vec![html! { (problem.line.unwrap_or_default()) }, html! { (problem.text) }];
    html! {
        @if !of_lines.is_empty() {
            (table::table(
                "Lines to correct", &[("Line", true), ("Problem", false)],
                &of_lines.iter().take(MAX_PROBLEMS).map(row).collect::<Vec<_>>()
            ))
        }
        @if of_lines.len() > MAX_PROBLEMS { p.quiet { "And " (of_lines.len() - MAX_PROBLEMS) " more lines." } }
    }
}

/// Checks an upload, and shows what it would place.
async fn check(visit: Visit) -> PageResult {
    visit.user()?;
    let uploaded = visit.files.iter().find(|(name, content)| name == FILE && !content.is_empty());
    let (sent, bytes) = match uploaded {
        Some((_, content)) => (FILE, content.as_slice()),
        None => (PASTED, visit.form.value(PASTED).as_bytes()),
    };
    // A refused file appears in the field for lines, where it can be corrected.
    let shown = String::from_utf8_lossy(&bytes[..bytes.len().min(100_000)]).into_owned();
    let shown = Form::from_pairs(vec![(PASTED.to_owned(), shown)]);
    let (lines, text) = match whole(bytes) {
        Ok(read) => read,
        Err(problems) => return Ok(upload(&visit, &shown, sent, &problems)),
    };
    let products = products_of(&lines);
    let (products, wallets) = futures::try_join!(
        visit.list::<Product>(&products, "products"),
        visit.list::<Wallet>("/api/v1/wallets?limit=100", "wallets"),
    )?;
    let priced = match preview::priced(&lines, &products.items) {
        Ok(priced) => priced,
        Err(problems) => return Ok(upload(&visit, &shown, sent, &problems)),
    };
    let is_covered = priced.is_covered(&wallets.items);
    let part = preview::part(&priced, &visit.form);
    let buttons = html! {
        button { "Place " (lines.len()) @if lines.len() == 1 { " order" } @else { " orders" } }
        (part.buttons("/portal/orders/bulk"))
    };
    let body = html! {
        (preview::render(&priced, &wallets.items, &part))
        @if !is_covered {
            p.notice.bad { "The balance of a wallet does not cover its total. Orders are placed in the order of their lines, as far as it lasts." }
        }
        (step_form(&text, &Outcomes::default(), buttons, false))
        p { a href="/portal/orders/bulk" { "Choose another file" } }
    };
    Ok(layout::page(&visit, "Check the orders", &body))
}

/// Reads a file. Returns its lines, and their canonical form.
fn whole(bytes: &[u8]) -> Result<(Vec<Line>, String), Vec<Problem>> {
    lines::read(bytes).and_then(|lines| lines::canonical(&lines).map(|text| (lines, text)))
}

/// Returns the call that lists the products of all lines.
fn products_of(lines: &[Line]) -> String {
    let mut ids: Vec<i64> = lines.iter().map(|line| line.product_id).collect();
    ids.sort_unstable();
    ids.dedup();
    let ids: Vec<String> = ids.iter().map(ToString::to_string).collect();
    format!("/api/v1/products?limit={MAX_LINES}&ids={}", ids.join(","))
}

/// The form that places the next lines. It carries the file and the outcomes so far. With `proceeds`, scripts send it.
fn step_form(text: &str, outcomes: &Outcomes, button: Markup, proceeds: bool) -> Markup {
    html! {
        form.actions method="post" action="/portal/orders/bulk/place" data-proceed[proceeds] {
            input type="hidden" name=(PASTED) value=(text);
            input type="hidden" name="outcomes" value=(outcomes.text());
            @for reason in &outcomes.reasons { input type="hidden" name="reason" value=(reason); }
            (button)
            @if proceeds { button.plain type="button" data-stop hidden { "Pause" } }
        }
    }
}

/// Places the next lines, and shows the progress or the results. Nothing is placed if the form asks for a part of the results.
async fn place(visit: Visit) -> PageResult {
    visit.user()?;
    let form = &visit.form;
    // The browser changes the ends of lines. The canonical form is the one that the keys are made of.
    let (lines, text) = match whole(form.value(PASTED).as_bytes()) {
        Ok(read) => read,
        Err(problems) => return Ok(upload(&visit, form, PASTED, &problems)),
    };
    let keys = lines::keys(&text, &lines);
    let mut outcomes = if form.text(AGAIN).is_some() { Outcomes::default() } else { outcomes_of(form, &lines) };
    let step = if form.text(FROM).is_some() { 0 } else { STEP };
    let next = lines.iter().zip(&keys).skip(outcomes.of_lines.len()).take(step);
    let calls: Vec<_> = next.map(|(line, key)| place_line(&visit, line, key)).collect();
    let mut placed = stream::iter(calls).buffered(AT_ONCE);
    while let Some(placed) = placed.next().await {
        if let Err(refusal) = &placed
            && matches!(refusal.code.as_str(), "E_FORBIDDEN" | "E_ACCOUNT_SUSPENDED")
        {
            return Err(refusal.clone().into());
        }
        outcomes.add(placed);
    }
    drop(placed);
    Ok(progress(&visit, &text, &lines, &outcomes))
}

/// Reads the outcomes that a form carries.
fn outcomes_of(form: &Form, lines: &[Line]) -> Outcomes {
    Outcomes::read(form.value("outcomes"), form.all("reason"), lines.len())
}

/// Sends the results of all lines as CSV.
async fn download(visit: Visit) -> PageResult {
    visit.user()?;
    let lines = match lines::read(visit.form.value(PASTED).as_bytes()) {
        Ok(lines) => lines,
        Err(problems) => return Ok(upload(&visit, &visit.form, PASTED, &problems)),
    };
    let csv = outcomes::to_csv(&outcomes_of(&visit.form, &lines), &lines);
    let body = Body::from_bytes_stream(stream::once(future::ready(csv)));
    Ok(file("bulk-results.csv", "text/csv; charset=utf-8; header=present", body))
}

async fn place_line(visit: &Visit, line: &Line, key: &str) -> Result<i64, Refusal> {
    let mut body = json!({
        "product_id": line.product_id, "denomination": number(&line.denomination.to_string()), "quantity": line.quantity
    });
    if let Some(reference) = &line.reference {
        body["client_reference"] = json!(reference);
    }
    visit.change_once::<Placed>("/api/v1/orders", key, &body).await.map(|placed| placed.id)
}

fn progress(visit: &Visit, text: &str, lines: &[Line], outcomes: &Outcomes) -> Response {
    let (done, count) = (outcomes.of_lines.len(), lines.len());
    let is_complete = done >= count;
    let title = if is_complete { "Bulk order: results" } else { "Bulk order in progress" };
    let part = outcomes::part(outcomes, lines, &visit.form);
    let is_partial = outcomes.refused() + outcomes.open() > 0;
    let buttons = html! {
        (part.buttons("/portal/orders/bulk/place"))
        button.plain formaction="/portal/orders/bulk/results.csv" { "Download as CSV" }
        @if is_partial { button.plain name=(AGAIN) value="1" { "Place the file again" } }
    };
    let body = html! {
        p role="status" {
            (done) " of " (count) " lines: " (outcomes.placed()) " placed, " (outcomes.refused()) " refused"
            @if outcomes.open() > 0 { ", " (outcomes.open()) " not known" } "."
        }
        progress max=(count) value=(done) aria-label="Progress" { (done) " of " (count) }
        @if !is_complete {
            (step_form(text, outcomes, html! { button { "Place the next " (STEP.min(count - done)) " lines" } }, true))
            p.quiet { "If you leave this page, send the same file again later: lines that are placed stay placed once." }
        }
        @if done > 0 {
            h2 { "Lines" }
            (part.table("Lines of the file", &outcomes::COLUMNS))
        }
        @if is_complete {
            @if is_partial { p { "To try the lines without an order again, place the file again. Lines that have an order keep it." } }
            (step_form(text, outcomes, buttons, false))
            p { a.button href="/portal/orders" { "To the orders" } }
        }
    };
    layout::page(visit, title, &body)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_carries_the_file_and_its_outcomes() {
        let mut outcomes = Outcomes::default();
        outcomes.add(Ok(7));
        let markup = step_form("a,\"b\"\n", &outcomes, html! {}, true).0;
        assert!(
            markup.contains("data-proceed") && markup.contains("value=\"a,&quot;b&quot;\n\"") && markup.contains("p7 "),
            "{markup}"
        );
        assert!(!step_form("", &outcomes, html! {}, false).0.contains("data-proceed"));
    }

    #[test]
    fn problems_of_lines_are_limited_and_escaped() {
        let problems: Vec<Problem> = (0..150).map(|index| Problem::of_line(index, "<b>")).collect();
        let markup = of_lines(&problems).0;
        assert!(markup.contains("And 50 more lines") && !markup.contains("<b>"), "{markup}");
        assert_eq!(markup.matches("<tr>").count(), MAX_PROBLEMS + 1);
    }

    #[test]
    fn the_products_of_all_lines_are_one_call() {
        let line = |product_id| Line { product_id, denomination: ledger_events::Money::ZERO, quantity: 1, reference: None };
        assert_eq!(products_of(&[line(7), line(3), line(7)]), "/api/v1/products?limit=1000&ids=3,7");
    }
}
