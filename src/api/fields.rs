//! Strict reading of a JSON object: every wrong field is named at once, an unknown one is refused,
//! and what was written is what is read (no number goes through a float).

use std::borrow::Cow;

use serde::Deserialize;
use serde::de::{Deserializer, MapAccess, Visitor};
use serde_json::value::RawValue;

use super::error::{ApiError, Code};
use super::problems::{Problems, Read};

/// How deep arrays and objects may stand in each other.
const MAX_DEPTH: usize = 32;

/// Reads itself from the fields of an object. A field that is missing or wrong is noted in
/// `fields` and stands as its `Default` in a value that nobody will see.
///
/// ```ignore
/// impl FromFields for PlaceOrder {
///     fn from_fields(fields: &mut Fields<'_>) -> Self {
///         Self {
///             product_id: fields.required("product_id", integer(1..=i64::MAX)),
///             client_reference: fields.optional("client_reference", line(1..=100)),
///         }
///     }
/// }
/// ```
pub trait FromFields: Sized {
    fn from_fields(fields: &mut Fields<'_>) -> Self;
}

/// Reads a whole request body.
///
/// # Errors
/// `E_MALFORMED_JSON` for what is not UTF-8, not JSON, or nested deeper than 32;
/// `E_VALIDATION_FAILURE`, with `messages` for every field, for the rest.
pub fn parse<T: FromFields>(body: &[u8]) -> Result<T, ApiError> {
    let malformed = || ApiError::new(Code::MalformedJson);
    let text = std::str::from_utf8(body).map_err(|_| malformed())?;
    let entries = match serde_json::from_str::<Entries<'_>>(text) {
        Ok(entries) => entries,
        // Not an object: an answer about JSON only if it is not even that.
        Err(error) if error.is_data() && serde_json::from_str::<&RawValue>(text).is_ok() => {
            return Err(ApiError::invalid("body", "must be a JSON object"));
        }
        Err(_) => return Err(malformed()),
    };
    if is_too_deep(text) {
        return Err(malformed());
    }
    let mut fields = Fields::new(entries);
    let value = T::from_fields(&mut fields);
    let problems = fields.finish();
    if problems.is_empty() {
        Ok(value)
    } else {
        let mut error = ApiError::new(Code::ValidationFailure);
        error.messages = Some(problems.into_messages());
        Err(error)
    }
}

/// The fields of one object, each read at most once.
#[derive(Debug)]
pub struct Fields<'a> {
    /// `None` in place of a value that was read.
    entries: Vec<(Cow<'a, str>, Option<&'a RawValue>)>,
    problems: Problems,
}

impl<'a> Fields<'a> {
    pub(super) fn new(entries: Entries<'a>) -> Self {
        let mut problems = Problems::default();
        for name in entries.duplicates() {
            problems.add(name, "is given more than once");
        }
        let entries = entries.0.into_iter().map(|(name, value)| (name, Some(value)));
        Self { entries: entries.collect(), problems }
    }

    /// A field that must be there and not null.
    pub fn required<T, F>(&mut self, name: &str, reader: F) -> T
    where
        T: Default,
        F: FnOnce(&RawValue) -> Read<T>,
    {
        match self.nullable(name, reader) {
            Some(Some(value)) => value,
            Some(None) | None => {
                self.missing(name);
                T::default()
            }
        }
    }

    /// A field that may be left out; null is the same as left out.
    pub fn optional<T, F>(&mut self, name: &str, reader: F) -> Option<T>
    where
        F: FnOnce(&RawValue) -> Read<T>,
    {
        self.nullable(name, reader).flatten()
    }

    /// A field that may be left out (`None`) or null (`Some(None)`), and the two differ: in a PUT,
    /// null clears and an absent field stays.
    pub fn nullable<T, F>(&mut self, name: &str, reader: F) -> Option<Option<T>>
    where
        F: FnOnce(&RawValue) -> Read<T>,
    {
        let entry = self.entries.iter_mut().find(|(entry, value)| entry == name && value.is_some());
        let value = entry?.1.take()?;
        if value.get() == "null" {
            return Some(None);
        }
        match reader(value) {
            Ok(value) => Some(Some(value)),
            Err(problems) => {
                self.problems.extend(problems.under(name));
                None
            }
        }
    }

    /// Whether nothing was given, known or not.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Notes a field that must be there, unless it is wrong in another way.
    pub fn missing(&mut self, name: &str) {
        if !self.problems.has(name) {
            self.problems.add(name, "is required");
        }
    }

    /// Notes what a reader cannot see: a rule between fields, or one of the resource. The field
    /// `body` stands for all of them.
    pub fn problem(&mut self, field: &str, what: impl Into<Cow<'static, str>>) {
        self.problems.add(field, what);
    }

    /// What is wrong, the fields that nobody asked for included.
    pub(super) fn finish(mut self) -> Problems {
        for (name, value) in &self.entries {
            if self.problems.is_full() {
                break;
            }
            if value.is_some() && !self.problems.has(name) {
                self.problems.add(name, "is not a known field");
            }
        }
        self.problems
    }
}

/// The names and the raw values of an object, as they stand in its text.
pub(super) struct Entries<'a>(pub Vec<(Cow<'a, str>, &'a RawValue)>);

impl<'a> Entries<'a> {
    /// Names that stand there more than once.
    pub fn duplicates(&self) -> Vec<&str> {
        let mut names: Vec<&str> = self.0.iter().map(|(name, _)| &**name).collect();
        names.sort_unstable();
        let twice = names.windows(2).filter(|pair| pair[0] == pair[1]);
        let mut twice: Vec<&str> = twice.map(|pair| pair[0]).collect();
        twice.dedup();
        twice
    }
}

impl<'de> Deserialize<'de> for Entries<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Object;

        impl<'de> Visitor<'de> for Object {
            type Value = Entries<'de>;

            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut entries = Vec::with_capacity(8);
                while let Some((Name(name), value)) = map.next_entry()? {
                    entries.push((name, value));
                }
                Ok(Entries(entries))
            }
        }

        deserializer.deserialize_map(Object)
    }
}

/// A name, borrowed from the text unless it is written with escapes.
#[derive(Deserialize)]
struct Name<'a>(#[serde(borrow)] Cow<'a, str>);

/// Expects JSON: counts brackets outside strings.
fn is_too_deep(json: &str) -> bool {
    let (mut depth, mut in_string, mut escaped) = (0usize, false, false);
    for byte in json.bytes() {
        match byte {
            _ if escaped => escaped = false,
            b'\\' => escaped = in_string,
            b'"' => in_string = !in_string,
            b'[' | b'{' if !in_string => {
                depth += 1;
                if depth > MAX_DEPTH {
                    return true;
                }
            }
            b']' | b'}' if !in_string => depth -= 1,
            _ => {}
        }
    }
    false
}
