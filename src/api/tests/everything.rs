//! A request body with a field of every type.

use rust_decimal::Decimal;

use crate::api::error::ApiError;
use crate::api::fields::{Fields, FromFields, parse};
use crate::api::readers::*;
use crate::api::scalars::{JsonObject, Money, Number};

const ANY_DECIMAL: std::ops::RangeInclusive<Decimal> = Decimal::MIN..=Decimal::MAX;

#[derive(Clone, Copy, Debug, PartialEq, poem_openapi::Enum)]
#[oai(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum Kind {
    Credit,
    Debit,
}

#[derive(Debug, Default, PartialEq)]
pub struct Everything {
    pub id: i64,
    pub denomination: Option<Number>,
    pub amount: Option<Money>,
    pub name: Option<String>,
    pub note: Option<String>,
    pub active: Option<bool>,
    pub kind: Option<Kind>,
    pub events: Option<Vec<String>>,
    pub vouchers: Option<Vec<Voucher>>,
    pub metadata: Option<JsonObject>,
    pub day: Option<chrono::NaiveDate>,
    pub at: Option<chrono::DateTime<chrono::Utc>>,
    pub url: Option<Option<String>>,
}

#[derive(Debug, Default, PartialEq, poem_openapi::Object)]
pub struct Voucher {
    pub card_number: String,
    pub pin: Option<String>,
}

impl FromFields for Voucher {
    fn from_fields(fields: &mut Fields<'_>) -> Self {
        Self { card_number: fields.required("card_number", line(1..=10)), pin: fields.optional("pin", line(1..=10)) }
    }
}

impl FromFields for Everything {
    fn from_fields(fields: &mut Fields<'_>) -> Self {
        Self {
            id: fields.required("id", integer(1..=1000)),
            denomination: fields.optional("denomination", number(2, Decimal::ZERO..=Decimal::MAX)),
            amount: fields.optional("amount", money(ANY_DECIMAL)),
            name: fields.optional("name", line(1..=5)),
            note: fields.optional("note", text(0..=5)),
            active: fields.optional("active", boolean),
            kind: fields.optional("kind", one_of),
            events: fields.optional("events", list(1..=3, || line(1..=9))),
            vouchers: fields.optional("vouchers", list(0..=9, object)),
            metadata: fields.optional("metadata", json_object(40)),
            day: fields.optional("day", date),
            at: fields.optional("at", date_time),
            url: fields.nullable("url", line(1..=9)),
        }
    }
}

pub fn read(body: &str) -> Result<Everything, ApiError> {
    parse(body.as_bytes())
}

/// Reads a body with this field and a valid `id`.
pub fn field(name: &str, json: &str) -> Result<Everything, ApiError> {
    read(&format!(r#"{{"id":1,"{name}":{json}}}"#))
}
