//! The payouts: their list, the request of one, one of them, and its cancellation.

use chrono::{DateTime, Utc};
use maud::{Markup, html};
use poem::Response;
use poem::http::{Method, StatusCode};
use serde::Deserialize;
use serde_json::{Value, json};

use super::beneficiaries::{Beneficiary, may_pay};
use super::overview::Wallet;
use crate::pages::call::{List, Refusal};
use crate::pages::form::{Form, KEY, Kind, new_key};
use crate::pages::outcome::{PageResult, redirect};
use crate::pages::parts::fields::Filled;
use crate::pages::parts::period::{day_fields, filters};
use crate::pages::parts::values::{badge, facts, grouped, money, time, time_or_none, words};
use crate::pages::parts::{layout, table};
use crate::pages::shared::transaction::of_payout;
use crate::pages::site::Site;
use crate::pages::visit::{Visit, corrected};

const STATUSES: [&str; 4] = ["PENDING", "PAID", "FAILED", "CANCELLED"];
/// Filters of the list that are those of the API.
const FILTERS: [&str; 4] = ["status", "beneficiary_id", "wallet_id", "client_reference"];

/// A payout, as `GET /api/v1/payouts` returns it.
#[derive(Debug, Deserialize)]
struct Payout {
    id: i64,
    beneficiary_id: i64,
    wallet_id: i64,
    amount: String,
    currency: String,
    client_reference: Option<String>,
    status: String,
    failure_reason: Option<String>,
    created_at: DateTime<Utc>,
    settled_at: Option<DateTime<Utc>>,
}

pub fn add(site: Site) -> Site {
    site.get("/portal/payouts", list)
        .post("/portal/payouts", request)
        .get("/portal/payouts/request", form)
        .get("/portal/payouts/:id", show)
        .post("/portal/payouts/:id/cancel", cancel)
}

async fn list(visit: Visit) -> PageResult {
    visit.user()?;
    match load(&visit).await {
        Ok((payouts, beneficiaries)) => Ok(page(&visit, Some((&payouts, &beneficiaries.items)), None)),
        Err(refusal) => corrected(refusal, |refusal| layout::refused(page(&visit, None, Some(refusal)), refusal)),
    }
}

async fn load(visit: &Visit) -> Result<(List<Payout>, List<Beneficiary>), Refusal> {
    let payouts = format!("/api/v1/payouts?{}&{}", filters(&visit.query, &FILTERS)?, visit.query.only(&["page"]));
    let (payouts, named) = (visit.list(&payouts, "payouts"), visit.list("/api/v1/beneficiaries?limit=100", "beneficiaries"));
    futures::try_join!(payouts, named)
}

fn page(visit: &Visit, found: Option<(&List<Payout>, &[Beneficiary])>, refusal: Option<&Refusal>) -> Response {
    let fields = Filled { form: &visit.query, refusal };
    let statuses: Vec<(&str, String)> =
        std::iter::once(("", "Any".to_owned())).chain(STATUSES.map(|status| (status, words(status)))).collect();
    let body = html! {
        (layout::live(visit))
        (layout::problem(refusal))
        p.actions {
            @if may_pay(visit) { a.button href="/portal/payouts/request" { "Request a payout" } }
            a.button.plain href="/portal/beneficiaries" { "Beneficiaries" }
        }
        (table::filters("/portal/payouts", &html! {
            (fields.select("status", "Status", &statuses, ""))
            (fields.input("beneficiary_id", "Beneficiary number", "search", ""))
            (fields.input("wallet_id", "Wallet number", "search", ""))
            (fields.input("client_reference", "Your reference", "search", ""))
            (day_fields(&fields))
        }))
        @if let Some((payouts, beneficiaries)) = found {
            @if payouts.items.is_empty() { (nothing(visit)) }
            @else {
                (rows(&payouts.items, beneficiaries))
                (table::pager(payouts, "/portal/payouts", &visit.query))
            }
        }
    };
    layout::page(visit, "Payouts", &body)
}

