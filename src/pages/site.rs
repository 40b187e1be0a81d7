//! The routes of the pages, and the way from a request to a response.

use std::collections::BTreeMap;
use std::future::Future;
use std::sync::Arc;

use poem::http::{HeaderValue, Method, StatusCode, header};
use poem::{EndpointExt, Request, Response, Route, RouteMethod, endpoint};
use serde_json::Value;

use super::assets;
use super::call::Refusal;
use super::outcome::{PageResult, Stop, redirect};
use super::parts::layout;
use super::progress::{Followed, Work};
use super::visit::Visit;
use crate::api::{Inner, Pages};

/// Policy of every page (CSP level 3): scripts, styles, images and forms of this service alone, and nothing inline.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; \
    form-action 'self'; base-uri 'none'; frame-ancestors 'none'";

/// Collects the routes of the pages.
pub struct Site {
    api: Inner,
    methods: BTreeMap<&'static str, Vec<Method>>,
    routes: BTreeMap<&'static str, RouteMethod>,
}

impl Site {
    pub fn new(api: Inner) -> Site {
        Site { api, methods: BTreeMap::new(), routes: BTreeMap::new() }
    }

    /// Adds a page that is read.
    #[must_use]
    pub fn get<F, R>(self, path: &'static str, handler: F) -> Site
    where
        F: Fn(Visit) -> R + Send + Sync + 'static,
        R: Future<Output = PageResult> + Send + 'static,
    {
        self.add(Method::GET, path, None, handler)
    }

    /// Adds a page that is read and whose work can take long. If it does, the page shows the progress before its content.
    #[must_use]
    pub fn get_long<F, R>(self, path: &'static str, work: &'static Work, handler: F) -> Site
    where
        F: Fn(Visit) -> R + Send + Sync + 'static,
        R: Future<Output = PageResult> + Send + 'static,
    {
        self.add(Method::GET, path, Some(work), handler)
    }

    /// Adds the target of a form.
    #[must_use]
    pub fn post<F, R>(self, path: &'static str, handler: F) -> Site
    where
        F: Fn(Visit) -> R + Send + Sync + 'static,
        R: Future<Output = PageResult> + Send + 'static,
    {
        self.add(Method::POST, path, None, handler)
    }

    /// Adds the target of a form whose work can take long. If it does, the page shows the progress before the outcome.
    #[must_use]
    pub fn post_long<F, R>(self, path: &'static str, work: &'static Work, handler: F) -> Site
    where
        F: Fn(Visit) -> R + Send + Sync + 'static,
        R: Future<Output = PageResult> + Send + 'static,
    {
        self.add(Method::POST, path, Some(work), handler)
    }

    fn add<F, R>(mut self, method: Method, path: &'static str, work: Option<&'static Work>, handler: F) -> Site
    where
        F: Fn(Visit) -> R + Send + Sync + 'static,
        R: Future<Output = PageResult> + Send + 'static,
    {
        let (api, handler) = (self.api.clone(), Arc::new(handler));
        let page = endpoint::make(move |request: Request| {
            let (api, handler) = (api.clone(), handler.clone());
            async move {
                let (path, query) = (request.uri().path().to_owned(), request.uri().query().map(ToOwned::to_owned));
                let mut visit = match Visit::read(api, request).await {
                    Ok(visit) => visit,
                    Err(refusal) => return Ok::<_, poem::Error>(refused(&path, &refusal)),
                };
                let followed = work.map(|work| Followed::new(work, &mut visit));
                let outcome = async move {
                    let page = handler(visit).await;
                    protect(page.unwrap_or_else(|stop| stopped(&path, query.as_deref(), stop)))
                };
                Ok(match followed {
                    Some(followed) => protect(followed.answer(outcome).await),
                    None => outcome.await,
                })
            }
        })
        .boxed();
        let methods = self.routes.remove(path).unwrap_or_default();
        let methods = if method == Method::GET { methods.get(page) } else { methods.method(method.clone(), page) };
        self.routes.insert(path, methods);
        self.methods.entry(path).or_default().push(method);
        self
    }

    /// Builds the routes, with those of the assets.
    pub fn finish(mut self) -> Pages {
        for (path, asset) in assets::ALL {
            self = self.get(path, move |_| std::future::ready(Ok(asset())));
        }
        let mut routes = Route::new();
        for (path, methods) in self.routes {
            routes = routes.at(path, methods);
        }
        let documented = |path: &str| {
            let segment = |segment: &str| match segment.strip_prefix(':') {
                Some(name) => format!("{{{name}}}"),
                None => segment.to_owned(),
            };
            path.split('/').map(segment).collect::<Vec<_>>().join("/")
        };
        let methods = self.methods.into_iter().map(|(path, methods)| (documented(path), methods)).collect();
        Pages { routes, methods, error_page, enrolment: layout::ENROLMENT }
    }
}

/// Renders the reason why a page stopped.
fn stopped(path: &str, query: Option<&str>, stop: Stop) -> Response {
    match stop {
        Stop::Refused(refusal) => refused(path, &refusal),
        Stop::NotFound => {
            let refusal = Refusal::new(StatusCode::NOT_FOUND, "E_NOT_FOUND", "There is nothing at this address.");
            refused(path, &refusal)
        }
        Stop::SignIn(login) => {
            let here = query.map_or_else(|| path.to_owned(), |query| format!("{path}?{query}"));
            let to: String = url::form_urlencoded::Serializer::new(String::new()).append_pair("to", &here).finish();
            redirect(&format!("{login}?{to}"))
        }
    }
}

fn refused(path: &str, refusal: &Refusal) -> Response {
    let page = layout::error_page(path, refusal.status, &refusal.as_error());
    protect(layout::refused(Response::builder().content_type("text/html; charset=utf-8").body(page), refusal))
}

/// Renders an error that occurred before a page did.
fn error_page(mut response: Response, path: &str, error: &Value) -> Response {
    let page = layout::error_page(path, response.status(), error);
    response.set_body(page);
    protect(response.set_content_type("text/html; charset=utf-8"))
}

/// Adds the headers that every response of a page has.
fn protect(mut response: Response) -> Response {
    let headers = response.headers_mut();
    headers.entry(header::CONTENT_SECURITY_POLICY).or_insert(HeaderValue::from_static(POLICY));
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers.insert(header::X_FRAME_OPTIONS, HeaderValue::from_static("DENY"));
    headers.insert(header::REFERRER_POLICY, HeaderValue::from_static("same-origin"));
    response
}
