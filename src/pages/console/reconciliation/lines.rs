//! One line of a statement: what it can be, and the decision of a person about it.

use maud::{Markup, html};
use poem::Response;
use poem::http::Method;
use serde_json::{Value, json};

use super::statement::{Line, Matched, tolerance};
use super::{Entry, may_decide};
use crate::pages::call::Refusal;
use crate::pages::form::{Form, Kind, address, number};
use crate::pages::outcome::{PageResult, Stop, redirect};
use crate::pages::parts::fields::Filled;
use crate::pages::parts::layout;
use crate::pages::parts::values::{badge, facts};
use crate::pages::site::Site;
use crate::pages::visit::Visit;

/// Largest number of entries that the form offers beside the candidates.
const MAX_OFFERED: usize = 20;
/// Types of the events that decide about lines.
const DECISIONS: &str = "MatchDecided,MatchDecisionRevoked";

pub fn add(site: Site) -> Site {
    site.get("/console/bank-statements/:id/lines/:line", show)
        .post("/console/bank-statements/:id/lines/:line/decide", decide)
        .post("/console/bank-statements/:id/lines/:line/revoke", revoke)
}

async fn show(visit: Visit) -> PageResult {
    visit.operator()?;
    one(&visit, None).await
}

/// Renders a line as it is matched now.
async fn one(visit: &Visit, refusal: Option<&Refusal>) -> PageResult {
    let (id, number) = (visit.id("id")?, visit.id("line")?);
    // The lines are in the order of their numbers, which begin at 1.
    let query = visit.query.only(&["days", "amount"]);
    let path = format!("/admin/v1/reconciliation/statements/{id}?limit=1&page={number}&{query}");
    let Matched { lines, missing, .. } = visit.get(&path).await?;
    let line = lines.into_iter().find(|line| i64::from(line.line) == number).ok_or(Stop::NotFound)?;
    Ok(page(visit, id, &line, &offered(&line, missing), refusal))
}

/// Returns the entries that the line can be: its candidates, then those without a line, with the same amount first.
fn offered(line: &Line, missing: Vec<Entry>) -> Vec<Entry> {
    let is_credit = line.direction == "CREDIT";
    let fits = |entry: &Entry| entry.currency.as_deref() == Some(&line.currency) && entry.transaction_id.is_some() == is_credit;
    let is_candidate = |entry: &Entry| {
        line.entries.iter().any(|known| (known.transaction_id, known.payout_id) == (entry.transaction_id, entry.payout_id))
    };
    let mut others: Vec<Entry> = missing.into_iter().filter(|entry| fits(entry) && !is_candidate(entry)).collect();
    others.sort_by_key(|entry| entry.amount.as_deref() != Some(&line.amount));
    others.truncate(MAX_OFFERED);
    line.entries.iter().cloned().chain(others).collect()
}

fn page(visit: &Visit, id: i64, line: &Line, offered: &[Entry], refusal: Option<&Refusal>) -> Response {
    let path = format!("/console/bank-statements/{id}/lines/{}", line.line);
    let decisions = address("/console/audit", &[("subject", &format!("reconciliation/{id}")), ("type", DECISIONS)]);
    let body = html! {
        (layout::problem(refusal))
        (facts(&[
            ("Result", html! { (badge(&line.status)) @if line.is_decided { " " span.quiet { "by a person" } } }),
            ("Booked", html! { (line.booked_on) }),
            ("Amount", line.money()),
            ("Bank account", html! { (line.account.as_deref().unwrap_or("–")) }),
            ("Reference and message", line.texts(usize::MAX)),
            ("Entry of the ledger", line.result()),
            ("Reason of the decision", html! { (line.decision_reason.as_deref().unwrap_or("–")) }),
        ]))
        @if !may_decide(visit) { p.quiet { "To decide about lines, you need the role finance." } }
        @else if line.is_decided { (revocation(&path, &Filled { form: &visit.form, refusal })) }
        @else { (decision(&path, &tolerance(&visit.query), offered, &Filled { form: &visit.form, refusal })) }
        p.actions {
            a href=(decisions) { "All decisions about this statement" }
            a href={ "/console/bank-statements/" (id) (tolerance(&visit.query)) } { "Back to the statement" }
        }
    };
    layout::page(visit, &format!("Line {} of statement {id}", line.line), &body)
}

/// Returns the value of an entry in the form.
fn choice(entry: &Entry) -> Option<String> {
    let funding = entry.transaction_id.map(|id| format!("FUNDING-{id}"));
    funding.or(entry.payout_id.map(|id| format!("PAYOUT-{id}")))
}

/// Names an entry with everything that tells it apart from another one.
fn described(entry: &Entry) -> String {
    let known = [
        Some(entry.name()),
        entry.amount.as_ref().zip(entry.currency.as_ref()).map(|(amount, currency)| format!("{amount} {currency}")),
        entry.day.clone(),
        entry.account_id.map(|account| format!("account {account}")),
        entry.references.first().cloned(),
    ];
    known.into_iter().flatten().collect::<Vec<_>>().join(", ")
}

