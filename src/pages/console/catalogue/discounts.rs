//! The discounts of accounts on a product.

use maud::{Markup, html};
use poem::Response;
use poem::http::Method;
use serde::Deserialize;
use serde_json::{Value, json};

use super::{Product, may_change, product_of};
use crate::pages::call::{List, Refusal};
use crate::pages::form::Form;
use crate::pages::outcome::{PageResult, redirect};
use crate::pages::parts::fields::Filled;
use crate::pages::parts::{layout, table};
use crate::pages::site::Site;
use crate::pages::visit::Visit;

#[derive(Debug, Deserialize)]
struct Account {
    id: i64,
    name: String,
}

/// A discount, as `GET /admin/v1/accounts/:id/discounts` returns it.
#[derive(Debug, Deserialize)]
struct Discount {
    discount: String,
    product_id: Option<i64>,
    category_id: Option<i64>,
}

/// An account with its discounts.
type Chosen = (Account, List<Discount>);

pub fn add(site: Site) -> Site {
    site.get("/console/products/:id/discounts", show).post("/console/products/:id/discounts", set)
}

async fn show(visit: Visit) -> PageResult {
    visit.operator()?;
    let product = product_of(&visit, visit.id("id")?).await?;
    match visit.query.text("account_id") {
        Some(account) => match chosen(&visit, account).await {
            Ok(chosen) => Ok(account_page(&visit, &product, &chosen, &Filled { form: &visit.query, refusal: None })),
            Err(refusal) if !refusal.is_correctable() => Err(refusal.into()),
            Err(refusal) => {
                let accounts = newest(&visit).await?;
                let fields = Filled { form: &visit.query, refusal: Some(&refusal) };
                Ok(layout::refused(accounts_page(&visit, &product, &accounts, &fields), &refusal))
            }
        },
        None => {
            let accounts = newest(&visit).await?;
            Ok(accounts_page(&visit, &product, &accounts, &Filled { form: &visit.query, refusal: None }))
        }
    }
}

async fn newest(visit: &Visit) -> Result<List<Account>, Refusal> {
    visit.list(&format!("/admin/v1/accounts?{}", visit.query.only(&["page"])), "accounts").await
}

async fn chosen(visit: &Visit, account: &str) -> Result<Chosen, Refusal> {
    let id: i64 = account.parse().map_err(|_| Refusal::of_field("account_id", "must be the number of an account"))?;
    let (account, discounts) = (format!("/admin/v1/accounts/{id}"), format!("/admin/v1/accounts/{id}/discounts"));
    let found = futures::try_join!(visit.get(&account), visit.list(&discounts, "discounts"));
    found.map_err(|refusal| match refusal.code.as_str() {
        "E_NOT_FOUND" => Refusal::of_field("account_id", "is not the number of an account"),
        _ => refusal,
    })
}

/// Sets the account's discount on the product.
async fn set(visit: Visit) -> PageResult {
    visit.operator()?;
    let product = product_of(&visit, visit.id("id")?).await?;
    let chosen = chosen(&visit, visit.form.value("account_id")).await?;
    let account = chosen.0.id;
    let body = json!({"discount": visit.form.text("discount"), "product_id": product.id});
    match visit.change::<Value>(Method::PUT, &format!("/admin/v1/accounts/{account}/discounts"), &body).await {
        Ok(_) => Ok(redirect(&format!("/console/products/{}/discounts?account_id={account}&done=changed", product.id))),
        Err(refusal) if !refusal.is_correctable() => Err(refusal.into()),
        Err(refusal) => {
            let fields = Filled { form: &visit.form, refusal: Some(&refusal) };
            Ok(layout::refused(account_page(&visit, &product, &chosen, &fields), &refusal))
        }
    }
}

fn accounts_page(visit: &Visit, product: &Product, accounts: &List<Account>, fields: &Filled<'_>) -> Response {
    let path = format!("/console/products/{}/discounts", product.id);
    let columns = [("Account", false), ("Name", false)];
    let row = |account: &Account| {
        let target = format!("{path}?account_id={}", account.id);
        vec![html! { a href=(target) { "Account " (account.id) } }, html! { (account.name) }]
    };
    let body = html! {
        p { "Each account has its own discounts. Choose an account." }
        (table::filters(&path, &fields.input("account_id", "Account number", "search", "")))
        @if accounts.items.is_empty() {
            (table::empty("There is no account yet.", Some(("/console/accounts", "To the accounts"))))
        } @else {
            (table::table("Accounts", &columns, &accounts.items.iter().map(row).collect::<Vec<_>>()))
            (table::pager(accounts, &path, &Form::default()))
        }
        p.actions { a href={ "/console/products/" (product.id) } { "Back to the product" } }
    };
    layout::page(visit, &format!("Discounts on {}", product.name), &body)
}

/// Returns the discount that applies to a product: the most specific one.
fn applied<'a>(discounts: &'a [Discount], product: &Product) -> Option<&'a Discount> {
    let on = |wanted: fn(&Discount, &Product) -> bool| discounts.iter().find(|discount| wanted(discount, product));
    on(|discount, product| discount.product_id == Some(product.id))
        .or_else(|| on(|discount, product| discount.category_id.is_some() && discount.category_id == product.category_id))
        .or_else(|| on(|discount, _| discount.product_id.is_none() && discount.category_id.is_none()))
}

fn account_page(visit: &Visit, product: &Product, (account, discounts): &Chosen, fields: &Filled<'_>) -> Response {
    let path = format!("/console/products/{}/discounts", product.id);
    let applied = applied(&discounts.items, product);
    let body = html! {
        (layout::problem(fields.refusal))
        p {
            a href={ "/console/accounts/" (account.id) } { (account.name) }
            @match applied {
                Some(discount) => { " pays " strong { (discount.discount) " %" } " less than the face value, by its discount on " (reach(discount)) "." },
                None => " pays the face value. It has no discount on this product.",
            }
        }
        @if may_change(visit) {
            form.card method="post" action=(path) {
                input type="hidden" name="account_id" value=(account.id);
                (fields.input("discount", "Discount in percent", "text", "0 to 99.99. It replaces the account's discount on this product, and applies to new orders."))
                button { "Set the discount" }
            }
        } @else { p.quiet { "To set discounts, you need the role admin." } }
        p.actions {
            a href=(path) { "Another account" }
            a href={ "/console/products/" (product.id) } { "Back to the product" }
        }
    };
    layout::page(visit, &format!("Discount on {}", product.name), &body)
}

fn reach(discount: &Discount) -> Markup {
    html! {
        @match (discount.product_id, discount.category_id) {
            (Some(_), _) => "this product",
            (None, Some(_)) => "its category",
            (None, None) => "everything",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::product;
    use super::*;

    #[test]
    fn the_most_specific_discount_applies() {
        let discount =
            |discount: &str, product_id, category_id| Discount { discount: discount.to_owned(), product_id, category_id };
        let all = [discount("1.00", None, None), discount("2.00", None, Some(3)), discount("3.00", Some(7), None)];
        let product = product(json!({"category_id": 3}));
        let of = |discounts: &[Discount]| applied(discounts, &product).map(|discount| discount.discount.clone());
        assert_eq!(of(&all).as_deref(), Some("3.00"));
        assert_eq!(of(&all[..2]).as_deref(), Some("2.00"));
        assert_eq!(of(&all[..1]).as_deref(), Some("1.00"));
        assert_eq!(of(&[]), None);
    }
}
