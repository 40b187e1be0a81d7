//! Comparison of two versions of a schema.

use serde_json::Value;

use super::{Comparison, Sent, entries, list, resolve};

/// A schema with nullability split off.
struct Shape<'a> {
    parts: &'a Value,
    may_be_null: bool,
}

impl<'a> Comparison<'a> {
    pub(super) fn schema(&mut self, place: &str, before: &'a Value, now: &'a Value, sent: Sent) {
        let (was, is) = (shape(self.old, before), shape(self.new, now));
        let place_of = |shape: &Shape<'_>| std::ptr::from_ref(shape.parts) as usize;
        if !self.compared.insert((place_of(&was), place_of(&is), was.may_be_null, is.may_be_null, sent)) {
            return;
        }
        match (was.may_be_null, is.may_be_null) {
            (true, false) => self.breaks(place, "was optional and is required: it may not be null"),
            // In responses, null is another type. In requests, null means optional.
            (false, true) if sent == Sent::ByUs => self.breaks(place, "may be null"),
            _ => {}
        }
        let (was, is) = (was.parts, is.parts);
        let (old_types, new_types) = (types(was), types(is));
        if old_types != new_types {
            self.breaks(place, format!("its type was {} and is {}", old_types.join(" or "), new_types.join(" or ")));
            return;
        }
        if was["format"] != is["format"] {
            self.breaks(place, format!("its format was {} and is {}", was["format"], is["format"]));
        }
        self.enumeration(place, was, is);
        if sent == Sent::ByClients {
            self.bounds(place, was, is);
        } else if was["pattern"] != is["pattern"] {
            self.breaks(place, "its pattern has changed");
        }
        self.fields(place, was, is, sent);
        for key in ["allOf", "anyOf", "oneOf"] {
            let (was, is): (Vec<_>, Vec<_>) = (list(&was[key]).collect(), list(&is[key]).collect());
            if is.len() < was.len() || was.is_empty() && !is.is_empty() {
                self.breaks(place, format!("its {key} has different parts"));
            }
            was.into_iter().zip(is).for_each(|(was, is)| self.schema(place, was, is, sent));
        }
        match (was["items"].is_object(), is["items"].is_object()) {
            (true, true) => self.schema(&format!("{place}[]"), &was["items"], &is["items"], sent),
            (true, false) if sent == Sent::ByUs => self.breaks(place, "the type of its items is no longer given"),
            _ => {}
        }
    }

    fn enumeration(&mut self, place: &str, was: &Value, is: &Value) {
        match (was["enum"].as_array(), is["enum"].as_array()) {
            (Some(was), Some(is)) => {
                for value in was.iter().filter(|value| !is.contains(value)) {
                    self.breaks(place, format!("the value {value} is gone"));
                }
            }
            (Some(_), None) => self.breaks(place, "is no longer an enum"),
            (None, Some(_)) => self.breaks(place, "takes only the values of an enum"),
            (None, None) => {}
        }
    }

    /// Checks that input accepted before is still accepted.
    fn bounds(&mut self, place: &str, was: &Value, is: &Value) {
        let limit = |schema: &Value, key: &str| schema[key].as_f64();
        for key in ["minimum", "exclusiveMinimum", "minLength", "minItems", "minProperties"] {
            if limit(is, key).is_some_and(|now| limit(was, key).is_none_or(|before| now > before)) {
                self.tightens(place, format!("its {key} is {}", is[key]));
            }
        }
        for key in ["maximum", "exclusiveMaximum", "maxLength", "maxItems", "maxProperties"] {
            if limit(is, key).is_some_and(|now| limit(was, key).is_none_or(|before| now < before)) {
                self.tightens(place, format!("its {key} is {}", is[key]));
            }
        }
        for key in ["pattern", "multipleOf"] {
            if !is[key].is_null() && was[key] != is[key] {
                self.tightens(place, format!("its {key} is {}", is[key]));
            }
        }
        if is["uniqueItems"] == true && was["uniqueItems"] != true {
            self.tightens(place, "its items must be unique");
        }
        if is["additionalProperties"] == false && was["additionalProperties"] != false {
            self.tightens(place, "takes no other fields");
        }
    }

    fn fields(&mut self, place: &str, was: &'a Value, is: &'a Value, sent: Sent) {
        let required = |schema: &Value, name: &str| list(&schema["required"]).any(|required| required == name);
        for (name, field) in entries(&was["properties"]) {
            let place = format!("{place} {name}");
            let Some(now) = is["properties"].get(name) else {
                self.breaks(&place, "the field is gone");
                continue;
            };
            if !required(was, name) && required(is, name) {
                self.breaks(&place, "was optional and is required");
            }
            self.schema(&place, field, now, sent);
        }
        for (name, _) in entries(&is["properties"]) {
            if sent == Sent::ByClients && was["properties"].get(name).is_none() && required(is, name) {
                self.breaks(&format!("{place} {name}"), "the field is new and required");
            }
        }
        if was["additionalProperties"].is_object() && is["additionalProperties"].is_object() {
            self.schema(&format!("{place} {{}}"), &was["additionalProperties"], &is["additionalProperties"], sent);
        }
    }
}

/// Resolves a schema's references and splits off nullability.
fn shape<'a>(document: &'a Value, schema: &'a Value) -> Shape<'a> {
    let schema = resolve(document, schema);
    let is_null = |schema: &Value| schema["type"] == "null";
    let options: Vec<_> = list(&schema["anyOf"]).collect();
    if let [option, null] = options.as_slice()
        && is_null(null)
    {
        return Shape { may_be_null: true, ..shape(document, option) };
    }
    if let [part] = list(&schema["allOf"]).collect::<Vec<_>>().as_slice()
        && schema["properties"].is_null()
    {
        return shape(document, part);
    }
    let may_be_null = list(&schema["type"]).any(|kind| kind == "null");
    Shape { parts: schema, may_be_null }
}

/// Returns the names of a schema's types without `null`, sorted.
fn types(schema: &Value) -> Vec<&str> {
    let kinds = &schema["type"];
    let mut names: Vec<&str> = kinds.as_str().into_iter().chain(list(kinds).filter_map(Value::as_str)).collect();
    names.retain(|name| *name != "null");
    names.sort_unstable();
    names
}
