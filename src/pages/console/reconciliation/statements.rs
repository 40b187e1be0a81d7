//! The statements of banks and payment processors: their list, and the upload of one.

use maud::{Markup, html};
use poem::Response;
use poem::http::Method;
use serde::Deserialize;

use super::{Statement, may_decide};
use crate::pages::call::{List, Refusal};
use crate::pages::console::parts::audit_of;
use crate::pages::form::Form;
use crate::pages::outcome::{PageResult, redirect};
use crate::pages::parts::fields::Filled;
use crate::pages::parts::values::{counted, time};
use crate::pages::parts::{layout, table};
use crate::pages::progress::Work;
use crate::pages::site::Site;
use crate::pages::visit::Visit;

/// Fields that describe a CSV: name, label and hint. The API has a default for each one.
const COLUMNS: [(&str, &str, &str); 10] = [
    ("date_column", "Column of the booking date", "If it is not called date."),
    ("amount_column", "Column of the amount", "If it is not called amount. Negative amounts are debits."),
    ("currency_column", "Column of the currency", "If it is not called currency."),
    ("reference_column", "Column of the reference", "If it is not called reference."),
    ("direction_column", "Column of the direction", "A column with CREDIT or DEBIT, if it is not called direction."),
    ("text_column", "Column of the payer's message", "If it is not called text."),
    ("account_column", "Column of the bank account", "If the file has several bank accounts."),
    ("currency", "Currency of lines without one", "Three letters, such as EUR."),
    ("account", "Bank account of lines without one", "Such as its IBAN. It tells apart equal lines of different accounts."),
    ("date_format", "Format of dates", "Such as %d.%m.%Y. Without it, dates are like 2026-01-31."),
];

/// The import, as its page names it.
static IMPORTING: Work = Work {
    title: "Import of a bank statement",
    to_do: "Lines to import",
    done: "Lines imported",
    advice: "The import may stop if you close this page. The same file can be sent again: it is imported once.",
};

#[derive(Debug, Deserialize)]
struct Imported {
    id: i64,
}

pub fn add(site: Site) -> Site {
    site.get("/console/bank-statements", list).post_long("/console/bank-statements", &IMPORTING, import)
}

async fn list(visit: Visit) -> PageResult {
    visit.operator()?;
    let statements = load(&visit).await?;
    Ok(page(&visit, &statements, None))
}

async fn load(visit: &Visit) -> Result<List<Statement>, Refusal> {
    visit.list(&format!("/admin/v1/reconciliation/statements?{}", visit.query.only(&["page"])), "statements").await
}

/// Imports a statement. A file that was imported before leads to the same statement.
async fn import(mut visit: Visit) -> PageResult {
    visit.operator()?;
    let imported = match visit.take_file("file") {
        Some(content) => {
            let (kind, query) = match is_xml(&content) {
                true => ("application/xml", String::new()),
                false => ("text/csv", visit.form.only(&columns())),
            };
            visit.upload::<Imported>(Method::POST, &format!("/admin/v1/reconciliation/statements?{query}"), kind, content).await
        }
        None => Err(Refusal::of_field("file", "is required")),
    };
    match imported {
        Ok(Imported { id }) => Ok(redirect(&format!("/console/bank-statements/{id}?done=imported"))),
        Err(refusal) if !refusal.is_correctable() => Err(refusal.into()),
        Err(refusal) => {
            let refusal = at_fields(refusal, &visit.form);
            let statements = load(&visit).await?;
            Ok(layout::refused(page(&visit, &statements, Some(&refusal)), &refusal))
        }
    }
}

/// Puts the problems of the file at the fields that describe it, if one of them may be wrong, and at the file otherwise.
fn at_fields(mut refusal: Refusal, form: &Form) -> Refusal {
    for problem in refusal.messages.remove("body").unwrap_or_default() {
        let named = COLUMNS.iter().map(|(name, _, _)| *name).find(|name| {
            form.text(name).is_some_and(|value| problem.contains("column") && problem.contains(&format!("{value:?}")))
                || (*name == "date_format" && form.text(name).is_some() && problem.ends_with("does not match the date format"))
        });
        refusal.messages.entry(named.unwrap_or("file").to_owned()).or_default().push(problem);
    }
    refusal
}