fn nothing(visit: &Visit) -> Markup {
    let kept = visit.query.only(&[&FILTERS[..], &["from", "to", "page"][..]].concat());
    match kept.is_empty() {
        true => table::empty(
            "There is no payout yet. A payout goes from a wallet to a beneficiary.",
            Some(("/portal/beneficiaries", "Show the beneficiaries")),
        ),
        false => table::empty("No payout matches these filters.", Some(("/portal/payouts", "Show all payouts"))),
    }
}

fn rows(payouts: &[Payout], beneficiaries: &[Beneficiary]) -> Markup {
    let columns = [
        ("Payout", false),
        ("Requested", false),
        ("Beneficiary", false),
        ("Your reference", false),
        ("Amount", true),
        ("Status", false),
    ];
    let row = |payout: &Payout| {
        let beneficiary = beneficiaries.iter().find(|beneficiary| beneficiary.id == payout.beneficiary_id);
        vec![
            html! { a href={ "/portal/payouts/" (payout.id) } { "Payout " (payout.id) } },
            time(payout.created_at),
            receiver(payout, beneficiary),
            html! { (payout.client_reference.as_deref().unwrap_or("–")) },
            of_payout("/portal", (payout.wallet_id, payout.id), &money(&payout.amount, &payout.currency)),
            badge(&payout.status),
        ]
    };
    table::table("Payouts", &columns, &payouts.iter().map(row).collect::<Vec<_>>())
}

/// Renders the beneficiary of a payout. A deleted one has no page.
fn receiver(payout: &Payout, beneficiary: Option<&Beneficiary>) -> Markup {
    html! {
        @match beneficiary {
            Some(beneficiary) => a href={ "/portal/beneficiaries/" (beneficiary.id) } { (beneficiary.title()) },
            None => { "Beneficiary " (payout.beneficiary_id) }
        }
    }
}

/// Reads a beneficiary, unless it is deleted.
async fn beneficiary(visit: &Visit, id: i64) -> Result<Option<Beneficiary>, Refusal> {
    match visit.get(&format!("/api/v1/beneficiaries/{id}")).await {
        Ok(beneficiary) => Ok(Some(beneficiary)),
        Err(refusal) if refusal.status == StatusCode::NOT_FOUND => Ok(None),
        Err(refusal) => Err(refusal),
    }
}

/// Wallets and beneficiaries that a payout can have.
struct Choices {
    wallets: List<Wallet>,
    beneficiaries: List<Beneficiary>,
}

/// Loads the wallets and the newest beneficiaries, with the one that the form has.
async fn choices(visit: &Visit, form: &Form) -> Result<Choices, Refusal> {
    let wallets = visit.list::<Wallet>("/api/v1/wallets?limit=100", "wallets");
    let beneficiaries = visit.list::<Beneficiary>("/api/v1/beneficiaries?limit=100", "beneficiaries");
    let (wallets, mut beneficiaries) = futures::try_join!(wallets, beneficiaries)?;
    let chosen: Option<i64> = form.text("beneficiary_id").and_then(|id| id.parse().ok());
    let missing = chosen.filter(|id| beneficiaries.items.iter().all(|known| known.id != *id));
    if let Some(id) = missing {
        beneficiaries.items.extend(beneficiary(visit, id).await?);
    }
    Ok(Choices { wallets, beneficiaries })
}

async fn form(visit: Visit) -> PageResult {
    visit.user()?;
    let choices = choices(&visit, &visit.query).await?;
    Ok(form_page(&visit, &choices, &new_key(), Filled { form: &visit.query, refusal: None }))
}

