//! `/api/v1/products`: products that can be ordered, with the caller's discount.

use chrono::{DateTime, Utc};
use ledger_database::PgPool;
use ledger_events::account::Discounts;
use ledger_events::catalogue::{self as domain, Denominations};
use ledger_events::{AccountId, CategoryId, Percent, ProductId};
use ledger_projections::accounts;
use ledger_projections::catalogue::{self, ProductFilter};
use poem_openapi::param::{Path, Query};
use poem_openapi::{Enum, Object, OpenApi};
use serde::Serialize;

use super::error::ApiError;
use super::page::Page;
use super::principal::Caller;
use super::reply::{Listed, Plural, Reply};
use super::scalars::{Money, Text, Timestamp};
use super::state::{ApiState, State, Tag, listed, not_found, rows_of, time};

/// Largest number of products that a list can be limited to.
const MAX_IDS: usize = 1_000;

/// Kind of face values that a product has.
///
/// - `FIXED`: one of the values in `denominations`.
/// - `RANGE`: any value from `min_denomination` to `max_denomination`.
#[derive(Clone, Copy, Default, Enum, Serialize)]
#[oai(rename_all = "SCREAMING_SNAKE_CASE")]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum DenominationType {
    /// One of the values in `denominations`.
    #[default]
    Fixed,
    /// Any value from `min_denomination` to `max_denomination`.
    Range,
}

/// A product that can be ordered, such as a gift card.
#[derive(Object, Serialize)]
pub struct Product {
    /// Unique identifier of the product.
    id: i64,
    /// Name of the product.
    name: String,
    /// Brand of the product.
    brand: String,
    /// Unique identifier of the product's category, from `GET /api/v1/categories`; null if it has none.
    category_id: Option<i64>,
    /// Country of the product, as an ISO 3166-1 alpha-2 code.
    country: String,
    /// Currency of the product, as an ISO 4217 code. Orders are paid from the wallet in this currency.
    currency: String,
    /// Kind of face values: `FIXED` or `RANGE`.
    denomination_type: DenominationType,
    /// Available face values of a `FIXED` product; empty for a `RANGE` product.
    denominations: Vec<Money>,
    /// Smallest face value of a `RANGE` product; null for a `FIXED` product.
    min_denomination: Option<Money>,
    /// Largest face value of a `RANGE` product; null for a `FIXED` product.
    max_denomination: Option<Money>,
    /// Your account's discount on the product, in percent.
    discount: Money,
    /// Maximum number of units per order.
    max_quantity: i32,
    /// URL of the product's image; null if it has none. GET it with your API key. The URL changes when the image does.
    image_url: Option<String>,
    /// Description of the product, for people.
    description: Text,
    /// Terms of use, for people.
    terms: Text,
    /// Whether the product is active. Inactive products cannot be ordered.
    is_active: bool,
    /// Time of the product's latest change. A change of your discount does not count.
    updated_at: Timestamp,
}

impl Plural for Product {
    const PLURAL: &'static str = "products";
}

impl Product {
    pub fn of<T: Into<Text>>(product: domain::Product<T>, discount: Percent, image_url: Option<String>) -> Self {
        let details = product.details;
        let (denomination_type, denominations, min, max) = match details.denominations {
            Denominations::Fixed { values } => {
                (DenominationType::Fixed, values.into_iter().map(Into::into).collect(), None, None)
            }
            Denominations::Range { min, max } => (DenominationType::Range, vec![], Some(min.into()), Some(max.into())),
        };
        Self {
            id: product.id.0,
            name: details.name,
            brand: details.brand,
            category_id: details.category_id.map(|id| id.0),
            country: details.country,
            currency: details.currency.as_str().to_owned(),
            denomination_type,
            denominations,
            min_denomination: min,
            max_denomination: max,
            discount: discount.into(),
            max_quantity: details.max_quantity,
            image_url,
            description: details.description.into(),
            terms: details.terms.into(),
            is_active: details.is_active,
            updated_at: product.updated_at.into(),
        }
    }

    fn for_caller<T: Into<Text>>(state: &ApiState, product: domain::Product<T>, discounts: &Discounts) -> Self {
        let discount = discounts.on(product.id, product.details.category_id);
        let image_url = product.image.as_ref().map(|image| state.image_url(product.id, image));
        Self::of(product, discount, image_url)
    }
}

async fn discounts(pool: &PgPool, account: AccountId) -> Result<Discounts, sqlx::Error> {
    let (_, account) = accounts::find(pool, account).await?.ok_or(sqlx::Error::RowNotFound)?;
    Ok(account.discounts())
}

