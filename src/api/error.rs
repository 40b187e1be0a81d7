//! Error responses: the error envelope, its codes, and the flat 429.

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

/// Media type of every JSON body, in requests and responses.
pub const JSON: &str = "application/json";

macro_rules! codes {
    ($($(#[$doc:meta])* $code:ident = $status:literal $text:tt $message:literal;)*) => {
        /// Stable error code. Branch on it. New codes may be added; existing ones do not change.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Enum)]
        #[oai(rename = "ErrorCode")]
        pub enum Code { $($(#[$doc])* #[oai(rename = $text)] $code,)* }

        impl Code {
            pub const ALL: &'static [Code] = &[$(Code::$code),*];

            /// Returns the code as the body has it: `E_...`.
            pub const fn as_str(self) -> &'static str {
                match self { $(Code::$code => $text),* }
            }

            /// Returns the HTTP status of the code. A code always has the same status.
            pub const fn status(self) -> u16 {
                match self { $(Code::$code => $status),* }
            }

            /// Returns the default message, for errors that set none of their own.
            pub const fn message(self) -> &'static str {
                match self { $(Code::$code => $message),* }
            }
        }
    };
}

codes! {
    ValidationFailure = 400 "E_VALIDATION_FAILURE" "The request is not valid.";
    MalformedJson = 400 "E_MALFORMED_JSON" "The request body is not valid JSON.";
    /// The bytes received are not an HTTP/1.1 request. The server closes the connection after the response.
    MalformedRequest = 400 "E_MALFORMED_REQUEST" "The request is not valid HTTP/1.1.";
    Unauthorized = 401 "E_UNAUTHORIZED" "The API key or its secret is missing or wrong.";
    ApiKeyExpired = 401 "E_API_KEY_EXPIRED" "The API key has expired.";
    InvalidCredentials = 401 "E_INVALID_CREDENTIALS" "The email or the password is wrong.";
    TwoFactorRequired = 401 "E_TWO_FACTOR_REQUIRED" "A code of the second factor is required.";
    InvalidToken = 401 "E_INVALID_TOKEN" "The token is invalid, expired or revoked.";
    HmacSignatureRequired = 401 "E_HMAC_SIGNATURE_REQUIRED" "hmac signature required";
    HmacTimestampExpired = 401 "E_HMAC_TIMESTAMP_EXPIRED" "request timestamp expired";
    HmacSignatureInvalid = 401 "E_HMAC_SIGNATURE_INVALID" "invalid hmac signature";
    HmacHeaderInvalid = 401 "E_HMAC_HEADER_INVALID" "invalid signature header format";
    InsufficientBalance = 402 "E_INSUFFICIENT_BALANCE" "The wallet's balance is too low.";
    Forbidden = 403 "E_FORBIDDEN" "The caller is not allowed to perform this operation.";
    InsufficientScope = 403 "E_INSUFFICIENT_SCOPE" "The API key does not have the scope that the operation requires.";
    NetworkNotAllowed = 403 "E_NETWORK_NOT_ALLOWED" "The API key may not be used from this address.";
    AccountSuspended = 403 "E_ACCOUNT_SUSPENDED" "The account is suspended: it can read data but cannot change anything.";
    /// The account requires two-factor authentication of its owners. Until the owner has enrolled, nothing else is possible.
    TwoFactorEnrolment = 403 "E_TWO_FACTOR_ENROLMENT" "The account requires two-factor authentication of owners: set it up first.";
    NotFound = 404 "E_NOT_FOUND" "The resource was not found.";
    MethodNotAllowed = 405 "E_METHOD_NOT_ALLOWED" "The resource does not support this method.";
    PayloadTooLarge = 413 "E_PAYLOAD_TOO_LARGE" "The request body is too large.";
    UriTooLong = 414 "E_URI_TOO_LONG" "The request line is longer than 16 KiB.";
    UnsupportedMediaType = 415 "E_UNSUPPORTED_MEDIA_TYPE" "The operation does not support the Content-Type of the request body.";
    OrderNotCancellable = 409 "E_ORDER_NOT_CANCELLABLE" "The order is final and cannot be cancelled.";
    DuplicateReference = 409 "E_DUPLICATE_REFERENCE" "The reference is already in use for a different request.";
    IdempotencyInProgress = 409 "E_IDEMPOTENCY_IN_PROGRESS" "An earlier request with this Idempotency-Key is still in progress. Retry later.";
    AlreadyCreated = 409 "E_ALREADY_CREATED" "An earlier request with this Idempotency-Key created it. Its response cannot be repeated.";
    DeliveryNotFailed = 409 "E_DELIVERY_NOT_FAILED" "Only a failed delivery can be retried.";
    DeliveryAttemptsExhausted = 409 "E_DELIVERY_ATTEMPTS_EXHAUSTED" "The delivery has used all its attempts.";
    WebhookInactive = 409 "E_WEBHOOK_INACTIVE" "The webhook is inactive or deleted.";
    WebhookLimitReached = 409 "E_WEBHOOK_LIMIT_REACHED" "Webhook limit reached (20 per account).";
    PayoutNotCancellable = 409 "E_PAYOUT_NOT_CANCELLABLE" "The payout is no longer pending and cannot be cancelled.";
    Conflict = 409 "E_CONFLICT" "The request conflicts with the current state of the resource.";
    ProductUnavailable = 422 "E_PRODUCT_UNAVAILABLE" "The product is not available.";
    InvalidDenomination = 422 "E_INVALID_DENOMINATION" "The product is not available in this denomination.";
    QuantityLimitExceeded = 422 "E_QUANTITY_LIMIT_EXCEEDED" "The quantity exceeds the product's max_quantity.";
    CurrencyMismatch = 422 "E_CURRENCY_MISMATCH" "The account has no wallet in this currency, or the wallet is in another currency.";
    IdempotencyKeyReused = 422 "E_IDEMPOTENCY_KEY_REUSED" "The Idempotency-Key was already used with a different request body.";
    HeadersTooLarge = 431 "E_HEADERS_TOO_LARGE" "The request has more than 100 headers, or more than 16 KiB of them.";
    /// Never carries details. The log has them, under the request ID.
    Internal = 500 "E_INTERNAL" "Something went wrong on our side.";
    /// Nothing happened. The client can safely retry.
    Unavailable = 503 "E_UNAVAILABLE" "The service cannot process the request now. Nothing was changed. Retry later.";
    /// The operation may have happened. A retry with the same Idempotency-Key shows the outcome.
    OutcomeUnknown = 504 "E_OUTCOME_UNKNOWN" "The outcome is unknown. Retry with the same Idempotency-Key. If you sent none, check first whether the change was made.";
}

impl Code {
    /// Returns the stable class of the status, which is `error.name` in the body.
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

    /// Returns the authentication challenge for a code with status 401 (RFC 9110, 11.6.1). `ApiKey` stands for the headers
    /// `X-API-Key` and `X-API-Secret`.
    const fn challenge(self) -> Option<&'static str> {
        match self {
            Code::Unauthorized => Some(r#"ApiKey realm="rewards-ledger", Bearer realm="rewards-ledger""#),
            Code::ApiKeyExpired
            | Code::HmacSignatureRequired
            | Code::HmacTimestampExpired
            | Code::HmacSignatureInvalid
            | Code::HmacHeaderInvalid => Some(r#"ApiKey realm="rewards-ledger""#),
            Code::InvalidCredentials | Code::TwoFactorRequired | Code::InvalidToken => Some(r#"Bearer realm="rewards-ledger""#),
            _ => None,
        }
    }

    /// Returns the seconds to wait before a retry, for codes whose cause passes with time.
    const fn retry_after_secs(self) -> Option<u32> {
        match self {
            Code::IdempotencyInProgress | Code::Unavailable | Code::OutcomeUnknown => Some(1),
            _ => None,
        }
    }
}

/// Problems by the name or path of the field (`vouchers[3].card_number`).
pub type Messages = BTreeMap<String, Vec<String>>;

/// An error that becomes the envelope `{"error": {"name", "code", "message", "messages"?}}`.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}: {message}", .code.as_str())]
pub struct ApiError {
    pub code: Code,
    /// Human-readable text. Clients do not parse it.
    pub message: Cow<'static, str>,
    pub messages: Option<Messages>,
    /// Value of the header `Retry-After`, in seconds.
    pub retry_after_secs: Option<u32>,
}

impl ApiError {
    /// Creates an error with the code's default message and `Retry-After`.
    pub fn new(code: Code) -> Self {
        Self { code, message: Cow::Borrowed(code.message()), messages: None, retry_after_secs: code.retry_after_secs() }
    }

    /// Creates a 400 `E_VALIDATION_FAILURE` for one field or parameter.
    pub fn invalid(field: impl Into<String>, what: impl Into<String>) -> Self {
        Self::new(Code::ValidationFailure).field(field, what)
    }

    /// Creates a 409 `E_CONFLICT` with this message.
    pub fn conflict(message: &'static str) -> Self {
        Self::new(Code::Conflict).message(message)
    }

    /// Creates a 500 `E_INTERNAL`. It logs the cause here, once, and does not show it to the client.
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

    /// Returns the JSON body of the error. The response to an internal error also appends the request ID to the message.
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
        // Internal errors are the ones that people report to support.
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

/// A 429 in the specification's flat shape: `{"error", "message", "retry_after"}`.
///
/// The rate limiter adds the `X-RateLimit-*` headers, as it does for every response.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("rate limit exceeded")]
pub struct RateLimited {
    pub message: String,
    /// Seconds until a retry can succeed, at least 1. The header `Retry-After` has the same value.
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

/// An error response.
#[derive(Object)]
#[oai(rename = "Error")]
struct ErrorSchema {
    error: ErrorDetailSchema,
}

/// Name of the schema of `error` in the envelope.
pub(super) const ERROR_DETAIL: &str = "ErrorDetail";

#[derive(Object)]
#[oai(rename = "ErrorDetail")]
struct ErrorDetailSchema {
    /// Class of the error, one per HTTP status, for example `ValidationError`.
    name: String,
    /// Stable code to branch on. New codes may be added; handle an unknown one by its HTTP status.
    code: Code,
    /// Human-readable explanation. Its wording may change, so do not parse it.
    message: String,
    /// Problems of each field or parameter, by its name or path. Left out when the error is not about a field.
    messages: Option<Messages>,
}

/// The response to a request that exceeds a rate limit.
#[derive(Object)]
#[oai(rename = "RateLimitError")]
struct RateLimitSchema {
    /// Always `rate_limit_exceeded`.
    error: String,
    /// Human-readable explanation. Do not parse it.
    message: String,
    /// Seconds until the rate limit's window ends. Equals the header `Retry-After`.
    retry_after: u32,
}

/// Error statuses with their descriptions in the published document.
/// `document::finish` removes those for which an operation has no code.
const DOCUMENTED: [(u16, &str); 13] = [
    (400, "The request is not valid. `messages` lists the problems by field or query parameter, unknown ones included."),
    (401, "The credentials are missing or wrong, or the request signature is not valid."),
    (402, "The wallet's balance is too low for the operation."),
    (403, "The caller is not allowed to perform this operation, or the account is suspended."),
    (404, "The resource does not exist, or the caller has no access to it."),
    (409, "The request conflicts with the current state of the resource."),
    (413, "The request body is too large."),
    (415, "The operation does not support the request body's `Content-Type`."),
    (422, "The request is well-formed but cannot be carried out."),
    (429, "The request exceeds a rate limit. Retry after the time in `Retry-After`."),
    (500, "An internal error occurred. `message` contains the request ID."),
    (503, "The service cannot process the request now. Nothing was changed, so a retry is safe."),
    (504, "The outcome is unknown. Retry with the same `Idempotency-Key`, or check whether the change was made."),
];

const RETRY_AFTER: &str = "Seconds to wait before a retry.";

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
                    "Supported schemes: `ApiKey` means `X-API-Key` and `X-API-Secret`, `Bearer` means `Authorization`.",
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

/// Describes a response header for the published document.
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
