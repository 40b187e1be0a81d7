//! `/admin/v1/products` and `/admin/v1/categories`: the catalogue.

use chrono::{DateTime, Utc};
use ledger_events::catalogue::{self as domain, Denominations, ProductChange, ProductDetails};
use ledger_events::{CategoryId, MoneyError, Percent, ProductId};
use ledger_projections::catalogue::{self, ProductFilter};
use poem_openapi::param::{Path, Query};
use poem_openapi::types::MaybeUndefined;
use poem_openapi::{Object, OpenApi};

use crate::access::Operator;
use crate::api::body::StrictJson;
use crate::api::error::ApiError;
use crate::api::fields::{Fields, FromFields, body};
use crate::api::outcome::answered;
use crate::api::page::Page;
use crate::api::principal::{Admin, Caller};
use crate::api::products::{DenominationType, Product, page_of};
use crate::api::readers::{boolean, id, integer, line, list, money, one_of, text};
use crate::api::reference::{Category, country, currency};
use crate::api::reply::{Created, Listed, Reply};
use crate::api::scalars::{Money, Text};
use crate::api::state::{ApiState, State, Tag, amounts, listed, not_found, origin, parsed_currency, rows_of, time};
use crate::ledger::{CommandResult, FIRST_SHARD, commands};

/// Maximum number of units in one order of any product. Each unit is a line in the order's events.
const MAX_QUANTITY: i32 = 10_000;

/// A new product.
#[derive(Object)]
struct AddProduct {
    /// Display name of the product.
    name: String,
    /// Brand of the card.
    brand: String,
    /// Category of the product. Default: none.
    category_id: Option<i64>,
    /// Country of the product, as an ISO 3166-1 alpha-2 code.
    #[oai(validator(pattern = "^[A-Z]{2}$"))]
    country: String,
    /// Currency of the product, as an ISO 4217 code. It must have at most two decimals and cannot be changed later.
    #[oai(validator(pattern = "^[A-Z]{3}$"))]
    currency: String,
    /// Type of face values: a list of fixed values, or any value in a range.
    denomination_type: DenominationType,
    /// Face values of a `FIXED` product.
    #[oai(validator(min_items = 1, max_items = 200))]
    denominations: Option<Vec<Money>>,
    /// Smallest face value of a `RANGE` product.
    min_denomination: Option<Money>,
    /// Largest face value of a `RANGE` product.
    max_denomination: Option<Money>,
    /// Maximum number of units in one order, 1 to 10,000.
    max_quantity: i32,
    /// Description of the product, for people. Default: empty.
    description: Option<String>,
    /// Terms of use, for people. Default: empty.
    terms: Option<String>,
    /// Whether the product can be ordered. Default: true.
    is_active: Option<bool>,
}

/// Changes to a product. At least one field is required. Fields that are omitted or null keep their value, except
/// `category_id`, which null clears.
#[derive(Object)]
struct ChangeProduct {
    /// Display name of the product.
    name: Option<String>,
    /// Brand of the card.
    brand: Option<String>,
    /// Category of the product. Null removes the product from its category.
    category_id: MaybeUndefined<i64>,
    /// Country of the product, as an ISO 3166-1 alpha-2 code.
    #[oai(validator(pattern = "^[A-Z]{2}$"))]
    country: Option<String>,
    /// Currency of the product, as an ISO 4217 code. It cannot be changed, so only its current value is accepted.
    #[oai(validator(pattern = "^[A-Z]{3}$"))]
    currency: Option<String>,
    /// Type of face values. If given, the face values of that type are required too.
    denomination_type: Option<DenominationType>,
    /// Face values of a `FIXED` product.
    #[oai(validator(min_items = 1, max_items = 200))]
    denominations: Option<Vec<Money>>,
    /// Smallest face value of a `RANGE` product.
    min_denomination: Option<Money>,
    /// Largest face value of a `RANGE` product.
    max_denomination: Option<Money>,
    /// Maximum number of units in one order, 1 to 10,000.
    max_quantity: Option<i32>,
    /// Description of the product, for people.
    description: Option<String>,
    /// Terms of use, for people.
    terms: Option<String>,
    /// Whether the product can be ordered.
    is_active: Option<bool>,
}

