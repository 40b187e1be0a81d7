//! One statement: its lines with what they match, and the entries of the ledger that no line matches.

use maud::{Markup, html};
use poem::Response;
use serde::Deserialize;

use super::report::WORKBOOK;
use super::{Entry, Statement, may_decide};
use crate::pages::call::{List, Refusal};
use crate::pages::form::Form;
use crate::pages::outcome::{PageResult, file};
use crate::pages::parts::fields::Filled;
use crate::pages::parts::values::{MAX_LISTED, badge, beginning, counted, figure, money, time, words};
use crate::pages::parts::{layout, table};
use crate::pages::site::Site;
use crate::pages::visit::{Visit, corrected};

/// Number of lines on a page.
const LINES: u64 = 50;
/// Largest number of entries without a line on the page. The CSV has all of them.
const MAX_MISSING: usize = 50;
/// Fields of the query that are those of the API.
const FILTERS: [&str; 3] = ["status", "days", "amount"];
/// Statuses of lines, in the order of what needs attention.
const STATUSES: [&str; 6] = ["AMBIGUOUS", "UNMATCHED", "MATCHED", "IGNORED", "REVERSED", "DUPLICATE"];

/// A matched statement, as `GET /admin/v1/reconciliation/statements/:id` returns it.
#[derive(Debug, Deserialize)]
pub(super) struct Matched {
    pub statement: Statement,
    summary: Summary,
    pub lines: Vec<Line>,
    pub missing: Vec<Entry>,
}

#[derive(Debug, Deserialize)]
struct Summary {
    matched: u64,
    ignored: u64,
    reversed: u64,
    duplicate: u64,
    ambiguous: u64,
    unmatched: u64,
    missing: u64,
}

impl Summary {
    fn count(&self, status: &str) -> u64 {
        match status {
            "MATCHED" => self.matched,
            "IGNORED" => self.ignored,
            "REVERSED" => self.reversed,
            "DUPLICATE" => self.duplicate,
            "AMBIGUOUS" => self.ambiguous,
            _ => self.unmatched,
        }
    }
}

/// A line of a statement, with the result of matching it.
#[derive(Debug, Deserialize)]
pub(super) struct Line {
    pub line: i32,
    pub booked_on: String,
    pub direction: String,
    pub amount: String,
    pub currency: String,
    pub account: Option<String>,
    pub is_reversal: bool,
    pub references: Vec<String>,
    pub text: Option<String>,
    pub status: String,
    pub is_decided: bool,
    pub decision_reason: Option<String>,
    pub why: Option<String>,
    pub reversed_line: Option<i32>,
    pub reversed_statement_id: Option<i64>,
    pub entries: Vec<Entry>,
}

impl Line {
    /// Renders the amount with the sign of its effect on the bank account.
    pub fn money(&self) -> Markup {
        let sign = if self.direction == "DEBIT" { "-" } else { "" };
        money(&format!("{sign}{}", self.amount), &self.currency)
    }

    /// Renders what the bank says about the line: at most this many characters of the references, and of the text.
    pub fn texts(&self, most: usize) -> Markup {
        html! {
            (beginning(&self.references.join(", "), most))
            @if let Some(text) = &self.text { " " span.quiet { (beginning(text, most)) } }
            @if self.is_reversal { " " span.badge { "Reversal" } }
        }
    }

    /// Renders what the line is, or can be.
    pub fn result(&self) -> Markup {
        html! {
            @for entry in &self.entries { div { (entry.render()) } }
            @if let Some(why) = &self.why { div.quiet { (why) } }
            @if let (Some(line), Some(statement)) = (self.reversed_line, self.reversed_statement_id) {
                div { "With " a href={ "/console/bank-statements/" (statement) "/lines/" (line) } { "line " (line) " of statement " (statement) } }
            }
        }
    }
}

pub fn add(site: Site) -> Site {
    let site = site.get("/console/bank-statements/:id", show).get("/console/bank-statements/:id/matches.csv", csv);
    site.get("/console/bank-statements/:id/matches.xlsx", workbook)
}

async fn show(visit: Visit) -> PageResult {
    visit.operator()?;
    let id = visit.id("id")?;
    let query = visit.query.only(&[&FILTERS[..], &["page"][..]].concat());
    match visit.get::<Matched>(&format!("/admin/v1/reconciliation/statements/{id}?limit={LINES}&{query}")).await {
        Ok(matched) => Ok(page(&visit, id, Some(matched), None)),
        Err(refusal) => corrected(refusal, |refusal| layout::refused(page(&visit, id, None, Some(refusal)), refusal)),
    }
}

/// Returns all matches that the query selects, in this format.
async fn matches(visit: &Visit, id: i64, media_type: &'static str) -> Result<Vec<u8>, Refusal> {
    let path = format!("/admin/v1/reconciliation/statements/{id}?{}", visit.query.only(&FILTERS));
    Ok(visit.bytes(&path, media_type).await?.into_bytes())
}

async fn csv(visit: Visit) -> PageResult {
    visit.operator()?;
    let id = visit.id("id")?;
    let csv = matches(&visit, id, "text/csv").await?;
    Ok(file(&format!("matches-{id}.csv"), "text/csv; charset=utf-8; header=present", csv))
}