fn decision(path: &str, tolerance: &str, offered: &[Entry], fields: &Filled<'_>) -> Markup {
    let entries = offered.iter().filter_map(|entry| Some((choice(entry)?, described(entry))));
    let others = [
        ("FUNDING", "Another funding, by its transaction number"),
        ("PAYOUT", "Another payout, by its number"),
        ("IGNORED", "Nothing in the ledger, such as a bank fee"),
    ];
    let options: Vec<(String, String)> = entries.chain(others.map(|(value, text)| (value.to_owned(), text.to_owned()))).collect();
    html! {
        h2 { "Decide what this line is" }
        form.card method="post" action={ (path) "/decide" (tolerance) } {
            (fields.select("decision", "This line is", &options, ""))
            (fields.input("number", "Number", "text", "Of another funding's transaction, or of another payout."))
            (fields.input("reason", "Reason", "text", "For auditors. Stored encrypted."))
            p { "Every later match follows the decision. You can revoke it." }
            button { "Decide" }
        }
    }
}

fn revocation(path: &str, fields: &Filled<'_>) -> Markup {
    html! {
        details.card open[fields.refusal.is_some()] {
            summary { "Revoke the decision" }
            form method="post" action={ (path) "/revoke" } {
                p { "The line is matched automatically again." }
                (fields.input("reason", "Reason", "text", "For auditors. Stored encrypted."))
                button.danger { "Revoke" }
            }
        }
    }
}

/// Returns the body of the call.
fn body(form: &Form) -> Value {
    let (decision, listed) = match form.value("decision").split_once('-') {
        Some((decision, id)) => (decision, Some(id)),
        None => (form.value("decision"), form.text("number")),
    };
    let id = listed.map(number);
    match decision {
        "FUNDING" => json!({"decision": decision, "transaction_id": id, "reason": form.text("reason")}),
        "PAYOUT" => json!({"decision": decision, "payout_id": id, "reason": form.text("reason")}),
        _ => json!({"decision": decision, "reason": form.text("reason")}),
    }
}

async fn decide(visit: Visit) -> PageResult {
    let body = body(&visit.form);
    record(visit, "decide", &body).await
}

async fn revoke(visit: Visit) -> PageResult {
    let body = visit.form.json(&[("reason", Kind::Text)]);
    record(visit, "revoke", &body).await
}

async fn record(visit: Visit, change: &str, body: &Value) -> PageResult {
    visit.operator()?;
    let (id, line) = (visit.id("id")?, visit.id("line")?);
    let path = format!("/admin/v1/reconciliation/statements/{id}/lines/{line}/{change}");
    match visit.change::<Value>(Method::POST, &path, body).await {
        Ok(_) => Ok(redirect(&format!("/console/bank-statements/{id}/lines/{line}?done=changed"))),
        Err(refusal) if !refusal.is_correctable() => Err(refusal.into()),
        Err(mut refusal) => {
            for name in ["transaction_id", "payout_id"] {
                let problems = refusal.messages.remove(name).unwrap_or_default();
                if !problems.is_empty() {
                    refusal.messages.entry("number".to_owned()).or_default().extend(problems);
                }
            }
            Ok(layout::refused(one(&visit, Some(&refusal)).await?, &refusal))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(transaction_id: Option<i64>, payout_id: Option<i64>, amount: &str, currency: &str) -> Entry {
        let fields = json!({
            "transaction_id": transaction_id, "payout_id": payout_id, "account_id": 2, "amount": amount, "currency": currency,
            "day": "2026-01-31", "references": ["wire"]
        });
        serde_json::from_value(fields).unwrap()
    }

    #[test]
    fn a_choice_becomes_a_decision() {
        let body = |form: &str| body(&Form::parse(form.as_bytes()));
        let expected = json!({"decision": "FUNDING", "transaction_id": 7, "reason": "r"});
        assert_eq!(body("decision=FUNDING-7&number=9&reason=r"), expected);
        assert_eq!(body("decision=FUNDING&number=7&reason=r"), expected);
        assert_eq!(body("decision=PAYOUT-8&reason=r")["payout_id"], json!(8));
        assert_eq!(body("decision=IGNORED&number=9&reason=r"), json!({"decision": "IGNORED", "reason": "r"}));
    }

    #[test]
    fn entries_that_fit_are_offered_after_the_candidates() {
        let line = json!({
            "line": 1, "booked_on": "2026-01-31", "direction": "CREDIT", "amount": "5.00", "currency": "EUR", "is_reversal": false,
            "references": [], "text": null, "status": "AMBIGUOUS", "is_decided": false, "why": null, "reversed_line": null,
            "reversed_statement_id": null, "entries": []
        });
        let mut line: Line = serde_json::from_value(line).unwrap();
        line.entries.push(entry(Some(1), None, "5.00", "EUR"));
        let missing = vec![
            entry(Some(1), None, "5.00", "EUR"),
            entry(Some(2), None, "6.00", "EUR"),
            entry(Some(3), None, "5.00", "EUR"),
            entry(Some(4), None, "5.00", "USD"),
            entry(None, Some(5), "5.00", "EUR"),
        ];
        let offered = offered(&line, missing);
        assert_eq!(offered.iter().filter_map(choice).collect::<Vec<_>>(), ["FUNDING-1", "FUNDING-3", "FUNDING-2"]);
        assert_eq!(described(&offered[0]), "Funding, transaction 1, 5.00 EUR, 2026-01-31, account 2, wire");
    }
}
