//! The form of a new product, and the form that changes one.

use maud::{Markup, html};
use poem::Response;
use poem::http::Method;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::{Category, Product, categories, may_change, options, product_of};
use crate::pages::call::List;
use crate::pages::form::{Form, number};
use crate::pages::outcome::{PageResult, redirect};
use crate::pages::parts::fields::Filled;
use crate::pages::parts::layout;
use crate::pages::site::Site;
use crate::pages::visit::Visit;

#[derive(Debug, Deserialize)]
struct Added {
    id: i64,
}

pub fn add(site: Site) -> Site {
    site.get("/console/products/new", new)
        .post("/console/products", create)
        .get("/console/products/:id/edit", edit)
        .post("/console/products/:id/edit", change)
}

async fn new(visit: Visit) -> PageResult {
    visit.operator()?;
    let categories = categories(&visit).await?;
    Ok(page(&visit, None, &categories, &Filled { form: &visit.query, refusal: None }))
}

async fn create(visit: Visit) -> PageResult {
    visit.operator()?;
    match visit.change::<Added>(Method::POST, "/admin/v1/products", &body(&visit.form, None)).await {
        Ok(Added { id }) => Ok(redirect(&format!("/console/products/{id}?done=created"))),
        Err(refusal) if !refusal.is_correctable() => Err(refusal.into()),
        Err(refusal) => {
            let categories = categories(&visit).await?;
            let fields = Filled { form: &visit.form, refusal: Some(&refusal) };
            Ok(layout::refused(page(&visit, None, &categories, &fields), &refusal))
        }
    }
}

async fn edit(visit: Visit) -> PageResult {
    visit.operator()?;
    let (product, categories) = futures::try_join!(product_of(&visit, visit.id("id")?), categories(&visit))?;
    let form = current(&product);
    Ok(page(&visit, Some(&product), &categories, &Filled { form: &form, refusal: None }))
}

async fn change(visit: Visit) -> PageResult {
    visit.operator()?;
    let (product, categories) = futures::try_join!(product_of(&visit, visit.id("id")?), categories(&visit))?;
    let path = format!("/admin/v1/products/{}", product.id);
    match visit.change::<Value>(Method::PUT, &path, &body(&visit.form, Some(&product))).await {
        Ok(_) => Ok(redirect(&format!("/console/products/{}?done=changed", product.id))),
        Err(refusal) if !refusal.is_correctable() => Err(refusal.into()),
        Err(refusal) => {
            let fields = Filled { form: &visit.form, refusal: Some(&refusal) };
            Ok(layout::refused(page(&visit, Some(&product), &categories, &fields), &refusal))
        }
    }
}

/// Returns the form of a product as it is.
fn current(product: &Product) -> Form {
    let some = |text: &Option<String>| text.clone().unwrap_or_default();
    let fields = [
        ("name", product.name.clone()),
        ("brand", product.brand.clone()),
        ("category_id", product.category_id.map(|id| id.to_string()).unwrap_or_default()),
        ("country", product.country.clone()),
        ("denomination_type", product.denomination_type.clone()),
        ("denominations", product.denominations.join(", ")),
        ("min_denomination", some(&product.min_denomination)),
        ("max_denomination", some(&product.max_denomination)),
        ("max_quantity", product.max_quantity.to_string()),
        ("description", product.description.clone()),
        ("terms", product.terms.clone()),
    ];
    Form::from_pairs(fields.into_iter().map(|(name, value)| (name.to_owned(), value)).collect())
}

/// Returns the body of the call. A change names every field of the form, so that one can be emptied. The currency of a
/// product never changes.
fn body(form: &Form, product: Option<&Product>) -> Value {
    let mut body = Map::new();
    for name in ["name", "brand", "denomination_type"] {
        body.extend(form.text(name).map(|text| (name.to_owned(), text.into())));
    }
    for name in ["country", "currency"] {
        let code = form.text(name).filter(|_| name == "country" || product.is_none());
        body.extend(code.map(|code| (name.to_owned(), code.to_ascii_uppercase().into())));
    }
    body.extend(form.text("max_quantity").map(|text| ("max_quantity".to_owned(), number(text))));
    match form.text("category_id") {
        Some(id) => _ = body.insert("category_id".to_owned(), number(id)),
        None if product.is_some() => _ = body.insert("category_id".to_owned(), Value::Null),
        None => {}
    }
    if form.value("denomination_type") == "RANGE" {
        for name in ["min_denomination", "max_denomination"] {
            body.extend(form.text(name).map(|text| (name.to_owned(), text.into())));
        }
    } else {
        let values = form.value("denominations").split([',', ';', ' ', '\n', '\r']);
        let values: Vec<&str> = values.map(str::trim).filter(|value| !value.is_empty()).collect();
        body.insert("denominations".to_owned(), json!(values));
    }
    for name in ["description", "terms"] {
        // Browsers send lines that end with CR and LF.
        body.insert(name.to_owned(), form.value(name).replace("\r\n", "\n").into());
    }
    Value::Object(body)
}