/// Requests a payout. Its key comes from the form, so that a repeated form requests one.
async fn request(visit: Visit) -> PageResult {
    visit.user()?;
    let body = visit.form.json(&[
        ("beneficiary_id", Kind::Number),
        ("wallet_id", Kind::Number),
        ("amount", Kind::Text),
        ("client_reference", Kind::Text),
    ]);
    let key = visit.form.key();
    let refusal = match visit.change_once::<Payout>("/api/v1/payouts", &key, &body).await {
        Ok(payout) => return Ok(redirect(&format!("/portal/payouts/{}?done=payout-requested", payout.id))),
        Err(refusal) => refusal,
    };
    let choices = choices(&visit, &visit.form).await?;
    let refusal = explained(refusal, &visit.form, &choices.wallets);
    // A corrected form is another request, which takes another key.
    let key = if refusal.is_undecided() { key } else { new_key() };
    let page = |refusal: &Refusal| {
        layout::refused(form_page(&visit, &choices, &key, Filled { form: &visit.form, refusal: Some(refusal) }), refusal)
    };
    if refusal.is_undecided() { Ok(page(&refusal)) } else { corrected(refusal, page) }
}

/// Puts a refusal of a payout at the field that it is about, and names the wallet that it is about.
fn explained(mut refusal: Refusal, form: &Form, wallets: &List<Wallet>) -> Refusal {
    if refusal.is_undecided() {
        refusal.message =
            "It is not known yet whether the payout is requested. Send this form again: it takes effect once.".to_owned();
        return refusal;
    }
    let (field, problem) = match refusal.code.as_str() {
        "E_CURRENCY_MISMATCH" => ("wallet_id", "must be in the currency of the beneficiary"),
        "E_DUPLICATE_REFERENCE" => ("client_reference", "is in use for a different payout"),
        "E_NOT_FOUND" => return Refusal::of_field("beneficiary_id", "no longer exists"),
        "E_INSUFFICIENT_BALANCE" => {
            let wallet = wallets.items.iter().find(|wallet| wallet.id.to_string() == form.value("wallet_id"));
            refusal.message = wallet.map_or_else(|| refusal.message.clone(), Wallet::too_low);
            return refusal;
        }
        _ => return refusal,
    };
    refusal.messages.entry(field.to_owned()).or_default().push(problem.to_owned());
    refusal
}

fn form_page(visit: &Visit, choices: &Choices, key: &str, fields: Filled<'_>) -> Response {
    let Choices { wallets, beneficiaries } = choices;
    let body = html! {
        (layout::problem(fields.refusal))
        @if !may_pay(visit) { p.quiet { "To request payouts, you need the role owner." } }
        @else if beneficiaries.items.is_empty() {
            (table::empty("A payout goes to a beneficiary. Add one first.", Some(("/portal/beneficiaries", "Add a beneficiary"))))
        } @else if wallets.items.is_empty() {
            (table::empty("A payout comes from a wallet. The operators of the service open one for each currency.", None))
        } @else { (request_form(choices, key, fields)) }
        p.actions { a href="/portal/payouts" { "All payouts" } }
    };
    layout::page(visit, "Request a payout", &body)
}

fn request_form(Choices { wallets, beneficiaries }: &Choices, key: &str, fields: Filled<'_>) -> Markup {
    let receivers: Vec<(String, String)> = beneficiaries
        .items
        .iter()
        .map(|one| (one.id.to_string(), format!("{}, … {}, {}", one.title(), one.account_last4, one.currency)))
        .collect();
    let sources: Vec<(String, String)> = wallets
        .items
        .iter()
        .map(|wallet| {
            (wallet.id.to_string(), format!("Wallet {}, balance {} {}", wallet.id, grouped(&wallet.balance), wallet.currency))
        })
        .collect();
    let is_part = beneficiaries.total > beneficiaries.items.len() as u64;
    let hint = if is_part { "The newest are listed. To pay another one, begin at its own page." } else { "" };
    html! {
        form.card method="post" action="/portal/payouts" {
            (fields.select("beneficiary_id", "Beneficiary", &receivers, hint))
            (fields.select("wallet_id", "Wallet", &sources, "It must be in the currency of the beneficiary."))
            (fields.input("amount", "Amount", "text", "In the currency of the wallet, such as 48.75."))
            (fields.input("client_reference", "Your reference", "text", "Optional. No two payouts can have the same one."))
            input type="hidden" name=(KEY) value=(key);
            p { "The wallet is debited at once. An operator of the service then sends the money. Until then you can cancel the payout." }
            button { "Request the payout" }
        }
    }
}

