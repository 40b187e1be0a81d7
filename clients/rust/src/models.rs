// Generated from openapi/client-v1.json by openapi-generator. Do not edit: run clients/generate rust.

//! Objects of the API: the bodies of requests and responses.

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};

use crate::amount::{Amount, as_number};
use crate::models;
use crate::secret::Secret;

/// The user that an invitation has become.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct AcceptedInvitation {
    /// Unique identifier of the user's account.
    pub account_id: i64,
    /// Email address to log in with.
    pub email: String,
    /// Unique identifier of the new user.
    pub id: i64,
    /// Role of the user.
    pub role: models::UserRole,
}

/// A new beneficiary.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct AddBeneficiary {
    /// Name of the person or company that receives the money.
    pub name: String,
    /// Type of account that receives the money.
    pub r#type: models::BeneficiaryType,
    /// Country of the account, as an ISO 3166-1 alpha-2 code.
    pub country: String,
    /// Currency of the account, as an ISO 4217 code. Payouts are made from the wallet in this currency. It must have
    /// at most two decimals.
    pub currency: String,
    /// IBAN or account number without spaces, or a telephone number for a mobile wallet. Responses contain its last
    /// four characters only.
    pub account_number: String,
    /// BIC, sort code or name of the mobile wallet's provider, where one is needed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bank_code: Option<String>,
}

impl AddBeneficiary {
    /// Creates the body with its required fields.
    pub fn new(
        name: impl Into<String>,
        r#type: models::BeneficiaryType,
        country: impl Into<String>,
        currency: impl Into<String>,
        account_number: impl Into<String>,
    ) -> Self {
        Self {
            name: name.into(),
            r#type,
            country: country.into(),
            currency: currency.into(),
            account_number: account_number.into(),
            bank_code: None,
        }
    }
}

/// An API key of the account, without its secret.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct ApiKey {
    /// Networks that requests with the API key may come from; null means any.
    pub allowed_networks: Option<Vec<String>>,
    /// Time at which the API key was created.
    pub created_at: DateTime<Utc>,
    /// Time from which on requests with the API key are refused; null means never.
    pub expires_at: Option<DateTime<Utc>>,
    /// Whether requests with this API key must have a valid `X-Signature`.
    pub hmac_required: bool,
    /// Unique identifier of the API key. Webhooks refer to it as `credential_id`.
    pub id: i64,
    /// Whether the API key is revoked. Requests with a revoked key are refused.
    pub is_revoked: bool,
    /// First 8 characters of the API key.
    pub key_prefix: String,
    /// Time of the last request with the API key, exact to about a minute; null if there was none yet.
    pub last_used_at: Option<DateTime<Utc>>,
    /// Name of the API key, for people to recognize it.
    pub name: String,
    /// Operations that the API key may use; null means all.
    pub scopes: Option<Vec<models::KeyScope>>,
}

/// One attempt to send a delivery, with the response.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Attempt {
    /// Number of the attempt, starting at 1. An attempt whose outcome is unknown is repeated under the same number.
    pub attempt: i32,
    /// Reason why the attempt failed, or a note that its outcome is unknown. Null if it succeeded or is in flight.
    pub error: Option<String>,
    /// Value of the header `X-Request-ID` that the attempt was sent with.
    pub request_id: String,
    /// First 64 KiB of the body of your endpoint's response. Null if there was none, or if retention has removed it.
    pub response_body: Option<String>,
    /// HTTP status that your endpoint returned; null if it returned none.
    pub response_status: Option<i32>,
    /// Duration of the attempt, in milliseconds; null while it is in flight or if its outcome is unknown.
    pub response_time_ms: Option<i32>,
    /// Time at which the attempt was sent.
    pub started_at: DateTime<Utc>,
}

/// Outcome of an attempt.
///
/// - `delivered`: the endpoint answered with a 2xx status.
/// - `failed`: it answered with another status, or not in time.
/// - `in_flight`: the outcome may still arrive.
/// - `unknown`: the node that made the attempt has not recorded its outcome, because it ended or lost the
///   database.
///
/// `Other` is a value that this version of the library does not know.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[non_exhaustive]
pub enum AttemptOutcome {
    #[serde(rename = "delivered")]
    Delivered,
    #[serde(rename = "failed")]
    Failed,
    #[serde(rename = "in_flight")]
    InFlight,
    #[serde(rename = "unknown")]
    Unknown,
    #[serde(untagged)]
    Other(String),
}

impl AttemptOutcome {
    /// Returns the value as the API writes it.
    pub fn as_str(&self) -> &str {
        match self {
            Self::Delivered => "delivered",
            Self::Failed => "failed",
            Self::InFlight => "in_flight",
            Self::Unknown => "unknown",
            Self::Other(value) => value,
        }
    }
}

impl std::fmt::Display for AttemptOutcome {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Delivery attempts of the account's webhooks by day.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct AttemptsByWebhook {
    /// The account's webhooks, newest first, each with its days.
    pub webhooks: Vec<models::WebhookStatistics>,
}

/// A recipient of payouts.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Beneficiary {
    /// Last four characters of the account number.
    pub account_last4: String,
    /// BIC, sort code or name of the mobile wallet's provider.
    pub bank_code: Option<String>,
    /// Country of the account, as an ISO 3166-1 alpha-2 code.
    pub country: String,
    /// Time at which the beneficiary was added.
    pub created_at: DateTime<Utc>,
    /// Currency of the account, as an ISO 4217 code.
    pub currency: String,
    /// Unique identifier of the beneficiary.
    pub id: i64,
    /// Name of the person or company that receives the money.
    pub name: String,
    /// Type of account that receives the money.
    pub r#type: models::BeneficiaryType,
}

/// Type of account that receives a payout.
///
/// - `BANK`: a bank account.
/// - `MOBILE_WALLET`: a mobile wallet, identified by a telephone number.
///
/// `Other` is a value that this version of the library does not know.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[non_exhaustive]
pub enum BeneficiaryType {
    #[serde(rename = "BANK")]
    Bank,
    #[serde(rename = "MOBILE_WALLET")]
    MobileWallet,
    #[serde(untagged)]
    Other(String),
}

impl BeneficiaryType {
    /// Returns the value as the API writes it.
    pub fn as_str(&self) -> &str {
        match self {
            Self::Bank => "BANK",
            Self::MobileWallet => "MOBILE_WALLET",
            Self::Other(value) => value,
        }
    }
}

impl std::fmt::Display for BeneficiaryType {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Optional details of a cancellation.
#[derive(Default, Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CancelOrder {
    /// Reason for the cancellation. The order shows it as `cancel_reason`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// A category of products.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Category {
    /// Unique identifier of the category.
    pub id: i64,
    /// Name of the category.
    pub name: String,
    /// Unique identifier of the parent category; null for a top-level category.
    pub parent_id: Option<i64>,
}

/// The present and the new password of the signed-in user.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ChangePassword {
    /// Present password.
    pub current_password: Secret,
    /// New password, 8 to 128 characters. Common passwords, and close variants of them, are refused.
    pub new_password: Secret,
}

impl ChangePassword {
    /// Creates the body with its required fields.
    pub fn new(current_password: impl Into<Secret>, new_password: impl Into<Secret>) -> Self {
        Self { current_password: current_password.into(), new_password: new_password.into() }
    }
}

/// New rules for logins.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ChangeSecurityPolicy {
    /// Whether owners need two-factor authentication. An owner without it may only enrol.
    pub owners_need_two_factor: bool,
}

impl ChangeSecurityPolicy {
    /// Creates the body with its required fields.
    pub fn new(owners_need_two_factor: bool) -> Self {
        Self { owners_need_two_factor }
    }
}

/// A new role of a user.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ChangeTeamMember {
    /// New role of the user.
    pub role: models::UserRole,
}

impl ChangeTeamMember {
    /// Creates the body with its required fields.
    pub fn new(role: models::UserRole) -> Self {
        Self { role }
    }
}

/// Changes to a webhook. At least one field is required. Fields that are left out keep their values.
#[derive(Default, Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ChangeWebhook {
    /// API credential to link: its signing secret becomes the token, from the next delivery on. Linking requires the
    /// role owner, or a request made with that credential.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub credential_id: Option<i64>,
    /// Event types that the webhook is subscribed to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub events: Option<Vec<models::WebhookEventType>>,
    /// Headers of your own that each delivery carries from the next one on. They replace all earlier ones; an empty
    /// list removes them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub headers: Option<Vec<models::WebhookHeader>>,
    /// Whether the webhook is active. An inactive webhook receives no events, and its pending deliveries fail.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub is_active: Option<bool>,
    /// Name of the webhook, for people to recognize it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// URL that receives the events. It must begin with `https://` and must not contain a user name or a password.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
}

/// Current price of an order. A charge is an estimate and reserves nothing.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Charge {
    /// Amount that the order would cost.
    pub amount: Amount,
    /// Currency of the product and of the wallet that would pay, as an ISO 4217 code.
    pub currency: String,
    /// Face value of one unit.
    pub denomination: Amount,
    /// The account's discount, in percent.
    pub discount: Amount,
    /// Amount saved by the discount: `face_value` − `amount`.
    pub discount_amount: Amount,
    /// Total face value: `denomination` × `quantity`.
    pub face_value: Amount,
    /// Unique identifier of the product.
    pub product_id: i64,
    /// Number of units.
    pub quantity: i32,
    /// Time at which the order was priced.
    pub quoted_at: DateTime<Utc>,
    /// Whether the wallet's balance covers the amount.
    pub sufficient_balance: bool,
    /// Current balance of the wallet that would pay.
    pub wallet_balance: Amount,
}

/// A token from a mail, and the password to log in with from now on.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ChoosePassword {
    /// Token from the mail. A successful request uses it up.
    pub token: Secret,
    /// New password, 8 to 128 characters. Common passwords, and close variants of them, are refused.
    pub password: Secret,
}

impl ChoosePassword {
    /// Creates the body with its required fields.
    pub fn new(token: impl Into<Secret>, password: impl Into<Secret>) -> Self {
        Self { token: token.into(), password: password.into() }
    }
}

/// Confirmation that the request has been carried out.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Confirmation {
    /// Confirmation in plain English.
    pub message: String,
}

