//! The catalogue: products, their images and discounts, their stock, and categories.

mod categories;
mod discounts;
mod edit;
mod loaded;
mod product;
mod products;
mod stock;
mod stocked;
mod supplier;
mod vouchers;

use serde::Deserialize;

use crate::access::Role;
use crate::pages::call::{List, Refusal};
use crate::pages::form::address;
use crate::pages::parts::values::grouped;
use crate::pages::site::Site;
use crate::pages::visit::Visit;

/// A product, as `GET /admin/v1/products/:id` returns it.
#[derive(Debug, Deserialize)]
struct Product {
    id: i64,
    name: String,
    brand: String,
    category_id: Option<i64>,
    country: String,
    currency: String,
    denomination_type: String,
    denominations: Vec<String>,
    min_denomination: Option<String>,
    max_denomination: Option<String>,
    max_quantity: i32,
    image_url: Option<String>,
    description: String,
    terms: String,
    is_active: bool,
    updated_at: chrono::DateTime<chrono::Utc>,
}

impl Product {
    /// Describes the face values: each one, or the range.
    fn face_values(&self) -> String {
        match (&self.min_denomination, &self.max_denomination) {
            (Some(least), Some(most)) => format!("{} to {}", grouped(least), grouped(most)),
            _ => self.denominations.iter().map(|value| grouped(value)).collect::<Vec<_>>().join(", "),
        }
    }

    fn state(&self) -> &'static str {
        if self.is_active { "active" } else { "inactive" }
    }
}

#[derive(Debug, Deserialize)]
struct Category {
    id: i64,
    name: String,
    parent_id: Option<i64>,
}

pub fn add(site: Site) -> Site {
    let site = edit::add(product::add(products::add(site)));
    categories::add(discounts::add(vouchers::add(stocked::add(supplier::add(stock::add(site))))))
}

/// Returns whether the visitor may change the catalogue and its stock.
fn may_change(visit: &Visit) -> bool {
    visit.operator().is_ok_and(|operator| operator.may(Role::Admin))
}

/// Returns the address of the events of a product in the audit. `types` may be empty.
fn audit_of(product: i64, types: &str) -> String {
    address("/console/audit", &[("subject", &format!("product/{product}")), ("type", types)])
}

async fn product_of(visit: &Visit, id: i64) -> Result<Product, Refusal> {
    visit.get(&format!("/admin/v1/products/{id}")).await
}

/// Reads the newest categories, which are all of them for most services.
async fn categories(visit: &Visit) -> Result<List<Category>, Refusal> {
    visit.list("/admin/v1/categories?limit=100", "categories").await
}

/// Returns categories as options of a field, after one that stands for none.
fn options(none: &str, categories: &List<Category>) -> Vec<(String, String)> {
    let all = categories.items.iter().map(|one| (one.id.to_string(), one.name.clone()));
    std::iter::once((String::new(), none.to_owned())).chain(all).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    pub(super) fn product(change: serde_json::Value) -> Product {
        let mut fields = json!({
            "id": 7, "name": "Card", "brand": "Acme", "category_id": null, "country": "DE", "currency": "EUR",
            "denomination_type": "FIXED", "denominations": ["10.00", "1000.00"], "min_denomination": null,
            "max_denomination": null, "max_quantity": 5, "image_url": null, "description": "", "terms": "", "is_active": true,
            "updated_at": "2026-01-31T12:00:00Z"
        });
        if let (Some(fields), serde_json::Value::Object(change)) = (fields.as_object_mut(), change) {
            fields.extend(change);
        }
        serde_json::from_value(fields).unwrap()
    }

    #[test]
    fn face_values_are_a_list_or_a_range() {
        assert_eq!(product(json!({})).face_values(), "10.00, 1\u{202f}000.00");
        let range = json!({"denominations": [], "min_denomination": "5.00", "max_denomination": "50.00"});
        assert_eq!(product(range).face_values(), "5.00 to 50.00");
    }
}
