//! Successful responses: `{"success": true, "data": ...}`, rendered here or stored by the ledger.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::marker::PhantomData;

use chrono::Utc;
use poem::http::{HeaderName, HeaderValue, StatusCode, header};
use poem::{IntoResponse, Response};
use poem_openapi::ApiResponse;
use poem_openapi::registry::{MetaHeader, MetaMediaType, MetaResponse, MetaResponses, MetaSchema, MetaSchemaRef, Registry};
use poem_openapi::types::Type;
use serde::Serialize;
use webhook_client::sender::{X_SIGNATURE, X_TIMESTAMP};
use webhook_client::signature;

use super::audit_log::{Kind, note};
use super::error::{ApiError, JSON, documented_header};
use super::page::Page;
use crate::secrets::seal::Secret;

#[derive(Serialize)]
struct Wrapper<'a, T> {
    success: bool,
    data: &'a T,
}

/// Renders `{"success": true, "data": ...}`, for a body that is stored and later sent byte for byte. It serializes the
/// fields directly, without a tree of values, and writes free-form JSON as received.
///
/// # Errors
/// If free-form JSON is not valid JSON.
pub fn render<T: Serialize>(data: &T) -> Result<String, serde_json::Error> {
    render_in(1024, data)
}

/// Renders as [`render`] does, with a buffer for the expected number of bytes.
fn render_in<T: Serialize>(expected: usize, data: &T) -> Result<String, serde_json::Error> {
    let mut body = Vec::with_capacity(expected);
    serde_json::to_writer(&mut body, &Wrapper { success: true, data })?;
    String::from_utf8(body).map_err(serde::ser::Error::custom)
}

/// A 200 with `data`.
#[derive(Debug)]
pub struct Reply<T>(pub T);

/// A 201 with `data`: the created resource.
#[derive(Debug)]
pub struct Created<T>(pub T);

/// A 202 with `data`: a resource that something else must happen to first.
#[derive(Debug)]
pub struct Accepted<T>(pub T);

/// A 200 with `data`. If there is a secret, it signs the body as it signs the body of a webhook.
#[derive(Debug)]
pub struct Signed<T> {
    pub data: T,
    pub secret: Option<Secret>,
}

/// A resource with a name for lists of it: the field `data.<plural>`.
pub trait Plural: Type + Serialize {
    const PLURAL: &'static str;
}

/// A 200 with one page of a list in `data.<plural>`, and the headers `X-Page`, `X-Total-Count`, `X-Total-Pages` and
/// `X-Page-Size`.
#[derive(Debug)]
pub struct Listed<T> {
    items: Vec<T>,
    page: Page,
    total: u64,
}

impl<T: Plural> Listed<T> {
    /// Creates one page of a list that has `total` items on all pages.
    pub fn page(items: Vec<T>, page: Page, total: u64) -> Self {
        Self { items, page, total }
    }

    /// Creates a list without pagination: all items are on page 1.
    pub fn whole(items: Vec<T>) -> Self {
        let total = items.len() as u64;
        Self { items, page: Page { page: 1, limit: total.max(1) }, total }
    }

    /// Estimates the size of the body in bytes from its first item. Without the estimate, a long body would be copied each
    /// time that its buffer grows.
    fn expected(&self) -> Result<usize, serde_json::Error> {
        const AT_MOST: usize = 16 << 20;
        let item = self.items.first().map(serde_json::to_vec).transpose()?.map_or(0, |json| json.len());
        Ok((1024 + (item + 64) * self.items.len()).min(AT_MOST))
    }
}

/// A response whose status and body the ledger has rendered. They are sent byte for byte.
///
/// `B` is the schema of the body: [`Data`] of a resource, or a flat object. `STATUS` is the documented status, and `ALSO`
/// another one with the same body, or 0 for none.
#[derive(Debug)]
pub struct Stored<B, const STATUS: u16 = 200, const ALSO: u16 = 0> {
    pub status: u16,
    pub body: String,
    /// Whether this is the stored response to an earlier request. Sets the header `Idempotent-Replayed: true`.
    pub replayed: bool,
    schema: PhantomData<fn() -> B>,
}

impl<B, const STATUS: u16, const ALSO: u16> Stored<B, STATUS, ALSO> {
    pub fn new(status: u16, body: String, replayed: bool) -> Self {
        Self { status, body, replayed, schema: PhantomData }
    }
}

/// Any response with `Cache-Control: no-store`, for example because it is different each time.
#[derive(Debug)]
pub struct NoStore<R>(pub R);

/// Any response that shows a secret. It has `Cache-Control: no-store`, and a line in the audit log.
#[derive(Debug)]
pub struct Revealing<R>(pub R);

