//! Strict parsing of a JSON object. It reports all invalid fields at once, rejects unknown fields, and reads values
//! exactly as written: no number is converted to a float.

use std::borrow::Cow;

use poem_openapi::registry::Registry;
use poem_openapi::types::Type;
use serde::Deserialize;
use serde::de::{Deserializer, MapAccess, Visitor};
use serde_json::value::RawValue;

use super::error::{ApiError, Code};
use super::limits::{Limits, Reader};
use super::problems::Problems;

/// Maximum nesting depth of arrays and objects.
const MAX_DEPTH: usize = 32;

/// A type that is read from the fields of an object. For a missing or invalid field, `fields` records the problem and the
/// value gets its `Default`. Nobody uses such a value, because the whole request is rejected.
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

/// Declares a body: a struct, and the reader of each field, which also gives the document its limits. `as` names a field
/// whose name in JSON differs. `check` names a function that records problems between fields.
macro_rules! body {
    ($(#[$($meta:tt)*])* $visible:vis struct $body:ident {
        $($(#[$($note:tt)*])* $public:vis $field:ident $(as $name:literal)?: $type:ty = $read:ident($reader:expr),)*
    } $(check $check:path)?) => {
        $(#[$($meta)*])*
        $visible struct $body { $($(#[$($note)*])* $public $field: $type,)* }

        impl $crate::api::fields::FromFields for $body {
            fn from_fields(fields: &mut $crate::api::fields::Fields<'_>) -> Self {
                let body = Self { $($field: fields.$read([$($name,)? stringify!($field)][0], $reader),)* };
                $($check(&body, fields);)?
                body
            }
        }
    };
}
pub(crate) use body;

/// Parses a whole request body.
///
/// # Errors
/// `E_MALFORMED_JSON` if the body is not UTF-8, not JSON, or nested deeper than 32 levels. `E_VALIDATION_FAILURE`, with
/// `messages` for every invalid field, otherwise.
pub fn parse<T: FromFields>(body: &[u8]) -> Result<T, ApiError> {
    let malformed = || ApiError::new(Code::MalformedJson);
    let text = std::str::from_utf8(body).map_err(|_| malformed())?;
    let entries = match serde_json::from_str::<Entries<'_>>(text) {
        Ok(entries) => entries,
        // The body is valid JSON, but not an object.
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

/// Adds the limits of the readers to the schema of a body, so that they are declared once. Reads an empty object.
pub fn describe<T: FromFields + Type>(registry: &mut Registry) {
    let mut fields = Fields { limits: Some(vec![]), ..Fields::new(Entries(vec![])) };
    _ = T::from_fields(&mut fields);
    for (field, limits) in fields.limits.unwrap_or_default() {
        limits.describe(registry, &T::name(), &field);
    }
}

/// The fields of one object, each read at most once.
#[derive(Debug)]
pub struct Fields<'a> {
    /// Names and values in the order of the text. A value is `None` once it has been read.
    entries: Vec<(Cow<'a, str>, Option<&'a RawValue>)>,
    problems: Problems,
    /// Limits of the fields that are read, if they are to be described.
    limits: Option<Vec<(String, Limits)>>,
}

impl<'a> Fields<'a> {
    pub(super) fn new(entries: Entries<'a>) -> Self {
        let mut problems = Problems::default();
        for name in entries.duplicates() {
            problems.add(name, "is given more than once");
        }
        let entries = entries.0.into_iter().map(|(name, value)| (name, Some(value)));
        Self { entries: entries.collect(), problems, limits: None }
    }

    /// Reads a field that must be present and not null.
    pub fn required<T, F>(&mut self, name: &str, reader: F) -> T
    where
        T: Default,
        F: Reader<T>,
    {
        match self.nullable(name, reader) {
            Some(Some(value)) => value,
            Some(None) | None => {
                self.missing(name);
                T::default()
            }
        }
    }

    /// Reads a field that may be absent. Null counts as absent.
    pub fn optional<T, F>(&mut self, name: &str, reader: F) -> Option<T>
    where
        F: Reader<T>,
    {
        self.nullable(name, reader).flatten()
    }

    /// Reads a field that may be absent (`None`) or null (`Some(None)`), where the two differ. In a PUT, null clears the
    /// field, and an absent field keeps its value.
    pub fn nullable<T, F>(&mut self, name: &str, reader: F) -> Option<Option<T>>
    where
        F: Reader<T>,
    {
        if let Some(limits) = &mut self.limits {
            limits.push((name.to_owned(), reader.limits()));
        }
        let entry = self.entries.iter_mut().find(|(entry, value)| entry == name && value.is_some());
        let value = entry?.1.take()?;
        if value.get() == "null" {
            return Some(None);
        }
        match reader.read(value) {
            Ok(value) => Some(Some(value)),
            Err(problems) => {
                self.problems.extend(problems.under(name));
                None
            }
        }
    }

    /// Records a problem if the object has no fields, known or unknown.
    pub fn require_any(&mut self) {
        if self.entries.is_empty() {
            self.problem("body", "must contain at least one field");
        }
    }

    /// Records that a required field is missing, unless another problem with it is recorded already.
    pub fn missing(&mut self, name: &str) {
        if !self.problems.has(name) {
            self.problems.add(name, "is required");
        }
    }

    /// Records a problem that the reader of a single field cannot see, such as a rule between fields or of the resource.
    /// The field name `body` stands for the whole object.
    pub fn problem(&mut self, field: &str, what: impl Into<Cow<'static, str>>) {
        self.problems.add(field, what);
    }

    /// Returns all problems, including one for each unknown field.
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

/// The names and raw values of an object, in the order of its text.
pub(super) struct Entries<'a>(pub Vec<(Cow<'a, str>, &'a RawValue)>);

impl<'a> Entries<'a> {
    /// Returns the names that occur more than once, each once.
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

/// A field name, borrowed from the text unless it contains escapes.
#[derive(Deserialize)]
struct Name<'a>(#[serde(borrow)] Cow<'a, str>);

/// Returns whether valid JSON is nested deeper than [`MAX_DEPTH`]. Counts the brackets outside strings.
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
