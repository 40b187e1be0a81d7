//! Voucher stock as it is uploaded: JSON, read strictly, or CSV, whose bad rows are named and
//! passed over.

use std::future::Future;

use chrono::NaiveDate;
use csv::{ReaderBuilder, StringRecord, Trim};
use ledger_events::Money as Amount;
use poem::{Request, RequestBody};
use poem_openapi::payload::{ParsePayload, Payload};
use poem_openapi::registry::{MetaSchema, MetaSchemaRef};
use poem_openapi::{ApiRequest, Object};
use serde_json::value::RawValue;
use url::Url;

use crate::api::body::{StrictJson, read};
use crate::api::error::ApiError;
use crate::api::fields::{Fields, FromFields};
use crate::api::problems::Read;
use crate::api::readers::{date, line, list, money, object};
use crate::api::scalars::Money;
use crate::api::state::{amounts, money as amount};
use crate::ledger::command::NewVoucher;
use crate::secrets::seal::Private;

/// The limit of an upload, in bytes.
const MAX_BYTES: usize = 16 << 20;
const MAX_VOUCHERS: usize = 1_000_000;
const MAX_CODE: usize = 100;
const MAX_CLAIM_URL: usize = 2_048;
/// An answer names at most so many rows: a bad upload has as many as it has lines.
const MAX_NAMED_ROWS: usize = 1_000;

/// Vouchers to add to the stock.
#[derive(ApiRequest)]
pub enum Upload {
    Json(StrictJson<VoucherUpload, MAX_BYTES>),
    Csv(Csv),
}

/// Vouchers of one denomination.
#[derive(Object)]
pub struct VoucherUpload {
    /// The face value of each.
    denomination: Money,
    /// At least one.
    #[oai(validator(min_items = 1))]
    vouchers: Vec<UploadedVoucher>,
}

/// A voucher as its issuer made it.
#[derive(Default, Object)]
pub struct UploadedVoucher {
    /// What a product has once.
    #[oai(validator(min_length = 1, max_length = 100))]
    card_number: String,
    /// The PIN that goes with the card number.
    #[oai(validator(min_length = 1, max_length = 100))]
    pin: Option<String>,
    /// Made here when it is left out; unique.
    #[oai(validator(min_length = 1, max_length = 100))]
    voucher_reference_number: Option<String>,
    /// `https://`
    #[oai(validator(min_length = 1, max_length = 2048))]
    claim_url: Option<String>,
    /// The last day that it is valid, `YYYY-MM-DD`.
    expires_on: Option<NaiveDate>,
}

fn claim_url(value: &RawValue) -> Read<String> {
    let text = line(1..=MAX_CLAIM_URL)(value)?;
    check_claim_url(&text)?;
    Ok(text)
}

fn check_claim_url(text: &str) -> Result<(), &'static str> {
    match Url::parse(text) {
        Ok(url) if url.scheme() == "https" => Ok(()),
        _ => Err("must be a URL that begins with https://"),
    }
}

impl FromFields for UploadedVoucher {
    fn from_fields(fields: &mut Fields<'_>) -> Self {
        Self {
            card_number: fields.required("card_number", line(1..=MAX_CODE)),
            pin: fields.optional("pin", line(1..=MAX_CODE)),
            voucher_reference_number: fields.optional("voucher_reference_number", line(1..=MAX_CODE)),
            claim_url: fields.optional("claim_url", claim_url),
            expires_on: fields.optional("expires_on", date),
        }
    }
}

impl FromFields for VoucherUpload {
    fn from_fields(fields: &mut Fields<'_>) -> Self {
        Self {
            denomination: fields.required("denomination", money(amounts())),
            vouchers: fields.required("vouchers", list(1..=MAX_VOUCHERS, || object)),
        }
    }
}

impl UploadedVoucher {
    fn numbered(self, row: usize) -> NewVoucher {
        NewVoucher {
            row: i64::try_from(row).unwrap_or(i64::MAX),
            card_number: Private::new(self.card_number),
            pin: self.pin.map(Private::new),
            claim_url: self.claim_url.map(Private::new),
            reference: self.voucher_reference_number,
            expires_on: self.expires_on,
        }
    }
}

/// A text of comma-separated values with a line of column names.
pub struct Csv(String);

impl Payload for Csv {
    const CONTENT_TYPE: &'static str = "text/csv";

    fn check_content_type(content_type: &str) -> bool {
        let essence = content_type.split(';').next().unwrap_or_default();
        essence.trim().eq_ignore_ascii_case(Self::CONTENT_TYPE)
    }

    fn schema_ref() -> MetaSchemaRef {
        let text = "A line of column names, then a voucher a line: `card_number`, and optionally `pin`, \
                    `voucher_reference_number`, `claim_url`, `expires_on`, `denomination`.";
        let schema = MetaSchema {
            description: Some(text),
            example: Some("card_number,pin,denomination,expires_on\n6006491234567890,1234,25.00,2027-12-31\n".into()),
            ..MetaSchema::new("string")
        };
        MetaSchemaRef::Inline(Box::new(schema))
    }
}

