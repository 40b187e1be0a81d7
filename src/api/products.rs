//! `/api/v1/products`: what can be ordered, at the caller's discount.

use chrono::{DateTime, Utc};
use ledger_database::PgPool;
use ledger_events::account::Discounts;
use ledger_events::catalogue::{self as domain, Denominations};
use ledger_events::{AccountId, Percent};
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

/// How a product's face values are given.
#[derive(Clone, Copy, Default, Enum, Serialize)]
#[oai(rename_all = "SCREAMING_SNAKE_CASE")]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum DenominationType {
    /// One of `denominations`.
    #[default]
    Fixed,
    /// Anything from `min_denomination` to `max_denomination`.
    Range,
}

/// A product.
#[derive(Object, Serialize)]
pub struct Product {
    /// Its id.
    id: i64,
    /// For people.
    name: String,
    /// Whose card it is.
    brand: String,
    /// The category.
    category_id: Option<i64>,
    /// ISO 3166-1 alpha-2.
    country: String,
    /// ISO 4217; an order is paid from the wallet of this currency.
    currency: String,
    /// How its face values are given.
    denomination_type: DenominationType,
    /// The face values of a FIXED product; empty for a RANGE.
    denominations: Vec<Money>,
    /// The smallest face value of a RANGE product.
    min_denomination: Option<Money>,
    /// The largest face value of a RANGE product.
    max_denomination: Option<Money>,
    /// The caller's discount in percent.
    discount: Money,
    /// The most units of one order.
    max_quantity: i32,
    /// Where its image is, for a GET with your API key. Another image has another URL.
    image_url: Option<String>,
    /// For people.
    description: Text,
    /// The terms of use, for people.
    terms: Text,
    /// Whether it is in use.
    is_active: bool,
    /// When it last changed.
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
            id: product.id,
            name: details.name,
            brand: details.brand,
            category_id: details.category_id,
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

/// `per_page` stands in for an absent `limit`, and is then what a refusal names.
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

pub struct Products;

#[OpenApi(prefix_path = "/api/v1", tag = "Tag::Products")]
impl Products {
    /// List products
    ///
    /// The active ones, newest first, each with the caller's discount. With `updated_since` also
    /// those that are not active any more, so that a copy of the catalogue learns of it. A discount is no part
    /// of a product: that it has changed shows in the list, and not in `updated_since`.
    #[oai(path = "/products", method = "get", operation_id = "list_products")]
    #[allow(clippy::too_many_arguments)] // each is a parameter
    async fn list(
        &self,
        caller: Caller,
        state: State<'_>,
        /// From 1.
        page: Query<Option<i64>>,
        /// Products on a page: 1 to 10,000, by default 50.
        limit: Query<Option<i64>>,
        /// Another name of `limit`; `limit` wins.
        per_page: Query<Option<i64>>,
        /// Only products of this category.
        category_id: Query<Option<i64>>,
        /// Only products of this country, ISO 3166-1 alpha-2.
        country: Query<Option<String>>,
        /// Only products of this currency, ISO 4217.
        currency: Query<Option<String>>,
        /// Only products with this text in their name or brand, in upper or lower case.
        search: Query<Option<String>>,
        /// Only products that changed at this time or later, active or not.
        updated_since: Query<Option<DateTime<Utc>>>,
    ) -> Result<Listed<Product>, ApiError> {
        let page = page_of(page.0, limit.0, per_page.0)?;
        let filter = ProductFilter {
            // Who keeps a copy must learn what was switched off.
            is_active: updated_since.0.is_none().then_some(true),
            category_id: category_id.0,
            country: country.0,
            currency: currency.0,
            search: search.0,
            updated_since: time("updated_since", updated_since.0)?,
            with_image: false,
        };
        let pool = state.ledger.pool();
        let (discounts, found) =
            tokio::try_join!(discounts(pool, caller.0.account_id), catalogue::list(pool, &filter, rows_of(page)))?;
        Ok(listed(found, page, |product| Product::for_caller(&state, product, &discounts)))
    }

    /// Find a product
    #[oai(path = "/products/:id", method = "get", operation_id = "get_product")]
    async fn get(
        &self,
        caller: Caller,
        state: State<'_>,
        /// The product's id.
        id: Path<i64>,
    ) -> Result<Reply<Product>, ApiError> {
        let pool = state.ledger.pool();
        let found = catalogue::find(pool, id.0).await?.filter(|product| product.details.is_active);
        let product = found.ok_or_else(not_found)?;
        Ok(Reply(Product::for_caller(&state, product, &discounts(pool, caller.0.account_id).await?)))
    }
}