/// Fields that define a product's face values, besides `denomination_type`.
struct FaceValues {
    fixed: Option<Vec<Money>>,
    least: Option<Money>,
    most: Option<Money>,
}

impl FaceValues {
    /// Reads the fields and checks that they fit the denomination type.
    fn read(fields: &mut Fields<'_>, kind: Option<DenominationType>) -> Self {
        let read = Self {
            // A response shows a RANGE product with an empty list, so an empty list is accepted as absent.
            fixed: fields.optional("denominations", list(0..=200, || money(amounts()))).filter(|list| !list.is_empty()),
            least: fields.optional("min_denomination", money(amounts())),
            most: fields.optional("max_denomination", money(amounts())),
        };
        let range = [("min_denomination", read.least), ("max_denomination", read.most)];
        match kind {
            None => {
                let fixed = ("denominations", read.fixed.is_some());
                let given = range.map(|(name, value)| (name, value.is_some()));
                for (name, _) in given.into_iter().chain([fixed]).filter(|(_, is_given)| *is_given) {
                    fields.problem(name, "must be given with denomination_type");
                }
            }
            Some(DenominationType::Fixed) => {
                let values = read.fixed.as_deref().unwrap_or_default();
                if values.is_empty() {
                    fields.problem("denominations", "must have 1 to 200 entries for a FIXED product");
                }
                if values.iter().enumerate().any(|(index, value)| values[..index].contains(value)) {
                    fields.problem("denominations", "must not contain duplicates");
                }
                for (name, _) in range.into_iter().filter(|(_, value)| value.is_some()) {
                    fields.problem(name, "must not be given for a FIXED product");
                }
            }
            Some(DenominationType::Range) => {
                if read.fixed.is_some() {
                    fields.problem("denominations", "must not be given for a RANGE product");
                }
                for (name, _) in range.into_iter().filter(|(_, value)| value.is_none()) {
                    fields.problem(name, "is required for a RANGE product");
                }
                if read.least.zip(read.most).is_some_and(|(least, most)| least.0 > most.0) {
                    fields.problem("max_denomination", "must not be below min_denomination");
                }
            }
        }
        read
    }

    /// Converts face values that [`FaceValues::read`] has checked.
    fn of(self, kind: DenominationType) -> Result<Denominations, ApiError> {
        let out_of_range = |problem: MoneyError| ApiError::invalid("denominations", problem.to_string());
        let amount = |amount: Money| amount.0.try_into().map_err(out_of_range);
        Ok(match kind {
            DenominationType::Fixed => {
                let values = self.fixed.unwrap_or_default();
                Denominations::Fixed { values: values.into_iter().map(amount).collect::<Result<_, _>>()? }
            }
            DenominationType::Range => {
                Denominations::Range { min: amount(self.least.unwrap_or_default())?, max: amount(self.most.unwrap_or_default())? }
            }
        })
    }
}

impl FromFields for AddProduct {
    fn from_fields(fields: &mut Fields<'_>) -> Self {
        let denomination_type = fields.nullable("denomination_type", one_of).flatten();
        if denomination_type.is_none() {
            fields.missing("denomination_type");
        }
        let FaceValues { fixed, least, most } = FaceValues::read(fields, denomination_type);
        Self {
            name: fields.required("name", line(1..=200)),
            brand: fields.required("brand", line(1..=100)),
            category_id: fields.optional("category_id", id),
            country: fields.required("country", country),
            currency: fields.required("currency", currency),
            denomination_type: denomination_type.unwrap_or_default(),
            denominations: fixed,
            min_denomination: least,
            max_denomination: most,
            max_quantity: fields.required("max_quantity", integer(1..=MAX_QUANTITY)),
            description: fields.optional("description", text(0..=5000)),
            terms: fields.optional("terms", text(0..=20_000)),
            is_active: fields.optional("is_active", boolean),
        }
    }
}