/// A country.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Country {
    /// ISO 3166-1 alpha-2 code of the country.
    pub code: String,
    /// English name of the country.
    pub name: String,
}

/// A currency.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Currency {
    /// ISO 4217 code of the currency.
    pub code: String,
    /// Number of decimals that ISO 4217 defines for the currency: 0 or 2. The API always writes amounts with two.
    pub decimals: i32,
    /// English name of the currency.
    pub name: String,
}

/// Reason why the service has deactivated a webhook. New values may be added.
///
/// `Other` is a value that this version of the library does not know.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[non_exhaustive]
pub enum DeactivationReason {
    #[serde(rename = "failing")]
    Failing,
    #[serde(untagged)]
    Other(String),
}

impl DeactivationReason {
    /// Returns the value as the API writes it.
    pub fn as_str(&self) -> &str {
        match self {
            Self::Failing => "failing",
            Self::Other(value) => value,
        }
    }
}

impl std::fmt::Display for DeactivationReason {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Confirmation that a beneficiary is deleted. The history of its payouts is kept.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct DeletedBeneficiary {
    /// Unique identifier of the deleted beneficiary.
    pub beneficiary_id: i64,
    /// Confirmation in plain English.
    pub message: String,
}

/// Confirmation that a webhook is deleted. The history of its deliveries is kept.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct DeletedWebhook {
    /// Confirmation in plain English.
    pub message: String,
    /// Unique identifier of the deleted webhook.
    pub webhook_id: i64,
}

/// Delivery of one event to one webhook.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Delivery {
    /// Number of attempts made so far.
    pub attempt_count: i32,
    /// Time at which the delivery was created.
    pub created_at: DateTime<Utc>,
    /// Time of the successful attempt; null unless the status is `delivered`.
    pub delivered_at: Option<DateTime<Utc>>,
    /// ID of the event. The envelope's `event_id` and the header `X-Event-ID` have the same value.
    pub event_id: String,
    /// Type of the event.
    pub event_type: models::WebhookEventType,
    /// Unique identifier of the delivery.
    pub id: i64,
    /// Maximum number of attempts. When the last one fails, the delivery is `failed` for good.
    pub max_attempts: i32,
    /// Unique identifier of the order that the event is about; 0 for a test delivery, and for events of payouts and
    /// wallets.
    pub order_id: i64,
    /// Webhook envelope: the JSON body that each attempt sends.
    pub payload: serde_json::Value,
    /// HTTP status that your endpoint returned to the latest attempt; null if it returned none.
    pub response_status: Option<i32>,
    /// Duration of the latest attempt, in milliseconds; null if no attempt has ended or its outcome is unknown.
    pub response_time_ms: Option<i32>,
    /// Order of the event: it grows with every event of the same order, payout or wallet, and is not consecutive. The
    /// header `X-Event-Sequence` has the same value.
    pub sequence: i64,
    /// Current status of the delivery.
    pub status: models::DeliveryStatus,
    /// Unique identifier of the webhook that receives the event.
    pub webhook_url_id: i64,
}

/// A delivery with its latest response, and its attempts with their responses.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct DeliveryDetail {
    /// Number of attempts made so far.
    pub attempt_count: i32,
    /// The attempts, oldest first. Retention removes old ones.
    pub attempts: Vec<models::Attempt>,
    /// Time at which the delivery was created.
    pub created_at: DateTime<Utc>,
    /// Time of the successful attempt; null unless the status is `delivered`.
    pub delivered_at: Option<DateTime<Utc>>,
    /// ID of the event. The envelope's `event_id` and the header `X-Event-ID` have the same value.
    pub event_id: String,
    /// Type of the event.
    pub event_type: models::WebhookEventType,
    /// Unique identifier of the delivery.
    pub id: i64,
    /// Maximum number of attempts. When the last one fails, the delivery is `failed` for good.
    pub max_attempts: i32,
    /// Time at which the next attempt is due; null unless the status is `pending`.
    pub next_attempt_at: Option<DateTime<Utc>>,
    /// Unique identifier of the order that the event is about; 0 for a test delivery, and for events of payouts and
    /// wallets.
    pub order_id: i64,
    /// Webhook envelope: the JSON body that each attempt sends.
    pub payload: serde_json::Value,
    /// First 64 KiB of the body of your endpoint's latest response. Null if there was none, or if retention has
    /// removed it.
    pub response_body: Option<String>,
    /// HTTP status that your endpoint returned to the latest attempt; null if it returned none.
    pub response_status: Option<i32>,
    /// Duration of the latest attempt, in milliseconds; null if no attempt has ended or its outcome is unknown.
    pub response_time_ms: Option<i32>,
    /// Order of the event: it grows with every event of the same order, payout or wallet, and is not consecutive. The
    /// header `X-Event-Sequence` has the same value.
    pub sequence: i64,
    /// Current status of the delivery.
    pub status: models::DeliveryStatus,
    /// Unique identifier of the webhook that receives the event.
    pub webhook_url_id: i64,
}

/// Confirmation that a delivery will be retried.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct DeliveryRetry {
    /// Unique identifier of the delivery that will be retried.
    pub delivery_id: i64,
    /// Confirmation in plain English.
    pub message: String,
}

/// Delivery counts of an account.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct DeliveryStatistics {
    /// Number of `delivered` deliveries.
    pub delivered_count: i64,
    /// Number of `failed` deliveries.
    pub failed_count: i64,
    /// Number of deliveries created in the last 24 hours that are `delivered`.
    pub last_24h_delivered: i64,
    /// Number of deliveries created in the last 24 hours that are `failed`.
    pub last_24h_failed: i64,
    /// Number of deliveries created in the last 24 hours.
    pub last_24h_total: i64,
    /// Number of `pending` deliveries.
    pub pending_count: i64,
    /// Number of all deliveries.
    pub total_count: i64,
}

/// Status of a delivery.
///
/// - `pending`: an attempt is due or in flight.
/// - `delivered`: your endpoint answered an attempt with a 2xx status.
/// - `failed`: all attempts are used, or the delivery was stopped, for example because its webhook was
///   deactivated.
///
/// `Other` is a value that this version of the library does not know.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[non_exhaustive]
pub enum DeliveryStatus {
    #[serde(rename = "pending")]
    Pending,
    #[serde(rename = "delivered")]
    Delivered,
    #[serde(rename = "failed")]
    Failed,
    #[serde(untagged)]
    Other(String),
}

impl DeliveryStatus {
    /// Returns the value as the API writes it.
    pub fn as_str(&self) -> &str {
        match self {
            Self::Pending => "pending",
            Self::Delivered => "delivered",
            Self::Failed => "failed",
            Self::Other(value) => value,
        }
    }
}

impl std::fmt::Display for DeliveryStatus {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Kind of face values that a product has.
///
/// - `FIXED`: one of the values in `denominations`.
/// - `RANGE`: any value from `min_denomination` to `max_denomination`.
///
/// `Other` is a value that this version of the library does not know.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[non_exhaustive]
pub enum DenominationType {
    #[serde(rename = "FIXED")]
    Fixed,
    #[serde(rename = "RANGE")]
    Range,
    #[serde(untagged)]
    Other(String),
}

impl DenominationType {
    /// Returns the value as the API writes it.
    pub fn as_str(&self) -> &str {
        match self {
            Self::Fixed => "FIXED",
            Self::Range => "RANGE",
            Self::Other(value) => value,
        }
    }
}

impl std::fmt::Display for DenominationType {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.as_str())
    }
}

/// An enrolment in two-factor authentication that is not confirmed. It is shown only in this response.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Enrolment {
    /// URL to show to an authenticator app as a QR code. It contains the secret.
    pub otpauth_url: Secret,
    /// Secret to type into an authenticator app, in base32.
    pub secret: Secret,
}

/// Stable error code. Branch on it. New codes may be added; existing ones do not change.
///
/// `Other` is a value that this version of the library does not know.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[non_exhaustive]
pub enum ErrorCode {
    #[serde(rename = "E_VALIDATION_FAILURE")]
    ValidationFailure,
    #[serde(rename = "E_MALFORMED_JSON")]
    MalformedJson,
    #[serde(rename = "E_MALFORMED_REQUEST")]
    MalformedRequest,
    #[serde(rename = "E_UNAUTHORIZED")]
    Unauthorized,
    #[serde(rename = "E_API_KEY_EXPIRED")]
    ApiKeyExpired,
    #[serde(rename = "E_INVALID_CREDENTIALS")]
    InvalidCredentials,
    #[serde(rename = "E_TWO_FACTOR_REQUIRED")]
    TwoFactorRequired,
    #[serde(rename = "E_INVALID_TOKEN")]
    InvalidToken,
    #[serde(rename = "E_HMAC_SIGNATURE_REQUIRED")]
    HmacSignatureRequired,
    #[serde(rename = "E_HMAC_TIMESTAMP_EXPIRED")]
    HmacTimestampExpired,
    #[serde(rename = "E_HMAC_SIGNATURE_INVALID")]
    HmacSignatureInvalid,
    #[serde(rename = "E_HMAC_HEADER_INVALID")]
    HmacHeaderInvalid,
    #[serde(rename = "E_INSUFFICIENT_BALANCE")]
    InsufficientBalance,
    #[serde(rename = "E_FORBIDDEN")]
    Forbidden,
    #[serde(rename = "E_INSUFFICIENT_SCOPE")]
    InsufficientScope,
    #[serde(rename = "E_NETWORK_NOT_ALLOWED")]
    NetworkNotAllowed,
    #[serde(rename = "E_ACCOUNT_SUSPENDED")]
    AccountSuspended,
    #[serde(rename = "E_TWO_FACTOR_ENROLMENT")]
    TwoFactorEnrolment,
    #[serde(rename = "E_NOT_FOUND")]
    NotFound,
    #[serde(rename = "E_METHOD_NOT_ALLOWED")]
    MethodNotAllowed,
    #[serde(rename = "E_PAYLOAD_TOO_LARGE")]
    PayloadTooLarge,
    #[serde(rename = "E_URI_TOO_LONG")]
    UriTooLong,
    #[serde(rename = "E_UNSUPPORTED_MEDIA_TYPE")]
    UnsupportedMediaType,
    #[serde(rename = "E_ORDER_NOT_CANCELLABLE")]
    OrderNotCancellable,
    #[serde(rename = "E_DUPLICATE_REFERENCE")]
    DuplicateReference,
    #[serde(rename = "E_IDEMPOTENCY_IN_PROGRESS")]
    IdempotencyInProgress,
    #[serde(rename = "E_ALREADY_CREATED")]
    AlreadyCreated,
    #[serde(rename = "E_DELIVERY_NOT_FAILED")]
    DeliveryNotFailed,
    #[serde(rename = "E_DELIVERY_ATTEMPTS_EXHAUSTED")]
    DeliveryAttemptsExhausted,
    #[serde(rename = "E_WEBHOOK_INACTIVE")]
    WebhookInactive,
    #[serde(rename = "E_WEBHOOK_LIMIT_REACHED")]
    WebhookLimitReached,
    #[serde(rename = "E_PAYOUT_NOT_CANCELLABLE")]
    PayoutNotCancellable,
    #[serde(rename = "E_CONFLICT")]
    Conflict,
    #[serde(rename = "E_PRODUCT_UNAVAILABLE")]
    ProductUnavailable,
    #[serde(rename = "E_INVALID_DENOMINATION")]
    InvalidDenomination,
    #[serde(rename = "E_QUANTITY_LIMIT_EXCEEDED")]
    QuantityLimitExceeded,
    #[serde(rename = "E_CURRENCY_MISMATCH")]
    CurrencyMismatch,
    #[serde(rename = "E_IDEMPOTENCY_KEY_REUSED")]
    IdempotencyKeyReused,
    #[serde(rename = "E_HEADERS_TOO_LARGE")]
    HeadersTooLarge,
    #[serde(rename = "E_INTERNAL")]
    Internal,
    #[serde(rename = "E_UNAVAILABLE")]
    Unavailable,
    #[serde(rename = "E_OUTCOME_UNKNOWN")]
    OutcomeUnknown,
    #[serde(untagged)]
    Other(String),
}

