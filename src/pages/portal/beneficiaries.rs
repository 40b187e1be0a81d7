//! The beneficiaries of payouts: their list, a new one, one of them, and its deletion.

use chrono::{DateTime, Utc};
use maud::{Markup, html};
use poem::Response;
use poem::http::Method;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::pages::call::{List, Refusal};
use crate::pages::form::{Form, KEY, Kind, new_key};
use crate::pages::outcome::{PageResult, redirect};
use crate::pages::parts::fields::Filled;
use crate::pages::parts::values::{facts, time, words};
use crate::pages::parts::{layout, table};
use crate::pages::site::Site;
use crate::pages::visit::Visit;
use ledger_events::user::UserRole;

/// A beneficiary, as `GET /api/v1/beneficiaries` returns it.
#[derive(Debug, Deserialize)]
pub struct Beneficiary {
    pub id: i64,
    pub name: String,
    #[serde(rename = "type")]
    kind: String,
    country: String,
    pub currency: String,
    pub account_last4: String,
    bank_code: Option<String>,
    created_at: DateTime<Utc>,
}

#[derive(Debug, Deserialize)]
struct Added {
    id: i64,
}

pub fn add(site: Site) -> Site {
    site.get("/portal/beneficiaries", list)
        .post("/portal/beneficiaries", create)
        .get("/portal/beneficiaries/:id", show)
        .post("/portal/beneficiaries/:id/delete", delete)
}

/// Returns whether the visitor may move money out, and say to whom.
pub fn may_pay(visit: &Visit) -> bool {
    visit.user().is_ok_and(|user| user.may(UserRole::Owner))
}

async fn list(visit: Visit) -> PageResult {
    visit.user()?;
    let beneficiaries = load(&visit).await?;
    Ok(page(&visit, &beneficiaries, &new_key(), None))
}

async fn load(visit: &Visit) -> Result<List<Beneficiary>, Refusal> {
    visit.list(&format!("/api/v1/beneficiaries?{}", visit.query.only(&["page"])), "beneficiaries").await
}

/// Adds a beneficiary. The form has a key, so that a repeated form adds one.
async fn create(visit: Visit) -> PageResult {
    visit.user()?;
    let key = visit.form.key();
    match visit.change_once::<Added>("/api/v1/beneficiaries", &key, &body(&visit.form)).await {
        Ok(Added { id }) => Ok(redirect(&format!("/portal/beneficiaries/{id}?done=created"))),
        Err(refusal) if !refusal.is_correctable() => Err(refusal.into()),
        Err(refusal) => {
            let beneficiaries = load(&visit).await?;
            // A corrected form is another request, which takes another key.
            let key = if refusal.is_undecided() { key } else { new_key() };
            Ok(layout::refused(page(&visit, &beneficiaries, &key, Some(&refusal)), &refusal))
        }
    }
}

/// Returns the body of the call. People paste account numbers with spaces and codes in lower case.
fn body(form: &Form) -> Value {
    let names = ["name", "type", "country", "currency", "account_number", "bank_code"];
    let mut body = form.json(&names.map(|name| (name, Kind::Text)));
    for name in ["country", "currency"] {
        if let Some(code) = form.text(name) {
            body[name] = code.to_ascii_uppercase().into();
        }
    }
    if let Some(number) = form.text("account_number") {
        body["account_number"] = number.split_whitespace().collect::<String>().into();
    }
    body
}

fn page(visit: &Visit, beneficiaries: &List<Beneficiary>, key: &str, refusal: Option<&Refusal>) -> Response {
    let body = html! {
        (layout::problem(refusal))
        p.actions { a.button.plain href="/portal/payouts" { "Payouts" } }
        @if beneficiaries.items.is_empty() {
            (table::empty("You have no beneficiary yet. A payout goes to a beneficiary, so add one first.", None))
        } @else {
            (rows(&beneficiaries.items))
            (table::pager(beneficiaries, "/portal/beneficiaries", &visit.query))
        }
        @if may_pay(visit) {
            h2 { "New beneficiary" }
            (new_one(&Filled { form: &visit.form, refusal }, key))
        } @else { p.quiet { "To add beneficiaries, you need the role owner." } }
    };
    layout::page(visit, "Beneficiaries", &body)
}

