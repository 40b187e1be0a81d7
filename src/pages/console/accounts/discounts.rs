//! The discounts of an account, and the setting of one.

use maud::{Markup, html};
use poem::Response;
use poem::http::Method;
use serde::Deserialize;
use serde_json::Value;

use super::{Account, account, page};
use crate::pages::call::{List, Refusal};
use crate::pages::console::parts::{is_admin, needs_admin};
use crate::pages::form::Kind;
use crate::pages::outcome::{PageResult, redirect};
use crate::pages::parts::fields::Filled;
use crate::pages::parts::{layout, table};
use crate::pages::site::Site;
use crate::pages::visit::Visit;

/// A discount, as `GET /admin/v1/accounts/:id/discounts` returns it.
#[derive(Debug, Deserialize)]
struct Discount {
    discount: String,
    product_id: Option<i64>,
    category_id: Option<i64>,
}

pub fn add(site: Site) -> Site {
    site.get("/console/accounts/:id/discounts", list).post("/console/accounts/:id/discounts", set)
}

async fn load(visit: &Visit, id: i64) -> Result<(Account, List<Discount>), Refusal> {
    let path = format!("/admin/v1/accounts/{id}/discounts");
    futures::try_join!(account(visit, id), visit.list(&path, "discounts"))
}

async fn list(visit: Visit) -> PageResult {
    visit.operator()?;
    let (account, discounts) = load(&visit, visit.id("id")?).await?;
    Ok(list_page(&visit, &account, &discounts, None))
}

async fn set(visit: Visit) -> PageResult {
    visit.operator()?;
    let id = visit.id("id")?;
    let body = visit.form.json(&[("discount", Kind::Text), ("product_id", Kind::Number), ("category_id", Kind::Number)]);
    match visit.change::<Value>(Method::PUT, &format!("/admin/v1/accounts/{id}/discounts"), &body).await {
        Ok(_) => Ok(redirect(&format!("/console/accounts/{id}/discounts?done=changed"))),
        Err(refusal) if !refusal.is_correctable() => Err(refusal.into()),
        Err(refusal) => {
            let (account, discounts) = load(&visit, id).await?;
            Ok(layout::refused(list_page(&visit, &account, &discounts, Some(&refusal)), &refusal))
        }
    }
}

fn list_page(visit: &Visit, account: &Account, discounts: &List<Discount>, refusal: Option<&Refusal>) -> Response {
    let fields = Filled { form: &visit.form, refusal };
    let body = html! {
        (layout::problem(refusal))
        p { "The most specific discount applies: that on the product, then that on its category, then that on everything." }
        @if discounts.items.is_empty() { (table::empty("The account has no discount. It pays the face value.", None)) }
        @else { (rows(&discounts.items)) }
        @if is_admin(visit) {
            details.card open[refusal.is_some()] {
                summary { "Set a discount" }
                form method="post" action={ "/console/accounts/" (account.id) "/discounts" } {
                    p { "It replaces the account's discount on the same product, category, or everything. Placed orders keep their prices." }
                    (fields.input("discount", "Discount in percent", "text", "From 0.00 to 99.99. With 0.00, the account pays the face value."))
                    (fields.input("product_id", "Product number", "text", "Leave it empty for a discount on a category or on everything."))
                    (fields.input("category_id", "Category number", "text", "Leave it empty for a discount on a product or on everything."))
                    button { "Set the discount" }
                }
            }
        } @else { (needs_admin("set discounts")) }
    };
    page(visit, account, &format!("Discounts of {}", account.name), &body)
}

fn rows(discounts: &[Discount]) -> Markup {
    let row = |discount: &Discount| {
        let applies = html! {
            @match (discount.product_id, discount.category_id) {
                (Some(product), _) => a href={ "/console/products/" (product) } { "Product " (product) },
                (None, Some(category)) => { "Category " (category) },
                (None, None) => "Everything",
            }
        };
        vec![applies, html! { (discount.discount) " %" }]
    };
    table::table("Discounts", &[("On", false), ("Discount", true)], &discounts.iter().map(row).collect::<Vec<_>>())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_discount_names_what_it_is_on() {
        let on = |product_id, category_id| Discount { discount: "2.50".to_owned(), product_id, category_id };
        let markup = rows(&[on(Some(7), None), on(None, Some(3)), on(None, None)]).0;
        assert!(markup.contains("Product 7") && markup.contains("Category 3") && markup.contains("Everything"), "{markup}");
    }
}
