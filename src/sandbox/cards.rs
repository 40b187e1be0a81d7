//! The four cards that the sandbox sells and the demo orders, one for each course of an order.

use ledger_events::catalogue::{Denominations, ImageType, ProductDetails, ProductImageSet};
use ledger_events::{Currency, Money};
use sha2::{Digest, Sha256};

/// Course of the orders of a product.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Course {
    /// The order is delivered at once.
    AtOnce,
    /// One unit is delivered at once, the rest a little later. An order of one unit is delivered at once.
    InParts,
    /// The order is delayed, then delivered.
    Late,
    /// The order stays delayed until it is cancelled.
    Never,
}

/// Seeded product with a single face value.
#[derive(Clone, Copy, Debug)]
pub struct Card {
    pub name: &'static str,
    pub denomination: &'static str,
    pub course: Course,
    /// Bytes of its image.
    pub picture: &'static [u8],
}

pub const CARDS: [Card; 4] = [
    Card { name: "Coffee Card", denomination: "25.00", course: Course::AtOnce, picture: include_bytes!("pictures/coffee.png") },
    Card { name: "Book Card", denomination: "20.00", course: Course::InParts, picture: include_bytes!("pictures/book.png") },
    Card { name: "Game Card", denomination: "49.99", course: Course::Late, picture: include_bytes!("pictures/game.png") },
    Card { name: "Travel Card", denomination: "100.00", course: Course::Never, picture: include_bytes!("pictures/travel.png") },
];
pub const COUNTRY: &str = "US";
pub const CURRENCY: &str = "USD";
pub const MAX_QUANTITY: i32 = 10;

impl Card {
    /// Returns the product for the catalogue. Its description tells clients how its orders proceed.
    ///
    /// # Errors
    /// Only if the constants above are invalid.
    pub fn details(&self) -> Result<ProductDetails, CardError> {
        let course = match self.course {
            Course::AtOnce => "delivered at once",
            Course::InParts => "delivered partly, and wholly a little later: order two or more",
            Course::Late => "delayed, and delivered a little later",
            Course::Never => "delayed, and never delivered: cancel it for a refund",
        };
        Ok(ProductDetails {
            name: self.name.to_owned(),
            brand: "Sandbox".to_owned(),
            category_id: None,
            country: COUNTRY.to_owned(),
            currency: CURRENCY.parse::<Currency>().map_err(CardError)?,
            denominations: Denominations::Fixed { values: vec![self.face_value()?] },
            max_quantity: MAX_QUANTITY,
            description: format!("Every order is {course}."),
            terms: "The codes are made up, and worth nothing.".to_owned(),
            is_active: true,
            stock_thresholds: vec![],
            supplier: None,
        })
    }

    /// Returns the image as the log describes it.
    ///
    /// # Errors
    /// Only if the picture is invalid.
    pub fn image(&self) -> Result<ProductImageSet, CardError> {
        let content_type = ImageType::of(self.picture).ok_or(CardError("the picture is no image"))?;
        let size = i32::try_from(self.picture.len()).map_err(|_| CardError("the picture is too large"))?;
        Ok(ProductImageSet { sha256: hex::encode(Sha256::digest(self.picture)), content_type, size })
    }

    pub fn face_value(&self) -> Result<Money, CardError> {
        self.denomination.parse().map_err(|_| CardError("the face value is no amount"))
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a seeded product is invalid: {0}")]
pub struct CardError(&'static str);

/// Returns a fake voucher: a unique random card number, and a PIN of four digits.
pub fn made_up_codes(prefix: &str) -> (String, String) {
    let number: u128 = rand::random();
    (format!("{prefix}-{number:032x}"), format!("{:04}", number % 10_000))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_course_has_one_card_that_can_be_sold() {
        for course in [Course::AtOnce, Course::InParts, Course::Late, Course::Never] {
            assert_eq!(CARDS.iter().filter(|card| card.course == course).count(), 1);
        }
        for card in CARDS {
            let details = card.details().unwrap();
            assert!(details.denominations.include(card.face_value().unwrap()), "{details:?}");
            let image = card.image().unwrap();
            assert!(image.content_type == ImageType::Png && image.size <= 4 << 10, "{image:?}");
        }
        assert_ne!(made_up_codes("A"), made_up_codes("A"));
    }
}
