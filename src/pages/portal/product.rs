//! A product: its price as one chooses, and the order.

use maud::{Markup, html};
use poem::Response;
use serde::Deserialize;
use serde_json::Value;

use super::overview::Wallet;
use super::products::Product;
use crate::pages::call::{List, Refusal};
use crate::pages::form::{Form, KEY, Kind, new_key};
use crate::pages::outcome::{PageResult, Stop, redirect};
use crate::pages::parts::fields::Filled;
use crate::pages::parts::layout;
use crate::pages::parts::values::{facts, grouped, money};
use crate::pages::site::Site;
use crate::pages::visit::{Visit, corrected};
use ledger_events::Money;
use ledger_events::user::UserRole;

/// A price, as `POST /api/v1/charges` returns it.
#[derive(Debug, Deserialize)]
struct Charge {
    currency: String,
    face_value: String,
    discount: String,
    discount_amount: String,
    amount: Money,
    wallet_balance: Money,
    sufficient_balance: bool,
}

#[derive(Debug, Deserialize)]
struct Placed {
    id: i64,
}

pub fn add(site: Site) -> Site {
    site.get("/portal/products/:id", show).post("/portal/orders", place)
}

/// Shows a product, with the price of the order that the query describes.
async fn show(visit: Visit) -> PageResult {
    visit.user()?;
    let (product, wallets) = load(&visit, visit.id("id")?).await?;
    let asks = visit.query.text("denomination").is_some() || visit.query.text("quantity").is_some();
    if !asks {
        return Ok(page(&visit, &product, &wallets, &Chosen { form: &visit.query, key: new_key(), outcome: None }));
    }
    match quote(&visit, product.id, &visit.query).await {
        Ok(charge) => {
            let chosen = Chosen { form: &visit.query, key: new_key(), outcome: Some(Ok(&charge)) };
            Ok(page(&visit, &product, &wallets, &chosen))
        }
        // The form is complete only at the end, so an incomplete one is no error of the request.
        Err(refusal) => corrected(explained(refusal, &product, &wallets), |refusal| {
            page(&visit, &product, &wallets, &Chosen { form: &visit.query, key: new_key(), outcome: Some(Err(refusal)) })
        }),
    }
}

/// Places an order. Its key comes from the page that shows the price, so that a repeated form places it once.
async fn place(visit: Visit) -> PageResult {
    visit.user()?;
    let product_id = visit.form.text("product_id").and_then(|id| id.parse::<i64>().ok()).ok_or(Stop::NotFound)?;
    let body = visit.form.json(&[
        ("product_id", Kind::Number),
        ("denomination", Kind::Number),
        ("quantity", Kind::Number),
        ("client_reference", Kind::Text),
    ]);
    let key = visit.form.key();
    let refusal = match visit.change_once::<Placed>("/api/v1/orders", &key, &body).await {
        Ok(Placed { id }) => return Ok(redirect(&format!("/portal/orders/{id}?done=placed"))),
        Err(refusal) => refusal,
    };
    if !refusal.is_correctable() {
        return Err(refusal.into());
    }
    let (product, wallets) = load(&visit, product_id).await?;
    // A corrected form is another request, which takes another key.
    let key = if refusal.is_undecided() { key } else { new_key() };
    corrected(explained(refusal, &product, &wallets), |refusal| {
        let chosen = Chosen { form: &visit.form, key, outcome: Some(Err(refusal)) };
        layout::refused(page(&visit, &product, &wallets, &chosen), refusal)
    })
}

async fn load(visit: &Visit, id: i64) -> Result<(Product, List<Wallet>), Refusal> {
    let product = format!("/api/v1/products/{id}");
    let (product, wallets) = (visit.get::<Product>(&product), visit.list::<Wallet>("/api/v1/wallets?limit=100", "wallets"));
    futures::try_join!(product, wallets)
}

async fn quote(visit: &Visit, product_id: i64, form: &Form) -> Result<Charge, Refusal> {
    let mut body = form.json(&[("denomination", Kind::Number), ("quantity", Kind::Number)]);
    body["product_id"] = Value::from(product_id);
    visit.change(poem::http::Method::POST, "/api/v1/charges", &body).await
}

/// Puts a refusal of an order at the field that it is about, and names the wallet that it is about.
pub fn explained(mut refusal: Refusal, product: &Product, wallets: &List<Wallet>) -> Refusal {
    let wallet = wallets.items.iter().find(|wallet| wallet.currency == product.currency);
    let (field, problem) = match refusal.code.as_str() {
        "E_INVALID_DENOMINATION" => ("denomination", format!("must be {} {}", product.face_values(), product.currency)),
        "E_QUANTITY_LIMIT_EXCEEDED" => ("quantity", format!("must be at most {}", product.max_quantity)),
        "E_DUPLICATE_REFERENCE" => ("client_reference", "is in use for a different order".to_owned()),
        "E_CURRENCY_MISMATCH" => {
            refusal.message =
                format!("You have no wallet in {}. Ask the operators of the service to open one.", product.currency);
            return refusal;
        }
        "E_INSUFFICIENT_BALANCE" => {
            refusal.message = wallet.map_or_else(|| refusal.message.clone(), Wallet::too_low);
            return refusal;
        }
        _ => return refusal,
    };
    refusal.messages.entry(field.to_owned()).or_default().push(problem);
    refusal
}

/// A choice so far, and its price or the reason why it has none.
struct Chosen<'a> {
    form: &'a Form,
    key: String,
    outcome: Option<Result<&'a Charge, &'a Refusal>>,
}

