//! A request for a page: who makes it, its fields, and the calls of the API that it makes.

use chrono::Utc;
use poem::http::{HeaderName, HeaderValue, Method, StatusCode, Uri, header};
use poem::{Body, Request, Response};
use serde::de::DeserializeOwned;
use serde_json::Value;
use tokio::sync::watch;

use super::call::{Answered, List, Refusal};
use super::form::{self, Form};
use super::outcome::{PageResult, Stop};
use crate::access::{ClientIdentity, ConsoleSession, Operator, Principal};
use crate::api::{Inner, Progress, Reached, Source, body};

/// Maximum size of a form of the console, in bytes: a bank statement, with the rest of the form.
const OPERATOR_LIMIT: usize = 17 << 20;
const URL_ENCODED: &str = "application/x-www-form-urlencoded";

/// A request for a page.
#[derive(Debug)]
pub struct Visit {
    api: Inner,
    request: Request,
    /// Fields of the query.
    pub query: Form,
    /// Fields of a form that was sent.
    pub form: Form,
    /// Files of a form that was sent: field and content.
    pub files: Vec<(String, Vec<u8>)>,
}

impl Visit {
    /// Reads a request with its form.
    ///
    /// # Errors
    /// If the body is too long, or neither an encoded form nor a multipart one.
    pub async fn read(api: Inner, mut request: Request) -> Result<Visit, Refusal> {
        let is_operator = request.extensions().get::<Operator>().is_some();
        let limit = if is_operator { OPERATOR_LIMIT } else { body::DEFAULT_LIMIT };
        let query = Form::parse(request.uri().query().unwrap_or_default().as_bytes());
        let body = body::read(request.take_body(), limit).await;
        let body = body.map_err(|error| Refusal::new(StatusCode::PAYLOAD_TOO_LARGE, error.code.as_str(), &error.message))?;
        let kind = request.content_type().unwrap_or_default().to_owned();
        let (form, files) = match kind.split(';').next().unwrap_or_default() {
            _ if body.is_empty() => (Form::default(), vec![]),
            URL_ENCODED => (Form::parse(&body), vec![]),
            "multipart/form-data" => multipart(&kind, body).await?,
            _ => return Err(unreadable(StatusCode::UNSUPPORTED_MEDIA_TYPE)),
        };
        Ok(Visit { api, request, query, form, files })
    }

    /// Follows the progress of the calls that the page makes from now on.
    pub fn follow(&mut self) -> watch::Receiver<Option<Reached>> {
        let (progress, reached) = Progress::followed();
        self.request.extensions_mut().insert(progress);
        reached
    }

    /// Returns whether the node shows the mails that it sends.
    pub fn shows_outbox(&self) -> bool {
        self.api.shows_outbox
    }

    pub fn path(&self) -> &str {
        self.request.uri().path()
    }

    /// Returns whether the request only reads. A page that answers a form has an address that cannot be read again.
    pub fn is_read(&self) -> bool {
        self.request.method().is_safe()
    }

    /// Returns a parameter of the path as text.
    ///
    /// # Errors
    /// A page that says that there is nothing, if the path does not have it.
    pub fn param(&self, name: &str) -> Result<&str, Stop> {
        self.request.raw_path_param(name).ok_or(Stop::NotFound)
    }

    /// Returns a parameter of the path.
    ///
    /// # Errors
    /// A page that says that there is nothing, if the parameter is not a number.
    pub fn id(&self, name: &str) -> Result<i64, Stop> {
        self.request.raw_path_param(name).and_then(|id| id.parse().ok()).ok_or(Stop::NotFound)
    }

    /// Returns the client's user who is signed in.
    ///
    /// # Errors
    /// A redirect to the login if there is none.
    pub fn user(&self) -> Result<Principal, Stop> {
        let principal = self.request.extensions().get::<Principal>().copied();
        principal
            .filter(|principal| matches!(principal.identity, ClientIdentity::User { .. }))
            .ok_or(Stop::SignIn("/portal/login"))
    }

    /// Returns the operator who is signed in.
    ///
    /// # Errors
    /// A redirect to the login if there is none.
    pub fn operator(&self) -> Result<Operator, Stop> {
        self.request.extensions().get::<Operator>().copied().ok_or(Stop::SignIn("/console/login"))
    }

    /// Reads `data` of an operation.
    pub async fn get<T: DeserializeOwned>(&self, path: &str) -> Result<T, Refusal> {
        self.send(Method::GET, path, None, &[]).await?.data()
    }

    /// Reads one page of a list.
    pub async fn list<T: DeserializeOwned>(&self, path: &str, plural: &str) -> Result<List<T>, Refusal> {
        self.send(Method::GET, path, None, &[]).await?.list(plural)
    }

    /// Reads a body that is not JSON, such as a CSV or an image.
    pub async fn bytes(&self, path: &str, accept: &'static str) -> Result<Answered, Refusal> {
        self.send(Method::GET, path, None, &[(header::ACCEPT, HeaderValue::from_static(accept))]).await
    }

    /// Reads a body of any length, such as a statement. It is still arriving.
    pub async fn body(&self, path: &str, accept: &'static str) -> Result<Body, Refusal> {
        let headers = [(header::ACCEPT, HeaderValue::from_static(accept))];
        Answered::body_of(self.respond(Method::GET, path, None, &headers).await?).await
    }

    /// Makes a change, and reads its `data`.
    pub async fn change<T: DeserializeOwned>(&self, method: Method, path: &str, body: &Value) -> Result<T, Refusal> {
        self.send(method, path, Some(json(body)), &[]).await?.data()
    }

