//! The list of all products, with their filters.

use maud::{Markup, html};
use poem::Response;

use super::{Category, Product, categories, may_change, options};
use crate::pages::call::List;
use crate::pages::outcome::PageResult;
use crate::pages::parts::fields::Filled;
use crate::pages::parts::values::{badge, time};
use crate::pages::parts::{layout, table};
use crate::pages::site::Site;
use crate::pages::visit::{Visit, corrected};

/// Filters of the list, which are those of the API.
const FILTERS: [&str; 5] = ["search", "category_id", "country", "currency", "is_active"];
const STATES: [(&str, &str); 3] = [("", "Any"), ("true", "Active"), ("false", "Inactive")];

pub fn add(site: Site) -> Site {
    site.get("/console/products", list)
}

async fn list(visit: Visit) -> PageResult {
    visit.operator()?;
    let categories = categories(&visit).await?;
    let path = format!("/admin/v1/products?limit=50&{}&{}", visit.query.only(&FILTERS), visit.query.only(&["page"]));
    match visit.list::<Product>(&path, "products").await {
        Ok(products) => {
            let fields = Filled { form: &visit.query, refusal: None };
            Ok(page(&visit, &fields, &categories, Some(&products)))
        }
        Err(refusal) => corrected(refusal, |refusal| {
            let fields = Filled { form: &visit.query, refusal: Some(refusal) };
            layout::refused(page(&visit, &fields, &categories, None), refusal)
        }),
    }
}

fn page(visit: &Visit, fields: &Filled<'_>, categories: &List<Category>, products: Option<&List<Product>>) -> Response {
    let body = html! {
        (layout::problem(fields.refusal))
        p.actions {
            @if may_change(visit) { a.button href="/console/products/new" { "Add a product" } }
            a.button.plain href="/console/categories" { "Categories" }
        }
        (table::filters("/console/products", &html! {
            (fields.input("search", "Name or brand", "search", ""))
            (fields.select("category_id", "Category", &options("Any", categories), ""))
            (fields.input("country", "Country", "text", "Two letters, such as DE."))
            (fields.input("currency", "Currency", "text", "Three letters, such as EUR."))
            (fields.select("is_active", "State", &STATES, ""))
        }))
        @if let Some(products) = products {
            @if products.items.is_empty() { (nothing(visit)) }
            @else {
                (rows(&products.items, categories))
                (table::pager(products, "/console/products", &visit.query))
            }
        }
    };
    layout::page(visit, "Products", &body)
}

fn nothing(visit: &Visit) -> Markup {
    let is_all = visit.query.only(&FILTERS).is_empty() && visit.query.text("page").is_none();
    match is_all {
        true if may_change(visit) => table::empty(
            "The catalogue is empty. Clients order products, so add the first one, and then load its vouchers.",
            Some(("/console/products/new", "Add the first product")),
        ),
        true => table::empty("The catalogue is empty. An operator with the role admin adds products.", None),
        false => table::empty("No product matches these filters.", Some(("/console/products", "Show all products"))),
    }
}

fn rows(products: &[Product], categories: &List<Category>) -> Markup {
    let columns = [
        ("Product", false),
        ("Brand", false),
        ("Category", false),
        ("Country", false),
        ("Face values", false),
        ("Units per order", true),
        ("State", false),
        ("Changed", false),
    ];
    let row = |product: &Product| {
        let category = categories.items.iter().find(|category| Some(category.id) == product.category_id);
        vec![
            html! { a href={ "/console/products/" (product.id) } { (product.name) } },
            html! { (product.brand) },
            html! { (category.map_or("–", |category| category.name.as_str())) },
            html! { (product.country) },
            html! { (product.face_values()) " " span.currency { (product.currency) } },
            html! { (product.max_quantity) },
            badge(product.state()),
            time(product.updated_at),
        ]
    };
    table::table("Products", &columns, &products.iter().map(row).collect::<Vec<_>>())
}