impl ParsePayload for Csv {
    const IS_REQUIRED: bool = true;

    fn from_request(_: &Request, body: &mut RequestBody) -> impl Future<Output = poem::Result<Self>> + Send {
        let body = body.take();
        async move {
            let bytes = read(body?, MAX_BYTES).await?;
            let text = String::from_utf8(bytes).map_err(|_| ApiError::invalid("body", "must be UTF-8"))?;
            Ok(Self(text))
        }
    }
}

/// What an upload holds: vouchers with their face values, and the rows that are none.
#[derive(Default)]
pub struct Vouchers {
    pub good: Vec<(Amount, NewVoucher)>,
    pub rejected: Vec<(i64, String)>,
}

impl Upload {
    /// `denomination` is the query's: of the CSV rows that do not name their own.
    ///
    /// # Errors
    /// 400 for a CSV without a `card_number` column, or without a denomination.
    pub fn vouchers(self, denomination: Option<Amount>) -> Result<Vouchers, ApiError> {
        match self {
            Self::Json(StrictJson(upload)) => {
                let denomination = amount("denomination", upload.denomination.0)?;
                let numbered = |(index, voucher): (usize, UploadedVoucher)| (denomination, voucher.numbered(index + 1));
                Ok(Vouchers { good: upload.vouchers.into_iter().enumerate().map(numbered).collect(), rejected: vec![] })
            }
            Self::Csv(Csv(text)) => rows(&text, denomination),
        }
    }
}

const COLUMNS: [&str; 6] = ["card_number", "pin", "voucher_reference_number", "claim_url", "expires_on", "denomination"];

fn rows(text: &str, denomination: Option<Amount>) -> Result<Vouchers, ApiError> {
    let text = text.trim_start_matches('\u{feff}');
    let mut reader = ReaderBuilder::new().trim(Trim::All).from_reader(text.as_bytes());
    let names = reader.headers().map_err(|_| ApiError::invalid("body", "must be CSV"))?.clone();
    // Not echoed: without a line of names, it would be a voucher's code.
    if names.iter().any(|name| !COLUMNS.contains(&name)) {
        return Err(ApiError::invalid("body", format!("must begin with a line of column names: {}", COLUMNS.join(", "))));
    }
    if COLUMNS.iter().any(|column| names.iter().filter(|name| name == column).count() > 1) {
        return Err(ApiError::invalid("body", "must name each column once"));
    }
    let places = COLUMNS.map(|column| names.iter().position(|name| name == column));
    if places[0].is_none() {
        return Err(ApiError::invalid("card_number", "is required"));
    }
    if places[5].is_none() && denomination.is_none() {
        return Err(ApiError::invalid("denomination", "is required, as a query parameter or as a column"));
    }
    let mut vouchers = Vouchers::default();
    for (index, record) in reader.records().enumerate() {
        let row = index + 1;
        let read = record.map_err(|_| "has another number of columns than the first line, or is not CSV".to_owned());
        match read.and_then(|record| voucher(row, &record, places, denomination)) {
            Ok(voucher) => vouchers.good.push(voucher),
            Err(_) if vouchers.rejected.len() >= MAX_NAMED_ROWS => {
                return Err(ApiError::invalid("body", format!("has more than {MAX_NAMED_ROWS} bad rows")));
            }
            Err(reason) => vouchers.rejected.push((i64::try_from(row).unwrap_or(i64::MAX), reason)),
        }
    }
    Ok(vouchers)
}

fn voucher(
    row: usize,
    record: &StringRecord,
    places: [Option<usize>; 6],
    denomination: Option<Amount>,
) -> Result<(Amount, NewVoucher), String> {
    let value = |column: usize| places[column].and_then(|place| record.get(place)).filter(|value| !value.is_empty());
    let code = |column: usize, most: usize| match value(column) {
        Some(value) if value.chars().count() > most || value.chars().any(char::is_control) => {
            Err(format!("{} must be at most {most} characters, without control characters", COLUMNS[column]))
        }
        value => Ok(value.map(str::to_owned)),
    };
    let claim_url = code(3, MAX_CLAIM_URL)?;
    if let Some(url) = &claim_url {
        check_claim_url(url).map_err(|problem| format!("claim_url {problem}"))?;
    }
    let day = |text: &str| {
        let day = NaiveDate::parse_from_str(text, "%Y-%m-%d").ok().filter(|_| text.len() == 10);
        day.ok_or("expires_on must be a date such as 2026-01-31")
    };
    let face_value = match value(5) {
        Some(text) => text.parse::<Amount>().ok().filter(|amount| amount.is_positive()),
        None => denomination,
    };
    let voucher = UploadedVoucher {
        card_number: code(0, MAX_CODE)?.ok_or("card_number is required")?,
        pin: code(1, MAX_CODE)?,
        voucher_reference_number: code(2, MAX_CODE)?,
        claim_url,
        expires_on: value(4).map(day).transpose()?,
    };
    Ok((face_value.ok_or("denomination must be an amount such as 100.00")?, voucher.numbered(row)))
}

#[cfg(test)]
mod tests;
