//! Products, product categories, and deliveries of voucher stock.

mod stock;

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};

use crate::{CategoryId, Currency, Moment, Money, ProductId, Rejection};
pub use stock::{
    MovedLot, ProductSupplier, ProductSupplierSet, StockThresholdSet, VoucherExpirySet, VoucherStockLoaded, VouchersExpired,
    VouchersMovedIn, VouchersMovedOut, VouchersTransferredIn, VouchersTransferredOut, VouchersVoided,
};

/// Properties of a product, set by an operator. `ProductChanged` replaces all of them.
///
/// `Text` is the type of the long texts. Code that only passes them on can keep them as raw JSON.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ProductDetails<Text = String> {
    pub name: String,
    pub brand: String,
    pub category_id: Option<CategoryId>,
    /// ISO 3166-1 alpha-2 code.
    pub country: String,
    pub currency: Currency,
    pub denominations: Denominations,
    pub max_quantity: i32,
    pub description: Text,
    pub terms: Text,
    pub is_active: bool,
    /// Least stock of each denomination before operators are warned, by denomination. This field is newer than the others.
    /// The payload omits it when empty.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub stock_thresholds: Vec<StockThreshold>,
    /// Supplier from whom missing vouchers are bought. This field is newer, too.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub supplier: Option<ProductSupplier>,
}

/// Number of available vouchers of a denomination below which the stock is low.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StockThreshold {
    pub denomination: Money,
    pub least: i32,
}

/// Face values that clients can order.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "SCREAMING_SNAKE_CASE", try_from = "FaceValues")]
pub enum Denominations {
    Fixed { values: Vec<Money> },
    Range { min: Money, max: Money },
}

/// Input form of [`Denominations`]. It is read in one pass; serde buffers a tagged enum as a tree first.
#[derive(Deserialize)]
struct FaceValues {
    #[serde(rename = "type")]
    kind: DenominationKind,
    values: Option<Vec<Money>>,
    min: Option<Money>,
    max: Option<Money>,
}

#[derive(Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
enum DenominationKind {
    Fixed,
    Range,
}

impl TryFrom<FaceValues> for Denominations {
    type Error = &'static str;

    fn try_from(read: FaceValues) -> Result<Denominations, &'static str> {
        match read {
            FaceValues { kind: DenominationKind::Fixed, values: Some(values), .. } => Ok(Self::Fixed { values }),
            FaceValues { kind: DenominationKind::Range, min: Some(min), max: Some(max), .. } => Ok(Self::Range { min, max }),
            _ => Err("FIXED needs `values`; RANGE needs `min` and `max`"),
        }
    }
}

impl Denominations {
    pub fn include(&self, denomination: Money) -> bool {
        match self {
            Self::Fixed { values } => values.contains(&denomination),
            Self::Range { min, max } => (*min..=*max).contains(&denomination),
        }
    }
}

/// A partial change of a product. Absent fields stay unchanged.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ProductChange {
    pub name: Option<String>,
    pub brand: Option<String>,
    /// New category. `Some(None)` removes the product from its category.
    pub category_id: Option<Option<CategoryId>>,
    pub country: Option<String>,
    pub currency: Option<Currency>,
    pub denominations: Option<Denominations>,
    pub max_quantity: Option<i32>,
    pub description: Option<String>,
    pub terms: Option<String>,
    pub is_active: Option<bool>,
}

impl ProductDetails {
    /// Returns the properties with the change applied.
    pub fn with(&self, change: &ProductChange) -> ProductDetails {
        fn changed<T: Clone>(to: &Option<T>, from: &T) -> T {
            to.as_ref().unwrap_or(from).clone()
        }
        ProductDetails {
            name: changed(&change.name, &self.name),
            brand: changed(&change.brand, &self.brand),
            category_id: changed(&change.category_id, &self.category_id),
            country: changed(&change.country, &self.country),
            currency: changed(&change.currency, &self.currency),
            denominations: changed(&change.denominations, &self.denominations),
            max_quantity: changed(&change.max_quantity, &self.max_quantity),
            description: changed(&change.description, &self.description),
            terms: changed(&change.terms, &self.terms),
            is_active: changed(&change.is_active, &self.is_active),
            stock_thresholds: self.stock_thresholds.clone(),
            supplier: self.supplier.clone(),
        }
    }
}