/// Returns the names of the fields that describe a CSV.
fn columns() -> Vec<&'static str> {
    COLUMNS.iter().map(|(name, _, _)| *name).chain(["decimal_comma"]).collect()
}

/// Returns whether a file is XML, and therefore camt.053. Everything else is read as CSV.
fn is_xml(content: &[u8]) -> bool {
    let content = content.strip_prefix(b"\xef\xbb\xbf").unwrap_or(content);
    content.trim_ascii_start().starts_with(b"<")
}

fn page(visit: &Visit, statements: &List<Statement>, refusal: Option<&Refusal>) -> Response {
    let body = html! {
        (layout::problem(refusal))
        p.actions { a.button.plain href="/console/reconciliation" { "Reconciliation of a period" } }
        @if statements.items.is_empty() {
            (table::empty("No statement is imported yet. Its lines are matched with fundings and payouts.", None))
        } @else {
            (rows(&statements.items))
            (table::pager(statements, "/console/bank-statements", &visit.query))
        }
        @if may_decide(visit) {
            h2 { "Import a statement" }
            (form(&Filled { form: &visit.form, refusal }))
        } @else { p.quiet { "To import statements, you need the role finance." } }
    };
    layout::page(visit, "Bank statements", &body)
}

fn rows(statements: &[Statement]) -> Markup {
    let columns =
        [("Statement", false), ("Format", false), ("Days", false), ("Lines", true), ("Decided", true), ("Imported", false)];
    let row = |statement: &Statement| {
        vec![
            html! { a href={ "/console/bank-statements/" (statement.id) } { "Statement " (statement.id) } },
            html! { (statement.format) },
            html! { (statement.first_day) " to " (statement.last_day) },
            html! { a href={ "/console/bank-statements/" (statement.id) } { (statement.line_count) } },
            counted(statement.decided_count, &decisions(statement)),
            time(statement.created_at),
        ]
    };
    table::table("Bank statements", &columns, &statements.iter().map(row).collect::<Vec<_>>())
}

/// Returns the address of the events of a statement, to which its decisions belong.
fn decisions(statement: &Statement) -> String {
    audit_of("subject", &format!("reconciliation/{}", statement.id))
}

fn form(fields: &Filled<'_>) -> Markup {
    let commas = [("", "A point, such as 1,234.56"), ("true", "A comma, such as 1.234,56")];
    let is_wrong = fields.refusal.is_some_and(|refusal| refusal.messages.keys().any(|name| columns().contains(&name.as_str())));
    html! {
        form.card method="post" action="/console/bank-statements" enctype="multipart/form-data" {
            (fields.file("file", "File", ".csv,.xml,text/csv,application/xml", "CSV or camt.053, at most 16 MiB. Its lines are stored encrypted."))
            details open[is_wrong] {
                summary { "Columns of a CSV" }
                p.quiet { "Fill in only what differs from the defaults." }
                @for (name, label, hint) in COLUMNS { (fields.input(name, label, "text", hint)) }
                (fields.select("decimal_comma", "Decimal sign", &commas, ""))
            }
            button { "Import the statement" }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_problem_of_the_file_stands_at_the_field_that_may_be_wrong() {
        let form = Form::parse(b"date_column=When&date_format=%25Y");
        let at = |problem| at_fields(Refusal::of_field("body", problem), &form).messages.into_keys().next().unwrap();
        assert_eq!(at("has no column \"When\""), "date_column");
        assert_eq!(at("line 3 has a date that does not match the date format"), "date_format");
        assert_eq!(at("has no column \"amount\""), "file");
    }

    #[test]
    fn a_file_is_xml_if_it_begins_like_xml() {
        assert!(is_xml(b"\xef\xbb\xbf\n<?xml version=\"1.0\"?>") && is_xml(b"<Document/>"));
        assert!(!is_xml(b"date,amount\n") && !is_xml(b""));
    }
}
