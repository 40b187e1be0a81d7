//! The fields of a form, the JSON body that they stand for, and the key under which a form takes effect once.

use chrono::{DateTime, NaiveDate, NaiveDateTime, NaiveTime, SecondsFormat, TimeDelta, Utc};
use rust_decimal::Decimal;
use serde_json::{Map, Value};
use uuid::Uuid;

/// Name of the hidden field that makes a repeated form the same one.
pub const KEY: &str = "idempotency_key";

/// Time for which a form can be sent. The API knows a key for 24 hours, and a form that is repeated later would take effect
/// again.
const MAX_AGE: TimeDelta = TimeDelta::hours(23);

/// Creates the key of a form, under which it takes effect once. The key has the time at which the form was shown.
pub fn new_key() -> String {
    format!("form-{}", Uuid::now_v7())
}

/// Returns whether a key belongs to a form that was shown too long ago.
pub fn is_outdated(key: &str, now: DateTime<Utc>) -> bool {
    let id = key.strip_prefix("form-").and_then(|id| id.parse::<Uuid>().ok());
    let shown = id.and_then(|id| id.get_timestamp()).and_then(|at| i64::try_from(at.to_unix().0).ok());
    shown.is_some_and(|seconds| now.timestamp() - seconds > MAX_AGE.num_seconds())
}

/// Type of a field in the body of the API.
#[derive(Clone, Copy, Debug)]
pub enum Kind {
    Text,
    /// Text with the white space at its ends, such as a password.
    Exact,
    /// An exact number, which the API reads as it is written.
    Number,
}

/// The fields of a form or of a query, in their order. Values are trimmed; an empty one counts as absent.
#[derive(Clone, Debug, Default)]
pub struct Form(Vec<(String, String)>);

impl Form {
    /// Reads `application/x-www-form-urlencoded`.
    pub fn parse(encoded: &[u8]) -> Form {
        let pairs = url::form_urlencoded::parse(encoded).map(|(name, value)| (name.into_owned(), value.into_owned()));
        Form(pairs.collect())
    }

    pub fn from_pairs(pairs: Vec<(String, String)>) -> Form {
        Form(pairs)
    }

    /// Returns the first value of a field that is not empty.
    pub fn text(&self, name: &str) -> Option<&str> {
        self.0.iter().filter(|(key, _)| key == name).map(|(_, value)| value.trim()).find(|value| !value.is_empty())
    }

    /// Returns the first value of a field, or an empty text.
    pub fn value(&self, name: &str) -> &str {
        self.text(name).unwrap_or_default()
    }

    /// Returns the key of the form, or a new one if it has none.
    pub fn key(&self) -> String {
        self.text(KEY).map_or_else(new_key, ToOwned::to_owned)
    }

    /// Returns the first value of a field that is not empty, with the white space at its ends.
    pub fn exact(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(key, value)| key == name && !value.is_empty()).map(|(_, value)| value.as_str())
    }

    /// Returns all values of a field that are not empty.
    pub fn all<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a str> {
        self.0.iter().filter(move |(key, _)| key == name).map(|(_, value)| value.trim()).filter(|value| !value.is_empty())
    }

    /// Returns the fields of these names as an encoded query, for a call with the filters of a page.
    pub fn only(&self, names: &[&str]) -> String {
        let mut query = url::form_urlencoded::Serializer::new(String::new());
        names.iter().for_each(|name| _ = query.extend_pairs(self.text(name).map(|value| (*name, value))));
        query.finish()
    }

    pub fn pairs(&self) -> &[(String, String)] {
        &self.0
    }

    /// Returns a JSON object with these fields, for the body of a call. Absent fields are left out.
    ///
    /// A number is written as it was typed, so that the API reads it exactly. One that is not a number becomes a text,
    /// which the API refuses at its field.
    pub fn json(&self, fields: &[(&str, Kind)]) -> Value {
        let mut object = Map::new();
        for (name, kind) in fields {
            let value = match kind {
                Kind::Text => self.text(name).map(Value::from),
                Kind::Exact => self.exact(name).map(Value::from),
                Kind::Number => self.text(name).map(number),
            };
            object.extend(value.map(|value| ((*name).to_owned(), value)));
        }
        Value::Object(object)
    }
}

