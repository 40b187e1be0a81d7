//! Lines of a bank statement in any format, and the reader for CSV statements.

use std::collections::HashMap;

use chrono::NaiveDate;
use csv::{ReaderBuilder, StringRecord, Trim};
use rust_decimal::Decimal;
use serde::{Deserialize, Serialize};

use crate::amount;
use crate::xml::XmlError;

/// Maximum number of lines in a statement.
pub const MAX_LINES: usize = 50_000;

/// Longest kept reference or text of a line, in characters. Longer ones are cut.
const MAX_TEXT: usize = 1_000;

/// Reason why a file is not a valid statement. The message never repeats the file's content.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LineError {
    /// The file as a whole is not a statement.
    #[error("{0}")]
    File(&'static str),
    /// The file is not acceptable XML.
    #[error("{0}")]
    Xml(XmlError),
    /// A row is wrong. `row` counts rows and entries from 1, excluding the header row.
    #[error("row {row} {problem}")]
    Row { row: usize, problem: &'static str },
    /// The file lacks a column.
    #[error("has no column {0:?}")]
    Column(String),
    /// A column that is read has a name that another one has, too.
    #[error("has more than one column {0:?}")]
    Columns(String),
}

/// Direction of money, as the bank's customer sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum Direction {
    /// The money came in.
    Credit,
    /// The money went out.
    Debit,
}

impl Direction {
    /// Returns `CREDIT` or `DEBIT`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Credit => "CREDIT",
            Self::Debit => "DEBIT",
        }
    }
}

/// Function that decides whether lines may have a currency, given as three capital letters.
pub type IsCurrency = fn(&str) -> bool;

/// Reads a currency: three capital letters that the caller accepts.
pub(crate) fn currency(code: &str, is_currency: IsCurrency) -> Result<String, &'static str> {
    let is_code = code.len() == 3 && code.bytes().all(|byte| byte.is_ascii_uppercase());
    if is_code && is_currency(code) { Ok(code.to_owned()) } else { Err("has a currency that is not accepted") }
}

/// A booking on the bank's side: money that moved.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BankLine {
    /// Number of the line, from 1, in the order of the statement.
    pub number: i32,
    pub booked_on: NaiveDate,
    /// Amount with exactly two decimals, always more than zero; `direction` gives the sign. Its JSON form is a decimal string
    /// such as `"12.50"`.
    #[serde(with = "amount")]
    pub amount: Decimal,
    /// Code of three capital letters (ISO 4217).
    pub currency: String,
    pub direction: Direction,
    /// Set when the line reverses an earlier booking of the opposite direction.
    pub is_reversal: bool,
    /// References that a payment is known by, the payment's own first.
    pub references: Vec<String>,
    /// Text that the payer wrote.
    pub text: Option<String>,
    /// Bank account of the booking without spaces and in upper case, if known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub account: Option<String>,
}

impl BankLine {
    /// Returns the text that identifies the same line in two files: everything but its number and its account. Not every
    /// file states the account, so callers compare accounts separately.
    pub fn identity(&self) -> String {
        let BankLine { booked_on, amount, currency, direction, is_reversal, references, text, .. } = self;
        let direction = direction.as_str();
        format!(
            "{booked_on}\n{amount} {currency} {direction} {is_reversal}\n{}\n{}",
            references.join("\n"),
            text.as_deref().unwrap_or_default()
        )
    }
}

/// Normalizes a bank account, because files write it differently: removes spaces and converts to upper case. Returns none
/// for an empty text.
pub(crate) fn account(text: &str) -> Option<String> {
    let account: String = text.chars().filter(|c| !c.is_whitespace() && *c != '\0').take(MAX_TEXT).collect();
    if account.is_empty() { None } else { Some(account.to_uppercase()) }
}

/// Returns whether lines of these accounts may belong to the same account. An unknown account matches any.
pub fn may_be_one_account(one: Option<&str>, other: Option<&str>) -> bool {
    one.is_none() || other.is_none() || one == other
}

/// Returns the identities of lines. Equal lines of one account in one file are distinguished by a counter.
pub fn identities(lines: &[BankLine]) -> Vec<String> {
    let mut seen: HashMap<(Option<&str>, String), usize> = HashMap::new();
    let mut identities = Vec::with_capacity(lines.len());
    for line in lines {
        let identity = line.identity();
        let times = seen.entry((line.account.as_deref(), identity.clone())).or_default();
        *times += 1;
        identities.push(format!("{times}\n{identity}"));
    }
    identities
}

