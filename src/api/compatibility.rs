//! Breaking changes between two OpenAPI documents, as defined in the specification's "Versioning": paths, fields, their
//! types and enums stay; additions are allowed.

mod schema;

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

/// A breaking change: its place in the document and a description.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Breaking {
    pub place: String,
    pub what: String,
    /// Whether only the validation of input is affected. Such a change breaks nobody if the input was already refused.
    pub is_stricter_input: bool,
}

impl std::fmt::Display for Breaking {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {}", self.place, self.what)
    }
}

/// Returns every breaking change from the document `old` to the document `new`, sorted and without duplicates.
pub fn breaking_changes(old: &Value, new: &Value) -> Vec<Breaking> {
    let mut comparison = Comparison { old, new, found: BTreeSet::new(), compared: BTreeSet::new() };
    comparison.security_schemes();
    comparison.paths();
    comparison.webhooks();
    comparison.found.into_iter().collect()
}

/// Returns the signature test vectors of `old` that are missing or changed in `new`, as kind and name. New vectors are
/// allowed.
pub fn lost_vectors(old: &Value, new: &Value) -> Vec<String> {
    let kinds = entries(old).filter_map(|(kind, vectors)| Some((kind, vectors.as_array()?)));
    let lost = kinds.flat_map(|(kind, vectors)| {
        let kept = new[kind].as_array();
        let lost = vectors.iter().filter(move |vector| !kept.is_some_and(|kept| kept.contains(vector)));
        lost.map(move |vector| format!("{kind} {}", vector["name"]))
    });
    lost.collect()
}

/// Sender of the data that a schema describes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Sent {
    ByClients,
    ByUs,
}

struct Comparison<'a> {
    old: &'a Value,
    new: &'a Value,
    found: BTreeSet<Breaking>,
    /// Pairs of schemas already compared, by memory address and nullability. A schema can contain itself, and each pair
    /// is reported once.
    compared: BTreeSet<(usize, usize, bool, bool, Sent)>,
}

/// Follows a `$ref` to the value that it points to. Any other value is returned as it is.
fn resolve<'a>(document: &'a Value, value: &'a Value) -> &'a Value {
    let place = value.get("$ref").and_then(Value::as_str).and_then(|reference| reference.strip_prefix('#'));
    place.and_then(|place| document.pointer(place)).map_or(value, |found| resolve(document, found))
}

fn entries(value: &Value) -> impl Iterator<Item = (&String, &Value)> {
    value.as_object().into_iter().flatten()
}