impl<Text> ProductDetails<Text> {
    /// Returns the number of available vouchers below which the stock of a denomination is low, if one is set.
    pub fn stock_threshold(&self, denomination: Money) -> Option<i32> {
        self.stock_thresholds.iter().find(|threshold| threshold.denomination == denomination).map(|threshold| threshold.least)
    }

    fn set_stock_threshold(&mut self, set: &StockThresholdSet) {
        self.stock_thresholds.retain(|threshold| threshold.denomination != set.denomination);
        self.stock_thresholds.extend(set.least.map(|least| StockThreshold { denomination: set.denomination, least }));
        self.stock_thresholds.sort_unstable_by_key(|threshold| threshold.denomination);
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

/// A new or replaced image. The log contains only its hash; the bytes are stored elsewhere, under that hash.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ProductImageSet {
    /// SHA-256 of the bytes, in lower-case hex.
    pub sha256: String,
    pub content_type: ImageType,
    /// Size in bytes.
    pub size: i32,
}

/// Image format of a product. None of the formats can carry a script.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ImageType {
    #[serde(rename = "image/png")]
    Png,
    #[serde(rename = "image/jpeg")]
    Jpeg,
    #[serde(rename = "image/webp")]
    Webp,
}

impl ImageType {
    /// Detects the format from the first bytes. File names and declared media types are ignored.
    pub fn of(bytes: &[u8]) -> Option<ImageType> {
        match bytes {
            [0x89, b'P', b'N', b'G', b'\r', b'\n', 0x1a, b'\n', ..] => Some(Self::Png),
            [0xff, 0xd8, 0xff, ..] => Some(Self::Jpeg),
            [b'R', b'I', b'F', b'F', _, _, _, _, b'W', b'E', b'B', b'P', ..] => Some(Self::Webp),
            _ => None,
        }
    }

    /// Returns the media type.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Png => "image/png",
            Self::Jpeg => "image/jpeg",
            Self::Webp => "image/webp",
        }
    }
}

/// State of a product: the fold of its stream, and the row of the table `products`.
#[derive(Clone, Debug, PartialEq)]
pub struct Product<Text = String> {
    pub id: ProductId,
    pub version: i64,
    pub details: ProductDetails<Text>,
    pub image: Option<ProductImage>,
    pub created_at: DateTime<Utc>,
    pub updated_at: DateTime<Utc>,
}

/// Image of a product, without its bytes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ProductImage {
    #[serde(flatten)]
    pub set: ProductImageSet,
    pub updated_at: DateTime<Utc>,
}

impl ProductImage {
    /// Returns the identifier of these bytes in a URL: the first 16 hex digits of the hash. Another image has
    /// another identifier.
    pub fn version(&self) -> &str {
        self.set.sha256.get(..16).unwrap_or(&self.set.sha256)
    }
}