    /// Sends a file to an operation, and reads its `data`.
    pub async fn upload<T: DeserializeOwned>(
        &self,
        method: Method,
        path: &str,
        content_type: &str,
        content: Vec<u8>,
    ) -> Result<T, Refusal> {
        self.send(method, path, Some((content_type, content)), &[]).await?.data()
    }

    /// Takes the file of a field out of the form. Browsers send an empty file if none is chosen.
    pub fn take_file(&mut self, name: &str) -> Option<Vec<u8>> {
        let place = self.files.iter().position(|(field, content)| field == name && !content.is_empty())?;
        Some(self.files.swap_remove(place).1)
    }

    /// Makes a change under an idempotency key, and reads its `data`. A repeated call has the outcome of the first.
    pub async fn change_once<T: DeserializeOwned>(&self, path: &str, key: &str, body: &Value) -> Result<T, Refusal> {
        self.answer_once(path, key, body).await?.data()
    }

    /// Makes a change under an idempotency key, for an operation whose response has no `data`.
    pub async fn answer_once(&self, path: &str, key: &str, body: &Value) -> Result<Answered, Refusal> {
        if form::is_outdated(key, Utc::now()) {
            let message = "This form was opened about a day ago. Check whether it was sent before. If it was not, send it again.";
            return Err(Refusal::new(StatusCode::CONFLICT, "E_CONFLICT", message));
        }
        let unreadable = |_| Refusal::of_field("idempotency_key", "is not valid");
        let key = HeaderValue::from_str(key).map_err(unreadable)?;
        let headers = [(HeaderName::from_static("idempotency-key"), key)];
        self.send(Method::POST, path, Some(json(body)), &headers).await.map_err(Refusal::of_keyed_form)
    }

    async fn send(
        &self,
        method: Method,
        path: &str,
        body: Option<(&str, Vec<u8>)>,
        headers: &[(HeaderName, HeaderValue)],
    ) -> Result<Answered, Refusal> {
        Answered::read(self.respond(method, path, body, headers).await?).await
    }

    /// Makes a call as the visitor, and returns the response, whatever its status is.
    async fn respond(
        &self,
        method: Method,
        path: &str,
        body: Option<(&str, Vec<u8>)>,
        headers: &[(HeaderName, HeaderValue)],
    ) -> Result<Response, Refusal> {
        let uri: Uri = path.parse().map_err(|_| Refusal::new(StatusCode::NOT_FOUND, "E_NOT_FOUND", "There is no such thing."))?;
        let mut request = Request::builder().method(method).uri(uri);
        for (name, value) in headers {
            request = request.header(name, value);
        }
        let identity = self.request.extensions();
        if let Some(principal) = identity.get::<Principal>() {
            request = request.extension(*principal);
        }
        if let Some(source) = identity.get::<Source>() {
            request = request.extension(*source);
        }
        if let Some(operator) = identity.get::<Operator>() {
            request = request.extension(*operator);
        }
        if let Some(session) = identity.get::<ConsoleSession>() {
            request = request.extension(*session);
        }
        if let Some(progress) = identity.get::<Progress>() {
            request = request.extension(progress.clone());
        }
        let request = match body {
            Some((content_type, body)) => request.content_type(content_type).body(body),
            None => request.finish(),
        };
        Ok(self.api.respond(request).await)
    }

    /// Sends the visitor's own request on to an operation that needs no session: with the visitor's address, and with this
    /// body instead of the form. Returns the whole response, with its cookies, and the visit without its identity and headers.
    pub async fn forward(mut self, path: &'static str, body: &Value) -> (Response, Visit) {
        let visited = self.request.uri().clone();
        *self.request.uri_mut() = Uri::from_static(path);
        self.request.set_method(Method::POST);
        self.request.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
        self.request.set_body(body.to_string());
        let response = self.api.respond(self.request).await;
        self.request = Request::builder().uri(visited).finish();
        (response, self)
    }
}

/// Returns a body with its type.
fn json(body: &Value) -> (&'static str, Vec<u8>) {
    ("application/json", body.to_string().into_bytes())
}

/// Reads the fields and files of a form with uploads.
async fn multipart(content_type: &str, body: Vec<u8>) -> Result<(Form, Vec<(String, Vec<u8>)>), Refusal> {
    let broken = |_| unreadable(StatusCode::BAD_REQUEST);
    let boundary = multer::parse_boundary(content_type).map_err(broken)?;
    let whole = futures::stream::once(async move { Ok::<_, std::convert::Infallible>(body) });
    let mut parts = multer::Multipart::new(whole, boundary);
    let (mut fields, mut files) = (vec![], vec![]);
    while let Some(part) = parts.next_field().await.map_err(broken)? {
        let (name, is_file) = (part.name().unwrap_or_default().to_owned(), part.file_name().is_some());
        let content = part.bytes().await.map_err(broken)?;
        match is_file {
            true => files.push((name, content.to_vec())),
            false => fields.push((name, String::from_utf8_lossy(&content).into_owned())),
        }
    }
    Ok((Form::from_pairs(fields), files))
}

fn unreadable(status: StatusCode) -> Refusal {
    Refusal::new(status, "E_MALFORMED_REQUEST", "The form cannot be read. Go back and send it again.")
}

/// Renders a page again, with the refusal at its fields, or stops if the user cannot correct it.
pub fn corrected(refusal: Refusal, page: impl FnOnce(&Refusal) -> Response) -> PageResult {
    if refusal.is_correctable() { Ok(page(&refusal)) } else { Err(refusal.into()) }
}
