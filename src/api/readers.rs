//! Readers that parse one JSON value each, for [`Fields`]. Each one defines the accepted values, their limits in the
//! published document, and the error messages for all others.

use std::ops::RangeInclusive;

use chrono::{DateTime, NaiveDate, Utc};
use poem_openapi::registry::{MetaSchema, Registry};
use poem_openapi::types::{ParseFromParameter, Type};
use rust_decimal::Decimal;
use serde_json::Value;
use serde_json::value::RawValue;

use super::fields::{Entries, Fields, FromFields, describe};
use super::limits::{Limited, Limits, Reader};
use super::problems::{Problems, Read};
use super::scalars::{JsonObject, Money, Number};

/// Reads an integer within the range. `1.0` and `1e3` are integers, as JSON Schema defines them.
pub fn integer<T>(range: RangeInclusive<T>) -> Limited<impl FnOnce(&RawValue) -> Read<T>>
where
    T: Copy + Into<i64> + TryFrom<i64>,
{
    let (least, most): (i64, i64) = ((*range.start()).into(), (*range.end()).into());
    let maximum = i32::try_from(most).ok().filter(|most| *most < i32::MAX);
    let limits = Limits { minimum: i32::try_from(least).ok(), maximum, ..Limits::default() };
    let read = move |value: &RawValue| -> Read<T> {
        let text = value.get();
        if !is_number(text) {
            return Err("must be an integer".into());
        }
        // Most integers are written plainly, and need no decimal. A number that fits neither is out of range like any other.
        let number = match text.parse::<i64>() {
            Ok(number) => Some(number),
            Err(_) => match decimal(text, Decimal::MAX_SCALE, &(Decimal::MIN..=Decimal::MAX)) {
                Ok(number) if !number.fract().is_zero() => return Err("must be an integer".into()),
                number => number.ok().and_then(|number| i64::try_from(number).ok()),
            },
        };
        let number = number.filter(|number| (least..=most).contains(number)).and_then(|number| T::try_from(number).ok());
        number.ok_or_else(|| match most == i64::MAX {
            true => format!("must be at least {least}").into(),
            false => format!("must be between {least} and {most}").into(),
        })
    };
    Limited { read, limits }
}

/// Reads an id that the document states no limit of.
pub fn id(value: &RawValue) -> Read<i64> {
    integer(1..=i64::MAX).read(value)
}

/// Reads a JSON number within the range that has at most `decimals` decimals as written.
pub fn number(decimals: u32, range: RangeInclusive<Decimal>) -> impl FnOnce(&RawValue) -> Read<Number> {
    move |value| {
        let text = value.get();
        if !is_number(text) {
            return Err("must be a number".into());
        }
        decimal(text, decimals, &range).map(Number)
    }
}

/// Reads an amount of money within the range: a string such as `"100.00"` or a JSON number, with at most two decimals.
pub fn money(range: RangeInclusive<Decimal>) -> impl FnOnce(&RawValue) -> Read<Money> {
    move |value| {
        let expected = "must be an amount such as \"100.00\"";
        let unquoted = string(value).ok();
        let text = unquoted.as_deref().unwrap_or(value.get());
        if unquoted.is_some() && !is_plain_decimal(text) || unquoted.is_none() && !is_number(text) {
            return Err(expected.into());
        }
        decimal(text, 2, &range).map(Money)
    }
}

/// Reads text whose number of characters is within `length`. NUL is not allowed.
pub fn text(length: RangeInclusive<usize>) -> Limited<impl FnOnce(&RawValue) -> Read<String>> {
    let (min_length, max_length) = (Some(*length.start()).filter(|least| *least > 0), Some(*length.end()));
    let read = move |value: &RawValue| bounded(string(value)?, &length);
    Limited { read, limits: Limits { min_length, max_length, ..Limits::default() } }
}

/// Reads one line of text whose number of characters is within `length`. Control characters are not allowed.
pub fn line(length: RangeInclusive<usize>) -> Limited<impl FnOnce(&RawValue) -> Read<String>> {
    text(length).and(|text: String| match text.chars().any(char::is_control) {
        true => Err("must not contain control characters".into()),
        false => Ok(text),
    })
}

pub fn boolean(value: &RawValue) -> Read<bool> {
    match value.get() {
        "true" => Ok(true),
        "false" => Ok(false),
        _ => Err("must be true or false".into()),
    }
}