impl ErrorCode {
    /// Returns the value as the API writes it.
    pub fn as_str(&self) -> &str {
        match self {
            Self::ValidationFailure => "E_VALIDATION_FAILURE",
            Self::MalformedJson => "E_MALFORMED_JSON",
            Self::MalformedRequest => "E_MALFORMED_REQUEST",
            Self::Unauthorized => "E_UNAUTHORIZED",
            Self::ApiKeyExpired => "E_API_KEY_EXPIRED",
            Self::InvalidCredentials => "E_INVALID_CREDENTIALS",
            Self::TwoFactorRequired => "E_TWO_FACTOR_REQUIRED",
            Self::InvalidToken => "E_INVALID_TOKEN",
            Self::HmacSignatureRequired => "E_HMAC_SIGNATURE_REQUIRED",
            Self::HmacTimestampExpired => "E_HMAC_TIMESTAMP_EXPIRED",
            Self::HmacSignatureInvalid => "E_HMAC_SIGNATURE_INVALID",
            Self::HmacHeaderInvalid => "E_HMAC_HEADER_INVALID",
            Self::InsufficientBalance => "E_INSUFFICIENT_BALANCE",
            Self::Forbidden => "E_FORBIDDEN",
            Self::InsufficientScope => "E_INSUFFICIENT_SCOPE",
            Self::NetworkNotAllowed => "E_NETWORK_NOT_ALLOWED",
            Self::AccountSuspended => "E_ACCOUNT_SUSPENDED",
            Self::TwoFactorEnrolment => "E_TWO_FACTOR_ENROLMENT",
            Self::NotFound => "E_NOT_FOUND",
            Self::MethodNotAllowed => "E_METHOD_NOT_ALLOWED",
            Self::PayloadTooLarge => "E_PAYLOAD_TOO_LARGE",
            Self::UriTooLong => "E_URI_TOO_LONG",
            Self::UnsupportedMediaType => "E_UNSUPPORTED_MEDIA_TYPE",
            Self::OrderNotCancellable => "E_ORDER_NOT_CANCELLABLE",
            Self::DuplicateReference => "E_DUPLICATE_REFERENCE",
            Self::IdempotencyInProgress => "E_IDEMPOTENCY_IN_PROGRESS",
            Self::AlreadyCreated => "E_ALREADY_CREATED",
            Self::DeliveryNotFailed => "E_DELIVERY_NOT_FAILED",
            Self::DeliveryAttemptsExhausted => "E_DELIVERY_ATTEMPTS_EXHAUSTED",
            Self::WebhookInactive => "E_WEBHOOK_INACTIVE",
            Self::WebhookLimitReached => "E_WEBHOOK_LIMIT_REACHED",
            Self::PayoutNotCancellable => "E_PAYOUT_NOT_CANCELLABLE",
            Self::Conflict => "E_CONFLICT",
            Self::ProductUnavailable => "E_PRODUCT_UNAVAILABLE",
            Self::InvalidDenomination => "E_INVALID_DENOMINATION",
            Self::QuantityLimitExceeded => "E_QUANTITY_LIMIT_EXCEEDED",
            Self::CurrencyMismatch => "E_CURRENCY_MISMATCH",
            Self::IdempotencyKeyReused => "E_IDEMPOTENCY_KEY_REUSED",
            Self::HeadersTooLarge => "E_HEADERS_TOO_LARGE",
            Self::Internal => "E_INTERNAL",
            Self::Unavailable => "E_UNAVAILABLE",
            Self::OutcomeUnknown => "E_OUTCOME_UNKNOWN",
            Self::Other(value) => value,
        }
    }
}

impl std::fmt::Display for ErrorCode {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.as_str())
    }
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct ErrorDetail {
    /// Stable code to branch on. New codes may be added; handle an unknown one by its HTTP status.
    pub code: models::ErrorCode,
    /// Human-readable explanation. Its wording may change, so do not parse it.
    pub message: String,
    /// Problems of each field or parameter, by its name or path. Left out when the error is not about a field.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub messages: Option<std::collections::HashMap<String, Vec<String>>>,
    /// Class of the error, one per HTTP status, for example `ValidationError`.
    pub name: String,
}

/// A delivery of the event to the webhook.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct EventDelivery {
    /// Number of attempts made so far.
    pub attempt_count: i32,
    /// Time at which the delivery was created.
    pub created_at: DateTime<Utc>,
    /// Unique identifier of the delivery.
    pub delivery_id: i64,
    /// Whether a replay made the delivery, yours or an operator's, instead of the event itself.
    pub is_replay: bool,
    /// Current outcome of the delivery.
    pub outcome: models::EventOutcome,
    /// HTTP status that your endpoint returned to the latest attempt; null if it returned none.
    pub response_status: Option<i32>,
}

/// An event of the order, with what became of it at the webhook.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct EventExplanation {
    /// Time of the event.
    pub created_at: DateTime<Utc>,
    /// Deliveries of the event to the webhook, oldest first.
    pub deliveries: Vec<models::EventDelivery>,
    /// ID of the event. The envelope's `event_id` and the header `X-Event-ID` have the same value.
    pub event_id: String,
    /// Type of the event.
    pub event_type: models::WebhookEventType,
    /// Explanation in plain English. Its wording may change.
    pub explanation: String,
    /// Outcome of the event at the webhook.
    pub outcome: models::EventOutcome,
    /// State of the webhook at that time. It decided whether the event was sent.
    pub webhook_state: models::WebhookState,
}

/// Outcome of an event at the webhook.
///
/// - `delivered`: a delivery of the event succeeded.
/// - `pending`: a delivery is due or in flight.
/// - `failed`: every delivery of the event failed or was stopped.
/// - `not_sent`: the event was never sent to the webhook.
///
/// `Other` is a value that this version of the library does not know.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[non_exhaustive]
pub enum EventOutcome {
    #[serde(rename = "delivered")]
    Delivered,
    #[serde(rename = "pending")]
    Pending,
    #[serde(rename = "failed")]
    Failed,
    #[serde(rename = "not_sent")]
    NotSent,
    #[serde(untagged)]
    Other(String),
}

impl EventOutcome {
    /// Returns the value as the API writes it.
    pub fn as_str(&self) -> &str {
        match self {
            Self::Delivered => "delivered",
            Self::Pending => "pending",
            Self::Failed => "failed",
            Self::NotSent => "not_sent",
            Self::Other(value) => value,
        }
    }
}

impl std::fmt::Display for EventOutcome {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Part of the account's events, oldest first.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct EventPage {
    /// Cursor to send as `after` in the next request. Store it after you have processed the events. It never expires.
    pub cursor: String,
    /// Event envelopes: the same JSON, byte for byte, that webhooks receive. A test delivery is not among them.
    pub events: Vec<models::WebhookEnvelope>,
    /// Whether the log goes on after the cursor. If it does, request the next part at once, even if `events` is
    /// empty.
    pub has_more: bool,
    /// Sequence of each event in `events`, in the same order. Order events by it: it grows with every event of the
    /// account, and is not consecutive. The header `X-Event-Sequence` of a webhook has the same value.
    pub sequences: Vec<i64>,
}

/// Test money to add to a wallet.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FundOwnWallet {
    /// Amount to add, greater than `0.00`.
    pub amount: Amount,
}

impl FundOwnWallet {
    /// Creates the body with its required fields.
    pub fn new(amount: Amount) -> Self {
        Self { amount }
    }
}

/// Person or process that caused an event.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct HistoryActor {
    /// Unique identifier of the actor within its kind; null for a process, such as `fulfilment`.
    pub actor_id: Option<i64>,
    /// Kind of actor: `credential`, `user`, `operator`, `fulfilment`, `replay`, `sandbox` or `service`.
    pub kind: String,
    /// Name of the credential or operator, or the user's email address, if known.
    pub name: Option<String>,
}

/// An attempt to send a delivery.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct HistoryAttempt {
    /// Number of the attempt, from 1. An attempt with an unknown outcome is repeated under the same number.
    pub attempt: i32,
    /// Reason for the failure, if the attempt failed.
    pub error: Option<String>,
    /// Outcome: `delivered`, `failed`, `in_flight`, or `unknown` if the attempt was interrupted before its outcome
    /// was recorded.
    pub outcome: String,
    /// `X-Request-ID` that the attempt was sent with.
    pub request_id: String,
    /// HTTP status of the receiver's response, if there was one.
    pub response_status: Option<i32>,
    /// Response time of the receiver, in milliseconds.
    pub response_time_ms: Option<i32>,
    /// Time at which the attempt started.
    pub started_at: DateTime<Utc>,
}