fn list(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

/// Replaces parameter names in a path: paths that differ only in these names are the same path.
fn template(path: &str) -> String {
    let segment = |segment| if str::starts_with(segment, '{') { "{}" } else { segment };
    path.split('/').map(segment).collect::<Vec<_>>().join("/")
}

impl<'a> Comparison<'a> {
    fn breaks(&mut self, place: &str, what: impl Into<String>) {
        self.found.insert(Breaking { place: place.to_owned(), what: what.into(), is_stricter_input: false });
    }

    fn tightens(&mut self, place: &str, what: impl Into<String>) {
        self.found.insert(Breaking { place: place.to_owned(), what: what.into(), is_stricter_input: true });
    }

    fn security_schemes(&mut self) {
        let (old, new) = (self.old, self.new);
        for (name, scheme) in entries(&old["components"]["securitySchemes"]) {
            let now = &new["components"]["securitySchemes"][name];
            if ["type", "in", "name", "scheme"].iter().any(|key| scheme[key] != now[key]) {
                self.breaks(name, "the security scheme is gone or has changed");
            }
        }
    }

    fn paths(&mut self) {
        let (old, new) = (self.old, self.new);
        let now: BTreeMap<String, &Value> = entries(&new["paths"]).map(|(path, item)| (template(path), item)).collect();
        for (path, item) in entries(&old["paths"]) {
            for (method, operation) in entries(item) {
                let place = format!("{} {path}", method.to_uppercase());
                match now.get(&template(path)).and_then(|item| item.get(method)) {
                    Some(now) => self.operation(&place, operation, now),
                    None => self.breaks(&place, "the endpoint is gone"),
                }
            }
        }
    }

    fn webhooks(&mut self) {
        let (old, new) = (self.old, self.new);
        for (event, item) in entries(&old["webhooks"]) {
            let (before, now) = (&item["post"], &new["webhooks"][event]["post"]);
            if now.is_null() {
                self.breaks(event, "the webhook event is gone");
                continue;
            }
            let (before_headers, now_headers) = (parameters(old, before), parameters(new, now));
            for (name, header) in before_headers {
                match now_headers.get(&name) {
                    Some(now) => self.schema(&format!("{event} {name}"), &header["schema"], &now["schema"], Sent::ByUs),
                    None => self.breaks(event, format!("the {name} is gone")),
                }
            }
            self.content(event, &before["requestBody"], &now["requestBody"], Sent::ByUs);
        }
    }

    fn operation(&mut self, place: &str, before: &'a Value, now: &'a Value) {
        self.security(place, before, now);
        self.parameters(place, before, now);
        let (was, is) = (resolve(self.old, &before["requestBody"]), resolve(self.new, &now["requestBody"]));
        match (was.is_object(), is.is_object()) {
            (true, false) => self.breaks(place, "the request body is gone"),
            (true, true) => {
                if was["required"] != true && is["required"] == true {
                    self.breaks(place, "the request body was optional and is required");
                }
                self.content(place, was, is, Sent::ByClients);
            }
            (false, true) if is["required"] == true => self.breaks(place, "a request body is required"),
            (false, _) => {}
        }
        self.responses(place, before, now);
    }

    /// Checks that each accepted combination of credentials stays sufficient.
    fn security(&mut self, place: &str, before: &Value, now: &Value) {
        let names = |entry: &Value| entries(entry).map(|(name, _)| name.clone()).collect::<BTreeSet<_>>();
        let ways: Vec<_> = list(&now["security"]).map(names).collect();
        if list(&before["security"]).next().is_none() && !ways.is_empty() && !ways.iter().any(BTreeSet::is_empty) {
            self.breaks(place, "it was open to all and needs credentials");
        }
        for way in list(&before["security"]).map(names) {
            if !ways.is_empty() && !ways.iter().any(|now| now.is_subset(&way)) {
                let way: Vec<_> = way.into_iter().collect();
                self.breaks(place, format!("{} no longer suffices", way.join(" and ")));
            }
        }
    }

    fn parameters(&mut self, place: &str, before: &'a Value, now: &'a Value) {
        let (was, is) = (parameters(self.old, before), parameters(self.new, now));
        for (name, parameter) in &was {
            let Some(now) = is.get(name) else {
                self.breaks(place, format!("the {name} is gone"));
                continue;
            };
            if parameter["required"] != true && now["required"] == true {
                self.breaks(place, format!("the {name} was optional and is required"));
            }
            self.schema(&format!("{place} {name}"), &parameter["schema"], &now["schema"], Sent::ByClients);
        }
        for (name, _) in is.iter().filter(|(name, parameter)| parameter["required"] == true && !was.contains_key(*name)) {
            self.breaks(place, format!("the {name} is new and required"));
        }
    }

    fn responses(&mut self, place: &str, before: &'a Value, now: &'a Value) {
        if before["responses"].get("410").is_none() && now["responses"].get("410").is_some() {
            self.breaks(place, "it answers 410");
        }
        for (status, response) in entries(&before["responses"]) {
            let place = format!("{place} {status}");
            let Some(now) = now["responses"].get(status) else {
                // Removing an error breaks no client.
                if status.starts_with('2') {
                    self.breaks(&place, "the answer is gone");
                }
                continue;
            };
            let (response, now) = (resolve(self.old, response), resolve(self.new, now));
            for (name, header) in entries(&response["headers"]) {
                let Some(now) = now["headers"].get(name) else {
                    self.breaks(&place, format!("the header {name} is gone"));
                    continue;
                };
                let (header, now) = (resolve(self.old, header), resolve(self.new, now));
                self.schema(&format!("{place} {name}"), &header["schema"], &now["schema"], Sent::ByUs);
            }
            self.content(&place, response, now, Sent::ByUs);
        }
    }

    /// Compares the media types of a body.
    fn content(&mut self, place: &str, before: &'a Value, now: &'a Value, sent: Sent) {
        for (media_type, content) in entries(&before["content"]) {
            match now["content"].get(media_type) {
                Some(now) => self.schema(place, &content["schema"], &now["schema"], sent),
                None => self.breaks(place, format!("{media_type} is gone")),
            }
        }
    }
}

/// Returns an operation's parameters by a readable name, such as `query parameter page`. Path parameters are numbered, as
/// their names do not matter to clients. Header names are case-insensitive.
fn parameters<'a>(document: &'a Value, operation: &'a Value) -> BTreeMap<String, &'a Value> {
    let mut named = BTreeMap::new();
    let mut in_path = 0;
    for parameter in list(&operation["parameters"]).map(|parameter| resolve(document, parameter)) {
        let name = parameter["name"].as_str().unwrap_or_default();
        let name = match parameter["in"].as_str() {
            Some("path") => {
                in_path += 1;
                format!("path parameter {in_path}")
            }
            Some("header") => format!("header {}", name.to_ascii_lowercase()),
            place => format!("{} parameter {name}", place.unwrap_or_default()),
        };
        named.insert(name, parameter);
    }
    named
}

#[cfg(test)]
mod tests;
