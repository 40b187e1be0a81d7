//! Products and categories.

use ledger_events::catalogue::{self as domain, Denominations, ProductDetails};
use ledger_events::{MoneyError, Percent};
use ledger_projections::catalogue::{self, ProductFilter};
use poem_openapi::param::{Path, Query};
use poem_openapi::{Object, OpenApi};
use serde::Serialize;

use crate::access::Operator;
use crate::api::body::StrictJson;
use crate::api::error::ApiError;
use crate::api::fields::{Fields, FromFields};
use crate::api::outcome::answered;
use crate::api::page::Page;
use crate::api::principal::{Admin, Caller};
use crate::api::products::{DenominationType, Product};
use crate::api::readers::{boolean, integer, line, list, money, one_of, text};
use crate::api::reply::{Created, Listed, Plural, Reply};
use crate::api::scalars::Money;
use crate::api::state::{State, Tag, amounts, country, currency, listed, origin, parsed_currency, rows_of};
use crate::ledger::{Answer, Command, FIRST_SHARD};

/// The most units of one order, for any product: each is a line in the order's events.
const MAX_QUANTITY: i64 = 10_000;

/// A product, whole: what is left out of a change goes back to its default.
#[derive(Object)]
struct ProductFields {
    /// For people.
    #[oai(validator(min_length = 1, max_length = 200))]
    name: String,
    /// Whose card it is.
    #[oai(validator(min_length = 1, max_length = 100))]
    brand: String,
    /// The category.
    category_id: Option<i64>,
    /// ISO 3166-1 alpha-2.
    #[oai(validator(pattern = "^[A-Z]{2}$"))]
    country: String,
    /// ISO 4217, of a currency with at most two decimals. It cannot be changed.
    #[oai(validator(pattern = "^[A-Z]{3}$"))]
    currency: String,
    /// How its face values are given.
    denomination_type: DenominationType,
    /// The face values of a FIXED product.
    #[oai(validator(min_items = 1, max_items = 200))]
    denominations: Option<Vec<Money>>,
    /// The smallest face value of a RANGE product.
    min_denomination: Option<Money>,
    /// The largest face value of a RANGE product.
    max_denomination: Option<Money>,
    /// The most units of one order, 1 to 10,000.
    #[oai(validator(minimum(value = "1"), maximum(value = "10000")))]
    max_quantity: i32,
    /// By default empty.
    #[oai(validator(max_length = 5000))]
    description: Option<String>,
    /// By default empty.
    #[oai(validator(max_length = 20000))]
    terms: Option<String>,
    /// Whether it can be ordered; by default true.
    is_active: Option<bool>,
}

impl FromFields for ProductFields {
    fn from_fields(fields: &mut Fields<'_>) -> Self {
        let types = [("FIXED", DenominationType::Fixed), ("RANGE", DenominationType::Range)];
        let max_quantity = fields.required("max_quantity", integer(1..=MAX_QUANTITY));
        let product = Self {
            name: fields.required("name", line(1..=200)),
            brand: fields.required("brand", line(1..=100)),
            category_id: fields.optional("category_id", integer(1..=i64::MAX)),
            country: fields.required("country", country),
            currency: fields.required("currency", currency),
            denomination_type: fields.required("denomination_type", one_of(&types)),
            // An empty list is how a RANGE product shows that it has none.
            denominations: fields.optional("denominations", list(0..=200, || money(amounts()))).filter(|list| !list.is_empty()),
            min_denomination: fields.optional("min_denomination", money(amounts())),
            max_denomination: fields.optional("max_denomination", money(amounts())),
            max_quantity: i32::try_from(max_quantity).unwrap_or_default(),
            description: fields.optional("description", text(0..=5000)),
            terms: fields.optional("terms", text(0..=20_000)),
            is_active: fields.optional("is_active", boolean),
        };
        product.check_denominations(fields);
        product
    }
}

impl ProductFields {
    fn check_denominations(&self, fields: &mut Fields<'_>) {
        let (least, most) = (self.min_denomination, self.max_denomination);
        match self.denomination_type {
            DenominationType::Fixed => {
                let values = self.denominations.as_deref().unwrap_or_default();
                if values.is_empty() {
                    fields.problem("denominations", "must have 1 to 200 entries for a FIXED product");
                }
                if values.iter().enumerate().any(|(index, value)| values[..index].contains(value)) {
                    fields.problem("denominations", "must not have an entry twice");
                }
                for (name, value) in [("min_denomination", least), ("max_denomination", most)] {
                    if value.is_some() {
                        fields.problem(name, "must not be given for a FIXED product");
                    }
                }
            }
            DenominationType::Range => {
                if self.denominations.is_some() {
                    fields.problem("denominations", "must not be given for a RANGE product");
                }
                for (name, value) in [("min_denomination", least), ("max_denomination", most)] {
                    if value.is_none() {
                        fields.problem(name, "is required for a RANGE product");
                    }
                }
                if let (Some(least), Some(most)) = (least, most)
                    && least.0 > most.0
                {
                    fields.problem("max_denomination", "must not be below min_denomination");
                }
            }
        }
    }

