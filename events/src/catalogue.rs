//! Products, their categories, and the arrival of voucher stock.

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};

use crate::{CategoryId, Currency, Moment, Money, ProductId, Rejection};

/// What an operator says about a product; `ProductChanged` replaces it whole.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ProductDetails {
    pub name: String,
    pub brand: String,
    pub category_id: Option<CategoryId>,
    /// ISO 3166-1 alpha-2.
    pub country: String,
    pub currency: Currency,
    pub denominations: Denominations,
    pub max_quantity: i32,
    pub description: String,
    pub terms: String,
    pub is_active: bool,
}

/// Which face values can be ordered.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "SCREAMING_SNAKE_CASE")]
pub enum Denominations {
    Fixed { values: Vec<Money> },
    Range { min: Money, max: Money },
}

impl Denominations {
    pub fn include(&self, denomination: Money) -> bool {
        match self {
            Self::Fixed { values } => values.contains(&denomination),
            Self::Range { min, max } => (*min..=*max).contains(&denomination),
        }
    }
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ProductAdded {
    pub details: ProductDetails,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ProductChanged {
    pub details: ProductDetails,
}

/// Vouchers were added to the stock. Their codes stand sealed in the vault.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct VoucherStockLoaded {
    pub denomination: Money,
    pub accepted: i32,
    pub duplicates: i32,
}

/// A product's state: the fold of its stream, and the row of the table `products`.
#[derive(Clone, Debug, PartialEq)]
pub struct Product {
    pub id: ProductId,
    pub version: i64,
    pub details: ProductDetails,
    pub created_at: DateTime<Utc>,
    pub updated_at: DateTime<Utc>,
}

impl Product {
    /// Whether such an order can be taken at all, wallet and price aside.
    pub fn accepts(&self, denomination: Money, quantity: i32) -> Result<(), Rejection> {
        if !self.details.is_active {
            return Err(Rejection::ProductUnavailable);
        }
        if !self.details.denominations.include(denomination) {
            return Err(Rejection::InvalidDenomination);
        }
        let max_quantity = self.details.max_quantity;
        if quantity > max_quantity { Err(Rejection::QuantityLimitExceeded { max_quantity }) } else { Ok(()) }
    }
}

/// The one fold of the product stream.
pub fn evolve(state: Option<Product>, id: ProductId, event: &ProductEvent, at: &Moment) -> Option<Product> {
    let mut product = match (state, event) {
        (None, ProductEvent::ProductAdded(e)) => {
            return Some(Product {
                id,
                version: at.version,
                details: e.details.clone(),
                created_at: at.recorded_at,
                updated_at: at.recorded_at,
            });
        }
        (None, _) => return None,
        (Some(product), _) => product,
    };
    if let ProductEvent::ProductChanged(e) = event {
        product.details = e.details.clone();
        product.updated_at = at.recorded_at;
    }
    product.version = at.version;
    Some(product)
}

crate::codec::stream_events! {
    /// What can happen to a product.
    ProductEvent {
        ProductAdded = 1,
        ProductChanged = 1,
        VoucherStockLoaded = 1,
    }
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CategoryAdded {
    pub name: String,
    pub parent_id: Option<CategoryId>,
}

crate::codec::stream_events! {
    /// What can happen to a product category.
    CategoryEvent {
        CategoryAdded = 1,
    }
}

/// A category's state: the row of the table `categories`.
#[derive(Clone, Debug, PartialEq)]
pub struct Category {
    pub id: CategoryId,
    pub version: i64,
    pub name: String,
    pub parent_id: Option<CategoryId>,
    pub created_at: DateTime<Utc>,
}

/// The one fold of the category stream.
pub fn evolve_category(state: Option<Category>, id: CategoryId, event: &CategoryEvent, at: &Moment) -> Option<Category> {
    match (state, event) {
        (None, CategoryEvent::CategoryAdded(e)) => {
            Some(Category { id, version: at.version, name: e.name.clone(), parent_id: e.parent_id, created_at: at.recorded_at })
        }
        (state, _) => state,
    }
}