fn rendered<T: Serialize>(status: StatusCode, data: &T) -> Response {
    answer(status, render(data))
}

fn answer(status: StatusCode, body: Result<String, serde_json::Error>) -> Response {
    match body {
        Ok(body) => json(status, body),
        Err(error) => poem::Error::from(ApiError::internal(error)).into_response(),
    }
}

fn json(status: StatusCode, body: String) -> Response {
    Response::builder().status(status).content_type(JSON).body(body)
}

impl<T: Serialize + Send> IntoResponse for Reply<T> {
    fn into_response(self) -> Response {
        rendered(StatusCode::OK, &self.0)
    }
}

impl<T: Serialize + Send> IntoResponse for Created<T> {
    fn into_response(self) -> Response {
        rendered(StatusCode::CREATED, &self.0)
    }
}

impl<T: Serialize + Send> IntoResponse for Accepted<T> {
    fn into_response(self) -> Response {
        rendered(StatusCode::ACCEPTED, &self.0)
    }
}

impl<T: Serialize + Send> IntoResponse for Signed<T> {
    fn into_response(self) -> Response {
        let body = render(&self.data);
        let signed = self.secret.zip(body.as_ref().ok()).map(|(secret, body)| {
            let timestamp = Utc::now().timestamp();
            (timestamp, signature::sign(secret.expose(), timestamp, body.as_bytes()))
        });
        let mut response = answer(StatusCode::OK, body);
        if let Some((timestamp, signature)) = signed
            && let Ok(signature) = HeaderValue::try_from(signature)
        {
            response.headers_mut().insert(X_TIMESTAMP, HeaderValue::from(timestamp));
            response.headers_mut().insert(X_SIGNATURE, signature);
        }
        response
    }
}

impl<T: Plural + Send> IntoResponse for Listed<T> {
    fn into_response(self) -> Response {
        let body = self.expected().and_then(|bytes| render_in(bytes, &BTreeMap::from([(T::PLURAL, &self.items)])));
        let mut response = answer(StatusCode::OK, body);
        let pages = self.total.div_ceil(self.page.limit.max(1));
        let values = [self.page.page, self.total, pages, self.page.limit];
        for ((name, ..), value) in PAGE_HEADERS.into_iter().zip(values) {
            response.headers_mut().insert(HeaderName::from_static(name), HeaderValue::from(value));
        }
        response
    }
}

impl<B: Send, const STATUS: u16, const ALSO: u16> IntoResponse for Stored<B, STATUS, ALSO> {
    fn into_response(self) -> Response {
        let status = StatusCode::from_u16(self.status).unwrap_or(StatusCode::OK);
        let mut response = json(status, self.body);
        if self.replayed {
            let name = HeaderName::from_static("idempotent-replayed");
            response.headers_mut().insert(name, HeaderValue::from_static("true"));
        }
        response
    }
}

impl<R: IntoResponse> IntoResponse for NoStore<R> {
    fn into_response(self) -> Response {
        let mut response = self.0.into_response();
        let no_store = HeaderValue::from_static("no-store");
        response.headers_mut().insert(header::CACHE_CONTROL, no_store);
        response
    }
}

impl<R: IntoResponse> IntoResponse for Revealing<R> {
    fn into_response(self) -> Response {
        note(Kind::Reveal);
        NoStore(self.0).into_response()
    }
}

/// Pagination headers: name as sent, name as documented, description.
const PAGE_HEADERS: [(&str, &str, &str); 4] = [
    ("x-page", "X-Page", "Number of this page, from 1."),
    ("x-total-count", "X-Total-Count", "Number of items on all pages."),
    ("x-total-pages", "X-Total-Pages", "Number of pages."),
    ("x-page-size", "X-Page-Size", "Maximum number of items per page."),
];

/// Schema of `{"success": true, "data": T}`, named `<T>Reply`.
#[derive(Debug)]
pub struct Data<T>(PhantomData<fn() -> T>);

/// Schema of `{"success": true, "data": {"<plural>": [T]}}`, named `<T>List`.
#[derive(Debug)]
pub struct List<T>(PhantomData<fn() -> T>);