/// A delivery to a webhook.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct HistoryDelivery {
    /// Number of attempts with a known outcome.
    pub attempt_count: i32,
    /// Attempts that are still stored, oldest first.
    pub attempts: Vec<models::HistoryAttempt>,
    /// Time at which the delivery was created.
    pub created_at: DateTime<Utc>,
    /// Unique identifier of the delivery.
    pub delivery_id: i64,
    /// Event type that the webhook receives.
    pub event_type: String,
    /// Time at which the next attempt is due; null if none is planned.
    pub next_attempt_at: Option<DateTime<Utc>>,
    /// Replay that created the delivery; null if the event itself created it.
    pub replay_id: Option<i64>,
    /// Retries that were requested for the delivery.
    pub retries: Vec<models::HistoryRetry>,
    /// Status of the delivery: `pending`, `delivered` or `failed`.
    pub status: String,
    /// Unique identifier of the webhook.
    pub webhook_id: i64,
    /// Name of the webhook; null after it is erased.
    pub webhook_name: Option<String>,
}

/// A request to retry a failed delivery.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct HistoryRetry {
    /// Actor that requested the retry.
    pub actor: models::HistoryActor,
    /// Time of the request.
    pub requested_at: DateTime<Utc>,
}

/// Size of an image.
///
/// - `original`: the image as it was uploaded.
/// - `thumbnail`: a JPEG of at most 240 by 160 pixels, for lists.
/// - `preview`: a JPEG of at most 640 by 480 pixels.
///
/// A small image is returned as it was uploaded for every size.
///
/// `Other` is a value that this version of the library does not know.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[non_exhaustive]
pub enum ImageSize {
    #[serde(rename = "original")]
    Original,
    #[serde(rename = "thumbnail")]
    Thumbnail,
    #[serde(rename = "preview")]
    Preview,
    #[serde(untagged)]
    Other(String),
}

impl ImageSize {
    /// Returns the value as the API writes it.
    pub fn as_str(&self) -> &str {
        match self {
            Self::Original => "original",
            Self::Thumbnail => "thumbnail",
            Self::Preview => "preview",
            Self::Other(value) => value,
        }
    }
}

impl std::fmt::Display for ImageSize {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.as_str())
    }
}

/// An invitation that nobody has accepted.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Invitation {
    /// Time of the invitation.
    pub created_at: DateTime<Utc>,
    /// Email address that the invitation was sent to.
    pub email: String,
    /// Time at which the invitation expires, 7 days later.
    pub expires_at: DateTime<Utc>,
    /// Unique identifier of the invitation.
    pub id: i64,
    /// Unique identifier of the user who sent the invitation.
    pub invited_by: i64,
    /// Role of the user that the invitation becomes.
    pub role: models::UserRole,
}

/// A person to invite.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct InvitePerson {
    /// Email address to send the invitation to, and to log in with afterwards.
    pub email: String,
    /// Role of the user that the invitation becomes.
    pub role: models::UserRole,
}

impl InvitePerson {
    /// Creates the body with its required fields.
    pub fn new(email: impl Into<String>, role: models::UserRole) -> Self {
        Self { email: email.into(), role }
    }
}

/// A new API credential.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct IssueCredential {
    /// Name of the credential, for people to recognize it.
    pub name: String,
    /// Networks that requests with the key may come from, such as `203.0.113.0/24`, or single addresses. Default:
    /// any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub allowed_networks: Option<Vec<String>>,
    /// Time from which on requests with the key are refused. Default: never.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<DateTime<Utc>>,
    /// Operations that the key may use. Default: all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scopes: Option<Vec<models::KeyScope>>,
}

impl IssueCredential {
    /// Creates the body with its required fields.
    pub fn new(name: impl Into<String>) -> Self {
        Self { name: name.into(), allowed_networks: None, expires_at: None, scopes: None }
    }
}

/// A newly issued credential. Key and secret are shown only in this response.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct IssuedCredential {
    /// API key to send in the `X-API-Key` header. Logs and reports identify it by its first 8 characters.
    pub api_key: String,
    /// API secret to send in the `X-API-Secret` header.
    pub api_secret: Secret,
    /// Unique identifier of the credential.
    pub id: i64,
}

/// Group of operations that an API key may use.
///
/// - `read`: read everything except voucher codes, and quote charges.
/// - `orders`: place and cancel orders, and read voucher codes.
/// - `webhooks`: manage webhooks, and repeat deliveries.
/// - `payouts`: manage beneficiaries and payouts.
///
/// `Other` is a value that this version of the library does not know.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[non_exhaustive]
pub enum KeyScope {
    #[serde(rename = "read")]
    Read,
    #[serde(rename = "orders")]
    Orders,
    #[serde(rename = "webhooks")]
    Webhooks,
    #[serde(rename = "payouts")]
    Payouts,
    #[serde(untagged)]
    Other(String),
}

impl KeyScope {
    /// Returns the value as the API writes it.
    pub fn as_str(&self) -> &str {
        match self {
            Self::Read => "read",
            Self::Orders => "orders",
            Self::Webhooks => "webhooks",
            Self::Payouts => "payouts",
            Self::Other(value) => value,
        }
    }
}

impl std::fmt::Display for KeyScope {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.as_str())
    }
}

/// An attempt with the delivery that it belongs to.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct ListedAttempt {
    /// Number of the attempt, starting at 1. An attempt whose outcome is unknown is repeated under the same number.
    pub attempt: i32,
    /// Unique identifier of the delivery.
    pub delivery_id: i64,
    /// Reason why the attempt failed, or a note that its outcome is unknown. Null if it succeeded or is in flight.
    pub error: Option<String>,
    /// ID of the event.
    pub event_id: String,
    /// Type of the event.
    pub event_type: String,
    /// Time at which the attempt ended; null without a recorded outcome.
    pub finished_at: Option<DateTime<Utc>>,
    /// Unique identifier of the order that the event is about; 0 for a test delivery, and for events of payouts and
    /// wallets.
    pub order_id: i64,
    /// Outcome of the attempt.
    pub outcome: models::AttemptOutcome,
    /// Value of the header `X-Request-ID` that the attempt was sent with.
    pub request_id: String,
    /// HTTP status that your endpoint returned; null if it returned none.
    pub response_status: Option<i32>,
    /// Duration of the attempt, in milliseconds; null while it is in flight or if its outcome is unknown.
    pub response_time_ms: Option<i32>,
    /// Time at which the attempt was sent.
    pub started_at: DateTime<Utc>,
}

/// Confirmation that the session has ended.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct LoggedOut {
    /// Confirmation in plain English.
    pub message: String,
}

/// The credentials of a user.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Login {
    /// Email address of the user. Case does not matter.
    pub email: String,
    /// Password of the user.
    pub password: Secret,
    /// Code from the authenticator app, or a recovery code, for a user with two-factor authentication. Each works
    /// once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub otp: Option<Secret>,
}

impl Login {
    /// Creates the body with its required fields.
    pub fn new(email: impl Into<String>, password: impl Into<Secret>) -> Self {
        Self { email: email.into(), password: password.into(), otp: None }
    }
}

/// Notice of a low balance.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct LowBalanceNotice {
    /// Amount that the balance must fall below; null for no notices.
    pub below: Option<Amount>,
    /// Wallet that the notice is about.
    pub wallet_id: i64,
}

/// A code of the second factor.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct OneTimeCode {
    /// Six digits from the authenticator app. To disable two-factor authentication, a recovery code is accepted too.
    pub otp: Secret,
}

impl OneTimeCode {
    /// Creates the body with its required fields.
    pub fn new(otp: impl Into<Secret>) -> Self {
        Self { otp: otp.into() }
    }
}

/// An order for units of one product, priced and debited from a wallet when it is placed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Order {
    /// Amount debited from the wallet.
    pub amount: Amount,
    /// Reason given with the cancellation. Null if there was none or the data is erased.
    pub cancel_reason: Option<String>,
    /// Time of the cancellation; null unless the status is `CANCELLED`.
    pub cancelled_on: Option<DateTime<Utc>>,
    /// Your own reference for the order, as sent when it was placed.
    pub client_reference: Option<String>,
    /// Time at which the order was placed.
    pub created_at: DateTime<Utc>,
    /// Currency of all amounts of the order, as an ISO 4217 code.
    pub currency: String,
    /// Time at which the last unit was delivered; null unless the status is `DELIVERED`.
    pub delivered_on: Option<DateTime<Utc>>,
    /// Number of units delivered so far.
    pub delivered_quantity: i32,
    /// Face value of one unit.
    pub denomination: Amount,
    /// Discount at the time of the order, in percent.
    pub discount: Amount,
    /// Amount saved by the discount: `face_value` − `amount`.
    pub discount_amount: Amount,
    /// Total face value: `denomination` × `quantity`.
    pub face_value: Amount,
    /// Unique identifier of the order.
    pub id: i64,
    /// Metadata sent with the order. Null if there was none or the data is erased.
    pub metadata: Option<serde_json::Value>,
    /// Delivered units, grouped into one item per delivery.
    pub order_items: Vec<models::OrderItem>,
    /// Unique identifier of the product.
    pub product_id: i64,
    /// Name of the product at the time of the order.
    pub product_name: String,
    /// Number of units ordered.
    pub quantity: i32,
    /// Human-readable reference of the order, assigned by the service.
    pub reference_code: String,
    /// Amount that the cancellation returned to the wallet; `0.00` if the order is not cancelled.
    pub refunded_amount: Amount,
    /// Current status of the order.
    pub status: models::OrderStatus,
    /// Detail of the status: empty, `OUT_OF_STOCK`, `AWAITING_REMAINDER`, `CANCELLED_BY_CLIENT`,
    /// `CANCELLED_BY_OPERATOR` or `REMAINDER_CANCELLED`. New values may be added; treat an unknown one as information
    /// only.
    pub sub_status: String,
    /// Unique identifier of the wallet transaction that debited the amount.
    pub transaction_id: i64,
    /// Time of the order's latest change.
    pub updated_at: DateTime<Utc>,
}