impl AddProduct {
    fn details(self) -> Result<ProductDetails, ApiError> {
        let face_values = FaceValues { fixed: self.denominations, least: self.min_denomination, most: self.max_denomination };
        Ok(ProductDetails {
            name: self.name,
            brand: self.brand,
            category_id: self.category_id.map(CategoryId),
            country: self.country,
            currency: parsed_currency(&self.currency)?,
            denominations: face_values.of(self.denomination_type)?,
            max_quantity: self.max_quantity,
            description: self.description.unwrap_or_default(),
            terms: self.terms.unwrap_or_default(),
            is_active: self.is_active.unwrap_or(true),
            stock_thresholds: vec![],
            supplier: None,
        })
    }
}

impl FromFields for ChangeProduct {
    fn from_fields(fields: &mut Fields<'_>) -> Self {
        fields.require_any();
        let denomination_type = fields.optional("denomination_type", one_of);
        let FaceValues { fixed, least, most } = FaceValues::read(fields, denomination_type);
        Self {
            name: fields.optional("name", line(1..=200)),
            brand: fields.optional("brand", line(1..=100)),
            category_id: match fields.nullable("category_id", id) {
                None => MaybeUndefined::Undefined,
                Some(category) => MaybeUndefined::from_opt_null(category),
            },
            country: fields.optional("country", country),
            currency: fields.optional("currency", currency),
            denomination_type,
            denominations: fixed,
            min_denomination: least,
            max_denomination: most,
            max_quantity: fields.optional("max_quantity", integer(1..=MAX_QUANTITY)),
            description: fields.optional("description", text(0..=5000)),
            terms: fields.optional("terms", text(0..=20_000)),
            is_active: fields.optional("is_active", boolean),
        }
    }
}

impl ChangeProduct {
    fn change(self) -> Result<ProductChange, ApiError> {
        let face_values = FaceValues { fixed: self.denominations, least: self.min_denomination, most: self.max_denomination };
        Ok(ProductChange {
            name: self.name,
            brand: self.brand,
            category_id: match self.category_id {
                MaybeUndefined::Undefined => None,
                MaybeUndefined::Null => Some(None),
                MaybeUndefined::Value(category) => Some(Some(CategoryId(category))),
            },
            country: self.country,
            currency: self.currency.as_deref().map(parsed_currency).transpose()?,
            denominations: self.denomination_type.map(|kind| face_values.of(kind)).transpose()?,
            max_quantity: self.max_quantity,
            description: self.description,
            terms: self.terms,
            is_active: self.is_active,
        })
    }
}

body! {
    /// A new category of products.
    #[derive(Object)]
    struct AddCategory {
        /// Display name of the category.
        name: String = required(line(1..=100)),
        /// Parent category. Default: none.
        parent_id: Option<i64> = optional(id),
    }
}