/// Reads a value of an enum by the name that the document publishes.
pub fn one_of<T: ParseFromParameter>(value: &RawValue) -> Read<T> {
    let text = string(value)?;
    T::parse_from_parameter(&text).map_err(|_| {
        let mut registry = Registry::new();
        T::register(&mut registry);
        let published = registry.schemas.remove(&*T::name()).unwrap_or(MetaSchema::ANY).enum_items;
        let names: Vec<&str> = published.iter().filter_map(Value::as_str).collect();
        format!("must be one of {}", names.join(", ")).into()
    })
}

/// Reads a list whose number of entries is within `length`. `reader` makes the reader of each entry. The document states
/// the smallest number of entries, and the limits of entries that are objects.
pub fn list<T, R: Reader<T>>(
    length: RangeInclusive<usize>,
    reader: impl Fn() -> R,
) -> Limited<impl FnOnce(&RawValue) -> Read<Vec<T>>> {
    let min_items = Some(*length.start()).filter(|least| *least > 0);
    let limits = Limits { min_items, nested: reader().limits().nested, ..Limits::default() };
    let read = move |value: &RawValue| -> Read<Vec<T>> {
        let values: Vec<&RawValue> = serde_json::from_str(value.get()).map_err(|_| Problems::from("must be a list"))?;
        let count = values.len();
        if !length.contains(&count) {
            let (least, most) = (length.start(), length.end());
            return Err(format!("must have {least} to {most} entries, has {count}").into());
        }
        let mut read = Vec::with_capacity(count);
        let mut problems = Problems::default();
        for (index, value) in values.into_iter().enumerate() {
            match reader().read(value) {
                Ok(value) => read.push(value),
                Err(found) => problems.extend(found.under(&format!("[{index}]"))),
            }
            if problems.is_full() {
                break;
            }
        }
        if problems.is_empty() { Ok(read) } else { Err(problems) }
    };
    Limited { read, limits }
}

/// Reads a nested object, alone or in a [`list`].
pub fn object<T: FromFields + Type>() -> Limited<impl FnOnce(&RawValue) -> Read<T>> {
    let read = |value: &RawValue| -> Read<T> {
        let entries: Entries<'_> = serde_json::from_str(value.get()).map_err(|_| Problems::from("must be an object"))?;
        let mut fields = Fields::new(entries);
        let read = T::from_fields(&mut fields);
        let problems = fields.finish();
        if problems.is_empty() { Ok(read) } else { Err(problems.under(".")) }
    };
    Limited { read, limits: Limits { nested: Some(describe::<T>), ..Limits::default() } }
}

/// Reads any JSON object whose canonical form has at most `max_bytes` bytes.
pub fn json_object(max_bytes: usize) -> impl FnOnce(&RawValue) -> Read<JsonObject> {
    move |value| {
        if !value.get().starts_with('{') {
            return Err("must be an object".into());
        }
        let mut text = String::with_capacity(value.get().len());
        canonical(value, &mut text)?;
        match text.len() <= max_bytes {
            true => Ok(JsonObject(text)),
            false => Err(format!("must be at most {max_bytes} bytes of JSON").into()),
        }
    }
}

/// Reads a date of the form `YYYY-MM-DD`.
pub fn date(value: &RawValue) -> Read<NaiveDate> {
    let expected = "must be a date such as 2026-01-31";
    let text = string(value).map_err(|_| Problems::from(expected))?;
    let shaped = text.len() == 10
        && text.bytes().enumerate().all(|(at, byte)| match at {
            4 | 7 => byte == b'-',
            _ => byte.is_ascii_digit(),
        });
    let date = shaped.then(|| text.parse().ok()).flatten();
    date.ok_or_else(|| expected.into())
}

/// Reads an RFC 3339 time with any offset.
pub fn date_time<T: From<DateTime<Utc>>>(value: &RawValue) -> Read<T> {
    let text = string(value).ok();
    let time = text.and_then(|text| DateTime::parse_from_rfc3339(&text).ok());
    time.map(|time| time.with_timezone(&Utc).into()).ok_or_else(|| "must be a time such as 2026-01-31T12:00:00Z".into())
}

/// Reads a string. NUL is not allowed, because Postgres cannot store it. Lone surrogates are not valid Unicode.
fn string(value: &RawValue) -> Read<String> {
    if !value.get().starts_with('"') {
        return Err("must be a string".into());
    }
    match serde_json::from_str::<String>(value.get()) {
        Ok(text) if text.contains('\0') => Err("must not contain the character NUL".into()),
        Ok(text) => Ok(text),
        Err(_) => Err("is not valid Unicode".into()),
    }
}

