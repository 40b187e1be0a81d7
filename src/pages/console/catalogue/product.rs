//! One product: its facts, its image, its state, and the ways to its stock and its discounts.

use maud::{Markup, html};
use poem::Response;
use poem::http::{Method, header};
use serde_json::{Value, json};

use super::stock::Level;
use super::{Product, categories, may_change, product_of, stocked};
use crate::pages::call::{List, Refusal};
use crate::pages::form::Form;
use crate::pages::outcome::{PageResult, redirect};
use crate::pages::parts::fields::Filled;
use crate::pages::parts::values::{badge, facts, grouped, time};
use crate::pages::parts::{layout, table};
use crate::pages::site::Site;
use crate::pages::visit::Visit;

pub fn add(site: Site) -> Site {
    site.get("/console/products/:id", show)
        .post("/console/products/:id/state", set_state)
        .post("/console/products/:id/image", set_image)
        .get("/console/products/:id/image/:version", image)
}

async fn show(visit: Visit) -> PageResult {
    visit.operator()?;
    one(&visit, visit.id("id")?, None).await
}

/// Renders a product as it is now.
async fn one(visit: &Visit, id: i64, refusal: Option<&Refusal>) -> PageResult {
    let stock = format!("/admin/v1/products/{id}/stock");
    let (product, categories, levels): (Product, _, List<Level>) =
        futures::try_join!(product_of(visit, id), categories(visit), visit.list(&stock, "stock"))?;
    let category = categories.items.iter().find(|category| Some(category.id) == product.category_id);
    let path = format!("/console/products/{id}");
    let body = html! {
        (layout::problem(refusal))
        (picture(&product))
        (facts(&[
            ("State", badge(product.state())),
            ("Brand", html! { (product.brand) }),
            ("Category", html! { (category.map_or("–", |category| category.name.as_str())) }),
            ("Country", html! { (product.country) }),
            ("Face values", html! { (product.face_values()) " " span.currency { (product.currency) } }),
            ("Units per order", html! { "up to " (product.max_quantity) }),
            ("Changed", time(product.updated_at)),
        ]))
        p.actions {
            @if may_change(visit) { a.button href={ (path) "/edit" } { "Edit" } }
            a.button.plain href={ (path) "/stock" } { "Stock and vouchers" }
            a.button.plain href={ (path) "/discounts" } { "Discounts" }
            a.button.plain href={ (path) "/supplier" } { "Supplier" }
            a href="/console/products" { "All products" }
        }
        @if may_change(visit) {
            (state_form(&product, &path))
            (image_form(&path, &Filled { form: &Form::default(), refusal }))
        } @else { p.quiet { "To change products, you need the role admin." } }
        h2 { "Stock" }
        (stock_summary(&levels, id, &path))
        @for (name, text) in [("Description", &product.description), ("Terms", &product.terms)] {
            @if !text.is_empty() {
                h2 { (name) }
                @for paragraph in text.split("\n\n").filter(|text| !text.trim().is_empty()) { p { (paragraph) } }
            }
        }
    };
    Ok(layout::page(visit, &product.name, &body))
}

fn picture(product: &Product) -> Markup {
    let version = product.image_url.as_deref().and_then(|url| url.rsplit('/').next());
    html! {
        @if let Some(version) = version {
            @let address = format!("/console/products/{}/image/{version}", product.id);
            a href=(address) { img.product src={ (address) "?size=preview" } alt={ "Image of " (product.name) }; }
        }
    }
}

fn stock_summary(levels: &List<Level>, product: i64, path: &str) -> Markup {
    let columns = [("Face value", true), ("Available", true), ("Level", false)];
    let row = |level: &Level| {
        let available = stocked::of_product(product, &level.denomination, "AVAILABLE");
        let face_value = html! { a href={ (path) "/stock" } { (grouped(&level.denomination)) } };
        vec![face_value, html! { a href=(available) { (level.available) } }, level.badge()]
    };
    html! {
        @if levels.items.is_empty() {
            (table::empty("The product has no vouchers yet. Orders wait until there are some.", Some((&format!("{path}/vouchers"), "Load vouchers"))))
        } @else { (table::table("Stock", &columns, &levels.items.iter().map(row).collect::<Vec<_>>())) }
    }
}

fn state_form(product: &Product, path: &str) -> Markup {
    let (summary, consequence, button) = match product.is_active {
        true => (
            "Deactivate this product",
            "Clients no longer see the product, and nobody can order it. Existing orders are still delivered.",
            "Deactivate the product",
        ),
        false => ("Activate this product", "Clients see the product, and can order it.", "Activate the product"),
    };
    html! {
        details.card {
            summary { (summary) }
            form method="post" action={ (path) "/state" } {
                p { (consequence) }
                input type="hidden" name="is_active" value=(!product.is_active);
                button.danger[product.is_active] { (button) }
            }
        }
    }
}

fn image_form(path: &str, fields: &Filled<'_>) -> Markup {
    html! {
        details.card open[fields.refusal.is_some()] {
            summary { "Set the image" }
            form method="post" action={ (path) "/image" } enctype="multipart/form-data" {
                (fields.file("image", "Image", "image/png,image/jpeg,image/webp", "PNG, JPEG or WebP, at most 2 MiB. It replaces the current image."))
                button { "Upload the image" }
            }
        }
    }
}

async fn set_state(visit: Visit) -> PageResult {
    visit.operator()?;
    let id = visit.id("id")?;
    let body = json!({"is_active": visit.form.value("is_active") == "true"});
    visit.change::<Value>(Method::PUT, &format!("/admin/v1/products/{id}"), &body).await?;
    Ok(redirect(&format!("/console/products/{id}?done=changed")))
}

async fn set_image(mut visit: Visit) -> PageResult {
    visit.operator()?;
    let id = visit.id("id")?;
    let outcome = match visit.take_file("image") {
        Some(bytes) => {
            let path = format!("/admin/v1/products/{id}/image");
            visit.upload::<Value>(Method::PUT, &path, "application/octet-stream", bytes).await
        }
        None => Err(Refusal::of_field("image", "is required")),
    };
    match outcome {
        Ok(_) => Ok(redirect(&format!("/console/products/{id}?done=changed"))),
        Err(refusal) if !refusal.is_correctable() => Err(refusal.into()),
        Err(refusal) => Ok(layout::refused(one(&visit, id, Some(&refusal)).await?, &refusal)),
    }
}

/// Sends the bytes of the current image. Its version in the path keeps browsers from showing a replaced one.
async fn image(visit: Visit) -> PageResult {
    visit.operator()?;
    let path = format!("/admin/v1/products/{}/image?{}", visit.id("id")?, visit.query.only(&["size"]));
    let image = visit.bytes(&path, "image/*").await?;
    let kind = image.headers.get(header::CONTENT_TYPE).cloned();
    let mut response = Response::builder().body(image.into_bytes());
    response.headers_mut().extend(kind.map(|kind| (header::CONTENT_TYPE, kind)));
    Ok(response)
}