fn object(properties: Vec<(&'static str, MetaSchemaRef)>) -> MetaSchema {
    MetaSchema { required: properties.iter().map(|(name, _)| *name).collect(), properties, ..MetaSchema::new("object") }
}

fn success() -> MetaSchemaRef {
    MetaSchemaRef::Inline(Box::new(MetaSchema { description: Some("Always `true`."), ..MetaSchema::new("boolean") }))
}

macro_rules! wrapper_schema {
    ($wrapper:ident: $bound:ident, $suffix:literal, $data:expr) => {
        impl<T: $bound> Type for $wrapper<T> {
            const IS_REQUIRED: bool = true;
            type RawValueType = Self;
            type RawElementValueType = Self;

            fn name() -> Cow<'static, str> {
                format!(concat!("{}", $suffix), T::name()).into()
            }

            fn schema_ref() -> MetaSchemaRef {
                MetaSchemaRef::Reference(Self::name().into_owned())
            }

            fn register(registry: &mut Registry) {
                T::register(registry);
                registry.create_schema::<Self, _>(Self::name().into_owned(), |_| {
                    object(vec![("success", success()), ("data", $data)])
                });
            }

            fn as_raw_value(&self) -> Option<&Self> {
                Some(self)
            }

            fn raw_element_iter<'a>(&'a self) -> Box<dyn Iterator<Item = &'a Self> + 'a> {
                Box::new(std::iter::once(self))
            }
        }
    };
}

wrapper_schema!(Data: Type, "Reply", T::schema_ref());
wrapper_schema!(
    List: Plural,
    "List",
    MetaSchemaRef::Inline(Box::new(MetaSchema {
        description: Some("One page of the list."),
        ..object(vec![(T::PLURAL, Vec::<T>::schema_ref())])
    }))
);

fn documented<B: Type>(status: u16, headers: Vec<MetaHeader>) -> MetaResponse {
    MetaResponse {
        description: match status {
            201 => "Created",
            202 => "Accepted",
            _ => "OK",
        },
        status: Some(status),
        status_range: None,
        content: vec![MetaMediaType { content_type: JSON, schema: B::schema_ref() }],
        headers,
    }
}

impl<T: Type> ApiResponse for Reply<T> {
    fn meta() -> MetaResponses {
        MetaResponses { responses: vec![documented::<Data<T>>(200, vec![])] }
    }

    fn register(registry: &mut Registry) {
        Data::<T>::register(registry);
    }
}

impl<T: Type> ApiResponse for Created<T> {
    fn meta() -> MetaResponses {
        MetaResponses { responses: vec![documented::<Data<T>>(201, vec![])] }
    }

    fn register(registry: &mut Registry) {
        Data::<T>::register(registry);
    }
}

impl<T: Type> ApiResponse for Accepted<T> {
    fn meta() -> MetaResponses {
        MetaResponses { responses: vec![documented::<Data<T>>(202, vec![])] }
    }

    fn register(registry: &mut Registry) {
        Data::<T>::register(registry);
    }
}

impl<T: Type> ApiResponse for Signed<T> {
    fn meta() -> MetaResponses {
        let signature = "Lowercase hex HMAC-SHA256 over `X-Timestamp`, a dot and the raw body, keyed with the credential's \
                         signing secret. Only if the request is signed.";
        let timestamp = "Time of the response, in Unix seconds. Only with `X-Signature`.";
        let headers = vec![
            documented_header::<Option<i64>>("X-Timestamp", timestamp),
            documented_header::<Option<String>>("X-Signature", signature),
        ];
        MetaResponses { responses: vec![documented::<Data<T>>(200, headers)] }
    }

    fn register(registry: &mut Registry) {
        Data::<T>::register(registry);
    }
}

impl<T: Plural> ApiResponse for Listed<T> {
    fn meta() -> MetaResponses {
        let header = |(_, name, description)| documented_header::<u64>(name, description);
        let headers = PAGE_HEADERS.into_iter().map(header).collect();
        MetaResponses { responses: vec![documented::<List<T>>(200, headers)] }
    }

    fn register(registry: &mut Registry) {
        List::<T>::register(registry);
    }
}

impl<B: Type, const STATUS: u16, const ALSO: u16> ApiResponse for Stored<B, STATUS, ALSO> {
    fn meta() -> MetaResponses {
        let statuses = [STATUS, ALSO].into_iter().filter(|status| *status != 0);
        let response = |status| {
            let text = "`true` if this repeats the stored response to an earlier request with the same `Idempotency-Key`.";
            documented::<B>(status, vec![documented_header::<Option<bool>>("Idempotent-Replayed", text)])
        };
        MetaResponses { responses: statuses.map(response).collect() }
    }

    fn register(registry: &mut Registry) {
        B::register(registry);
    }
}

impl<R: ApiResponse> ApiResponse for NoStore<R> {
    fn meta() -> MetaResponses {
        let mut meta = R::meta();
        for response in &mut meta.responses {
            response.headers.push(documented_header::<String>("Cache-Control", "`no-store`"));
        }
        meta
    }

    fn register(registry: &mut Registry) {
        R::register(registry);
    }
}

impl<R: ApiResponse> ApiResponse for Revealing<R> {
    fn meta() -> MetaResponses {
        NoStore::<R>::meta()
    }

    fn register(registry: &mut Registry) {
        R::register(registry);
    }
}