/// Checks the number of lines.
///
/// # Errors
/// Returns an error when there are more than [`MAX_LINES`].
pub(crate) fn bounded(lines: &[BankLine]) -> Result<(), LineError> {
    if lines.len() > MAX_LINES { Err(LineError::File("has more than 50,000 lines: import it in parts")) } else { Ok(()) }
}

/// Numbers the lines, and cuts their references and texts to [`MAX_TEXT`].
pub(crate) fn numbered(lines: Vec<BankLine>) -> Result<Vec<BankLine>, LineError> {
    bounded(&lines)?;
    if lines.is_empty() {
        return Err(LineError::File("has no booked lines"));
    }
    let cut = |text: String| text.chars().filter(|c| *c != '\0').take(MAX_TEXT).collect::<String>();
    let numbered = lines.into_iter().zip(1..).map(|(line, number)| BankLine {
        number,
        references: line.references.into_iter().map(cut).collect(),
        text: line.text.map(cut),
        ..line
    });
    Ok(numbered.collect())
}

/// Format of a CSV file: the names of its columns and the notation of its values.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Columns {
    /// Column with the booking day.
    pub date: String,
    /// Column with the amount.
    pub amount: String,
    /// Column with the currency. Optional if [`Columns::default_currency`] is set.
    pub currency: String,
    /// Column with the reference of the payment.
    pub reference: String,
    /// Column with `CREDIT`, `DEBIT` or a synonym. Without this column, the sign of the amount decides.
    pub direction: String,
    /// Column with the text that the payer wrote. It may be missing.
    pub text: String,
    /// Column with the bank account of the booking. Required in the file if set.
    pub account: Option<String>,
    /// Currency of lines without one.
    pub default_currency: Option<String>,
    /// Bank account of lines without one.
    pub default_account: Option<String>,
    /// Date format of `strftime`, such as `%Y-%m-%d`.
    pub date_format: String,
    /// Amounts use a decimal comma, as in `1.234,56`.
    pub is_decimal_comma: bool,
    /// Delimiter between columns. Defaults to whichever of `,`, `;` and tab occurs most often in the first line.
    pub delimiter: Option<u8>,
}

impl Default for Columns {
    fn default() -> Columns {
        Columns {
            date: "date".to_owned(),
            amount: "amount".to_owned(),
            currency: "currency".to_owned(),
            reference: "reference".to_owned(),
            direction: "direction".to_owned(),
            text: "text".to_owned(),
            account: None,
            default_currency: None,
            default_account: None,
            date_format: "%Y-%m-%d".to_owned(),
            is_decimal_comma: false,
            delimiter: None,
        }
    }
}

/// Parses a CSV statement with a header row.
///
/// # Errors
/// See [`LineError`].
pub fn from_csv(text: &str, columns: &Columns, is_currency: IsCurrency) -> Result<Vec<BankLine>, LineError> {
    let text = text.trim_start_matches('\u{feff}');
    let first = text.lines().next().unwrap_or_default();
    let most = [b',', b';', b'\t'].into_iter().max_by_key(|d| first.bytes().filter(|byte| byte == d).count());
    let delimiter = columns.delimiter.or(most).unwrap_or(b',');
    let mut reader = ReaderBuilder::new().delimiter(delimiter).trim(Trim::All).from_reader(text.as_bytes());
    let names = reader.headers().map_err(|_| LineError::File("is not CSV"))?.clone();
    // A duplicate name is ambiguous for a column that is read. Other columns may have any name, any number of times.
    let place = |wanted: &String| {
        let mut places = (0..).zip(&names).filter(|(_, name)| name.eq_ignore_ascii_case(wanted)).map(|(place, _)| place);
        match (places.next(), places.next()) {
            (place, None) => Ok(place),
            _ => Err(LineError::Columns(wanted.clone())),
        }
    };
    let needed = |wanted: &String| place(wanted)?.ok_or_else(|| LineError::Column(wanted.clone()));
    let places = Places {
        date: needed(&columns.date)?,
        amount: needed(&columns.amount)?,
        currency: if columns.default_currency.is_some() { place(&columns.currency)? } else { Some(needed(&columns.currency)?) },
        reference: needed(&columns.reference)?,
        direction: place(&columns.direction)?,
        text: place(&columns.text)?,
        account: columns.account.as_ref().map(needed).transpose()?,
    };
    let mut lines = vec![];
    for (record, row) in reader.records().zip(1..) {
        let wrong = |problem| LineError::Row { row, problem };
        let record = record.map_err(|_| wrong("has another number of columns than the first line, or is not CSV"))?;
        lines.extend(line(&record, &places, columns, is_currency).map_err(wrong)?);
        bounded(&lines)?;
    }
    numbered(lines)
}