fn rows(beneficiaries: &[Beneficiary]) -> Markup {
    let columns =
        [("Name", false), ("Account", false), ("Type", false), ("Country", false), ("Currency", false), ("Added", false)];
    let row = |beneficiary: &Beneficiary| {
        vec![
            html! { a href={ "/portal/beneficiaries/" (beneficiary.id) } { (beneficiary.title()) } },
            html! { "… " (beneficiary.account_last4) },
            html! { (words(&beneficiary.kind)) },
            html! { (beneficiary.country) },
            html! { (beneficiary.currency) },
            time(beneficiary.created_at),
        ]
    };
    table::table("Beneficiaries", &columns, &beneficiaries.iter().map(row).collect::<Vec<_>>())
}

impl Beneficiary {
    /// Returns the name, or the number if the name is erased.
    pub fn title(&self) -> String {
        if self.name.is_empty() { format!("Beneficiary {}", self.id) } else { self.name.clone() }
    }
}

fn new_one(fields: &Filled<'_>, key: &str) -> Markup {
    html! {
        form.card method="post" action="/portal/beneficiaries" {
            (fields.input("name", "Name", "text", "The person or company that receives the money."))
            (fields.select("type", "Type of account", &[("BANK", "Bank account"), ("MOBILE_WALLET", "Mobile wallet")], ""))
            (fields.input("country", "Country", "text", "Two letters, such as DE."))
            (fields.input("currency", "Currency", "text", "Three letters, such as EUR. Payouts come from your wallet in this currency."))
            (fields.input("account_number", "Account number", "text", "IBAN, account number or telephone number. Later you see its last four characters only."))
            (fields.input("bank_code", "Bank code", "text", "Optional. BIC, sort code, or the provider of the mobile wallet."))
            input type="hidden" name=(KEY) value=(key);
            button { "Add the beneficiary" }
        }
    }
}

async fn show(visit: Visit) -> PageResult {
    visit.user()?;
    let id = visit.id("id")?;
    let beneficiary: Beneficiary = visit.get(&format!("/api/v1/beneficiaries/{id}")).await?;
    let body = html! {
        (facts(&[
            ("Account", html! { "… " (beneficiary.account_last4) }),
            ("Type", html! { (words(&beneficiary.kind)) }),
            ("Country", html! { (beneficiary.country) }),
            ("Currency", html! { (beneficiary.currency) }),
            ("Bank code", html! { (beneficiary.bank_code.as_deref().unwrap_or("–")) }),
            ("Added", time(beneficiary.created_at)),
        ]))
        p.actions {
            @if may_pay(&visit) { a.button href={ "/portal/payouts/request?beneficiary_id=" (id) } { "Request a payout" } }
            a.button.plain href={ "/portal/payouts?beneficiary_id=" (id) } { "Payouts to this beneficiary" }
            a href="/portal/beneficiaries" { "All beneficiaries" }
        }
        @if may_pay(&visit) {
            details.card {
                summary { "Delete this beneficiary" }
                form method="post" action={ "/portal/beneficiaries/" (id) "/delete" } {
                    p { "No new payout can go to it. Existing payouts, pending ones included, stay as they are." }
                    button.danger { "Delete the beneficiary" }
                }
            }
        }
    };
    Ok(layout::page(&visit, &beneficiary.title(), &body))
}

async fn delete(visit: Visit) -> PageResult {
    visit.user()?;
    let id = visit.id("id")?;
    visit.change::<Value>(Method::DELETE, &format!("/api/v1/beneficiaries/{id}"), &json!({})).await?;
    Ok(redirect("/portal/beneficiaries?done=deleted"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_account_number_is_sent_without_spaces_and_codes_in_capitals() {
        let form = Form::parse(b"name=A+B&type=BANK&country=de&currency=eur&account_number=DE89+3704+0044&bank_code=");
        let expected =
            json!({"name": "A B", "type": "BANK", "country": "DE", "currency": "EUR", "account_number": "DE8937040044"});
        assert_eq!(body(&form), expected);
    }
}