fn bounded(text: String, length: &RangeInclusive<usize>) -> Read<String> {
    let count = text.chars().count();
    match length.contains(&count) {
        true => Ok(text),
        false if count == 0 => Err("must not be empty".into()),
        false => {
            let (least, most) = (length.start(), length.end());
            Err(format!("must be {least} to {most} characters long, is {count}").into())
        }
    }
}

/// Returns whether valid JSON is a number. No other kind of value begins with a digit or a minus.
fn is_number(json: &str) -> bool {
    json.starts_with(|first: char| first == '-' || first.is_ascii_digit())
}

/// Returns whether text has the form of money in a string: `-?digits(.digits)?`.
fn is_plain_decimal(text: &str) -> bool {
    let digits = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
    let text = text.strip_prefix('-').unwrap_or(text);
    match text.split_once('.') {
        Some((whole, fraction)) => digits(whole) && digits(fraction),
        None => digits(text),
    }
}

/// Parses the text of a JSON number exactly, without floats or rounding.
fn decimal(text: &str, decimals: u32, range: &RangeInclusive<Decimal>) -> Read<Decimal> {
    let out_of_range = || match *range.end() == Decimal::MAX {
        true => Problems::from(format!("must be at least {}", range.start())),
        false => format!("must be between {} and {}", range.start(), range.end()).into(),
    };
    let (base, exponent) = match text.split_once(['e', 'E']) {
        Some((base, exponent)) => (base, exponent.parse::<i32>().map_err(|_| out_of_range())?),
        None => (text, 0),
    };
    let (whole, fraction) = base.split_once('.').unwrap_or((base, ""));
    let scale = i64::try_from(fraction.len()).unwrap_or(i64::MAX) - i64::from(exponent);
    if scale > i64::from(decimals) {
        return Err(format!("must have at most {decimals} decimals").into());
    }
    let mut digits: i128 = format!("{whole}{fraction}").parse().map_err(|_| out_of_range())?;
    if scale < 0 && digits != 0 {
        let power = u32::try_from(-scale).ok().and_then(|up| 10i128.checked_pow(up));
        digits = power.and_then(|power| digits.checked_mul(power)).ok_or_else(out_of_range)?;
    }
    let scale = u32::try_from(scale).unwrap_or(0);
    match Decimal::try_from_i128_with_scale(digits, scale) {
        Ok(number) if range.contains(&number) => Ok(number),
        _ => Err(out_of_range()),
    }
}

/// Writes the canonical form of a value: no spaces, sorted names, as few escapes as possible, and numbers as written.
/// Two texts of the same value have the same canonical form.
fn canonical(value: &RawValue, out: &mut String) -> Result<(), Problems> {
    let json = value.get();
    match json.as_bytes().first() {
        Some(b'{') => {
            let mut entries: Entries<'_> = serde_json::from_str(json).map_err(|_| Problems::from("is not valid Unicode"))?;
            if let Some(name) = entries.duplicates().first() {
                return Err(Problems::from("is given more than once").under(&format!(".{name}")));
            }
            entries.0.sort_unstable_by(|(a, _), (b, _)| a.cmp(b));
            out.push('{');
            for (index, (name, value)) in entries.0.iter().enumerate() {
                if index > 0 {
                    out.push(',');
                }
                push_string(name, out)?;
                out.push(':');
                let under = |problems: Problems| problems.under(&format!(".{name}"));
                canonical(value, out).map_err(under)?;
            }
            out.push('}');
        }
        Some(b'[') => {
            let values: Vec<&RawValue> = serde_json::from_str(json).map_err(|_| Problems::from("is not a list"))?;
            out.push('[');
            for (index, value) in values.into_iter().enumerate() {
                if index > 0 {
                    out.push(',');
                }
                let under = |problems: Problems| problems.under(&format!("[{index}]"));
                canonical(value, out).map_err(under)?;
            }
            out.push(']');
        }
        Some(b'"') => push_string(&string(value)?, out)?,
        // A number outside the range of f64 cannot be returned to clients later.
        _ if is_number(json) && serde_json::from_str::<f64>(json).is_err() => {
            return Err("is a number out of range".into());
        }
        _ => out.push_str(json),
    }
    Ok(())
}

fn push_string(text: &str, out: &mut String) -> Result<(), Problems> {
    if text.contains('\0') {
        return Err("must not contain the character NUL".into());
    }
    let quoted = serde_json::to_string(text).map_err(|_| Problems::from("is not valid Unicode"))?;
    out.push_str(&quoted);
    Ok(())
}