struct Places {
    date: usize,
    amount: usize,
    currency: Option<usize>,
    reference: usize,
    direction: Option<usize>,
    text: Option<usize>,
    account: Option<usize>,
}

/// Parses a row. Returns none for an amount of zero.
fn line(
    record: &StringRecord,
    places: &Places,
    columns: &Columns,
    is_currency: IsCurrency,
) -> Result<Option<BankLine>, &'static str> {
    let value = |place: usize| record.get(place).filter(|value| !value.is_empty());
    let date = value(places.date).ok_or("has no date")?;
    let booked_on =
        NaiveDate::parse_from_str(date, &columns.date_format).map_err(|_| "has a date that does not match the date format")?;
    let amount = amount(value(places.amount).ok_or("has no amount")?, columns.is_decimal_comma)?;
    let currency = match (places.currency.and_then(value), &columns.default_currency) {
        (Some(text), _) => currency(&text.to_ascii_uppercase(), is_currency)?,
        (None, Some(code)) => currency(code, is_currency)?,
        (None, None) => return Err("has no currency"),
    };
    let (is_negative, positive) = (amount < Decimal::ZERO, amount.abs());
    if positive.is_zero() {
        return Ok(None);
    }
    let direction = match places.direction.and_then(value) {
        None if is_negative => Direction::Debit,
        None => Direction::Credit,
        Some(_) if is_negative => return Err("has an amount below zero beside a direction"),
        Some(text) => match text.to_ascii_uppercase().as_str() {
            "CREDIT" | "CRDT" | "C" | "CR" | "IN" | "+" => Direction::Credit,
            "DEBIT" | "DBIT" | "D" | "DR" | "OUT" | "-" => Direction::Debit,
            _ => return Err("has a direction other than CREDIT and DEBIT"),
        },
    };
    Ok(Some(BankLine {
        number: 0,
        booked_on,
        amount: positive,
        currency,
        direction,
        is_reversal: false,
        references: value(places.reference).map(str::to_owned).into_iter().collect(),
        text: places.text.and_then(value).map(str::to_owned),
        account: places.account.and_then(value).or(columns.default_account.as_deref()).and_then(account),
    }))
}

/// Parses an amount. Thousands separators must stand between complete groups of three digits, or be absent. Accepting
/// them anywhere would multiply an amount in the other notation by a hundred.
fn amount(text: &str, is_decimal_comma: bool) -> Result<Decimal, &'static str> {
    const WRONG: &str =
        "has an amount that is not written like 1,234.56 (1.234,56 with a decimal comma), or has more than two decimals";
    let (group, point) = if is_decimal_comma { ('.', ',') } else { (',', '.') };
    let (sign, unsigned) = match text.strip_prefix('-') {
        Some(unsigned) => ("-", unsigned),
        None => ("", text.strip_prefix('+').unwrap_or(text)),
    };
    let (whole, decimals) = match unsigned.trim_start().split_once(point) {
        Some((whole, decimals)) => (whole, Some(decimals)),
        None => (unsigned.trim_start(), None),
    };
    let is_separator = |c: char| c == group || c == '\'' || c.is_whitespace();
    let groups: Vec<&str> = match whole.chars().find(|c| is_separator(*c)) {
        Some(separator) => whole.split(separator).collect(),
        None => vec![whole],
    };
    let are_digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let are_groups = match &*groups {
        [_] => true,
        [first, rest @ ..] => first.len() <= 3 && rest.iter().all(|group| group.len() == 3),
        [] => false,
    };
    if !are_groups || !groups.iter().copied().chain(decimals).all(are_digits) {
        return Err(WRONG);
    }
    amount::parse(&format!("{sign}{}.{}", groups.concat(), decimals.unwrap_or("0"))).ok_or(WRONG)
}

#[cfg(test)]
mod tests;