fn page(visit: &Visit, product: &Product, wallets: &List<Wallet>, chosen: &Chosen<'_>) -> Response {
    let refusal = chosen.outcome.and_then(Result::err);
    let body = html! {
        (layout::problem(refusal))
        div.grid {
            section.card aria-label="Product" {
                (product.image("preview"))
                (facts(&[
                    ("Brand", html! { (product.brand) }),
                    ("Country", html! { (product.country) }),
                    ("Face value", html! { (product.face_values()) " " span.currency { (product.currency) } }),
                    ("Your discount", html! { (product.discount) " %" }),
                    ("Units per order", html! { "up to " (product.max_quantity) }),
                ]))
            }
            section.card aria-label="Order" {
                (choice(product, &Filled { form: chosen.form, refusal }))
                @if let Some(Ok(charge)) = chosen.outcome { (priced(visit, product, wallets, chosen, charge)) }
            }
        }
        @if !product.description.is_empty() { h2 { "Description" } (paragraphs(&product.description)) }
        @if !product.terms.is_empty() { h2 { "Terms" } (paragraphs(&product.terms)) }
    };
    layout::page(visit, &product.name, &body)
}

/// The form that shows the price. It only reads, so scripts send it as one types.
fn choice(product: &Product, fields: &Filled<'_>) -> Markup {
    let values: Vec<(String, String)> = product
        .denominations
        .iter()
        .map(|value| (value.to_string(), format!("{} {}", grouped(&value.to_string()), product.currency)))
        .collect();
    html! {
        form method="get" action={ "/portal/products/" (product.id) } data-filters {
            @if values.is_empty() {
                (fields.input("denomination", "Face value", "text", &format!("{} {}", product.face_values(), product.currency)))
            } @else { (fields.select("denomination", "Face value", &values, "")) }
            (fields.input("quantity", "Units", "number", &format!("1 to {}", product.max_quantity)))
            (fields.input("client_reference", "Your reference", "text", "Optional. No two orders can have the same one."))
            button.plain { "Show the price" }
        }
    }
}

fn priced(visit: &Visit, product: &Product, wallets: &List<Wallet>, chosen: &Chosen<'_>, charge: &Charge) -> Markup {
    let wallet = wallets.items.iter().find(|wallet| wallet.currency == charge.currency);
    let may_order = visit.user().is_ok_and(|user| user.may(UserRole::Operator));
    html! {
        p.price role="status" { (money(&charge.amount.to_string(), &charge.currency)) }
        p.quiet {
            (money(&charge.face_value, &charge.currency)) " less " (charge.discount) " % ("
            (money(&charge.discount_amount, &charge.currency)) ")"
        }
        p {
            "Paid from "
            @if let Some(wallet) = wallet { a href={ "/portal/wallets/" (wallet.id) } { "wallet " (wallet.id) } } @else { "your wallet" }
            ", balance " (money(&charge.wallet_balance.to_string(), &charge.currency)) "."
        }
        @if !charge.sufficient_balance {
            p.notice.bad { (wallet.map_or_else(|| "The wallet's balance is too low.".to_owned(), Wallet::too_low)) }
        } @else if may_order {
            form method="post" action="/portal/orders" {
                input type="hidden" name="product_id" value=(product.id);
                @for name in ["denomination", "quantity", "client_reference"] {
                    input type="hidden" name=(name) value=(chosen.form.value(name));
                }
                input type="hidden" name=(KEY) value=(chosen.key);
                button { "Place the order" }
            }
        } @else { p.quiet { "To place orders, you need the role operator or owner." } }
    }
}

fn paragraphs(text: &str) -> Markup {
    html! { @for paragraph in text.split("\n\n").filter(|text| !text.trim().is_empty()) { p { (paragraph) } } }
}

#[cfg(test)]
mod tests {
    use poem::http::StatusCode;
    use serde_json::json;

    use super::*;

    fn parts() -> (Product, List<Wallet>) {
        let product = json!({
            "id": 7, "name": "Card", "brand": "Acme", "country": "DE", "currency": "EUR", "denominations": ["10.00"],
            "min_denomination": null, "max_denomination": null, "discount": "0.00", "max_quantity": 5, "image_url": null,
            "description": "", "terms": ""
        });
        let wallet = json!({"id": 3, "currency": "EUR", "balance": "1.00"});
        let wallets = List { items: vec![serde_json::from_value(wallet).unwrap()], page: 1, pages: 1, total: 1 };
        (serde_json::from_value(product).unwrap(), wallets)
    }

    #[test]
    fn a_refused_order_says_what_to_correct() {
        let (product, wallets) = parts();
        let explained = |code| explained(Refusal::new(StatusCode::UNPROCESSABLE_ENTITY, code, "No."), &product, &wallets);
        assert_eq!(explained("E_INVALID_DENOMINATION").messages["denomination"], ["must be 10.00 EUR"]);
        assert_eq!(explained("E_QUANTITY_LIMIT_EXCEEDED").messages["quantity"], ["must be at most 5"]);
        assert_eq!(explained("E_DUPLICATE_REFERENCE").messages["client_reference"], ["is in use for a different order"]);
        let poor = explained("E_INSUFFICIENT_BALANCE").message;
        assert!(poor.contains("wallet 3") && poor.contains("1.00 EUR"), "{poor}");
        assert_eq!(explained("E_PRODUCT_UNAVAILABLE").message, "No.");
    }

    #[test]
    fn every_page_has_a_key_of_its_own() {
        assert_ne!(new_key(), new_key());
    }
}
