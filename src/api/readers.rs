//! Readers of one JSON value each, for [`Fields`]: what is accepted, and what is said otherwise.

use std::ops::RangeInclusive;

use chrono::{DateTime, NaiveDate, Utc};
use rust_decimal::Decimal;
use serde_json::value::RawValue;

use super::fields::{Entries, Fields, FromFields};
use super::problems::{Problems, Read};
use super::scalars::{JsonObject, Money, Number};

/// A whole number within the range. `1.0` and `1e3` are not whole numbers.
pub fn integer(range: RangeInclusive<i64>) -> impl FnOnce(&RawValue) -> Read<i64> {
    move |value| {
        let text = value.get();
        if !is_number(text) || text.contains(['.', 'e', 'E']) {
            return Err("must be an integer".into());
        }
        // What does not fit 64 bits is as far out of the range as anything else outside it.
        match text.parse() {
            Ok(number) if range.contains(&number) => Ok(number),
            _ if *range.end() == i64::MAX => Err(format!("must be at least {}", range.start()).into()),
            _ => Err(format!("must be between {} and {}", range.start(), range.end()).into()),
        }
    }
}

/// A JSON number with at most `decimals` decimals as written, within the range.
pub fn number(decimals: u32, range: RangeInclusive<Decimal>) -> impl FnOnce(&RawValue) -> Read<Number> {
    move |value| {
        let text = value.get();
        if !is_number(text) {
            return Err("must be a number".into());
        }
        decimal(text, decimals, &range).map(Number)
    }
}

/// Money: a string such as `"100.00"`, or a JSON number; at most two decimals, within the range.
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

/// Text of so many characters, without NUL.
pub fn text(length: RangeInclusive<usize>) -> impl FnOnce(&RawValue) -> Read<String> {
    move |value| bounded(string(value)?, &length)
}

/// Text of so many characters on one line: without control characters.
pub fn line(length: RangeInclusive<usize>) -> impl FnOnce(&RawValue) -> Read<String> {
    move |value| {
        let text = bounded(string(value)?, &length)?;
        match text.chars().any(char::is_control) {
            true => Err("must not contain control characters".into()),
            false => Ok(text),
        }
    }
}

pub fn boolean(value: &RawValue) -> Read<bool> {
    match value.get() {
        "true" => Ok(true),
        "false" => Ok(false),
        _ => Err("must be true or false".into()),
    }
}

/// One of the given strings, for what it stands.
pub fn one_of<T: Copy>(options: &[(&str, T)]) -> impl FnOnce(&RawValue) -> Read<T> {
    move |value| {
        let text = string(value)?;
        let option = options.iter().find(|(name, _)| *name == text);
        option.map(|(_, meaning)| *meaning).ok_or_else(|| {
            let names: Vec<&str> = options.iter().map(|(name, _)| *name).collect();
            format!("must be one of {}", names.join(", ")).into()
        })
    }
}

/// A list of so many values; each is read by what `reader` makes for it.
pub fn list<T, F>(length: RangeInclusive<usize>, reader: impl Fn() -> F) -> impl FnOnce(&RawValue) -> Read<Vec<T>>
where
    F: FnOnce(&RawValue) -> Read<T>,
{
    move |value| {
        let values: Vec<&RawValue> = serde_json::from_str(value.get()).map_err(|_| Problems::from("must be a list"))?;
        let count = values.len();
        if !length.contains(&count) {
            let (least, most) = (length.start(), length.end());
            return Err(format!("must have {least} to {most} entries, has {count}").into());
        }
        let mut read = Vec::with_capacity(count);
        let mut problems = Problems::default();
        for (index, value) in values.into_iter().enumerate() {
            match reader()(value) {
                Ok(value) => read.push(value),
                Err(found) => problems.extend(found.under(&format!("[{index}]"))),
            }
            if problems.is_full() {
                break;
            }
        }
        if problems.is_empty() { Ok(read) } else { Err(problems) }
    }
}

/// An object with fields of its own, to be used in a [`list`] or alone.
pub fn object<T: FromFields>(value: &RawValue) -> Read<T> {
    let entries: Entries<'_> = serde_json::from_str(value.get()).map_err(|_| Problems::from("must be an object"))?;
    let mut fields = Fields::new(entries);
    let read = T::from_fields(&mut fields);
    let problems = fields.finish();
    if problems.is_empty() { Ok(read) } else { Err(problems.under(".")) }
}

/// Any JSON object of at most so many bytes, counted in its canonical form.
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

/// `YYYY-MM-DD`.
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

/// RFC 3339, with any offset.
pub fn date_time(value: &RawValue) -> Read<DateTime<Utc>> {
    let text = string(value).ok();
    let time = text.and_then(|text| DateTime::parse_from_rfc3339(&text).ok());
    time.map(|time| time.with_timezone(&Utc)).ok_or_else(|| "must be a time such as 2026-01-31T12:00:00Z".into())
}

/// A string without NUL, which Postgres cannot keep. Lone surrogates are not text.
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

/// Of the kinds of JSON values, only a number begins like one.
fn is_number(json: &str) -> bool {
    json.starts_with(|first: char| first == '-' || first.is_ascii_digit())
}

/// `-?digits(.digits)?`, the form of money in a string.
fn is_plain_decimal(text: &str) -> bool {
    let digits = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
    let text = text.strip_prefix('-').unwrap_or(text);
    match text.split_once('.') {
        Some((whole, fraction)) => digits(whole) && digits(fraction),
        None => digits(text),
    }
}

/// Reads a JSON number's text exactly: no float, no rounding.
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

/// Writes a value without spaces, names sorted, strings with the fewest escapes, and numbers as
/// they came: two texts of one value are the same text.
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
        // A number that no reader could hold would be a body that cannot be shown again.
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
