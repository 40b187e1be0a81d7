//! The supplier from whom vouchers of a product are bought when the stock has none.

use maud::{Markup, html};
use poem::Response;
use poem::http::Method;
use serde::Deserialize;
use serde_json::{Value, json};

use super::{Product, may_change, product_of};
use crate::pages::call::Refusal;
use crate::pages::form::Form;
use crate::pages::outcome::{PageResult, redirect};
use crate::pages::parts::fields::Filled;
use crate::pages::parts::layout;
use crate::pages::site::Site;
use crate::pages::visit::Visit;

/// Supplier of a product, as `GET /admin/v1/products/:id/supplier` returns it.
#[derive(Debug, Deserialize)]
struct Supplier {
    supplier: Option<String>,
    sku: Option<String>,
}

pub fn add(site: Site) -> Site {
    site.get("/console/products/:id/supplier", show).post("/console/products/:id/supplier", set)
}

async fn load(visit: &Visit, id: i64) -> Result<(Product, Supplier), Refusal> {
    let supplier = format!("/admin/v1/products/{id}/supplier");
    futures::try_join!(product_of(visit, id), visit.get(&supplier))
}

async fn show(visit: Visit) -> PageResult {
    visit.operator()?;
    let (product, Supplier { supplier, sku }) = load(&visit, visit.id("id")?).await?;
    let stored = [("supplier", supplier), ("sku", sku)];
    let stored = stored.into_iter().map(|(name, value)| (name.to_owned(), value.unwrap_or_default()));
    let form = Form::from_pairs(stored.collect());
    Ok(page(&visit, &product, &Filled { form: &form, refusal: None }))
}

async fn set(visit: Visit) -> PageResult {
    visit.operator()?;
    let id = visit.id("id")?;
    match visit.change::<Value>(Method::PUT, &format!("/admin/v1/products/{id}/supplier"), &body(&visit.form)).await {
        Ok(_) => Ok(redirect(&format!("/console/products/{id}/supplier?done=changed"))),
        Err(refusal) if !refusal.is_correctable() => Err(refusal.into()),
        Err(refusal) => {
            let product = product_of(&visit, id).await?;
            Ok(layout::refused(page(&visit, &product, &Filled { form: &visit.form, refusal: Some(&refusal) }), &refusal))
        }
    }
}

/// Returns the body of the call. An empty supplier ends purchases.
fn body(form: &Form) -> Value {
    json!({"supplier": form.text("supplier"), "sku": form.text("sku")})
}

fn page(visit: &Visit, product: &Product, fields: &Filled<'_>) -> Response {
    let path = format!("/console/products/{}", product.id);
    let body = html! {
        (layout::problem(fields.refusal))
        p {
            "The stock comes first. When it has no voucher for an order, the service buys what is missing from this supplier, within the \
             supplier's budget."
        }
        @if may_change(visit) { (form(&path, fields)) }
        @else {
            p { "Supplier: " (fields.form.text("supplier").unwrap_or("none")) }
            p.quiet { "To change the supplier, you need the role admin." }
        }
        p.actions {
            a.button.plain href={ "/console/purchases?product_id=" (product.id) } { "Purchases of this product" }
            a href=(path) { "Back to the product" }
        }
    };
    layout::page(visit, &format!("Supplier of {}", product.name), &body)
}

fn form(path: &str, fields: &Filled<'_>) -> Markup {
    html! {
        form.card method="post" action={ (path) "/supplier" } {
            (fields.input("supplier", "Supplier", "text", "Its name in the file of suppliers. Leave it empty to buy nothing."))
            (fields.input("sku", "SKU", "text", "The supplier's name of the product."))
            button { "Save the supplier" }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_empty_supplier_ends_purchases() {
        assert_eq!(body(&Form::parse(b"supplier=&sku=")), json!({"supplier": null, "sku": null}));
        assert_eq!(body(&Form::parse(b"supplier=acme&sku=A-10")), json!({"supplier": "acme", "sku": "A-10"}));
    }
}