/// Returns the JSON number that a text writes, or the text. A number that JSON's usual type cannot hold exactly stays a text,
/// because the API must not read another number than the one that was typed.
pub fn number(text: &str) -> Value {
    let typed: Option<Decimal> = text.parse().ok();
    let number: Option<Value> = serde_json::from_str(text).ok().filter(Value::is_number);
    let is_exact = |number: &Value| typed.is_some() && number.to_string().parse::<Decimal>().ok() == typed;
    number.filter(is_exact).unwrap_or_else(|| text.into())
}

/// Hint of a field for a moment.
pub const MOMENT_HINT: &str = "Such as 2026-01-31 or 2026-01-31 12:00, in the time zone that you choose.";

/// Returns the moment that a text names, as a time of the API: a time with its offset, or a day or a time that `utc` reads. The
/// API refuses any other text at its field.
pub fn moment_in(text: &str, utc: impl FnOnce(NaiveDateTime) -> Option<DateTime<Utc>>) -> String {
    let day = || text.parse::<NaiveDate>().ok().map(|day| day.and_time(NaiveTime::MIN));
    let time = || ["%Y-%m-%d %H:%M", "%Y-%m-%dT%H:%M"].iter().find_map(|format| NaiveDateTime::parse_from_str(text, format).ok());
    let at = day().or_else(time).and_then(utc);
    at.map_or_else(|| text.to_owned(), |at| at.to_rfc3339_opts(SecondsFormat::Millis, true))
}

/// Returns the address of a page with these fields as its query. Empty ones are left out.
pub fn address(path: &str, fields: &[(&str, &str)]) -> String {
    let mut query = url::form_urlencoded::Serializer::new(String::new());
    query.extend_pairs(fields.iter().filter(|(_, value)| !value.is_empty()));
    format!("{path}?{}", query.finish())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_form_becomes_the_body_of_a_call() {
        let form = Form::parse(b"password=+a%20b+&product_id=7&denomination=10.50&note=+a%20b+&empty=&bad=1e");
        let fields = [
            ("product_id", Kind::Number),
            ("denomination", Kind::Number),
            ("note", Kind::Text),
            ("password", Kind::Exact),
            ("empty", Kind::Text),
            ("bad", Kind::Number),
        ];
        let json = r#"{"bad":"1e","denomination":10.50,"note":"a b","password":" a b ","product_id":7}"#;
        assert_eq!(form.json(&fields), serde_json::from_str::<Value>(json).unwrap_or_default());
    }

    #[test]
    fn a_form_can_be_sent_for_a_day() {
        let (key, now) = (new_key(), Utc::now());
        assert!(!is_outdated(&key, now) && !is_outdated(&key, now + TimeDelta::hours(22)));
        assert!(is_outdated(&key, now + TimeDelta::hours(24)));
        assert!(!is_outdated("a key of another form", now) && !is_outdated(&format!("form-{}", Uuid::new_v4()), now));
    }

    #[test]
    fn a_moment_is_a_day_or_a_time() {
        for (typed, sent) in [
            ("2026-01-31", "2026-01-31T00:00:00.000Z"),
            ("2026-01-31 12:30", "2026-01-31T12:30:00.000Z"),
            ("2026-01-31T12:30", "2026-01-31T12:30:00.000Z"),
            ("2026-01-31T12:30:00+01:00", "2026-01-31T12:30:00+01:00"),
            ("yesterday", "yesterday"),
        ] {
            assert_eq!(moment_in(typed, |local| Some(local.and_utc())), sent);
        }
    }

    #[test]
    fn a_number_is_sent_exactly_or_not_at_all() {
        for (typed, sent) in [("10.50", "10.5"), ("7", "7"), ("0.1", "0.1"), ("9223372036854775807", "9223372036854775807")] {
            assert_eq!(number(typed).to_string(), sent);
        }
        for typed in ["99999999999999999.99", "0x10", "NaN", "1_000", "\"1\"", ""] {
            assert_eq!(number(typed), Value::from(typed));
        }
    }
}
