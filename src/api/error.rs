//! What a refused request is answered with: the error envelope, its codes, and the flat 429.

use std::borrow::Cow;
use std::collections::BTreeMap;

use poem::error::ResponseError;
use poem::http::{HeaderValue, StatusCode, header};
use poem::{Body, Response};
use poem_openapi::registry::{MetaHeader, MetaMediaType, MetaResponse, MetaResponses, MetaSchemaRef, Registry};
use poem_openapi::types::Type;
use poem_openapi::{ApiResponse, Enum, Object};
use serde::Serialize;

use super::request_id;

/// The media type of every JSON body, in and out.
pub const JSON: &str = "application/json";

macro_rules! codes {
    ($($(#[$doc:meta])* $code:ident = $status:literal $text:tt $message:literal;)*) => {
        /// The stable string that a client branches on. Codes are only ever added.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Enum)]
        #[oai(rename = "ErrorCode")]
        pub enum Code { $($(#[$doc])* #[oai(rename = $text)] $code,)* }

        impl Code {
            pub const ALL: &'static [Code] = &[$(Code::$code),*];

            /// `E_...`, as it stands in the body.
            pub const fn as_str(self) -> &'static str {
                match self { $(Code::$code => $text),* }
            }

            /// The HTTP status that the code answers with, always the same.
            pub const fn status(self) -> u16 {
                match self { $(Code::$code => $status),* }
            }

            /// The text for people, where the call site gives none.
            pub const fn message(self) -> &'static str {
                match self { $(Code::$code => $message),* }
            }
        }
    };
}

codes! {
    ValidationFailure = 400 "E_VALIDATION_FAILURE" "The request is not valid.";
    MalformedJson = 400 "E_MALFORMED_JSON" "The request body is not valid JSON.";
    /// What arrived is no HTTP/1.1 request; the connection is closed after the answer.
    MalformedRequest = 400 "E_MALFORMED_REQUEST" "The request is not valid HTTP/1.1.";
    Unauthorized = 401 "E_UNAUTHORIZED" "The API key or its secret is missing or wrong.";
    InvalidCredentials = 401 "E_INVALID_CREDENTIALS" "The email or the password is wrong.";
    InvalidToken = 401 "E_INVALID_TOKEN" "The token is not valid, or no longer.";
    HmacSignatureRequired = 401 "E_HMAC_SIGNATURE_REQUIRED" "hmac signature required";
    HmacTimestampExpired = 401 "E_HMAC_TIMESTAMP_EXPIRED" "request timestamp expired";
    HmacSignatureInvalid = 401 "E_HMAC_SIGNATURE_INVALID" "invalid hmac signature";
    HmacHeaderInvalid = 401 "E_HMAC_HEADER_INVALID" "invalid signature header format";
    InsufficientBalance = 402 "E_INSUFFICIENT_BALANCE" "The wallet's balance is too low.";
    Forbidden = 403 "E_FORBIDDEN" "The caller may not do this.";
    AccountSuspended = 403 "E_ACCOUNT_SUSPENDED" "The account is suspended: it can read, and change nothing.";
    NotFound = 404 "E_NOT_FOUND" "There is no such resource.";
    MethodNotAllowed = 405 "E_METHOD_NOT_ALLOWED" "The resource does not have this method.";
    PayloadTooLarge = 413 "E_PAYLOAD_TOO_LARGE" "The request body is over its limit.";
    UriTooLong = 414 "E_URI_TOO_LONG" "The request line is over its limit of 16 KiB.";
    UnsupportedMediaType = 415 "E_UNSUPPORTED_MEDIA_TYPE" "The request body's Content-Type is not one this operation reads.";
    OrderNotCancellable = 409 "E_ORDER_NOT_CANCELLABLE" "The order is final and cannot be cancelled.";
    DuplicateReference = 409 "E_DUPLICATE_REFERENCE" "The reference was used before, for something else.";
    IdempotencyInProgress = 409 "E_IDEMPOTENCY_IN_PROGRESS" "The first request with this Idempotency-Key is not decided yet.";
    DeliveryNotFailed = 409 "E_DELIVERY_NOT_FAILED" "Only a failed delivery can be retried.";
    DeliveryAttemptsExhausted = 409 "E_DELIVERY_ATTEMPTS_EXHAUSTED" "The delivery has used all its attempts.";
    WebhookInactive = 409 "E_WEBHOOK_INACTIVE" "The webhook is inactive or deleted.";
    WebhookLimitReached = 409 "E_WEBHOOK_LIMIT_REACHED" "The account has as many webhooks as it may have.";
    PayoutNotCancellable = 409 "E_PAYOUT_NOT_CANCELLABLE" "The payout is no longer pending and cannot be cancelled.";
    Conflict = 409 "E_CONFLICT" "The request conflicts with what exists.";
    ProductUnavailable = 422 "E_PRODUCT_UNAVAILABLE" "The product is not available.";
    InvalidDenomination = 422 "E_INVALID_DENOMINATION" "The product does not have this denomination.";
    QuantityLimitExceeded = 422 "E_QUANTITY_LIMIT_EXCEEDED" "The quantity is over the product's maximum.";
    CurrencyMismatch = 422 "E_CURRENCY_MISMATCH" "There is no wallet of this currency, or the wallet is of another one.";
    IdempotencyKeyReused = 422 "E_IDEMPOTENCY_KEY_REUSED" "The Idempotency-Key was used before, with another body.";
    HeadersTooLarge = 431 "E_HEADERS_TOO_LARGE" "The request's headers are over their limit: 100 of them, 16 KiB in all.";
    /// Never carries details: they are in the log, under the request's id.
    Internal = 500 "E_INTERNAL" "Something went wrong on our side.";
    /// Nothing happened; the request may be sent again.
    Unavailable = 503 "E_UNAVAILABLE" "The service cannot take the request now. Nothing happened; try again.";
    /// It may have happened; the same Idempotency-Key tells.
    OutcomeUnknown = 504 "E_OUTCOME_UNKNOWN" "The outcome is not known. Ask again with the same Idempotency-Key; if you sent none, look at what there is first.";
}

impl Code {
    /// The stable class of the status, `error.name` in the body.
    pub const fn name(self) -> &'static str {
        match self.status() {
            400 => "ValidationError",
            401 => "AuthenticationError",
            402 => "PaymentRequiredError",
            403 => "PermissionError",
            404 => "NotFoundError",
            405 => "MethodNotAllowedError",
            409 => "ConflictError",
            413 => "PayloadTooLargeError",
            414 => "UriTooLongError",
            415 => "UnsupportedMediaTypeError",
            422 => "UnprocessableError",
            431 => "HeadersTooLargeError",
            500 => "InternalError",
            _ => "UnavailableError",
        }
    }

    /// How a caller that is not known may say who it is (RFC 9110, 11.6.1). `ApiKey` stands for the headers `X-API-Key` and
    /// `X-API-Secret`.
    const fn challenge(self) -> Option<&'static str> {
        match self {
            Code::Unauthorized => Some(r#"ApiKey realm="rewards-ledger", Bearer realm="rewards-ledger""#),
            Code::HmacSignatureRequired | Code::HmacTimestampExpired | Code::HmacSignatureInvalid | Code::HmacHeaderInvalid => {
                Some(r#"ApiKey realm="rewards-ledger""#)
            }
            Code::InvalidCredentials | Code::InvalidToken => Some(r#"Bearer realm="rewards-ledger""#),
            _ => None,
        }
    }

    /// Seconds after which asking again makes sense, for the codes that are about time.
    const fn retry_after_secs(self) -> Option<u32> {
        match self {
            Code::IdempotencyInProgress | Code::Unavailable | Code::OutcomeUnknown => Some(1),
            _ => None,
        }
    }
}

/// What is wrong with each field, by its name or path (`vouchers[3].card_number`).
pub type Messages = BTreeMap<String, Vec<String>>;

/// A refusal, on its way to the envelope `{"error": {"name", "code", "message", "messages"?}}`.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}: {message}", .code.as_str())]
pub struct ApiError {
    pub code: Code,
    /// For people; clients do not parse it.
    pub message: Cow<'static, str>,
    pub messages: Option<Messages>,
    /// Becomes the header `Retry-After`.
    pub retry_after_secs: Option<u32>,
}

impl ApiError {
    /// The code with its own message and, where it has one, its own `Retry-After`.
    pub fn new(code: Code) -> Self {
        Self { code, message: Cow::Borrowed(code.message()), messages: None, retry_after_secs: code.retry_after_secs() }
    }

    /// 400 `E_VALIDATION_FAILURE` for one field or parameter.
    pub fn invalid(field: impl Into<String>, what: impl Into<String>) -> Self {
        Self::new(Code::ValidationFailure).field(field, what)
    }

    /// 500 `E_INTERNAL`. The cause is logged here, once, and reaches no client.
    pub fn internal(cause: impl std::fmt::Display) -> Self {
        tracing::error!(request_id = request_id::current_text(), %cause, "internal error");
        Self::new(Code::Internal)
    }

    #[must_use]
    pub fn message(mut self, message: impl Into<Cow<'static, str>>) -> Self {
        self.message = message.into();
        self
    }

    #[must_use]
    pub fn field(mut self, field: impl Into<String>, what: impl Into<String>) -> Self {
        let messages = self.messages.get_or_insert_default();
        messages.entry(field.into()).or_default().push(what.into());
        self
    }

    /// The body that is sent. An internal error's message gets the request's id, too.
    pub(crate) fn body(&self) -> serde_json::Value {
        serde_json::to_value(self.envelope(&self.message)).unwrap_or_default()
    }

    fn envelope<'a>(&'a self, message: &'a str) -> Envelope<'a> {
        let (name, code, messages) = (self.code.name(), self.code.as_str(), self.messages.as_ref());
        Envelope { error: Detail { name, code, message, messages } }
    }

    #[must_use]
    pub fn retry_after(mut self, seconds: u32) -> Self {
        self.retry_after_secs = Some(seconds);
        self
    }
}

impl ResponseError for ApiError {
    fn status(&self) -> StatusCode {
        StatusCode::from_u16(self.code.status()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR)
    }

    fn as_response(&self) -> Response {
        // An internal error is the one that people write to support about.
        let message = match request_id::current().filter(|_| self.code == Code::Internal) {
            Some(id) => Cow::Owned(format!("{} Request id: {id}", self.message)),
            None => Cow::Borrowed(&*self.message),
        };
        let mut response = json_response(self.status(), &self.envelope(&message), self.retry_after_secs);
        if let Some(challenge) = self.code.challenge() {
            response.headers_mut().insert(header::WWW_AUTHENTICATE, HeaderValue::from_static(challenge));
        }
        response
    }
}

#[derive(Serialize)]
struct Envelope<'a> {
    error: Detail<'a>,
}

#[derive(Serialize)]
struct Detail<'a> {
    name: &'a str,
    code: &'a str,
    message: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    messages: Option<&'a Messages>,
}

/// 429, in the specification's flat shape: `{"error", "message", "retry_after"}`.
///
/// The `X-RateLimit-*` headers are the rate limiter's, which adds them to every answer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("rate limit exceeded")]
pub struct RateLimited {
    pub message: String,
    /// Seconds, at least 1; the header `Retry-After` says the same.
    pub retry_after: u32,
}

impl ResponseError for RateLimited {
    fn status(&self) -> StatusCode {
        StatusCode::TOO_MANY_REQUESTS
    }

    fn as_response(&self) -> Response {
        #[derive(Serialize)]
        struct Flat<'a> {
            error: &'a str,
            message: &'a str,
            retry_after: u32,
        }
        let body = Flat { error: "rate_limit_exceeded", message: &self.message, retry_after: self.retry_after };
        json_response(self.status(), &body, Some(self.retry_after))
    }
}

fn json_response(status: StatusCode, body: &impl Serialize, retry_after: Option<u32>) -> Response {
    let mut response = Response::builder().status(status).content_type(JSON).body(Body::from_json(body).unwrap_or_default());
    if let Some(seconds) = retry_after {
        let headers = response.headers_mut();
        headers.insert(header::RETRY_AFTER, HeaderValue::from(seconds));
    }
    response
}

/// An error: what kind, a stable code, and text for people.
#[derive(Object)]
#[oai(rename = "Error")]
struct ErrorSchema {
    error: ErrorDetailSchema,
}

/// The name of the schema of `error` in the envelope.
pub(super) const ERROR_DETAIL: &str = "ErrorDetail";

#[derive(Object)]
#[oai(rename = "ErrorDetail")]
struct ErrorDetailSchema {
    /// The stable class of the HTTP status, for example `ValidationError`.
    name: String,
    /// Branch on this. New codes may be added; treat an unknown one by its HTTP status.
    code: Code,
    /// For people. May be re-worded.
    message: String,
    /// What is wrong with each field. Left out when the error is about none.
    messages: Option<Messages>,
}

/// A rate limit was exceeded.
#[derive(Object)]
#[oai(rename = "RateLimitError")]
struct RateLimitSchema {
    /// Always `rate_limit_exceeded`.
    error: String,
    /// For people. Not to be parsed.
    message: String,
    /// Seconds until the window closes; equals the header `Retry-After`.
    retry_after: u32,
}

/// The error statuses that an operation can answer with, as the document shows them.
/// `document::finish` takes away those of which it has no code.
const DOCUMENTED: [(u16, &str); 13] = [
    (400, "The request is not valid; `messages` names the fields, and query parameters that the operation does not have."),
    (401, "The caller is not known, or the signature is wrong."),
    (402, "The wallet's balance is too low."),
    (403, "The caller may not do this, or the account is suspended."),
    (404, "There is no such resource for this caller."),
    (409, "The request conflicts with the state of things."),
    (413, "The body is over its limit."),
    (415, "The body's Content-Type is not `application/json`."),
    (422, "The request is understood and cannot be carried out."),
    (429, "A rate limit was exceeded."),
    (500, "An internal error; `message` holds the request's id."),
    (503, "The service cannot take the request now. Nothing happened."),
    (504, "The outcome is not known; ask again with the same `Idempotency-Key`, or look at what there is."),
];

const RETRY_AFTER: &str = "Seconds after which to ask again.";

impl ApiResponse for ApiError {
    fn meta() -> MetaResponses {
        let response = |(status, description)| MetaResponse {
            description,
            status: Some(status),
            status_range: None,
            content: vec![MetaMediaType {
                content_type: JSON,
                schema: match status {
                    429 => RateLimitSchema::schema_ref(),
                    _ => ErrorSchema::schema_ref(),
                },
            }],
            headers: match status {
                401 => vec![documented_header::<String>(
                    "WWW-Authenticate",
                    "How to say who you are: `ApiKey` stands for `X-API-Key` and `X-API-Secret`, `Bearer` for `Authorization`.",
                )],
                409 => vec![documented_header::<Option<u32>>("Retry-After", RETRY_AFTER)],
                429 | 503 | 504 => vec![documented_header::<u32>("Retry-After", RETRY_AFTER)],
                _ => vec![],
            },
        };
        MetaResponses { responses: DOCUMENTED.into_iter().map(response).collect() }
    }

    fn register(registry: &mut Registry) {
        ErrorSchema::register(registry);
        RateLimitSchema::register(registry);
    }
}

/// A response header as the document shows it.
pub(super) fn documented_header<T: Type>(name: &str, description: &str) -> MetaHeader {
    let schema: MetaSchemaRef = T::schema_ref();
    MetaHeader {
        name: name.to_owned(),
        description: Some(description.to_owned()),
        required: T::IS_REQUIRED,
        deprecated: false,
        schema,
    }
}
