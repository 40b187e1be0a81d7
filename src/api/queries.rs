//! Rejection of unknown query parameters, in the same way as unknown fields of a body. The known names come from the
//! published documents, so no operation has to repeat them.

use std::sync::Arc;

use poem::http::Method;
use poem::{Endpoint, Middleware, Request, Result};
use serde_json::Value;

use super::allow::matches;
use super::error::{ApiError, Code};
use super::problems::Problems;

/// An operation of a document, with the names of its query parameters.
#[derive(Debug, PartialEq, Eq)]
struct Operation {
    path: String,
    /// HTTP method in lower case.
    method: String,
    /// Whether its handler starts with a `Caller`, which rejects the unknown parameters.
    has_caller: bool,
    names: Vec<String>,
}

/// A middleware that knows the operations of OpenAPI documents. It wraps the routes and is inside of authentication.
#[derive(Debug, Clone)]
pub struct KnownQueries(Arc<[Operation]>);

impl KnownQueries {
    /// Collects the operations from the documents' `paths`.
    pub fn of_documents(documents: &[&Value]) -> Self {
        let mut operations = vec![];
        for (path, methods) in documents.iter().filter_map(|document| document["paths"].as_object()).flatten() {
            for (method, operation) in methods.as_object().into_iter().flatten() {
                let parameters = operation["parameters"].as_array().into_iter().flatten();
                let of_query = parameters.filter(|parameter| parameter["in"] == "query");
                operations.push(Operation {
                    path: path.clone(),
                    method: method.clone(),
                    has_caller: operation["security"].as_array().is_some_and(|schemes| !schemes.is_empty()),
                    names: of_query.filter_map(|parameter| parameter["name"].as_str()).map(ToOwned::to_owned).collect(),
                });
            }
        }
        Self(operations.into())
    }

    /// Returns the operation that the router calls for a path.
    fn of(&self, method: &Method, path: &str) -> Option<&Operation> {
        let method = if *method == Method::HEAD { "GET" } else { method.as_str() };
        let of_method = self.0.iter().filter(|operation| operation.method.eq_ignore_ascii_case(method));
        let mut found = of_method.filter(|operation| matches(&operation.path, path));
        // As in the router, a literal segment takes precedence over a parameter.
        let first = found.next()?;
        Some(found.fold(first, |best, other| if parameters(&other.path) < parameters(&best.path) { other } else { best }))
    }
}

/// Counts the segments of a path that are parameters.
fn parameters(template: &str) -> usize {
    template.split('/').filter(|segment| segment.starts_with('{')).count()
}

/// The unknown query parameters of a request. The request's extensions carry them to `Caller`, which reports them only
/// after it has authorized the caller. So an unauthorized caller learns nothing about an operation's parameters.
#[derive(Debug, Clone)]
pub struct UnknownParameters(Vec<String>);

impl UnknownParameters {
    /// Rejects the request.
    ///
    /// # Errors
    /// Always 400 `E_VALIDATION_FAILURE`, naming each unknown parameter.
    pub fn refuse(&self) -> Result<(), ApiError> {
        let mut problems = Problems::default();
        for name in &self.0 {
            problems.add(name, "is not a known parameter");
        }
        let mut error = ApiError::new(Code::ValidationFailure);
        error.messages = Some(problems.into_messages());
        Err(error)
    }
}

impl<E: Endpoint> Middleware<E> for KnownQueries {
    type Output = QueriesChecked<E>;

    fn transform(&self, inner: E) -> Self::Output {
        QueriesChecked { known: self.clone(), inner }
    }
}

/// An endpoint wrapped by [`KnownQueries`].
#[derive(Debug)]
pub struct QueriesChecked<E> {
    known: KnownQueries,
    inner: E,
}

impl<E: Endpoint> Endpoint for QueriesChecked<E> {
    type Output = E::Output;

    async fn call(&self, mut request: Request) -> Result<Self::Output> {
        if let Some(query) = request.uri().query().filter(|query| !query.is_empty())
            && let Some(operation) = self.known.of(request.method(), request.uri().path())
        {
            let mut unknown: Vec<String> = vec![];
            for (name, _) in url::form_urlencoded::parse(query.as_bytes()) {
                if !operation.names.iter().any(|known| **known == *name) && !unknown.iter().any(|known| **known == *name) {
                    unknown.push(name.into_owned());
                }
            }
            if !unknown.is_empty() {
                let unknown = UnknownParameters(unknown);
                if !operation.has_caller {
                    unknown.refuse()?;
                }
                request.extensions_mut().insert(unknown);
            }
        }
        self.inner.call(request).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn known_queries_find_the_operation_that_the_router_calls() {
        let page = json!([{"name": "page", "in": "query"}, {"name": "id", "in": "path"}]);
        let operations = KnownQueries::of_documents(&[&json!({"paths": {
            "/hooks": {"get": {"security": [{"Key": []}], "parameters": page}, "post": {"security": [{"Key": []}]}},
            "/hooks/{id}": {"get": {"security": []}},
            "/hooks/sent": {"get": {"security": [], "parameters": page}},
            "/hooks/{id}/{version}": {"get": {}},
            "/hooks/sent/{id}": {"get": {}},
        }})]);
        let of = |method, path| operations.of(&method, path);
        let shown = |method, path| of(method, path).map(|found| (found.path.as_str(), found.names.len(), found.has_caller));
        assert_eq!(shown(Method::GET, "/hooks"), Some(("/hooks", 1, true)));
        assert_eq!(shown(Method::HEAD, "/hooks"), Some(("/hooks", 1, true)));
        assert_eq!(shown(Method::POST, "/hooks"), Some(("/hooks", 0, true)));
        assert_eq!(shown(Method::GET, "/hooks/7"), Some(("/hooks/{id}", 0, false)));
        assert_eq!(shown(Method::GET, "/hooks/sent"), Some(("/hooks/sent", 1, false)));
        assert_eq!(shown(Method::GET, "/hooks/sent/7"), Some(("/hooks/sent/{id}", 0, false)));
        assert_eq!(shown(Method::PUT, "/hooks"), None);
        assert_eq!(shown(Method::GET, "/elsewhere"), None);
    }
}
