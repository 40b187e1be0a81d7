//! Readers of one value, and the limits of the values that they accept. The published document states these limits.

use poem_openapi::registry::{MetaSchema, Registry};
use serde_json::value::RawValue;

use super::problems::Read;

/// A reader of one value.
pub trait Reader<T> {
    fn read(self, value: &RawValue) -> Read<T>;

    /// Returns the limits that the published document states.
    fn limits(&self) -> Limits {
        Limits::default()
    }
}

impl<T, F: FnOnce(&RawValue) -> Read<T>> Reader<T> for F {
    fn read(self, value: &RawValue) -> Read<T> {
        self(value)
    }
}

/// A reader whose limits the published document states.
#[derive(Debug)]
pub struct Limited<F> {
    pub(super) read: F,
    pub(super) limits: Limits,
}

impl<T, F: FnOnce(&RawValue) -> Read<T>> Reader<T> for Limited<F> {
    fn read(self, value: &RawValue) -> Read<T> {
        (self.read)(value)
    }

    fn limits(&self) -> Limits {
        self.limits
    }
}

impl<F> Limited<F> {
    /// Adds a check or a conversion of the value. The document states the same limits.
    pub fn and<T, U>(self, then: impl FnOnce(T) -> Read<U>) -> Limited<impl FnOnce(&RawValue) -> Read<U>>
    where
        F: FnOnce(&RawValue) -> Read<T>,
    {
        let Limited { read, limits } = self;
        Limited { read: move |value: &RawValue| then(read(value)?), limits }
    }
}

/// Limits of a value. A limit of 0 items or characters, and a maximum that follows from a type, are none.
#[derive(Clone, Copy, Debug, Default)]
pub struct Limits {
    pub(super) minimum: Option<i32>,
    pub(super) maximum: Option<i32>,
    pub(super) min_length: Option<usize>,
    pub(super) max_length: Option<usize>,
    pub(super) min_items: Option<usize>,
    /// Adds the limits of the fields of a nested object.
    pub(super) nested: Option<fn(&mut Registry)>,
}

impl Limits {
    /// Adds the limits to the schema of a field.
    pub(super) fn describe(self, registry: &mut Registry, schema: &str, field: &str) {
        if let Some(nested) = self.nested {
            nested(registry);
        }
        let schema = registry.schemas.get_mut(schema);
        let Some((_, property)) = schema.and_then(|schema| schema.properties.iter_mut().find(|(name, _)| *name == field)) else {
            return;
        };
        let described = MetaSchema {
            minimum: self.minimum.map(f64::from),
            maximum: self.maximum.map(f64::from),
            min_length: self.min_length,
            max_length: self.max_length,
            min_items: self.min_items,
            ..MetaSchema::ANY
        };
        *property = property.clone().merge(described);
    }
}
