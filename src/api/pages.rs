//! The place of the pages in the HTTP interface. They are routes of their own beside the API, and their errors are pages.

use poem::http::{Method, StatusCode, header};
use poem::{Endpoint, Middleware, Request, Response, Result, Route};
use serde_json::{Map, Value, json};

use super::edge::enveloped;
use super::error::Code;
use super::inner::Inner;
use super::surface::is_page;

/// Pages to serve, with everything that the API must know of them.
pub struct Pages {
    pub routes: Route,
    /// Paths as in an OpenAPI document, with their methods.
    pub methods: Vec<(String, Vec<Method>)>,
    /// Renders an error that occurred before a page did.
    pub error_page: ErrorPage,
    /// Path of the page where an owner enrols who must have a second factor.
    pub enrolment: &'static str,
}

/// Renders an error into its response, which has the status: path of the request, and the `error` of the envelope.
pub type ErrorPage = fn(Response, &str, &Value) -> Response;

impl std::fmt::Debug for Pages {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Pages").field("methods", &self.methods.len()).finish_non_exhaustive()
    }
}

impl Pages {
    /// Returns the paths with their methods, in the form of an OpenAPI document's `paths`.
    pub(super) fn paths(&self) -> Map<String, Value> {
        let operations = |methods: &[Method]| -> Map<String, Value> {
            methods.iter().map(|method| (method.as_str().to_ascii_lowercase(), json!({}))).collect()
        };
        self.methods.iter().map(|(path, methods)| (path.clone(), Value::Object(operations(methods)))).collect()
    }
}

/// Endpoint that calls the pages for their paths, and the API for all others.
pub(super) struct WithPages {
    pub pages: Option<Route>,
    pub api: Inner,
}

impl Endpoint for WithPages {
    type Output = Response;

    async fn call(&self, request: Request) -> Result<Response> {
        match &self.pages {
            Some(pages) if is_page(request.uri().path()) => pages.call(request).await,
            _ => self.api.call(request).await,
        }
    }
}

/// Middleware that renders the errors of the pages' paths as pages, and leads an owner who must enrol to the enrolment.
#[derive(Debug, Clone, Copy)]
pub(super) struct ErrorPages(pub Option<(ErrorPage, &'static str)>);

impl<E: Endpoint<Output = Response>> Middleware<E> for ErrorPages {
    type Output = ErrorPagesEndpoint<E>;

    fn transform(&self, inner: E) -> Self::Output {
        ErrorPagesEndpoint { inner, pages: self.0 }
    }
}

/// Endpoint that [`ErrorPages`] wraps around another one.
#[derive(Debug)]
pub(super) struct ErrorPagesEndpoint<E> {
    inner: E,
    pages: Option<(ErrorPage, &'static str)>,
}

impl<E: Endpoint<Output = Response>> Endpoint for ErrorPagesEndpoint<E> {
    type Output = Response;

    async fn call(&self, request: Request) -> Result<Response> {
        let page = self.pages.filter(|_| is_page(request.uri().path())).map(|pages| (pages, request.uri().path().to_owned()));
        let answered = self.inner.call(request).await;
        let Some(((error_page, enrolment), path)) = page else { return answered };
        let error = match answered {
            Ok(response) => return Ok(response),
            // The edge adds `Allow`.
            Err(error) if error.is::<poem::error::MethodNotAllowedError>() => return Err(error),
            Err(error) => error,
        };
        let mut response = enveloped(error);
        let body = response.take_body().into_bytes().await.unwrap_or_default();
        let envelope: Value = serde_json::from_slice(&body).unwrap_or_default();
        if envelope["error"]["code"] == Code::TwoFactorEnrolment.as_str() {
            return Ok(Response::builder().status(StatusCode::SEE_OTHER).header(header::LOCATION, enrolment).finish());
        }
        let error = match &envelope["error"] {
            // Above a rate limit, the body is flat.
            Value::String(code) => &json!({"code": code, "message": envelope["message"]}),
            error => error,
        };
        Ok(error_page(response, &path, error))
    }
}
