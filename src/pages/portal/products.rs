//! The catalogue: products with their filters, and their images.

use maud::{Markup, html};
use poem::Response;
use poem::http::header;
use serde::Deserialize;

use super::overview::Wallet;
use crate::pages::call::List;
use crate::pages::form::Form;
use crate::pages::outcome::{PageResult, Stop};
use crate::pages::parts::fields::Filled;
use crate::pages::parts::values::grouped;
use crate::pages::parts::{layout, table};
use crate::pages::site::Site;
use crate::pages::visit::{Visit, corrected};
use ledger_events::{Money, Percent};

/// Number of products on a page.
const PRODUCTS: usize = 24;
/// Filters of the list, which are those of the API.
const FILTERS: [&str; 5] = ["page", "search", "category_id", "country", "currency"];

/// A product, as `GET /api/v1/products` returns it.
#[derive(Debug, Deserialize)]
pub struct Product {
    pub id: i64,
    pub name: String,
    pub brand: String,
    pub country: String,
    pub currency: String,
    pub denominations: Vec<Money>,
    pub min_denomination: Option<Money>,
    pub max_denomination: Option<Money>,
    pub discount: Percent,
    pub max_quantity: i32,
    image_url: Option<String>,
    pub description: String,
    pub terms: String,
}

#[derive(Debug, Deserialize)]
struct Category {
    id: i64,
    name: String,
}

pub fn add(site: Site) -> Site {
    site.get("/portal/products", list).get("/portal/products/:id/image/:version", image)
}

impl Product {
    /// Describes the face values: each one, or the range.
    pub fn face_values(&self) -> String {
        match (&self.min_denomination, &self.max_denomination) {
            (Some(least), Some(most)) => format!("{} to {}", grouped(&least.to_string()), grouped(&most.to_string())),
            _ => self.denominations.iter().map(|value| grouped(&value.to_string())).collect::<Vec<_>>().join(", "),
        }
    }

    /// Returns whether a unit of this face value can be ordered.
    pub fn has(&self, denomination: Money) -> bool {
        match (self.min_denomination, self.max_denomination) {
            (Some(least), Some(most)) => (least..=most).contains(&denomination),
            _ => self.denominations.contains(&denomination),
        }
    }

    /// Renders the image in a size of the API. A product without one has an empty place of the same size.
    pub fn image(&self, size: &str) -> Markup {
        let version = self.image_url.as_deref().and_then(|url| url.rsplit('/').next());
        html! {
            @match version {
                Some(version) => img.product src={ "/portal/products/" (self.id) "/image/" (version) "?size=" (size) } alt="" loading="lazy";,
                None => div.product aria-hidden="true" {},
            }
        }
    }
}

async fn list(visit: Visit) -> PageResult {
    visit.user()?;
    let path = format!("/api/v1/products?limit={PRODUCTS}&{}", visit.query.only(&FILTERS));
    let (categories, wallets) = futures::try_join!(
        visit.list::<Category>("/api/v1/categories", "categories"),
        visit.list::<Wallet>("/api/v1/wallets?limit=100", "wallets"),
    )?;
    match visit.list::<Product>(&path, "products").await {
        Ok(products) => {
            let fields = Filled { form: &visit.query, refusal: None };
            Ok(page(&visit, &fields, (&categories, &wallets), Some(&products)))
        }
        Err(refusal) => corrected(refusal, |refusal| {
            let fields = Filled { form: &visit.query, refusal: Some(refusal) };
            layout::refused(page(&visit, &fields, (&categories, &wallets), None), refusal)
        }),
    }
}