/// Returns the page that a request asks for. `per_page` replaces an absent `limit`; errors then name `per_page`.
pub fn page_of(page: Option<i64>, limit: Option<i64>, per_page: Option<i64>) -> Result<Page, ApiError> {
    Page::of(page, limit.or(per_page), 50, 10_000).map_err(|mut refused| {
        if limit.is_none()
            && let Some(messages) = &mut refused.messages
            && let Some(problems) = messages.remove("limit")
        {
            messages.insert("per_page".to_owned(), problems);
        }
        refused
    })
}

/// Reads a list of IDs.
///
/// # Errors
/// 400 if it has no or too many entries, or one that is not an ID.
fn ids(text: Option<&str>) -> Result<Option<Vec<ProductId>>, ApiError> {
    let Some(text) = text.filter(|text| !text.is_empty()) else { return Ok(None) };
    let ids = text.split(',').map(|id| id.trim().parse::<ProductId>().ok()).collect::<Option<Vec<_>>>();
    let ids = ids.filter(|ids| ids.len() <= MAX_IDS);
    ids.map(Some).ok_or_else(|| ApiError::invalid("ids", format!("must be at most {MAX_IDS} IDs, separated by commas")))
}

pub struct Products;

#[OpenApi(prefix_path = "/api/v1", tag = "Tag::Products")]
impl Products {
    /// List products
    ///
    /// Returns the active products, newest first, each with your account's discount. With `updated_since`, the list also
    /// includes products that are no longer active, so that you can keep a copy of the catalogue current. A discount is not
    /// part of a product: when it changes, `updated_at` does not, and `updated_since` does not find it.
    #[oai(path = "/products", method = "get", operation_id = "list_products")]
    #[allow(clippy::too_many_arguments)] // each is a parameter
    async fn list(
        &self,
        caller: Caller,
        state: State<'_>,
        /// Page number, from 1. Default: 1.
        page: Query<Option<i64>>,
        /// Products per page, 1 to 10,000. Default: 50.
        limit: Query<Option<i64>>,
        /// Alias of `limit`. If both are given, `limit` takes precedence.
        per_page: Query<Option<i64>>,
        /// Only the products with these IDs, separated by commas: at most 1,000.
        ids: Query<Option<String>>,
        /// Only products in this category.
        category_id: Query<Option<i64>>,
        /// Only products of this country, as an ISO 3166-1 alpha-2 code.
        country: Query<Option<String>>,
        /// Only products in this currency, as an ISO 4217 code.
        currency: Query<Option<String>>,
        /// Only products whose name or brand contains this text, ignoring case.
        search: Query<Option<String>>,
        /// Only products that changed at or after this time, active or not.
        updated_since: Query<Option<DateTime<Utc>>>,
    ) -> Result<Listed<Product>, ApiError> {
        let page = page_of(page.0, limit.0, per_page.0)?;
        let filter = ProductFilter {
            ids: self::ids(ids.0.as_deref())?,
            // A client that keeps a copy must also learn of deactivated products.
            is_active: updated_since.0.is_none().then_some(true),
            category_id: category_id.0.map(CategoryId),
            country: country.0,
            currency: currency.0,
            search: search.0,
            updated_since: time("updated_since", updated_since.0)?,
            with_image: false,
        };
        let pool = &state.read_pool();
        let (discounts, found) =
            tokio::try_join!(discounts(pool, caller.0.account_id), catalogue::list(pool, &filter, rows_of(page)))?;
        Ok(listed(found, page, |product| Product::for_caller(&state, product, &discounts)))
    }

    /// Retrieve a product
    ///
    /// Returns an active product with your account's discount. 404 if the product is inactive.
    #[oai(path = "/products/:id", method = "get", operation_id = "get_product")]
    async fn get(
        &self,
        caller: Caller,
        state: State<'_>,
        /// Unique identifier of the product.
        id: Path<i64>,
    ) -> Result<Reply<Product>, ApiError> {
        let pool = state.ledger.pool();
        let found = catalogue::find(pool, ProductId(id.0)).await?.filter(|product| product.details.is_active);
        let product = found.ok_or_else(not_found)?;
        Ok(Reply(Product::for_caller(&state, product, &discounts(pool, caller.0.account_id).await?)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_of_ids_is_bounded() {
        assert_eq!((ids(None), ids(Some("3, 5"))), (Ok(None), Ok(Some(vec![ProductId(3), ProductId(5)]))));
        let too_many = vec!["1"; MAX_IDS + 1].join(",");
        for wrong in ["3,", "a", too_many.as_str()] {
            assert!(ids(Some(wrong)).is_err(), "{wrong}");
        }
    }
}