/// Returns a product as operators see it, without any account's discount.
pub fn undiscounted<T: Into<Text>>(state: &ApiState, product: domain::Product<T>) -> Product {
    let image_url = product.image.as_ref().map(|image| state.image_url(product.id, image));
    Product::of(product, Percent::ZERO, image_url)
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
        body: StrictJson<AddProduct>,
    ) -> Result<Created<Product>, ApiError> {
        let command = commands::AddProduct { details: body.0.details()? };
        let answer = state.ledger.execute(FIRST_SHARD, command, origin(caller.0.0.actor())).await?;
        Ok(Created(undiscounted(&state, answered!(answer, CommandResult::Product(product) => product)?)))
    }

    /// List products
    ///
    /// Returns all products, including inactive ones, newest first. `discount` is always "0.00", because discounts depend
    /// on the account.
    #[oai(path = "/products", method = "get", operation_id = "list_all_products")]
    #[allow(clippy::too_many_arguments)] // each is a parameter
    async fn list_products(
        &self,
        _caller: Caller<Operator>,
        state: State<'_>,
        /// Page number, from 1. Default: 1.
        page: Query<Option<i64>>,
        /// Products per page, 1 to 10,000. Default: 50.
        limit: Query<Option<i64>>,
        /// Alias of `limit`, which takes precedence.
        per_page: Query<Option<i64>>,
        /// Only products that can be ordered (true), or only those that cannot (false).
        is_active: Query<Option<bool>>,
        /// Only products in this category.
        category_id: Query<Option<i64>>,
        /// Only products for this country, as an ISO 3166-1 alpha-2 code.
        country: Query<Option<String>>,
        /// Only products in this currency, as an ISO 4217 code.
        currency: Query<Option<String>>,
        /// Only products whose name or brand contains this text, case-insensitive.
        search: Query<Option<String>>,
        /// Only products changed at or after this time.
        updated_since: Query<Option<DateTime<Utc>>>,
    ) -> Result<Listed<Product>, ApiError> {
        let page = page_of(page.0, limit.0, per_page.0)?;
        let filter = ProductFilter {
            ids: None,
            is_active: is_active.0,
            category_id: category_id.0.map(CategoryId),
            country: country.0,
            currency: currency.0,
            search: search.0,
            updated_since: time("updated_since", updated_since.0)?,
            with_image: false,
        };
        let found = catalogue::list(&state.read_pool(), &filter, rows_of(page)).await?;
        Ok(listed(found, page, |product| undiscounted(&state, product)))
    }

    /// Retrieve any product
    ///
    /// Returns a product, also an inactive one. `discount` is always "0.00", because discounts depend on the account.
    #[oai(path = "/products/:id", method = "get", operation_id = "get_any_product")]
    async fn get_product(
        &self,
        _caller: Caller<Operator>,
        state: State<'_>,
        /// Unique identifier of the product.
        id: Path<i64>,
    ) -> Result<Reply<Product>, ApiError> {
        let product = catalogue::find(state.ledger.pool(), ProductId(id.0)).await?.ok_or_else(not_found)?;
        Ok(Reply(undiscounted(&state, product)))
    }

    /// Change a product
    ///
    /// Changes any part of a product except its currency. Existing orders keep the details that they were placed with.
    #[oai(path = "/products/:id", method = "put", operation_id = "change_product")]
    async fn change_product(
        &self,
        caller: Caller<Admin>,
        state: State<'_>,
        /// Unique identifier of the product.
        id: Path<i64>,
        body: StrictJson<ChangeProduct>,
    ) -> Result<Reply<Product>, ApiError> {
        let command = commands::ChangeProduct { product_id: ProductId(id.0), change: body.0.change()? };
        let answer = state.ledger.execute(FIRST_SHARD, command, origin(caller.0.0.actor())).await?;
        Ok(Reply(undiscounted(&state, answered!(answer, CommandResult::Product(product) => product)?)))
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
        let command = commands::AddCategory { name, parent_id: parent_id.map(CategoryId) };
        let answer = state.ledger.execute(FIRST_SHARD, command, origin(caller.0.0.actor())).await?;
        Ok(Created(answered!(answer, CommandResult::Category(category) => category)?.into()))
    }

    /// List categories
    ///
    /// Returns all categories, newest first.
    #[oai(path = "/categories", method = "get", operation_id = "list_all_categories")]
    async fn list_categories(
        &self,
        _caller: Caller<Operator>,
        state: State<'_>,
        /// Page number, from 1. Default: 1.
        page: Query<Option<i64>>,
        /// Categories per page, 1 to 100. Default: 20.
        limit: Query<Option<i64>>,
    ) -> Result<Listed<Category>, ApiError> {
        let page = Page::of(page.0, limit.0, 20, 100)?;
        Ok(listed(catalogue::list_categories(&state.read_pool(), rows_of(page)).await?, page, Category::from))
    }
}