/// Orders and spend of one day (UTC).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct OrderDay {
    /// The day, as `YYYY-MM-DD`.
    pub day: String,
    /// Number of orders placed on the day.
    pub orders: i64,
    /// Spend of the day, by currency. Empty if nothing was spent or refunded.
    pub spend: Vec<models::Spend>,
}

/// Units of an order that were delivered together.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct OrderItem {
    /// Time at which the units were delivered.
    pub delivered_on: DateTime<Utc>,
    /// Status of the item, always `DELIVERED`.
    pub status: String,
    /// The vouchers, one per unit.
    pub vouchers: Vec<models::VoucherReference>,
}

/// Orders and spend by day.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct OrderStatistics {
    /// The days, oldest first, up to today. Days without orders are included.
    pub days: Vec<models::OrderDay>,
    /// All orders of the account by their present status. Each status is listed.
    pub statuses: Vec<models::OrdersInStatus>,
}

/// Status of an order. `DELIVERED` and `CANCELLED` are final.
///
/// - `PENDING`: placed and paid.
/// - `DELAYED`: waiting for stock; no unit is delivered yet.
/// - `PARTIALLY_DELIVERED`: some units are delivered, the others wait for stock.
/// - `DELIVERED`: all units are delivered.
/// - `CANCELLED`: cancelled by the client or an operator. Undelivered units are refunded.
///
/// `Other` is a value that this version of the library does not know.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[non_exhaustive]
pub enum OrderStatus {
    #[serde(rename = "PENDING")]
    Pending,
    #[serde(rename = "DELAYED")]
    Delayed,
    #[serde(rename = "PARTIALLY_DELIVERED")]
    PartiallyDelivered,
    #[serde(rename = "DELIVERED")]
    Delivered,
    #[serde(rename = "CANCELLED")]
    Cancelled,
    #[serde(untagged)]
    Other(String),
}

impl OrderStatus {
    /// Returns the value as the API writes it.
    pub fn as_str(&self) -> &str {
        match self {
            Self::Pending => "PENDING",
            Self::Delayed => "DELAYED",
            Self::PartiallyDelivered => "PARTIALLY_DELIVERED",
            Self::Delivered => "DELIVERED",
            Self::Cancelled => "CANCELLED",
            Self::Other(value) => value,
        }
    }
}

impl std::fmt::Display for OrderStatus {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Everything that happened to an order.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct OrderTimeline {
    /// Events of the order, oldest first.
    pub entries: Vec<models::OrderTimelineEntry>,
    /// Number of code readings that `entries` omits. After 1,000 entries, only the last 100 readings are included.
    pub entries_left_out: i64,
    /// Unique identifier of the order.
    pub order_id: i64,
    /// Human-readable reference of the order, assigned by the service.
    pub reference_code: String,
    /// Current status of the order.
    pub status: String,
}

/// An event of an order, with its effects.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct OrderTimelineEntry {
    /// Person or process that caused the event. Operators of the service are not named.
    pub actor: models::HistoryActor,
    /// Webhook deliveries of the event, in their current state.
    pub deliveries: Vec<models::HistoryDelivery>,
    /// Description of the event in plain English. Vouchers appear by reference only. Do not parse it.
    pub description: String,
    /// Unique identifier of the event. Webhook deliveries carry the same identifier.
    pub event_id: String,
    /// Type of the event in the log, such as `OrderPlaced`. New types may be added.
    pub event_type: String,
    /// Reason given with a cancellation, if any.
    pub reason: Option<String>,
    /// Time at which the event was recorded.
    pub recorded_at: DateTime<Utc>,
    /// `X-Request-ID` of the request that caused the event, or the name of the background process.
    pub request_id: String,
    /// A movement of money into or out of a wallet.
    pub transaction: Option<models::Transaction>,
}

/// Number of orders in a status.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct OrdersInStatus {
    /// Number of the account's orders that are in this status now, whenever they were placed.
    pub orders: i64,
    /// Status of an order. `DELIVERED` and `CANCELLED` are final.
    ///
    /// - `PENDING`: placed and paid.
    /// - `DELAYED`: waiting for stock; no unit is delivered yet.
    /// - `PARTIALLY_DELIVERED`: some units are delivered, the others wait for stock.
    /// - `DELIVERED`: all units are delivered.
    /// - `CANCELLED`: cancelled by the client or an operator. Undelivered units are refunded.
    pub status: models::OrderStatus,
}

/// A payment from a wallet to a beneficiary.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Payout {
    /// Amount debited from the wallet.
    pub amount: Amount,
    /// Unique identifier of the beneficiary that receives the money.
    pub beneficiary_id: i64,
    /// Your own reference for the payout, as sent when it was requested.
    pub client_reference: Option<String>,
    /// Time at which the payout was requested.
    pub created_at: DateTime<Utc>,
    /// Currency of the amount, as an ISO 4217 code.
    pub currency: String,
    /// Reason given by the operator for a failed payout. Null if there is none or the data is erased.
    pub failure_reason: Option<String>,
    /// Unique identifier of the payout.
    pub id: i64,
    /// Time at which the payout became `PAID`, `FAILED` or `CANCELLED`; null while it is `PENDING`.
    pub settled_at: Option<DateTime<Utc>>,
    /// Current status of the payout.
    pub status: models::PayoutStatus,
    /// Unique identifier of the wallet that was debited.
    pub wallet_id: i64,
}

/// Status of a payout. `PAID`, `FAILED` and `CANCELLED` are final.
///
/// - `PENDING`: debited from the wallet and waiting for an operator to settle it.
/// - `PAID`: the money was sent.
/// - `FAILED`: the money could not be sent and was returned to the wallet.
/// - `CANCELLED`: cancelled by the client, and the money was returned to the wallet.
///
/// `Other` is a value that this version of the library does not know.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[non_exhaustive]
pub enum PayoutStatus {
    #[serde(rename = "PENDING")]
    Pending,
    #[serde(rename = "PAID")]
    Paid,
    #[serde(rename = "FAILED")]
    Failed,
    #[serde(rename = "CANCELLED")]
    Cancelled,
    #[serde(untagged)]
    Other(String),
}

impl PayoutStatus {
    /// Returns the value as the API writes it.
    pub fn as_str(&self) -> &str {
        match self {
            Self::Pending => "PENDING",
            Self::Paid => "PAID",
            Self::Failed => "FAILED",
            Self::Cancelled => "CANCELLED",
            Self::Other(value) => value,
        }
    }
}

impl std::fmt::Display for PayoutStatus {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.as_str())
    }
}

/// An order to place. The service prices it and debits the wallet in the product's currency.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PlaceOrder {
    /// Product to order, from `GET /api/v1/products`.
    pub product_id: i64,
    /// Face value of one unit, as a number with at most two decimals. It is read exactly, without floating-point
    /// rounding.
    #[serde(serialize_with = "as_number")]
    pub denomination: Amount,
    /// Number of units, from 1 to the product's `max_quantity`.
    pub quantity: i32,
    /// Your own reference for the order, unique within the account forever. Repeating the same request returns the
    /// existing order with status 200. A different request with the same reference fails with 409
    /// `E_DUPLICATE_REFERENCE`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client_reference: Option<String>,
    /// Additional data of your own to store with the order, as a JSON object of at most 4 KiB. The order returns it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metadata: Option<serde_json::Value>,
}

impl PlaceOrder {
    /// Creates the body with its required fields.
    pub fn new(product_id: i64, denomination: Amount, quantity: i32) -> Self {
        Self { product_id, denomination, quantity, client_reference: None, metadata: None }
    }
}

/// A product that can be ordered, such as a gift card.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Product {
    /// Brand of the product.
    pub brand: String,
    /// Unique identifier of the product's category, from `GET /api/v1/categories`; null if it has none.
    pub category_id: Option<i64>,
    /// Country of the product, as an ISO 3166-1 alpha-2 code.
    pub country: String,
    /// Currency of the product, as an ISO 4217 code. Orders are paid from the wallet in this currency.
    pub currency: String,
    /// Kind of face values: `FIXED` or `RANGE`.
    pub denomination_type: models::DenominationType,
    /// Available face values of a `FIXED` product; empty for a `RANGE` product.
    pub denominations: Vec<Amount>,
    /// Description of the product, for people.
    pub description: String,
    /// Your account's discount on the product, in percent.
    pub discount: Amount,
    /// Unique identifier of the product.
    pub id: i64,
    /// URL of the product's image; null if it has none. GET it with your API key. The URL changes when the image
    /// does.
    pub image_url: Option<String>,
    /// Whether the product is active. Inactive products cannot be ordered.
    pub is_active: bool,
    /// Largest face value of a `RANGE` product; null for a `FIXED` product.
    pub max_denomination: Option<Amount>,
    /// Maximum number of units per order.
    pub max_quantity: i32,
    /// Smallest face value of a `RANGE` product; null for a `FIXED` product.
    pub min_denomination: Option<Amount>,
    /// Name of the product.
    pub name: String,
    /// Terms of use, for people.
    pub terms: String,
    /// Time of the product's latest change. A change of your discount does not count.
    pub updated_at: DateTime<Utc>,
}

/// Location of a product's image.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct ProductImage {
    /// Media type of the image: `image/png`, `image/jpeg` or `image/webp`.
    pub content_type: String,
    /// URL of the image. GET it with your API key. The URL changes when the image does.
    pub image_url: String,
    /// Unique identifier of the product.
    pub product_id: i64,
    /// Time at which the image was set.
    pub updated_at: DateTime<Utc>,
}

/// An order to price.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct QuoteCharge {
    /// Product to price, from `GET /api/v1/products`.
    pub product_id: i64,
    /// Face value of one unit, as a number with at most two decimals. It is read exactly, without floating-point
    /// rounding.
    #[serde(serialize_with = "as_number")]
    pub denomination: Amount,
    /// Number of units, from 1 to the product's `max_quantity`.
    pub quantity: i32,
    /// Metadata as in an order, at most 4 KiB of JSON. It does not affect the price and is not stored.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metadata: Option<serde_json::Value>,
}

impl QuoteCharge {
    /// Creates the body with its required fields.
    pub fn new(product_id: i64, denomination: Amount, quantity: i32) -> Self {
        Self { product_id, denomination, quantity, metadata: None }
    }
}