async fn workbook(visit: Visit) -> PageResult {
    visit.operator()?;
    let id = visit.id("id")?;
    Ok(file(&format!("matches-{id}.xlsx"), WORKBOOK, matches(&visit, id, WORKBOOK).await?))
}

fn page(visit: &Visit, id: i64, matched: Option<Matched>, refusal: Option<&Refusal>) -> Response {
    let path = format!("/console/bank-statements/{id}");
    let fields = Filled { form: &visit.query, refusal };
    let count = |status: &'static str| matched.as_ref().map_or(0, |matched| matched.summary.count(status));
    let statuses: Vec<(&str, String)> = std::iter::once(("", "Any".to_owned()))
        .chain(STATUSES.map(|status| (status, format!("{} ({})", words(status), count(status)))))
        .collect();
    let body = html! {
        (layout::problem(refusal))
        @if let Some(matched) = &matched { (summary(visit, matched, &path)) }
        (table::filters(&path, &html! {
            (fields.select("status", "Result", &statuses, ""))
            (fields.input("days", "Days apart", "number", "How far a line and its entry can be apart. Default: 5."))
            (fields.input("amount", "Amounts apart", "text", "Such as 0.50. Default: 0.00."))
        }))
        @if let Some(matched) = matched { (content(visit, &path, matched)) }
        p.actions { a href="/console/bank-statements" { "All statements" } }
    };
    layout::page(visit, &format!("Statement {id}"), &body)
}

fn summary(visit: &Visit, matched: &Matched, path: &str) -> Markup {
    let Matched { statement, summary, .. } = matched;
    // The numbers are those of the chosen distance.
    let distance = visit.query.only(&["days", "amount"]);
    let address = |status: &str| format!("{path}?status={status}{}{distance}", if distance.is_empty() { "" } else { "&" });
    let leading = |count: u64, status: &str| html! { a href=(address(status)) { (count) } };
    html! {
        p {
            (statement.format) ", " (statement.line_count) " lines, " (statement.first_day) " to " (statement.last_day)
            ", imported " (time(statement.created_at)) "."
        }
        div.figures {
            (figure("Matched", &leading(summary.matched, "MATCHED")))
            (figure("Ambiguous", &leading(summary.ambiguous, "AMBIGUOUS")))
            (figure("Unmatched", &leading(summary.unmatched, "UNMATCHED")))
            (figure("Not in the statement", &counted(summary.missing, "#missing")))
        }
        @if summary.ambiguous > 0 {
            p.notice.wait {
                "A person has to decide about " (summary.ambiguous) @if summary.ambiguous == 1 { " line: " } @else { " lines: " }
                a href=(address("AMBIGUOUS")) { "show what is ambiguous" } "."
            }
        }
        p.actions {
            a.button.plain href={ (path) "/matches.xlsx?" (visit.query.only(&FILTERS)) } { "Download as a spreadsheet" }
            a.button.plain href={ (path) "/matches.csv?" (visit.query.only(&FILTERS)) } { "Download as CSV" }
        }
    }
}

fn content(visit: &Visit, path: &str, matched: Matched) -> Markup {
    let Matched { statement, summary, lines, missing } = matched;
    let total = match visit.query.text("status") {
        Some(status) => summary.count(status),
        None => u64::try_from(statement.line_count).unwrap_or_default(),
    };
    let page = visit.query.text("page").and_then(|page| page.parse().ok()).unwrap_or(1);
    let lines = List { items: lines, page, pages: total.div_ceil(LINES).max(1), total };
    html! {
        h2 { "Lines" }
        @if lines.items.is_empty() { (table::empty("No line has this result.", Some((path, "Show all lines")))) }
        @else {
            (rows(visit, path, &lines.items))
            (table::pager(&lines, path, &visit.query))
        }
        @if !missing.is_empty() {
            h2 #missing { "Not in the statement" }
            p { "Fundings and payouts of these days that no line matches." }
            ul { @for entry in missing.iter().take(MAX_MISSING) { li { (entry.render()) } } }
            @if summary.missing > MAX_MISSING as u64 { p.quiet { "The page shows " (MAX_MISSING) " of " (summary.missing) ". The CSV has all of them." } }
        }
    }
}

fn rows(visit: &Visit, path: &str, lines: &[Line]) -> Markup {
    let columns = [
        ("Line", false),
        ("Booked", false),
        ("Reference", false),
        ("Amount", true),
        ("Result", false),
        ("Entry of the ledger", false),
    ];
    let tolerance = tolerance(&visit.query);
    let row = |line: &Line| {
        let is_open = matches!(line.status.as_str(), "AMBIGUOUS" | "UNMATCHED");
        let target = format!("{path}/lines/{}{tolerance}", line.line);
        vec![
            html! { a href=(target) { @if is_open && may_decide(visit) { "Decide line " (line.line) } @else { "Line " (line.line) } } },
            html! { (line.booked_on) },
            line.texts(MAX_LISTED),
            line.money(),
            html! { (badge(&line.status)) @if line.is_decided { " " span.quiet { "by a person" } } },
            line.result(),
        ]
    };
    table::table("Lines of the statement", &columns, &lines.iter().map(row).collect::<Vec<_>>())
}

/// Returns the tolerance of a query as the query of another page.
pub(super) fn tolerance(query: &Form) -> String {
    let tolerance = query.only(&["days", "amount"]);
    if tolerance.is_empty() { tolerance } else { format!("?{tolerance}") }
}