impl Product {
    /// Checks that the product can be ordered with this denomination and quantity. Ignores wallet and price.
    ///
    /// # Errors
    /// Checks availability, denomination and quantity in this order, and returns the first rejection.
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

/// Folds an event into the state. This is the only fold of the product stream. Returns `None` only before
/// `ProductAdded`.
pub fn evolve(state: Option<Product>, id: ProductId, event: &ProductEvent, at: &Moment) -> Option<Product> {
    let mut product = match (state, event) {
        (None, ProductEvent::ProductAdded(e)) => {
            return Some(Product {
                id,
                version: at.version,
                details: e.details.clone(),
                image: None,
                created_at: at.recorded_at,
                updated_at: at.recorded_at,
            });
        }
        (None, _) => return None,
        (Some(product), _) => product,
    };
    match event {
        ProductEvent::ProductAdded(_)
        | ProductEvent::VoucherStockLoaded(_)
        | ProductEvent::VouchersVoided(_)
        | ProductEvent::VoucherExpirySet(_)
        | ProductEvent::VouchersTransferredOut(_)
        | ProductEvent::VouchersTransferredIn(_)
        | ProductEvent::VouchersMovedOut(_)
        | ProductEvent::VouchersMovedIn(_)
        | ProductEvent::VouchersExpired(_) => {}
        // Clients see neither the threshold nor the supplier, so the product counts as unchanged.
        ProductEvent::StockThresholdSet(e) => product.details.set_stock_threshold(e),
        ProductEvent::ProductSupplierSet(e) => product.details.supplier.clone_from(&e.supplier),
        ProductEvent::ProductChanged(e) => {
            product.details = e.details.clone();
            product.updated_at = at.recorded_at;
        }
        ProductEvent::ProductImageSet(e) => {
            product.image = Some(ProductImage { set: e.clone(), updated_at: at.recorded_at });
            product.updated_at = at.recorded_at;
        }
    }
    product.version = at.version;
    Some(product)
}

crate::codec::stream_events! {
    /// Events of a product.
    ProductEvent {
        ProductAdded = 1,
        ProductChanged = 1,
        ProductImageSet = 1,
        VoucherStockLoaded = 1,
        VouchersVoided = 1,
        VoucherExpirySet = 1,
        VouchersExpired = 1,
        VouchersTransferredOut = 1,
        VouchersTransferredIn = 1,
        VouchersMovedOut = 1,
        VouchersMovedIn = 1,
        StockThresholdSet = 1,
        ProductSupplierSet = 1,
    }
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CategoryAdded {
    pub name: String,
    pub parent_id: Option<CategoryId>,
}

crate::codec::stream_events! {
    /// Events of a product category.
    CategoryEvent {
        CategoryAdded = 1,
    }
}

/// State of a category: the row of the table `categories`.
#[derive(Clone, Debug, PartialEq)]
pub struct Category {
    pub id: CategoryId,
    pub version: i64,
    pub name: String,
    pub parent_id: Option<CategoryId>,
    pub created_at: DateTime<Utc>,
}

/// Folds an event into the state. This is the only fold of the category stream.
pub fn evolve_category(state: Option<Category>, id: CategoryId, event: &CategoryEvent, at: &Moment) -> Option<Category> {
    match (state, event) {
        (None, CategoryEvent::CategoryAdded(e)) => {
            Some(Category { id, version: at.version, name: e.name.clone(), parent_id: e.parent_id, created_at: at.recorded_at })
        }
        (state, _) => state,
    }
}

#[cfg(test)]
mod histories;

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;

    fn at(version: i64) -> Moment {
        let recorded_at = DateTime::from_timestamp(version, 0).unwrap();
        Moment { position: version, event_id: Uuid::nil(), version, recorded_at }
    }

    fn details() -> ProductDetails {
        ProductDetails {
            name: "Card".into(),
            brand: "Brand".into(),
            category_id: Some(CategoryId(4)),
            country: "DE".into(),
            currency: "EUR".parse().unwrap(),
            denominations: Denominations::Fixed { values: vec!["10.00".parse().unwrap()] },
            max_quantity: 5,
            description: "d".into(),
            terms: "t".into(),
            is_active: true,
            stock_thresholds: vec![],
            supplier: None,
        }
    }

    #[test]
    fn a_threshold_is_set_replaced_and_removed_and_survives_a_change() {
        let money = |text: &str| text.parse::<Money>().unwrap();
        let set = |text, least| ProductEvent::from(StockThresholdSet { denomination: money(text), least });
        let added = evolve(None, ProductId(3), &ProductAdded { details: details() }.into(), &at(1));
        let two =
            evolve(evolve(added, ProductId(3), &set("25.00", Some(7)), &at(2)), ProductId(3), &set("10.00", Some(5)), &at(3))
                .unwrap();
        assert_eq!((two.details.stock_threshold(money("10.00")), two.updated_at), (Some(5), at(1).recorded_at));
        let change = ProductChange { is_active: Some(false), ..ProductChange::default() };
        let changed = ProductChanged { details: two.details.with(&change) };
        let changed = evolve(Some(two), ProductId(3), &changed.into(), &at(4));
        let replaced = evolve(changed, ProductId(3), &set("25.00", Some(9)), &at(5)).unwrap();
        let expected = [("10.00", 5), ("25.00", 9)].map(|(text, least)| StockThreshold { denomination: money(text), least });
        assert_eq!(replaced.details.stock_thresholds, expected);
        let removed = evolve(Some(replaced), ProductId(3), &set("25.00", None), &at(6)).unwrap();
        assert_eq!(removed.details.stock_threshold(money("25.00")), None);
    }

    fn image(sha256: &str) -> ProductEvent {
        ProductImageSet { sha256: sha256.into(), content_type: ImageType::Png, size: 8 }.into()
    }

    #[test]
    fn a_change_keeps_the_fields_it_does_not_name() {
        assert_eq!(details().with(&ProductChange::default()), details());
        let change = ProductChange { name: Some("Other".into()), category_id: Some(None), ..ProductChange::default() };
        assert_eq!(details().with(&change), ProductDetails { name: "Other".into(), category_id: None, ..details() });
    }

    #[test]
    fn denominations_round_trip_through_json() {
        let money = |text: &str| text.parse::<Money>().unwrap();
        for (denominations, json) in [
            (
                Denominations::Fixed { values: vec![money("10.00"), money("25.00")] },
                r#"{"type":"FIXED","values":["10.00","25.00"]}"#,
            ),
            (Denominations::Range { min: money("5.00"), max: money("9.00") }, r#"{"type":"RANGE","min":"5.00","max":"9.00"}"#),
        ] {
            assert_eq!(serde_json::to_string(&denominations).unwrap(), json);
            assert_eq!(serde_json::from_str::<Denominations>(json).unwrap(), denominations);
        }
        for json in [
            r#"{"type":"FIXED","min":"5.00","max":"9.00"}"#,
            r#"{"type":"RANGE","min":"5.00"}"#,
            r#"{"type":"OTHER","values":[]}"#,
            r#"{"values":["10.00"]}"#,
            r#"{"type":"FIXED","values":[10]}"#,
        ] {
            assert!(serde_json::from_str::<Denominations>(json).is_err(), "{json}");
        }
    }

    #[test]
    fn the_latest_image_applies_and_survives_a_change() {
        let added = evolve(None, ProductId(3), &ProductAdded { details: details() }.into(), &at(1));
        let first = evolve(added, ProductId(3), &image("aa"), &at(2));
        let changed = evolve(first, ProductId(3), &ProductChanged { details: details() }.into(), &at(3)).unwrap();
        let shown = changed.image.as_ref().map(|image| (&*image.set.sha256, image.updated_at));
        assert_eq!(shown, Some(("aa", at(2).recorded_at)));
        let second = evolve(Some(changed), ProductId(3), &image("bb"), &at(4)).unwrap();
        assert_eq!(second.image.map(|image| image.set.sha256).as_deref(), Some("bb"));
        assert_eq!((second.updated_at, second.version), (at(4).recorded_at, 4));
    }

    #[test]
    fn image_formats_are_detected_from_the_bytes() {
        assert_eq!(ImageType::of(b"\x89PNG\r\n\x1a\n rest"), Some(ImageType::Png));
        assert_eq!(ImageType::of(&[0xff, 0xd8, 0xff, 0xe0]), Some(ImageType::Jpeg));
        assert_eq!(ImageType::of(b"RIFF\x10\0\0\0WEBPVP8 "), Some(ImageType::Webp));
        for other in [&b"<svg xmlns=\"http://www.w3.org/2000/svg\"/>"[..], b"GIF89a", b"RIFF\x10\0\0\0WAVE", b"\x89PNG", b""] {
            assert_eq!(ImageType::of(other), None);
        }
    }
}