/// The response to a request that exceeds a rate limit.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct RateLimitError {
    /// Always `rate_limit_exceeded`.
    pub error: String,
    /// Human-readable explanation. Do not parse it.
    pub message: String,
    /// Seconds until the rate limit's window ends. Equals the header `Retry-After`.
    pub retry_after: i64,
}

/// A transaction with the event that recorded it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct RecordedTransaction {
    /// Amount moved, always positive. `type` gives the direction.
    pub amount: Amount,
    /// Balance of the wallet right after the transaction.
    pub balance_after: Amount,
    /// Reason for the transaction: `FUNDING`, `ORDER`, `ORDER_REFUND`, `ADJUSTMENT`, `PAYOUT` or `PAYOUT_REFUND`.
    pub category: String,
    /// Time at which the money moved.
    pub created_at: DateTime<Utc>,
    /// Currency of the wallet, as an ISO 4217 code.
    pub currency: String,
    /// Description in plain English. Do not parse it.
    pub description: String,
    /// Unique identifier of the event in the log that moved the money. Support finds the event by it. Webhooks about
    /// the order or the payout have an `event_id` of their own.
    pub event_id: String,
    /// Unique identifier of the transaction.
    pub id: i64,
    /// Unique identifier of the order that was paid or refunded; null for other categories.
    pub order_id: Option<i64>,
    /// The `reference_code` of the order, the reference of the funding, or `PAY-` followed by the payout's ID; null
    /// if none.
    pub reference: Option<String>,
    /// Direction of the transaction: `CREDIT` or `DEBIT`.
    pub r#type: models::TransactionType,
    /// Unique identifier of the wallet.
    pub wallet_id: i64,
}

/// Recovery codes. They are shown only in this response.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct RecoveryCodes {
    /// Codes that replace the authenticator app, each once. Keep them where the app is not.
    pub recovery_codes: Vec<Secret>,
}

/// A refresh token to exchange for new tokens.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Refresh {
    /// Refresh token from the latest login or refresh. This request uses it up.
    pub refresh_token: Secret,
}

impl Refresh {
    /// Creates the body with its required fields.
    pub fn new(refresh_token: impl Into<Secret>) -> Self {
        Self { refresh_token: refresh_token.into() }
    }
}

/// A webhook to register.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RegisterWebhook {
    /// Name of the webhook, for people to recognize it.
    pub name: String,
    /// URL that receives the events. It must begin with `https://` and must not contain a user name or a password.
    pub url: String,
    /// Event types that the webhook is subscribed to.
    pub events: Vec<models::WebhookEventType>,
    /// API credential to link: its signing secret becomes the token. Without it, the service generates a separate
    /// token. Linking requires the role owner, or a request made with that credential.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub credential_id: Option<i64>,
    /// Headers of your own that each delivery carries, such as `Authorization`. At most 10.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub headers: Option<Vec<models::WebhookHeader>>,
}

impl RegisterWebhook {
    /// Creates the body with its required fields.
    pub fn new(name: impl Into<String>, url: impl Into<String>, events: Vec<models::WebhookEventType>) -> Self {
        Self { name: name.into(), url: url.into(), events, credential_id: None, headers: None }
    }
}

/// A newly registered webhook. The token is shown only in this response.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct RegisteredWebhook {
    /// Time at which the webhook was registered.
    pub created_at: DateTime<Utc>,
    /// Event types that the webhook is subscribed to.
    pub events: Vec<models::WebhookEventType>,
    /// Unique identifier of the webhook. Each delivery has it in the header `X-Webhook-ID`.
    pub id: i64,
    /// Whether the webhook is active. An inactive webhook receives no events.
    pub is_active: bool,
    /// Name of the webhook, for people to recognize it.
    pub name: String,
    /// Secret that signs the deliveries. Store it safely: it is not shown again.
    pub token: Secret,
    /// URL that receives the events.
    pub url: String,
}

/// Events to deliver again.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ReplayEvents {
    /// Only events recorded at or after this time.
    pub since: DateTime<Utc>,
    /// Whether to count the events only, without starting a replay. Default: false.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dry_run: Option<bool>,
    /// Only events at or after this position of the log. To go on with a dry run that is not complete, give its
    /// `next_position` here. Default: no limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from_position: Option<i64>,
    /// Part of the events that never reached the webhook.
    ///
    /// - `failed`: events that were sent to the webhook, and failed.
    /// - `missed`: events that were never sent to the webhook, for example because it was inactive or did not exist.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub only: Option<models::ReplayedEvents>,
}

impl ReplayEvents {
    /// Creates the body with its required fields.
    pub fn new(since: DateTime<Utc>) -> Self {
        Self { since, dry_run: None, from_position: None, only: None }
    }
}

/// A started replay, or the result of a dry run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct ReplayRequested {
    /// Number of events found. Null unless this was a dry run.
    pub found: Option<i64>,
    /// Whether the dry run has counted all events. If not, there may be more. Null unless this was a dry run.
    pub is_complete: Option<bool>,
    /// Position of the log at which the next dry run continues the count. Null if the count is complete.
    pub next_position: Option<i64>,
    /// A replay of events to a webhook, and the outcome of its deliveries.
    pub replay: Option<models::WebhookReplay>,
    /// Position of the log at which the count will be complete. Null unless this was a dry run.
    pub until_position: Option<i64>,
}

/// Status of a replay.
///
/// - `RUNNING`: the replay is creating deliveries.
/// - `COMPLETED`: the replay has created all its deliveries.
/// - `CANCELLED`: the replay was cancelled. Deliveries that were still pending have failed.
/// - `FAILED`: the webhook was deactivated or deleted before the replay completed.
///
/// `Other` is a value that this version of the library does not know.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[non_exhaustive]
pub enum ReplayStatus {
    #[serde(rename = "RUNNING")]
    Running,
    #[serde(rename = "COMPLETED")]
    Completed,
    #[serde(rename = "CANCELLED")]
    Cancelled,
    #[serde(rename = "FAILED")]
    Failed,
    #[serde(untagged)]
    Other(String),
}

impl ReplayStatus {
    /// Returns the value as the API writes it.
    pub fn as_str(&self) -> &str {
        match self {
            Self::Running => "RUNNING",
            Self::Completed => "COMPLETED",
            Self::Cancelled => "CANCELLED",
            Self::Failed => "FAILED",
            Self::Other(value) => value,
        }
    }
}

impl std::fmt::Display for ReplayStatus {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Part of the events that never reached the webhook.
///
/// - `failed`: events that were sent to the webhook, and failed.
/// - `missed`: events that were never sent to the webhook, for example because it was inactive or did not exist.
///
/// `Other` is a value that this version of the library does not know.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[non_exhaustive]
pub enum ReplayedEvents {
    #[serde(rename = "failed")]
    Failed,
    #[serde(rename = "missed")]
    Missed,
    #[serde(untagged)]
    Other(String),
}

impl ReplayedEvents {
    /// Returns the value as the API writes it.
    pub fn as_str(&self) -> &str {
        match self {
            Self::Failed => "failed",
            Self::Missed => "missed",
            Self::Other(value) => value,
        }
    }
}

impl std::fmt::Display for ReplayedEvents {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.as_str())
    }
}

/// The email address of a user who forgot the password.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RequestPasswordReset {
    /// Email address of the user. Case does not matter.
    pub email: String,
}

impl RequestPasswordReset {
    /// Creates the body with its required fields.
    pub fn new(email: impl Into<String>) -> Self {
        Self { email: email.into() }
    }
}

/// A payout to request. The wallet is debited at once; an operator sends the money.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RequestPayout {
    /// Beneficiary that receives the money.
    pub beneficiary_id: i64,
    /// Wallet to pay from. It must be in the beneficiary's currency.
    pub wallet_id: i64,
    /// Amount to pay, greater than `0.00`.
    pub amount: Amount,
    /// Your own reference for the payout, unique within the account forever. Repeating the same request returns the
    /// existing payout with status 200. A different request with the same reference fails with 409
    /// `E_DUPLICATE_REFERENCE`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client_reference: Option<String>,
}

impl RequestPayout {
    /// Creates the body with its required fields.
    pub fn new(beneficiary_id: i64, wallet_id: i64, amount: Amount) -> Self {
        Self { beneficiary_id, wallet_id, amount, client_reference: None }
    }
}

/// Details of the rotation of a signing secret.
#[derive(Default, Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RotateSecret {
    /// Hours for which deliveries are signed with the replaced secret, too, in the header `X-Signature-Previous`.
    /// Without it, they are signed with the new one alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub previous_valid_hours: Option<i64>,
}

/// Details of a rotation.
#[derive(Default, Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RotateToken {
    /// Hours for which deliveries are signed with the replaced secret, too, in the header `X-Signature-Previous`.
    /// Without it, they are signed with the new one alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub previous_valid_hours: Option<i64>,
}

/// A rotated signing secret. It is shown only in this response.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct RotatedSecret {
    /// Unique identifier of the API key.
    pub credential_id: i64,
    /// Time up to which deliveries are signed with the replaced secret, too. Null if it stopped at once.
    pub previous_valid_until: Option<DateTime<Utc>>,
    /// Time of the rotation.
    pub rotated_at: DateTime<Utc>,
    /// The new signing secret. Requests with the API key, and deliveries of webhooks linked to it, are signed with it
    /// from now on.
    pub signing_secret: Secret,
}

/// The new token of a webhook. It is shown only in this response.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct RotatedToken {
    /// Time up to which deliveries are signed with the replaced token, too. Null if it stopped at once.
    pub previous_valid_until: Option<DateTime<Utc>>,
    /// Time of the rotation.
    pub rotated_at: DateTime<Utc>,
    /// Secret that signs the deliveries from now on. Store it safely: it is not shown again.
    pub token: Secret,
    /// Unique identifier of the webhook.
    pub webhook_id: i64,
}

/// The account's rules for logins.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct SecurityPolicy {
    /// Whether owners need two-factor authentication. An owner without it may only enrol.
    pub owners_need_two_factor: bool,
}

/// A mail that the sandbox has sent.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct SentMail {
    /// Time at which the mail was sent.
    pub sent_at: DateTime<Utc>,
    /// Subject of the mail.
    pub subject: String,
    /// Plain text of the mail, with its link.
    pub text: Secret,
    /// Email address of the recipient.
    pub to: String,
}