fn page(
    visit: &Visit,
    fields: &Filled<'_>,
    (categories, wallets): (&List<Category>, &List<Wallet>),
    products: Option<&List<Product>>,
) -> Response {
    let any = || std::iter::once((String::new(), "Any".to_owned()));
    let categories: Vec<_> = any().chain(categories.items.iter().map(|one| (one.id.to_string(), one.name.clone()))).collect();
    let currencies: Vec<_> =
        any().chain(wallets.items.iter().map(|wallet| (wallet.currency.clone(), wallet.currency.clone()))).collect();
    let body = html! {
        (layout::problem(fields.refusal))
        p.actions { a.button.plain href="/portal/orders/bulk" { "Order many at once" } }
        (table::filters("/portal/products", &html! {
            (fields.input("search", "Name or brand", "search", ""))
            (fields.select("category_id", "Category", &categories, ""))
            (fields.input("country", "Country", "text", "Two letters, such as DE."))
            (fields.select("currency", "Currency", &currencies, "The currencies of your wallets."))
        }))
        @if let Some(products) = products {
            @if products.items.is_empty() { (nothing(&visit.query)) }
            @else {
                ul.products { @for product in &products.items { (tile(product)) } }
                (table::pager(products, "/portal/products", &visit.query))
            }
        }
    };
    layout::page(visit, "Catalogue", &body)
}

fn nothing(query: &Form) -> Markup {
    match query.only(&FILTERS).is_empty() {
        true => table::empty("The catalogue is empty. The operators of the service add products.", None),
        false => table::empty("No product matches these filters.", Some(("/portal/products", "Show all products"))),
    }
}

fn tile(product: &Product) -> Markup {
    html! {
        li.card {
            (product.image("thumbnail"))
            h2 { a href={ "/portal/products/" (product.id) } { (product.name) } }
            span.quiet { (product.brand) " · " (product.country) }
            span { (product.face_values()) " " span.currency { (product.currency) } }
            @if !Money::from(product.discount).is_zero() { span.badge.good { "Discount " (product.discount) " %" } }
        }
    }
}

/// Sends the bytes of an image, which never change at their address. The API's own address would charge the account's
/// budget for images with every tile of a page.
async fn image(visit: Visit) -> PageResult {
    visit.user()?;
    let id = visit.id("id")?;
    let version = visit.param("version")?;
    if !version.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.')) {
        return Err(Stop::NotFound);
    }
    let image = visit.bytes(&format!("/api/v1/products/{id}/image/{version}?{}", visit.query.only(&["size"])), "image/*").await?;
    let kept = [header::CONTENT_TYPE, header::CACHE_CONTROL, header::ETAG];
    let kept: Vec<_> = kept.into_iter().filter_map(|name| Some((name.clone(), image.headers.get(&name)?.clone()))).collect();
    let mut response = Response::builder().body(image.into_bytes());
    response.headers_mut().extend(kept);
    Ok(response)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn product(change: serde_json::Value) -> Product {
        let mut fields = json!({
            "id": 7, "name": "Card", "brand": "Acme", "country": "DE", "currency": "EUR", "denominations": ["10.00", "1000.00"],
            "min_denomination": null, "max_denomination": null, "discount": "2.50", "max_quantity": 5,
            "image_url": "https://pay.example/api/v1/products/7/image/ab12", "description": "", "terms": ""
        });
        if let (Some(fields), serde_json::Value::Object(change)) = (fields.as_object_mut(), change) {
            fields.extend(change);
        }
        serde_json::from_value(fields).unwrap()
    }

    fn money(text: &str) -> Money {
        text.parse().unwrap()
    }

    #[test]
    fn face_values_are_a_list_or_a_range() {
        let fixed = product(json!({}));
        assert_eq!(fixed.face_values(), "10.00, 1\u{202f}000.00");
        assert!(fixed.has(money("10")) && !fixed.has(money("20.00")));
        let range = json!({"denominations": [], "min_denomination": "5.00", "max_denomination": "50.00"});
        let range = product(range);
        assert_eq!(range.face_values(), "5.00 to 50.00");
        assert!(range.has(money("5.01")) && !range.has(money("50.01")));
    }

    #[test]
    fn an_image_has_an_address_of_this_service() {
        let markup = product(json!({})).image("thumbnail").0;
        assert!(markup.contains("src=\"/portal/products/7/image/ab12?size=thumbnail\""), "{markup}");
        assert!(product(json!({"image_url": null})).image("preview").0.contains("aria-hidden"));
    }
}
