//! Methods of each path, for the `Allow` header that a 405 must carry (RFC 9110, 15.5.6), and the templates of the paths.

use std::collections::HashMap;
use std::sync::{Arc, PoisonError, RwLock};

use serde_json::Value;

/// Suffix of a path template whose last parameter matches all remaining segments.
const REST: &str = "/{place}";

/// The paths of an OpenAPI document with their methods. Cheap to clone. They are read to answer a 405, and to name the route of a
/// request in metrics and spans.
#[derive(Debug, Clone, Default)]
pub struct Methods {
    paths: Arc<[(String, String)]>,
    /// Templates by the router's pattern, which are found once for each pattern.
    templates: Arc<RwLock<HashMap<Arc<str>, Arc<str>>>>,
}

impl Methods {
    /// Collects paths and methods from the document's `paths`.
    pub fn of_document(document: &Value) -> Self {
        let paths = document["paths"].as_object().into_iter().flatten();
        let line = |(path, operations): (&String, &Value)| {
            let mut methods = Vec::new();
            for method in operations.as_object()?.keys() {
                match method.as_str() {
                    "get" => methods.extend(["GET".to_owned(), "HEAD".to_owned()]),
                    "put" | "post" | "delete" | "patch" => methods.push(method.to_uppercase()),
                    _ => {}
                }
            }
            Some((path.clone(), methods.join(", ")))
        };
        Self { paths: paths.filter_map(line).collect(), templates: Arc::default() }
    }

    /// Returns the methods of a path, such as `GET, HEAD, POST`, or `None` for an unknown path. Trailing slashes are
    /// ignored.
    pub fn of(&self, path: &str) -> Option<String> {
        let path = path.trim_end_matches('/');
        // A literal segment takes precedence over a parameter, as in the router.
        let mut found = self.paths.iter().filter(|(template, _)| matches(template, path));
        let best = found.clone().find(|(template, _)| template == path);
        best.or_else(|| found.next()).map(|(_, methods)| methods.clone())
    }

    /// Returns the template of a pattern of the router, which names the parameters of the API by numbers: `/orders/{id}` for
    /// `/orders/:param0`. A pattern that the document does not have keeps its names.
    pub fn template(&self, pattern: &Arc<str>) -> Arc<str> {
        if let Some(template) = self.templates.read().unwrap_or_else(PoisonError::into_inner).get(pattern) {
            return template.clone();
        }
        let template: Arc<str> = self.find_template(pattern).into();
        self.templates.write().unwrap_or_else(PoisonError::into_inner).insert(pattern.clone(), template.clone());
        template
    }

    fn find_template(&self, pattern: &str) -> String {
        let is_parameter = |template: &str, given: &str| template.starts_with('{') && given.starts_with(':');
        let is_same = |template: &str, given: &str| template == given || is_parameter(template, given);
        let is_of = |template: &str| {
            template.split('/').count() == pattern.split('/').count()
                && template.split('/').zip(pattern.split('/')).all(|(template, given)| is_same(template, given))
        };
        if let Some((template, _)) = self.paths.iter().find(|(template, _)| is_of(template)) {
            return template.clone();
        }
        let segment = |given: &str| given.strip_prefix(':').map_or_else(|| given.to_owned(), |name| format!("{{{name}}}"));
        pattern.split('/').map(segment).collect::<Vec<_>>().join("/")
    }
}

/// Returns whether a path matches a path template.
pub(super) fn matches(template: &str, path: &str) -> bool {
    let segment = |(template, given): (&str, &str)| template == given || (template.starts_with('{') && !given.is_empty());
    let (named, given) = (template.split('/').count(), path.split('/').count());
    (named == given || named < given && template.ends_with(REST)) && template.split('/').zip(path.split('/')).all(segment)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn methods_are_found_by_template() {
        let methods = Methods::of_document(&json!({"paths": {
            "/orders": {"get": {}, "post": {}, "parameters": []},
            "/orders/{id}": {"get": {}},
            "/orders/{id}/cancel": {"post": {}},
            "/products/images": {"get": {}},
            "/products/{id}": {"put": {}},
            "/tile/{place}": {"get": {}},
        }}));
        let of = |path| methods.of(path).unwrap_or_default();
        assert_eq!(of("/orders"), "GET, HEAD, POST");
        assert_eq!(of("/orders//"), "GET, HEAD, POST");
        assert_eq!(of("/orders/7"), "GET, HEAD");
        assert_eq!(of("/orders/7/cancel"), "POST");
        assert_eq!(of("/products/images"), "GET, HEAD");
        assert_eq!(of("/products/7"), "PUT");
        assert_eq!(of("/tile/0/x001/000"), "GET, HEAD");
        assert_eq!(of("/tile"), "");
        assert_eq!(of("/elsewhere"), "");
    }

    #[test]
    fn templates_are_found_by_the_routers_pattern() {
        let methods =
            Methods::of_document(&json!({"paths": {"/orders": {}, "/orders/{id}": {}, "/orders/{id}/items/{item}": {}}}));
        for (pattern, template) in [
            ("/orders", "/orders"),
            ("/orders/:param0", "/orders/{id}"),
            ("/orders/:param0/items/:param1", "/orders/{id}/items/{item}"),
            ("/portal/orders/:order", "/portal/orders/{order}"),
            ("/orders/:param0/items", "/orders/{param0}/items"),
        ] {
            for _ in 0..2 {
                assert_eq!(&*methods.template(&pattern.into()), template);
            }
        }
    }
}