/// A session of the signed-in user.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Session {
    /// Unique identifier of the session.
    pub id: i64,
    /// Whether this request belongs to the session.
    pub is_current: bool,
    /// Time of the login or of the latest token refresh.
    pub last_used_at: DateTime<Utc>,
    /// IP address of the login; for IPv6 the first address of its /64.
    pub network: Option<String>,
    /// Time of the login. Null for a session from before an upgrade.
    pub started_at: Option<DateTime<Utc>>,
    /// `User-Agent` of the login, up to 256 characters.
    pub user_agent: Option<String>,
}

/// Amount below which the account wants to be told about a wallet's balance.
#[derive(Default, Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SetNotice {
    /// Amount, greater than 0.00; null for no notices.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub below: Option<Amount>,
}

/// Amounts that orders moved on a day, in one currency.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Spend {
    /// Currency of the amounts, as an ISO 4217 code.
    pub currency: String,
    /// Amount returned for cancelled orders, whenever they were placed.
    pub refunded: Amount,
    /// Amount debited for orders.
    pub spent: Amount,
}

/// Statement of a wallet for a period. `opening_balance` + `total_credits` + `total_refunds` − `total_debits` =
/// `closing_balance`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Statement {
    /// Balance at the end of the period.
    pub closing_balance: Amount,
    /// Currency of the wallet, as an ISO 4217 code.
    pub currency: String,
    /// Start of the period; null for the opening of the wallet.
    pub from: Option<DateTime<Utc>>,
    /// Balance at the start of the period.
    pub opening_balance: Amount,
    /// End of the period; null for the latest transaction.
    pub to: Option<DateTime<Utc>>,
    /// Sum of credits in the period, excluding refunds.
    pub total_credits: Amount,
    /// Sum of debits in the period.
    pub total_debits: Amount,
    /// Sum of refunds in the period, for orders and payouts.
    pub total_refunds: Amount,
    /// Transactions of the period, oldest first.
    pub transactions: Vec<models::Transaction>,
    /// Unique identifier of the wallet.
    pub wallet_id: i64,
}

/// A user of the own account.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct TeamMember {
    /// Time at which the user was created.
    pub created_at: DateTime<Utc>,
    /// Email address to log in with. Empty after it is erased.
    pub email: String,
    /// Whether each login of the user takes a code.
    pub has_two_factor: bool,
    /// Unique identifier of the user.
    pub id: i64,
    /// Role of the user.
    pub role: models::UserRole,
}

/// A test of a webhook.
#[derive(Default, Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TestWebhook {
    /// Type of an event that a webhook can subscribe to. New types may be added.
    ///
    /// - `order.created`: an order was placed and debited from the wallet.
    /// - `order.pending`: fulfilment has started to process the order.
    /// - `order.partially_delivered`: some units of the order are delivered.
    /// - `order.delivered`: all units of the order are delivered.
    /// - `order.cancelled`: the order was cancelled, and its undelivered units are refunded.
    /// - `payout.requested`: a payout was requested and debited from the wallet.
    /// - `payout.paid`: the money of the payout was sent.
    /// - `payout.failed`: the money could not be sent, and was returned to the wallet.
    /// - `payout.cancelled`: the payout was cancelled, and the money was returned to the wallet.
    /// - `wallet.low_balance`: the balance of a wallet fell below the amount that is set for notices about it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub event_type: Option<models::WebhookEventType>,
}

/// The tokens of a session. They are shown only in this response.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Tokens {
    /// JWT to send as `Authorization: Bearer`.
    pub access_token: Secret,
    /// Unique identifier of the user's account.
    pub account_id: i64,
    /// Seconds until the access token expires.
    pub expires_in: i64,
    /// Time at which the refresh token expires.
    pub refresh_expires_at: DateTime<Utc>,
    /// Token for one call of `POST /auth/refresh`.
    pub refresh_token: Secret,
    /// Type of the access token, always `Bearer`.
    pub token_type: String,
}

/// A movement of money into or out of a wallet.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Transaction {
    /// Amount moved, always positive. `type` gives the direction.
    pub amount: Amount,
    /// Balance of the wallet right after the transaction.
    pub balance_after: Amount,
    /// Reason for the transaction: `FUNDING`, `ORDER`, `ORDER_REFUND`, `ADJUSTMENT`, `PAYOUT` or `PAYOUT_REFUND`.
    pub category: String,
    /// Time at which the money moved.
    pub created_at: DateTime<Utc>,
    /// Currency of the wallet, as an ISO 4217 code.
    pub currency: String,
    /// Description in plain English. Do not parse it.
    pub description: String,
    /// Unique identifier of the transaction.
    pub id: i64,
    /// Unique identifier of the order that was paid or refunded; null for other categories.
    pub order_id: Option<i64>,
    /// The `reference_code` of the order, the reference of the funding, or `PAY-` followed by the payout's ID; null
    /// if none.
    pub reference: Option<String>,
    /// Direction of the transaction: `CREDIT` or `DEBIT`.
    pub r#type: models::TransactionType,
    /// Unique identifier of the wallet.
    pub wallet_id: i64,
}

/// Reason for a transaction.
///
/// - `FUNDING`: money added to the wallet.
/// - `ORDER`: payment of an order.
/// - `ORDER_REFUND`: refund of a cancelled order.
/// - `ADJUSTMENT`: correction by an operator.
/// - `PAYOUT`: payment to a beneficiary.
/// - `PAYOUT_REFUND`: refund of a failed or cancelled payout.
///
/// `Other` is a value that this version of the library does not know.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[non_exhaustive]
pub enum TransactionCategory {
    #[serde(rename = "FUNDING")]
    Funding,
    #[serde(rename = "ORDER")]
    Order,
    #[serde(rename = "ORDER_REFUND")]
    OrderRefund,
    #[serde(rename = "ADJUSTMENT")]
    Adjustment,
    #[serde(rename = "PAYOUT")]
    Payout,
    #[serde(rename = "PAYOUT_REFUND")]
    PayoutRefund,
    #[serde(untagged)]
    Other(String),
}

impl TransactionCategory {
    /// Returns the value as the API writes it.
    pub fn as_str(&self) -> &str {
        match self {
            Self::Funding => "FUNDING",
            Self::Order => "ORDER",
            Self::OrderRefund => "ORDER_REFUND",
            Self::Adjustment => "ADJUSTMENT",
            Self::Payout => "PAYOUT",
            Self::PayoutRefund => "PAYOUT_REFUND",
            Self::Other(value) => value,
        }
    }
}

impl std::fmt::Display for TransactionCategory {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Direction of a transaction.
///
/// - `CREDIT`: the amount was added to the wallet.
/// - `DEBIT`: the amount was taken from the wallet.
///
/// `Other` is a value that this version of the library does not know.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[non_exhaustive]
pub enum TransactionType {
    #[serde(rename = "CREDIT")]
    Credit,
    #[serde(rename = "DEBIT")]
    Debit,
    #[serde(untagged)]
    Other(String),
}

impl TransactionType {
    /// Returns the value as the API writes it.
    pub fn as_str(&self) -> &str {
        match self {
            Self::Credit => "CREDIT",
            Self::Debit => "DEBIT",
            Self::Other(value) => value,
        }
    }
}

impl std::fmt::Display for TransactionType {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.as_str())
    }
}

/// State of the signed-in user's two-factor authentication.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct TwoFactor {
    /// Whether each login takes a code.
    pub is_enabled: bool,
    /// Number of unused recovery codes.
    pub recovery_codes_left: i64,
}

/// Role of a user. Each role includes the permissions of the roles before it.
///
/// - `viewer`: reads everything except voucher codes.
/// - `operator`: places and cancels orders, reads voucher codes, and manages webhooks.
/// - `owner`: manages payouts, beneficiaries and API keys.
///
/// `Other` is a value that this version of the library does not know.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[non_exhaustive]
pub enum UserRole {
    #[serde(rename = "viewer")]
    Viewer,
    #[serde(rename = "operator")]
    Operator,
    #[serde(rename = "owner")]
    Owner,
    #[serde(untagged)]
    Other(String),
}

impl UserRole {
    /// Returns the value as the API writes it.
    pub fn as_str(&self) -> &str {
        match self {
            Self::Viewer => "viewer",
            Self::Operator => "operator",
            Self::Owner => "owner",
            Self::Other(value) => value,
        }
    }
}

impl std::fmt::Display for UserRole {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A voucher with its codes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Voucher {
    /// Code of the voucher.
    pub card_number: Secret,
    /// URL at which the end user can claim the voucher; null if there is none.
    pub claim_url: Option<Secret>,
    /// Last day on which the voucher is valid, as `YYYY-MM-DD`; null if it has no expiry date.
    pub expires_on: Option<String>,
    /// PIN that belongs to the card number; null if there is none.
    pub pin: Option<Secret>,
    /// Reference number of the voucher. It does not reveal the code.
    pub voucher_reference_number: String,
}

/// A reference to a delivered voucher, without its codes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct VoucherReference {
    /// Reference number of the voucher. It does not reveal the code.
    pub voucher_reference_number: String,
}

/// The delivered vouchers of an order, with their codes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Vouchers {
    /// The vouchers, one per delivered unit.
    pub vouchers: Vec<models::Voucher>,
}

/// A wallet. An account has at most one per currency.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Wallet {
    /// Current balance, never negative.
    pub balance: Amount,
    /// Currency of the wallet, as an ISO 4217 code.
    pub currency: String,
    /// Unique identifier of the wallet.
    pub id: i64,
    /// Time of the latest change of the balance.
    pub updated_at: DateTime<Utc>,
}

/// An endpoint of yours that receives events by HTTP POST.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Webhook {
    /// Time at which the webhook was registered.
    pub created_at: DateTime<Utc>,
    /// Linked API credential, whose signing secret is the token. Null if the webhook has a separate token.
    pub credential_id: Option<i64>,
    /// A deactivation of a webhook by the service.
    pub deactivation: Option<models::WebhookDeactivation>,
    /// Event types that the webhook is subscribed to.
    pub events: Vec<models::WebhookEventType>,
    /// Names of the headers of your own that each delivery carries, in lower case. Their values are never shown.
    pub header_names: Vec<String>,
    /// Unique identifier of the webhook. Each delivery has it in the header `X-Webhook-ID`.
    pub id: i64,
    /// Whether the webhook is active. An inactive webhook receives no events.
    pub is_active: bool,
    /// Name of the webhook, for people to recognize it.
    pub name: String,
    /// Time of the webhook's latest change.
    pub updated_at: DateTime<Utc>,
    /// URL that receives the events.
    pub url: String,
}