    fn details(self) -> Result<ProductDetails, ApiError> {
        let out_of_range = |problem: MoneyError| ApiError::invalid("denominations", problem.to_string());
        let amount = |amount: Money| amount.0.try_into().map_err(out_of_range);
        let denominations = match self.denomination_type {
            DenominationType::Fixed => {
                let values = self.denominations.unwrap_or_default();
                Denominations::Fixed { values: values.into_iter().map(amount).collect::<Result<_, _>>()? }
            }
            DenominationType::Range => Denominations::Range {
                min: amount(self.min_denomination.unwrap_or_default())?,
                max: amount(self.max_denomination.unwrap_or_default())?,
            },
        };
        Ok(ProductDetails {
            name: self.name,
            brand: self.brand,
            category_id: self.category_id,
            country: self.country,
            currency: parsed_currency(&self.currency)?,
            denominations,
            max_quantity: self.max_quantity,
            description: self.description.unwrap_or_default(),
            terms: self.terms.unwrap_or_default(),
            is_active: self.is_active.unwrap_or(true),
        })
    }
}

/// A new category.
#[derive(Object)]
struct AddCategory {
    /// For people.
    #[oai(validator(min_length = 1, max_length = 100))]
    name: String,
    /// The category that it is part of.
    parent_id: Option<i64>,
}

impl FromFields for AddCategory {
    fn from_fields(fields: &mut Fields<'_>) -> Self {
        Self { name: fields.required("name", line(1..=100)), parent_id: fields.optional("parent_id", integer(1..=i64::MAX)) }
    }
}

/// A category of products.
#[derive(Object, Serialize)]
struct Category {
    /// Its id.
    id: i64,
    /// For people.
    name: String,
    /// The category that it is part of.
    parent_id: Option<i64>,
}

impl Plural for Category {
    const PLURAL: &'static str = "categories";
}

impl From<domain::Category> for Category {
    fn from(category: domain::Category) -> Self {
        Self { id: category.id, name: category.name, parent_id: category.parent_id }
    }
}

/// A product as operators see it: without anybody's discount.
fn undiscounted(product: domain::Product) -> Product {
    Product::of(product, Percent::ZERO)
}

pub struct Catalogue;

#[OpenApi(prefix_path = "/admin/v1", tag = "Tag::Catalogue")]
impl Catalogue {
    /// Add a product
    #[oai(path = "/products", method = "post", operation_id = "add_product")]
    async fn add_product(
        &self,
        caller: Caller<Admin>,
        state: State<'_>,
        body: StrictJson<ProductFields>,
    ) -> Result<Created<Product>, ApiError> {
        let command = Command::AddProduct { details: body.0.details()? };
        let answer = state.ledger.execute(FIRST_SHARD, command, origin(caller.0.0.actor())).await?;
        Ok(Created(undiscounted(answered!(answer, Answer::Product(product) => product)?)))
    }

    /// List products
    ///
    /// Inactive ones too, newest first. `discount` is "0.00": it depends on the account.
    #[oai(path = "/products", method = "get", operation_id = "list_all_products")]
    async fn list_products(
        &self,
        _caller: Caller<Operator>,
        state: State<'_>,
        /// From 1.
        page: Query<Option<i64>>,
        /// Products on a page: 1 to 10,000, by default 50.
        limit: Query<Option<i64>>,
        /// Only products with this text in their name or brand, in upper or lower case.
        search: Query<Option<String>>,
    ) -> Result<Listed<Product>, ApiError> {
        let page = Page::of(page.0, limit.0, 50, 10_000)?;
        let filter = ProductFilter { search: search.0, ..ProductFilter::default() };
        Ok(listed(catalogue::list(state.ledger.pool(), &filter, rows_of(page)).await?, page, undiscounted))
    }

    /// Change a product
    ///
    /// Replaces all of it, but for its currency. Orders that were placed keep what they were placed on.
    #[oai(path = "/products/:id", method = "put", operation_id = "change_product")]
    async fn change_product(
        &self,
        caller: Caller<Admin>,
        state: State<'_>,
        /// The product's id.
        id: Path<i64>,
        body: StrictJson<ProductFields>,
    ) -> Result<Reply<Product>, ApiError> {
        let command = Command::ChangeProduct { product_id: id.0, details: body.0.details()? };
        let answer = state.ledger.execute(FIRST_SHARD, command, origin(caller.0.0.actor())).await?;
        Ok(Reply(undiscounted(answered!(answer, Answer::Product(product) => product)?)))
    }

    /// Add a category
    #[oai(path = "/categories", method = "post", operation_id = "add_category")]
    async fn add_category(
        &self,
        caller: Caller<Admin>,
        state: State<'_>,
        body: StrictJson<AddCategory>,
    ) -> Result<Created<Category>, ApiError> {
        let AddCategory { name, parent_id } = body.0;
        let command = Command::AddCategory { name, parent_id };
        let answer = state.ledger.execute(FIRST_SHARD, command, origin(caller.0.0.actor())).await?;
        Ok(Created(answered!(answer, Answer::Category(category) => category)?.into()))
    }

    /// List categories
    ///
    /// Newest first.
    #[oai(path = "/categories", method = "get", operation_id = "list_all_categories")]
    async fn list_categories(
        &self,
        _caller: Caller<Operator>,
        state: State<'_>,
        /// From 1.
        page: Query<Option<i64>>,
        /// Categories on a page: 1 to 100, by default 20.
        limit: Query<Option<i64>>,
    ) -> Result<Listed<Category>, ApiError> {
        let page = Page::of(page.0, limit.0, 20, 100)?;
        Ok(listed(catalogue::list_categories(state.ledger.pool(), rows_of(page)).await?, page, Category::from))
    }
}