async fn show(visit: Visit) -> PageResult {
    visit.user()?;
    one(&visit, visit.id("id")?, None).await
}

/// Renders a payout as it is now.
async fn one(visit: &Visit, id: i64, refusal: Option<&Refusal>) -> PageResult {
    let payout: Payout = visit.get(&format!("/api/v1/payouts/{id}")).await?;
    let beneficiary = beneficiary(visit, payout.beneficiary_id).await?;
    let body = html! {
        (layout::live(visit))
        (layout::problem(refusal))
        (facts(&[
            ("Status", badge(&payout.status)),
            ("Amount", of_payout("/portal", (payout.wallet_id, id), &money(&payout.amount, &payout.currency))),
            ("Beneficiary", receiver(&payout, beneficiary.as_ref())),
            ("Wallet", html! { a href={ "/portal/wallets/" (payout.wallet_id) } { "Wallet " (payout.wallet_id) } }),
            ("Your reference", html! { (payout.client_reference.as_deref().unwrap_or("–")) }),
            ("Requested", time(payout.created_at)),
            ("Settled", time_or_none(payout.settled_at)),
            ("Reason of the failure", html! { (payout.failure_reason.as_deref().unwrap_or("–")) }),
        ]))
        @if payout.status == "PENDING" {
            p { "An operator of the service sends the money. This page shows when that is done." }
            @if may_pay(visit) { (cancellation(&payout)) }
        }
        p.actions { a href="/portal/payouts" { "All payouts" } }
    };
    Ok(layout::page(visit, &format!("Payout {id}"), &body))
}

fn cancellation(payout: &Payout) -> Markup {
    html! {
        details.card {
            summary { "Cancel this payout" }
            form method="post" action={ "/portal/payouts/" (payout.id) "/cancel" } {
                p {
                    strong { (money(&payout.amount, &payout.currency)) } " return to wallet " (payout.wallet_id)
                    ". The beneficiary receives nothing."
                }
                button.danger { "Cancel the payout" }
            }
        }
    }
}

/// Cancels a payout. If it is settled meanwhile, its page says so.
async fn cancel(visit: Visit) -> PageResult {
    visit.user()?;
    let id = visit.id("id")?;
    match visit.change::<Value>(Method::POST, &format!("/api/v1/payouts/{id}/cancel"), &json!({})).await {
        Ok(_) => Ok(redirect(&format!("/portal/payouts/{id}?done=payout-cancelled"))),
        Err(refusal) if !refusal.is_correctable() => Err(refusal.into()),
        Err(refusal) => Ok(layout::refused(one(&visit, id, Some(&refusal)).await?, &refusal)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refused_payout_says_what_to_correct() {
        let wallet = serde_json::from_value(json!({"id": 3, "currency": "EUR", "balance": "1.00"})).unwrap();
        let wallets = List { items: vec![wallet], page: 1, pages: 1, total: 1 };
        let form = Form::parse(b"wallet_id=3");
        let explained = |code| explained(Refusal::new(StatusCode::UNPROCESSABLE_ENTITY, code, "No."), &form, &wallets);
        assert_eq!(explained("E_CURRENCY_MISMATCH").messages["wallet_id"], ["must be in the currency of the beneficiary"]);
        assert_eq!(explained("E_DUPLICATE_REFERENCE").messages["client_reference"], ["is in use for a different payout"]);
        assert_eq!(explained("E_NOT_FOUND").messages["beneficiary_id"], ["no longer exists"]);
        assert!(explained("E_INSUFFICIENT_BALANCE").message.contains("wallet 3"));
        assert!(explained("E_OUTCOME_UNKNOWN").message.contains("takes effect once"));
        assert_eq!(explained("E_ACCOUNT_SUSPENDED").message, "No.");
    }
}