/// A page of a webhook's attempts, the latest first.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct WebhookAttempts {
    /// Attempts of this page. It can be empty although older attempts follow.
    pub attempts: Vec<models::ListedAttempt>,
    /// Value of `before` for the next page. Null at the end.
    pub next_before: Option<String>,
}

/// Delivery attempts of a webhook on one day (UTC).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct WebhookDay {
    /// Number of attempts that ended on the day.
    pub attempts: i64,
    /// Average duration of an attempt, in milliseconds; null without attempts.
    pub average_ms: Option<i64>,
    /// The day, as `YYYY-MM-DD`.
    pub day: String,
    /// Number of attempts that your endpoint answered with a 2xx status.
    pub delivered: i64,
    /// Number of attempts that failed.
    pub failed: i64,
    /// Duration of the longest attempt, in milliseconds; null without attempts.
    pub longest_ms: Option<i32>,
}

/// A deactivation of a webhook by the service.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct WebhookDeactivation {
    /// Time of the deactivation.
    pub deactivated_at: DateTime<Utc>,
    /// Time since which all attempts have failed. Null for other reasons.
    pub failing_since: Option<DateTime<Utc>>,
    /// Reason for the deactivation.
    pub reason: models::DeactivationReason,
}

/// Body of a webhook request. Its bytes are the same in every attempt.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct WebhookEnvelope {
    /// Time of the event.
    pub created_at: DateTime<Utc>,
    /// State of the object right after the event.
    pub data: serde_json::Value,
    /// Unique identifier of the event. Use it to detect duplicates.
    pub event_id: String,
    /// Type of the event. New types may be added; ignore types that you do not know.
    pub event_type: models::WebhookEventType,
}

/// Type of an event that a webhook can subscribe to. New types may be added.
///
/// - `order.created`: an order was placed and debited from the wallet.
/// - `order.pending`: fulfilment has started to process the order.
/// - `order.partially_delivered`: some units of the order are delivered.
/// - `order.delivered`: all units of the order are delivered.
/// - `order.cancelled`: the order was cancelled, and its undelivered units are refunded.
/// - `payout.requested`: a payout was requested and debited from the wallet.
/// - `payout.paid`: the money of the payout was sent.
/// - `payout.failed`: the money could not be sent, and was returned to the wallet.
/// - `payout.cancelled`: the payout was cancelled, and the money was returned to the wallet.
/// - `wallet.low_balance`: the balance of a wallet fell below the amount that is set for notices about it.
///
/// `Other` is a value that this version of the library does not know.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[non_exhaustive]
pub enum WebhookEventType {
    #[serde(rename = "order.created")]
    OrderCreated,
    #[serde(rename = "order.pending")]
    OrderPending,
    #[serde(rename = "order.delivered")]
    OrderDelivered,
    #[serde(rename = "order.partially_delivered")]
    OrderPartiallyDelivered,
    #[serde(rename = "order.cancelled")]
    OrderCancelled,
    #[serde(rename = "payout.requested")]
    PayoutRequested,
    #[serde(rename = "payout.paid")]
    PayoutPaid,
    #[serde(rename = "payout.failed")]
    PayoutFailed,
    #[serde(rename = "payout.cancelled")]
    PayoutCancelled,
    #[serde(rename = "wallet.low_balance")]
    WalletLowBalance,
    #[serde(untagged)]
    Other(String),
}

impl WebhookEventType {
    /// Returns the value as the API writes it.
    pub fn as_str(&self) -> &str {
        match self {
            Self::OrderCreated => "order.created",
            Self::OrderPending => "order.pending",
            Self::OrderDelivered => "order.delivered",
            Self::OrderPartiallyDelivered => "order.partially_delivered",
            Self::OrderCancelled => "order.cancelled",
            Self::PayoutRequested => "payout.requested",
            Self::PayoutPaid => "payout.paid",
            Self::PayoutFailed => "payout.failed",
            Self::PayoutCancelled => "payout.cancelled",
            Self::WalletLowBalance => "wallet.low_balance",
            Self::Other(value) => value,
        }
    }
}

impl std::fmt::Display for WebhookEventType {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Explanation of which events of an order a webhook received.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct WebhookExplanation {
    /// Events of the order, oldest first.
    pub events: Vec<models::EventExplanation>,
    /// Unique identifier of the order.
    pub order_id: i64,
    /// Unique identifier of the webhook.
    pub webhook_id: i64,
}

/// A header of your own that each delivery of a webhook carries.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct WebhookHeader {
    /// Name of the header: letters, digits, hyphens and underscores. Upper and lower case are the same. Headers of
    /// HTTP, of proxies, of cloud metadata and of the service itself are refused.
    pub name: String,
    /// Value of the header: printable ASCII characters. It is never shown again.
    pub value: Secret,
}

impl WebhookHeader {
    /// Creates the body with its required fields.
    pub fn new(name: impl Into<String>, value: impl Into<Secret>) -> Self {
        Self { name: name.into(), value: value.into() }
    }
}

/// Fall of a wallet's balance. New fields may be added; ignore unknown fields.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct WebhookLowBalance {
    /// Balance right after the movement that made it fall.
    pub balance: Amount,
    /// Amount below which the balance fell.
    pub below: Amount,
    /// Currency as an ISO 4217 code.
    pub currency: String,
    /// Time of the movement.
    pub fell_at: DateTime<Utc>,
    /// Unique identifier of the wallet.
    pub wallet_id: i64,
}

/// State of an order right after the event. New fields may be added; ignore unknown fields.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct WebhookOrder {
    /// Amount debited from the wallet.
    pub amount: Amount,
    /// Time at which the order was placed.
    pub created_at: DateTime<Utc>,
    /// Time at which the status became `DELIVERED`; null until then.
    pub delivered_on: Option<DateTime<Utc>>,
    /// Number of units delivered so far.
    pub delivered_quantity: i32,
    /// Face value of one unit.
    pub denomination: Amount,
    /// Unique identifier of the order.
    pub id: i64,
    /// Delivered items, without codes. Only in `order.delivered` and `order.partially_delivered`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub order_items: Option<Vec<models::OrderItem>>,
    /// Name of the product at the time of the order.
    pub product_name: String,
    /// Number of units ordered.
    pub quantity: i32,
    /// Reference code assigned by the service, for people to quote.
    pub reference_code: String,
    /// Status of the order.
    pub status: models::OrderStatus,
    /// Detail of the status, or empty. New values may be added and are informational.
    pub sub_status: String,
}

/// State of a payout right after the event. New fields may be added; ignore unknown fields.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct WebhookPayout {
    /// Amount debited from the wallet.
    pub amount: Amount,
    /// Unique identifier of the beneficiary that receives the money.
    pub beneficiary_id: i64,
    /// Your own reference for the payout, as sent when it was requested.
    pub client_reference: Option<String>,
    /// Time at which the payout was requested.
    pub created_at: DateTime<Utc>,
    /// Currency as an ISO 4217 code.
    pub currency: String,
    /// Unique identifier of the payout.
    pub id: i64,
    /// Time at which the payout became `PAID`, `FAILED` or `CANCELLED`; null until then.
    pub settled_at: Option<DateTime<Utc>>,
    /// Status of the payout.
    pub status: models::PayoutStatus,
    /// Unique identifier of the wallet that was debited.
    pub wallet_id: i64,
}

/// A replay of events to a webhook, and the outcome of its deliveries.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct WebhookReplay {
    /// Time at which the replay was requested.
    pub created_at: DateTime<Utc>,
    /// Number of these deliveries that were answered with a 2xx status.
    pub delivered_count: i64,
    /// Number of deliveries created so far.
    pub deliveries: i64,
    /// Number of these deliveries that failed and are not retried.
    pub failed_count: i64,
    /// Unique identifier of the replay.
    pub id: i64,
    /// Number of these deliveries that wait for an attempt.
    pub pending_count: i64,
    /// Share of the replay's part of the log that is examined so far, in percent, from 0 to 100. A completed replay
    /// has 100.
    pub progress_percent: i64,
    /// Status of the replay.
    pub status: models::ReplayStatus,
    /// Time of the replay's last progress.
    pub updated_at: DateTime<Utc>,
    /// Webhook that receives the deliveries.
    pub webhook_id: i64,
}

/// State of the webhook when the event happened.
///
/// - `subscribed`: the webhook was active and subscribed to the event type.
/// - `not_subscribed`: the webhook was active, but not subscribed to the event type.
/// - `inactive`: the webhook was deactivated.
/// - `created_later`: the webhook did not exist yet.
/// - `deleted`: the webhook was already deleted.
///
/// `Other` is a value that this version of the library does not know.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[non_exhaustive]
pub enum WebhookState {
    #[serde(rename = "subscribed")]
    Subscribed,
    #[serde(rename = "not_subscribed")]
    NotSubscribed,
    #[serde(rename = "inactive")]
    Inactive,
    #[serde(rename = "created_later")]
    CreatedLater,
    #[serde(rename = "deleted")]
    Deleted,
    #[serde(untagged)]
    Other(String),
}

impl WebhookState {
    /// Returns the value as the API writes it.
    pub fn as_str(&self) -> &str {
        match self {
            Self::Subscribed => "subscribed",
            Self::NotSubscribed => "not_subscribed",
            Self::Inactive => "inactive",
            Self::CreatedLater => "created_later",
            Self::Deleted => "deleted",
            Self::Other(value) => value,
        }
    }
}

impl std::fmt::Display for WebhookState {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Delivery attempts of a webhook by day.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct WebhookStatistics {
    /// The days, oldest first, up to today. Days without attempts are included.
    pub days: Vec<models::WebhookDay>,
    /// Unique identifier of the webhook.
    pub webhook_id: i64,
}

/// Confirmation that a test delivery was created.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct WebhookTest {
    /// Unique identifier of the test delivery.
    pub delivery_id: i64,
    /// ID of the event. The envelope's `event_id` and the header `X-Event-ID` have the same value.
    pub event_id: String,
    /// Confirmation in plain English.
    pub message: String,
}