fn page(visit: &Visit, product: Option<&Product>, categories: &List<Category>, fields: &Filled<'_>) -> Response {
    let body = html! {
        (layout::problem(fields.refusal))
        @if may_change(visit) { (form(product, categories, fields)) }
        @else { p.quiet { "To change products, you need the role admin." } }
        p.actions {
            @if let Some(product) = product { a href={ "/console/products/" (product.id) } { "Back to the product" } }
            @else { a href="/console/products" { "All products" } }
        }
    };
    let title = product.map_or_else(|| "Add a product".to_owned(), |product| format!("Edit {}", product.name));
    layout::page(visit, &title, &body)
}

fn form(product: Option<&Product>, categories: &List<Category>, fields: &Filled<'_>) -> Markup {
    let kinds = [("FIXED", "Fixed values"), ("RANGE", "Any value in a range")];
    let action =
        product.map_or_else(|| "/console/products".to_owned(), |product| format!("/console/products/{}/edit", product.id));
    html! {
        form.card method="post" action=(action) {
            (fields.input("name", "Name", "text", ""))
            (fields.input("brand", "Brand", "text", ""))
            (fields.select("category_id", "Category", &options("None", categories), ""))
            (fields.input("country", "Country", "text", "Two letters, such as DE."))
            @match product {
                Some(product) => p { "Currency: " (product.currency) ". It never changes." },
                None => (fields.input("currency", "Currency", "text", "Three letters, such as EUR. It cannot be changed later.")),
            }
            fieldset {
                legend { "Face values" }
                (fields.select("denomination_type", "Kind", &kinds, ""))
                (fields.input("denominations", "Fixed values", "text", "Separated by commas, such as 10, 25, 50."))
                (fields.input("min_denomination", "Smallest value", "text", "For a range only."))
                (fields.input("max_denomination", "Largest value", "text", "For a range only."))
            }
            (fields.input("max_quantity", "Units per order", "number", "The largest number, 1 to 10000."))
            (fields.area("description", "Description", "Clients read it. An empty line begins a paragraph."))
            (fields.area("terms", "Terms", "Clients read them."))
            @if product.is_some() { p { "Existing orders keep the details that they were placed with." } }
            button { @if product.is_some() { "Save the changes" } @else { "Add the product" } }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::product;
    use super::*;

    #[test]
    fn a_form_becomes_a_product() {
        let form = Form::parse(b"name=Card&brand=Acme&country=de&currency=eur&denomination_type=FIXED&denominations=10,+25;50&max_quantity=5&min_denomination=1");
        let expected = json!({
            "name": "Card", "brand": "Acme", "country": "DE", "currency": "EUR", "denomination_type": "FIXED",
            "denominations": ["10", "25", "50"], "max_quantity": 5, "description": "", "terms": ""
        });
        assert_eq!(body(&form, None), expected);
    }

    #[test]
    fn a_change_empties_fields_and_keeps_the_currency() {
        let form = Form::parse(b"denomination_type=RANGE&min_denomination=5&max_denomination=50&currency=USD&category_id=");
        let expected = json!({
            "category_id": null, "denomination_type": "RANGE", "min_denomination": "5", "max_denomination": "50",
            "description": "", "terms": ""
        });
        assert_eq!(body(&form, Some(&product(json!({})))), expected);
    }

    #[test]
    fn the_form_of_a_product_changes_nothing_when_it_is_sent_as_it_is() {
        let product = product(json!({"category_id": 3, "description": "A\n\nB"}));
        let body = body(&current(&product), Some(&product));
        assert_eq!((&body["category_id"], &body["description"]), (&json!(3), &json!("A\n\nB")));
        assert_eq!(body["denominations"], json!(["10.00", "1000.00"]));
    }
}
