//! The categories of products: their list, and a new one.

use maud::{Markup, html};
use poem::Response;
use poem::http::Method;
use serde_json::Value;

use super::{Category, categories, may_change, options};
use crate::pages::call::{List, Refusal};
use crate::pages::form::Kind;
use crate::pages::outcome::{PageResult, redirect};
use crate::pages::parts::fields::Filled;
use crate::pages::parts::{layout, table};
use crate::pages::site::Site;
use crate::pages::visit::Visit;

/// One page of categories, and the newest ones, among which are the parents.
type Lists = (List<Category>, List<Category>);

pub fn add(site: Site) -> Site {
    site.get("/console/categories", list).post("/console/categories", create)
}

async fn list(visit: Visit) -> PageResult {
    visit.operator()?;
    let lists = load(&visit).await?;
    Ok(page(&visit, &lists, &Filled { form: &visit.form, refusal: None }))
}

async fn load(visit: &Visit) -> Result<Lists, Refusal> {
    let path = format!("/admin/v1/categories?{}", visit.query.only(&["page"]));
    futures::try_join!(visit.list(&path, "categories"), categories(visit))
}

async fn create(visit: Visit) -> PageResult {
    visit.operator()?;
    let body = visit.form.json(&[("name", Kind::Text), ("parent_id", Kind::Number)]);
    match visit.change::<Value>(Method::POST, "/admin/v1/categories", &body).await {
        Ok(_) => Ok(redirect("/console/categories?done=created")),
        Err(refusal) if !refusal.is_correctable() => Err(refusal.into()),
        Err(refusal) => {
            let lists = load(&visit).await?;
            Ok(layout::refused(page(&visit, &lists, &Filled { form: &visit.form, refusal: Some(&refusal) }), &refusal))
        }
    }
}

fn page(visit: &Visit, (list, parents): &Lists, fields: &Filled<'_>) -> Response {
    let body = html! {
        (layout::problem(fields.refusal))
        p.actions { a.button.plain href="/console/products" { "Products" } }
        @if list.items.is_empty() {
            (table::empty("There is no category yet. Categories group products, and an account can have a discount on one.", None))
        } @else {
            (rows(&list.items, parents))
            (table::pager(list, "/console/categories", &visit.query))
        }
        @if may_change(visit) {
            h2 { "New category" }
            form.card method="post" action="/console/categories" {
                (fields.input("name", "Name", "text", ""))
                (fields.select("parent_id", "Part of", &options("None", parents), ""))
                button { "Add the category" }
            }
        } @else { p.quiet { "To add categories, you need the role admin." } }
    };
    layout::page(visit, "Categories", &body)
}

fn rows(categories: &[Category], parents: &List<Category>) -> Markup {
    let columns = [("Category", true), ("Name", false), ("Part of", false), ("Products", false)];
    let row = |category: &Category| {
        let parent = category.parent_id.and_then(|id| parents.items.iter().find(|parent| parent.id == id));
        vec![
            html! { (category.id) },
            html! { (category.name) },
            html! { (parent.map_or("–", |parent| parent.name.as_str())) },
            html! { a href={ "/console/products?category_id=" (category.id) } { "Products of " (category.name) } },
        ]
    };
    table::table("Categories", &columns, &categories.iter().map(row).collect::<Vec<_>>())
}
