// Code generated from openapi/client-v1.json by openapi-generator. DO NOT EDIT: run clients/generate go.

package ledger

import (
	"encoding/json"
	"time"
)

// APIKey: An API key of the account, without its secret.
type APIKey struct {
	// Networks that requests with the API key may come from; null means any.
	AllowedNetworks []string `json:"allowed_networks"`
	// Time at which the API key was created.
	CreatedAt time.Time `json:"created_at"`
	// Time from which on requests with the API key are refused; null means never.
	ExpiresAt *time.Time `json:"expires_at"`
	// Whether requests with this API key must have a valid `X-Signature`.
	HmacRequired bool `json:"hmac_required"`
	// Unique identifier of the API key. Webhooks refer to it as `credential_id`.
	ID int64 `json:"id"`
	// Whether the API key is revoked. Requests with a revoked key are refused.
	IsRevoked bool `json:"is_revoked"`
	// First 8 characters of the API key.
	KeyPrefix string `json:"key_prefix"`
	// Time of the last request with the API key, exact to about a minute; null if there was none yet.
	LastUsedAt *time.Time `json:"last_used_at"`
	// Name of the API key, for people to recognize it.
	Name string `json:"name"`
	// Operations that the API key may use; null means all.
	Scopes []KeyScope `json:"scopes"`
}

// AcceptedInvitation: The user that an invitation has become.
type AcceptedInvitation struct {
	// Unique identifier of the user's account.
	AccountID int64 `json:"account_id"`
	// Email address to log in with.
	Email string `json:"email"`
	// Unique identifier of the new user.
	ID int64 `json:"id"`
	// Role of the user.
	Role UserRole `json:"role"`
}

// AddBeneficiary: A new beneficiary.
type AddBeneficiary struct {
	// Name of the person or company that receives the money.
	Name string `json:"name"`
	// Type of account that receives the money.
	Type BeneficiaryType `json:"type"`
	// Country of the account, as an ISO 3166-1 alpha-2 code.
	Country string `json:"country"`
	// Currency of the account, as an ISO 4217 code. Payouts are made from the wallet in this currency. It must have
	// at most two decimals.
	Currency string `json:"currency"`
	// IBAN or account number without spaces, or a telephone number for a mobile wallet. Responses contain its last
	// four characters only.
	AccountNumber string `json:"account_number"`
	// BIC, sort code or name of the mobile wallet's provider, where one is needed.
	BankCode *string `json:"bank_code,omitempty"`
}

// Attempt: One attempt to send a delivery, with the response.
type Attempt struct {
	// Number of the attempt, starting at 1. An attempt whose outcome is unknown is repeated under the same number.
	Attempt int32 `json:"attempt"`
	// Reason why the attempt failed, or a note that its outcome is unknown. Null if it succeeded or is in flight.
	Error *string `json:"error"`
	// Value of the header `X-Request-ID` that the attempt was sent with.
	RequestID string `json:"request_id"`
	// First 64 KiB of the body of your endpoint's response. Null if there was none, or if retention has removed it.
	ResponseBody *string `json:"response_body"`
	// HTTP status that your endpoint returned; null if it returned none.
	ResponseStatus *int32 `json:"response_status"`
	// Duration of the attempt, in milliseconds; null while it is in flight or if its outcome is unknown.
	ResponseTimeMs *int32 `json:"response_time_ms"`
	// Time at which the attempt was sent.
	StartedAt time.Time `json:"started_at"`
}

// AttemptOutcome: Outcome of an attempt.
//
//   - `delivered`: the endpoint answered with a 2xx status.
//   - `failed`: it answered with another status, or not in time.
//   - `in_flight`: the outcome may still arrive.
//   - `unknown`: the node that made the attempt has not recorded its outcome, because it ended or lost the
//     database.
//
// The service may send values that this version of the library does not know.
type AttemptOutcome string

// Values of AttemptOutcome.
const (
	AttemptOutcomeDelivered AttemptOutcome = "delivered"
	AttemptOutcomeFailed    AttemptOutcome = "failed"
	AttemptOutcomeInFlight  AttemptOutcome = "in_flight"
	AttemptOutcomeUnknown   AttemptOutcome = "unknown"
)

// AttemptsByWebhook: Delivery attempts of the account's webhooks by day.
type AttemptsByWebhook struct {
	// The account's webhooks, newest first, each with its days.
	Webhooks []WebhookStatistics `json:"webhooks"`
}

// Beneficiary: A recipient of payouts.
type Beneficiary struct {
	// Last four characters of the account number.
	AccountLast4 string `json:"account_last4"`
	// BIC, sort code or name of the mobile wallet's provider.
	BankCode *string `json:"bank_code"`
	// Country of the account, as an ISO 3166-1 alpha-2 code.
	Country string `json:"country"`
	// Time at which the beneficiary was added.
	CreatedAt time.Time `json:"created_at"`
	// Currency of the account, as an ISO 4217 code.
	Currency string `json:"currency"`
	// Unique identifier of the beneficiary.
	ID int64 `json:"id"`
	// Name of the person or company that receives the money.
	Name string `json:"name"`
	// Type of account that receives the money.
	Type BeneficiaryType `json:"type"`
}

// BeneficiaryType: Type of account that receives a payout.
//
// - `BANK`: a bank account.
// - `MOBILE_WALLET`: a mobile wallet, identified by a telephone number.
//
// The service may send values that this version of the library does not know.
type BeneficiaryType string

// Values of BeneficiaryType.
const (
	BeneficiaryTypeBank         BeneficiaryType = "BANK"
	BeneficiaryTypeMobileWallet BeneficiaryType = "MOBILE_WALLET"
)

// CancelOrder: Optional details of a cancellation.
type CancelOrder struct {
	// Reason for the cancellation. The order shows it as `cancel_reason`.
	Reason *string `json:"reason,omitempty"`
}

// Category: A category of products.
type Category struct {
	// Unique identifier of the category.
	ID int64 `json:"id"`
	// Name of the category.
	Name string `json:"name"`
	// Unique identifier of the parent category; null for a top-level category.
	ParentID *int64 `json:"parent_id"`
}

// ChangePassword: The present and the new password of the signed-in user.
type ChangePassword struct {
	// Present password.
	CurrentPassword Secret `json:"current_password"`
	// New password, 8 to 128 characters. Common passwords, and close variants of them, are refused.
	NewPassword Secret `json:"new_password"`
}

// ChangeSecurityPolicy: New rules for logins.
type ChangeSecurityPolicy struct {
	// Whether owners need two-factor authentication. An owner without it may only enrol.
	OwnersNeedTwoFactor bool `json:"owners_need_two_factor"`
}

// ChangeTeamMember: A new role of a user.
type ChangeTeamMember struct {
	// New role of the user.
	Role UserRole `json:"role"`
}

// ChangeWebhook: Changes to a webhook. At least one field is required. Fields that are left out keep their values.
type ChangeWebhook struct {
	// API credential to link: its signing secret becomes the token, from the next delivery on. Linking requires the
	// role owner, or a request made with that credential.
	CredentialID *int64 `json:"credential_id,omitempty"`
	// Event types that the webhook is subscribed to.
	Events []WebhookEventType `json:"events,omitempty"`
	// Headers of your own that each delivery carries from the next one on. They replace all earlier ones; an empty
	// list removes them.
	Headers []WebhookHeader `json:"headers,omitempty"`
	// Whether the webhook is active. An inactive webhook receives no events, and its pending deliveries fail.
	IsActive *bool `json:"is_active,omitempty"`
	// Name of the webhook, for people to recognize it.
	Name *string `json:"name,omitempty"`
	// URL that receives the events. It must begin with `https://` and must not contain a user name or a password.
	URL *string `json:"url,omitempty"`
}

// Charge: Current price of an order. A charge is an estimate and reserves nothing.
type Charge struct {
	// Amount that the order would cost.
	Amount string `json:"amount"`
	// Currency of the product and of the wallet that would pay, as an ISO 4217 code.
	Currency string `json:"currency"`
	// Face value of one unit.
	Denomination string `json:"denomination"`
	// The account's discount, in percent.
	Discount string `json:"discount"`
	// Amount saved by the discount: `face_value` − `amount`.
	DiscountAmount string `json:"discount_amount"`
	// Total face value: `denomination` × `quantity`.
	FaceValue string `json:"face_value"`
	// Unique identifier of the product.
	ProductID int64 `json:"product_id"`
	// Number of units.
	Quantity int32 `json:"quantity"`
	// Time at which the order was priced.
	QuotedAt time.Time `json:"quoted_at"`
	// Whether the wallet's balance covers the amount.
	SufficientBalance bool `json:"sufficient_balance"`
	// Current balance of the wallet that would pay.
	WalletBalance string `json:"wallet_balance"`
}

// ChoosePassword: A token from a mail, and the password to log in with from now on.
type ChoosePassword struct {
	// Token from the mail. A successful request uses it up.
	Token Secret `json:"token"`
	// New password, 8 to 128 characters. Common passwords, and close variants of them, are refused.
	Password Secret `json:"password"`
}

// Confirmation: Confirmation that the request has been carried out.
type Confirmation struct {
	// Confirmation in plain English.
	Message string `json:"message"`
}

// Country: A country.
type Country struct {
	// ISO 3166-1 alpha-2 code of the country.
	Code string `json:"code"`
	// English name of the country.
	Name string `json:"name"`
}

// Currency: A currency.
type Currency struct {
	// ISO 4217 code of the currency.
	Code string `json:"code"`
	// Number of decimals that ISO 4217 defines for the currency: 0 or 2. The API always writes amounts with two.
	Decimals int32 `json:"decimals"`
	// English name of the currency.
	Name string `json:"name"`
}

// DeactivationReason: Reason why the service has deactivated a webhook. New values may be added.
//
// The service may send values that this version of the library does not know.
type DeactivationReason string

// Values of DeactivationReason.
const (
	DeactivationReasonFailing DeactivationReason = "failing"
)

// DeletedBeneficiary: Confirmation that a beneficiary is deleted. The history of its payouts is kept.
type DeletedBeneficiary struct {
	// Unique identifier of the deleted beneficiary.
	BeneficiaryID int64 `json:"beneficiary_id"`
	// Confirmation in plain English.
	Message string `json:"message"`
}

// DeletedWebhook: Confirmation that a webhook is deleted. The history of its deliveries is kept.
type DeletedWebhook struct {
	// Confirmation in plain English.
	Message string `json:"message"`
	// Unique identifier of the deleted webhook.
	WebhookID int64 `json:"webhook_id"`
}

// Delivery: Delivery of one event to one webhook.
type Delivery struct {
	// Number of attempts made so far.
	AttemptCount int32 `json:"attempt_count"`
	// Time at which the delivery was created.
	CreatedAt time.Time `json:"created_at"`
	// Time of the successful attempt; null unless the status is `delivered`.
	DeliveredAt *time.Time `json:"delivered_at"`
	// ID of the event. The envelope's `event_id` and the header `X-Event-ID` have the same value.
	EventID string `json:"event_id"`
	// Type of the event.
	EventType WebhookEventType `json:"event_type"`
	// Unique identifier of the delivery.
	ID int64 `json:"id"`
	// Maximum number of attempts. When the last one fails, the delivery is `failed` for good.
	MaxAttempts int32 `json:"max_attempts"`
	// Unique identifier of the order that the event is about; 0 for a test delivery, and for events of payouts and
	// wallets.
	OrderID int64 `json:"order_id"`
	// Webhook envelope: the JSON body that each attempt sends.
	Payload json.RawMessage `json:"payload"`
	// HTTP status that your endpoint returned to the latest attempt; null if it returned none.
	ResponseStatus *int32 `json:"response_status"`
	// Duration of the latest attempt, in milliseconds; null if no attempt has ended or its outcome is unknown.
	ResponseTimeMs *int32 `json:"response_time_ms"`
	// Order of the event: it grows with every event of the same order, payout or wallet, and is not consecutive. The
	// header `X-Event-Sequence` has the same value.
	Sequence int64 `json:"sequence"`
	// Current status of the delivery.
	Status DeliveryStatus `json:"status"`
	// Unique identifier of the webhook that receives the event.
	WebhookURLID int64 `json:"webhook_url_id"`
}

// DeliveryDetail: A delivery with its latest response, and its attempts with their responses.
type DeliveryDetail struct {
	// Number of attempts made so far.
	AttemptCount int32 `json:"attempt_count"`
	// The attempts, oldest first. Retention removes old ones.
	Attempts []Attempt `json:"attempts"`
	// Time at which the delivery was created.
	CreatedAt time.Time `json:"created_at"`
	// Time of the successful attempt; null unless the status is `delivered`.
	DeliveredAt *time.Time `json:"delivered_at"`
	// ID of the event. The envelope's `event_id` and the header `X-Event-ID` have the same value.
	EventID string `json:"event_id"`
	// Type of the event.
	EventType WebhookEventType `json:"event_type"`
	// Unique identifier of the delivery.
	ID int64 `json:"id"`
	// Maximum number of attempts. When the last one fails, the delivery is `failed` for good.
	MaxAttempts int32 `json:"max_attempts"`
	// Time at which the next attempt is due; null unless the status is `pending`.
	NextAttemptAt *time.Time `json:"next_attempt_at"`
	// Unique identifier of the order that the event is about; 0 for a test delivery, and for events of payouts and
	// wallets.
	OrderID int64 `json:"order_id"`
	// Webhook envelope: the JSON body that each attempt sends.
	Payload json.RawMessage `json:"payload"`
	// First 64 KiB of the body of your endpoint's latest response. Null if there was none, or if retention has
	// removed it.
	ResponseBody *string `json:"response_body"`
	// HTTP status that your endpoint returned to the latest attempt; null if it returned none.
	ResponseStatus *int32 `json:"response_status"`
	// Duration of the latest attempt, in milliseconds; null if no attempt has ended or its outcome is unknown.
	ResponseTimeMs *int32 `json:"response_time_ms"`
	// Order of the event: it grows with every event of the same order, payout or wallet, and is not consecutive. The
	// header `X-Event-Sequence` has the same value.
	Sequence int64 `json:"sequence"`
	// Current status of the delivery.
	Status DeliveryStatus `json:"status"`
	// Unique identifier of the webhook that receives the event.
	WebhookURLID int64 `json:"webhook_url_id"`
}

// DeliveryRetry: Confirmation that a delivery will be retried.
type DeliveryRetry struct {
	// Unique identifier of the delivery that will be retried.
	DeliveryID int64 `json:"delivery_id"`
	// Confirmation in plain English.
	Message string `json:"message"`
}

// DeliveryStatistics: Delivery counts of an account.
type DeliveryStatistics struct {
	// Number of `delivered` deliveries.
	DeliveredCount int64 `json:"delivered_count"`
	// Number of `failed` deliveries.
	FailedCount int64 `json:"failed_count"`
	// Number of deliveries created in the last 24 hours that are `delivered`.
	Last24hDelivered int64 `json:"last_24h_delivered"`
	// Number of deliveries created in the last 24 hours that are `failed`.
	Last24hFailed int64 `json:"last_24h_failed"`
	// Number of deliveries created in the last 24 hours.
	Last24hTotal int64 `json:"last_24h_total"`
	// Number of `pending` deliveries.
	PendingCount int64 `json:"pending_count"`
	// Number of all deliveries.
	TotalCount int64 `json:"total_count"`
}

// DeliveryStatus: Status of a delivery.
//
//   - `pending`: an attempt is due or in flight.
//   - `delivered`: your endpoint answered an attempt with a 2xx status.
//   - `failed`: all attempts are used, or the delivery was stopped, for example because its webhook was
//     deactivated.
//
// The service may send values that this version of the library does not know.
type DeliveryStatus string

// Values of DeliveryStatus.
const (
	DeliveryStatusPending   DeliveryStatus = "pending"
	DeliveryStatusDelivered DeliveryStatus = "delivered"
	DeliveryStatusFailed    DeliveryStatus = "failed"
)

// DenominationType: Kind of face values that a product has.
//
// - `FIXED`: one of the values in `denominations`.
// - `RANGE`: any value from `min_denomination` to `max_denomination`.
//
// The service may send values that this version of the library does not know.
type DenominationType string

// Values of DenominationType.
const (
	DenominationTypeFixed DenominationType = "FIXED"
	DenominationTypeRange DenominationType = "RANGE"
)

// Enrolment: An enrolment in two-factor authentication that is not confirmed. It is shown only in this response.
type Enrolment struct {
	// URL to show to an authenticator app as a QR code. It contains the secret.
	OTPAuthURL Secret `json:"otpauth_url"`
	// Secret to type into an authenticator app, in base32.
	Secret Secret `json:"secret"`
}

// ErrorCode: Stable error code. Branch on it. New codes may be added; existing ones do not change.
//
// The service may send values that this version of the library does not know.
type ErrorCode string

// Values of ErrorCode.
const (
	ErrorCodeValidationFailure         ErrorCode = "E_VALIDATION_FAILURE"
	ErrorCodeMalformedJson             ErrorCode = "E_MALFORMED_JSON"
	ErrorCodeMalformedRequest          ErrorCode = "E_MALFORMED_REQUEST"
	ErrorCodeUnauthorized              ErrorCode = "E_UNAUTHORIZED"
	ErrorCodeApiKeyExpired             ErrorCode = "E_API_KEY_EXPIRED"
	ErrorCodeInvalidCredentials        ErrorCode = "E_INVALID_CREDENTIALS"
	ErrorCodeTwoFactorRequired         ErrorCode = "E_TWO_FACTOR_REQUIRED"
	ErrorCodeInvalidToken              ErrorCode = "E_INVALID_TOKEN"
	ErrorCodeHmacSignatureRequired     ErrorCode = "E_HMAC_SIGNATURE_REQUIRED"
	ErrorCodeHmacTimestampExpired      ErrorCode = "E_HMAC_TIMESTAMP_EXPIRED"
	ErrorCodeHmacSignatureInvalid      ErrorCode = "E_HMAC_SIGNATURE_INVALID"
	ErrorCodeHmacHeaderInvalid         ErrorCode = "E_HMAC_HEADER_INVALID"
	ErrorCodeInsufficientBalance       ErrorCode = "E_INSUFFICIENT_BALANCE"
	ErrorCodeForbidden                 ErrorCode = "E_FORBIDDEN"
	ErrorCodeInsufficientScope         ErrorCode = "E_INSUFFICIENT_SCOPE"
	ErrorCodeNetworkNotAllowed         ErrorCode = "E_NETWORK_NOT_ALLOWED"
	ErrorCodeAccountSuspended          ErrorCode = "E_ACCOUNT_SUSPENDED"
	ErrorCodeTwoFactorEnrolment        ErrorCode = "E_TWO_FACTOR_ENROLMENT"
	ErrorCodeNotFound                  ErrorCode = "E_NOT_FOUND"
	ErrorCodeMethodNotAllowed          ErrorCode = "E_METHOD_NOT_ALLOWED"
	ErrorCodePayloadTooLarge           ErrorCode = "E_PAYLOAD_TOO_LARGE"
	ErrorCodeUriTooLong                ErrorCode = "E_URI_TOO_LONG"
	ErrorCodeUnsupportedMediaType      ErrorCode = "E_UNSUPPORTED_MEDIA_TYPE"
	ErrorCodeOrderNotCancellable       ErrorCode = "E_ORDER_NOT_CANCELLABLE"
	ErrorCodeDuplicateReference        ErrorCode = "E_DUPLICATE_REFERENCE"
	ErrorCodeIdempotencyInProgress     ErrorCode = "E_IDEMPOTENCY_IN_PROGRESS"
	ErrorCodeAlreadyCreated            ErrorCode = "E_ALREADY_CREATED"
	ErrorCodeDeliveryNotFailed         ErrorCode = "E_DELIVERY_NOT_FAILED"
	ErrorCodeDeliveryAttemptsExhausted ErrorCode = "E_DELIVERY_ATTEMPTS_EXHAUSTED"
	ErrorCodeWebhookInactive           ErrorCode = "E_WEBHOOK_INACTIVE"
	ErrorCodeWebhookLimitReached       ErrorCode = "E_WEBHOOK_LIMIT_REACHED"
	ErrorCodePayoutNotCancellable      ErrorCode = "E_PAYOUT_NOT_CANCELLABLE"
	ErrorCodeConflict                  ErrorCode = "E_CONFLICT"
	ErrorCodeProductUnavailable        ErrorCode = "E_PRODUCT_UNAVAILABLE"
	ErrorCodeInvalidDenomination       ErrorCode = "E_INVALID_DENOMINATION"
	ErrorCodeQuantityLimitExceeded     ErrorCode = "E_QUANTITY_LIMIT_EXCEEDED"
	ErrorCodeCurrencyMismatch          ErrorCode = "E_CURRENCY_MISMATCH"
	ErrorCodeIdempotencyKeyReused      ErrorCode = "E_IDEMPOTENCY_KEY_REUSED"
	ErrorCodeHeadersTooLarge           ErrorCode = "E_HEADERS_TOO_LARGE"
	ErrorCodeInternal                  ErrorCode = "E_INTERNAL"
	ErrorCodeUnavailable               ErrorCode = "E_UNAVAILABLE"
	ErrorCodeOutcomeUnknown            ErrorCode = "E_OUTCOME_UNKNOWN"
)

type ErrorDetail struct {
	// Stable code to branch on. New codes may be added; handle an unknown one by its HTTP status.
	Code ErrorCode `json:"code"`
	// Human-readable explanation. Its wording may change, so do not parse it.
	Message string `json:"message"`
	// Problems of each field or parameter, by its name or path. Left out when the error is not about a field.
	Messages map[string][]string `json:"messages,omitempty"`
	// Class of the error, one per HTTP status, for example `ValidationError`.
	Name string `json:"name"`
}

// EventDelivery: A delivery of the event to the webhook.
type EventDelivery struct {
	// Number of attempts made so far.
	AttemptCount int32 `json:"attempt_count"`
	// Time at which the delivery was created.
	CreatedAt time.Time `json:"created_at"`
	// Unique identifier of the delivery.
	DeliveryID int64 `json:"delivery_id"`
	// Whether a replay made the delivery, yours or an operator's, instead of the event itself.
	IsReplay bool `json:"is_replay"`
	// Current outcome of the delivery.
	Outcome EventOutcome `json:"outcome"`
	// HTTP status that your endpoint returned to the latest attempt; null if it returned none.
	ResponseStatus *int32 `json:"response_status"`
}

// EventExplanation: An event of the order, with what became of it at the webhook.
type EventExplanation struct {
	// Time of the event.
	CreatedAt time.Time `json:"created_at"`
	// Deliveries of the event to the webhook, oldest first.
	Deliveries []EventDelivery `json:"deliveries"`
	// ID of the event. The envelope's `event_id` and the header `X-Event-ID` have the same value.
	EventID string `json:"event_id"`
	// Type of the event.
	EventType WebhookEventType `json:"event_type"`
	// Explanation in plain English. Its wording may change.
	Explanation string `json:"explanation"`
	// Outcome of the event at the webhook.
	Outcome EventOutcome `json:"outcome"`
	// State of the webhook at that time. It decided whether the event was sent.
	WebhookState WebhookState `json:"webhook_state"`
}

// EventOutcome: Outcome of an event at the webhook.
//
// - `delivered`: a delivery of the event succeeded.
// - `pending`: a delivery is due or in flight.
// - `failed`: every delivery of the event failed or was stopped.
// - `not_sent`: the event was never sent to the webhook.
//
// The service may send values that this version of the library does not know.
type EventOutcome string

// Values of EventOutcome.
const (
	EventOutcomeDelivered EventOutcome = "delivered"
	EventOutcomePending   EventOutcome = "pending"
	EventOutcomeFailed    EventOutcome = "failed"
	EventOutcomeNotSent   EventOutcome = "not_sent"
)

// EventPage: Part of the account's events, oldest first.
type EventPage struct {
	// Cursor to send as `after` in the next request. Store it after you have processed the events. It never expires.
	Cursor string `json:"cursor"`
	// Event envelopes: the same JSON, byte for byte, that webhooks receive. A test delivery is not among them.
	Events []WebhookEnvelope `json:"events"`
	// Whether the log goes on after the cursor. If it does, request the next part at once, even if `events` is
	// empty.
	HasMore bool `json:"has_more"`
	// Sequence of each event in `events`, in the same order. Order events by it: it grows with every event of the
	// account, and is not consecutive. The header `X-Event-Sequence` of a webhook has the same value.
	Sequences []int64 `json:"sequences"`
}

// FundOwnWallet: Test money to add to a wallet.
type FundOwnWallet struct {
	// Amount to add, greater than `0.00`.
	Amount string `json:"amount"`
}

// HistoryActor: Person or process that caused an event.
type HistoryActor struct {
	// Unique identifier of the actor within its kind; null for a process, such as `fulfilment`.
	ActorID *int64 `json:"actor_id"`
	// Kind of actor: `credential`, `user`, `operator`, `fulfilment`, `replay`, `sandbox` or `service`.
	Kind string `json:"kind"`
	// Name of the credential or operator, or the user's email address, if known.
	Name *string `json:"name"`
}

// HistoryAttempt: An attempt to send a delivery.
type HistoryAttempt struct {
	// Number of the attempt, from 1. An attempt with an unknown outcome is repeated under the same number.
	Attempt int32 `json:"attempt"`
	// Reason for the failure, if the attempt failed.
	Error *string `json:"error"`
	// Outcome: `delivered`, `failed`, `in_flight`, or `unknown` if the attempt was interrupted before its outcome
	// was recorded.
	Outcome string `json:"outcome"`
	// `X-Request-ID` that the attempt was sent with.
	RequestID string `json:"request_id"`
	// HTTP status of the receiver's response, if there was one.
	ResponseStatus *int32 `json:"response_status"`
	// Response time of the receiver, in milliseconds.
	ResponseTimeMs *int32 `json:"response_time_ms"`
	// Time at which the attempt started.
	StartedAt time.Time `json:"started_at"`
}

// HistoryDelivery: A delivery to a webhook.
type HistoryDelivery struct {
	// Number of attempts with a known outcome.
	AttemptCount int32 `json:"attempt_count"`
	// Attempts that are still stored, oldest first.
	Attempts []HistoryAttempt `json:"attempts"`
	// Time at which the delivery was created.
	CreatedAt time.Time `json:"created_at"`
	// Unique identifier of the delivery.
	DeliveryID int64 `json:"delivery_id"`
	// Event type that the webhook receives.
	EventType string `json:"event_type"`
	// Time at which the next attempt is due; null if none is planned.
	NextAttemptAt *time.Time `json:"next_attempt_at"`
	// Replay that created the delivery; null if the event itself created it.
	ReplayID *int64 `json:"replay_id"`
	// Retries that were requested for the delivery.
	Retries []HistoryRetry `json:"retries"`
	// Status of the delivery: `pending`, `delivered` or `failed`.
	Status string `json:"status"`
	// Unique identifier of the webhook.
	WebhookID int64 `json:"webhook_id"`
	// Name of the webhook; null after it is erased.
	WebhookName *string `json:"webhook_name"`
}

// HistoryRetry: A request to retry a failed delivery.
type HistoryRetry struct {
	// Actor that requested the retry.
	Actor HistoryActor `json:"actor"`
	// Time of the request.
	RequestedAt time.Time `json:"requested_at"`
}

// ImageSize: Size of an image.
//
// - `original`: the image as it was uploaded.
// - `thumbnail`: a JPEG of at most 240 by 160 pixels, for lists.
// - `preview`: a JPEG of at most 640 by 480 pixels.
//
// A small image is returned as it was uploaded for every size.
//
// The service may send values that this version of the library does not know.
type ImageSize string

// Values of ImageSize.
const (
	ImageSizeOriginal  ImageSize = "original"
	ImageSizeThumbnail ImageSize = "thumbnail"
	ImageSizePreview   ImageSize = "preview"
)

// Invitation: An invitation that nobody has accepted.
type Invitation struct {
	// Time of the invitation.
	CreatedAt time.Time `json:"created_at"`
	// Email address that the invitation was sent to.
	Email string `json:"email"`
	// Time at which the invitation expires, 7 days later.
	ExpiresAt time.Time `json:"expires_at"`
	// Unique identifier of the invitation.
	ID int64 `json:"id"`
	// Unique identifier of the user who sent the invitation.
	InvitedBy int64 `json:"invited_by"`
	// Role of the user that the invitation becomes.
	Role UserRole `json:"role"`
}

// InvitePerson: A person to invite.
type InvitePerson struct {
	// Email address to send the invitation to, and to log in with afterwards.
	Email string `json:"email"`
	// Role of the user that the invitation becomes.
	Role UserRole `json:"role"`
}

// IssueCredential: A new API credential.
type IssueCredential struct {
	// Name of the credential, for people to recognize it.
	Name string `json:"name"`
	// Networks that requests with the key may come from, such as `203.0.113.0/24`, or single addresses. Default:
	// any.
	AllowedNetworks []string `json:"allowed_networks,omitempty"`
	// Time from which on requests with the key are refused. Default: never.
	ExpiresAt *time.Time `json:"expires_at,omitempty"`
	// Operations that the key may use. Default: all.
	Scopes []KeyScope `json:"scopes,omitempty"`
}

// IssuedCredential: A newly issued credential. Key and secret are shown only in this response.
type IssuedCredential struct {
	// API key to send in the `X-API-Key` header. Logs and reports identify it by its first 8 characters.
	APIKey string `json:"api_key"`
	// API secret to send in the `X-API-Secret` header.
	APISecret Secret `json:"api_secret"`
	// Unique identifier of the credential.
	ID int64 `json:"id"`
}

// KeyScope: Group of operations that an API key may use.
//
// - `read`: read everything except voucher codes, and quote charges.
// - `orders`: place and cancel orders, and read voucher codes.
// - `webhooks`: manage webhooks, and repeat deliveries.
// - `payouts`: manage beneficiaries and payouts.
//
// The service may send values that this version of the library does not know.
type KeyScope string

// Values of KeyScope.
const (
	KeyScopeRead     KeyScope = "read"
	KeyScopeOrders   KeyScope = "orders"
	KeyScopeWebhooks KeyScope = "webhooks"
	KeyScopePayouts  KeyScope = "payouts"
)

// ListedAttempt: An attempt with the delivery that it belongs to.
type ListedAttempt struct {
	// Number of the attempt, starting at 1. An attempt whose outcome is unknown is repeated under the same number.
	Attempt int32 `json:"attempt"`
	// Unique identifier of the delivery.
	DeliveryID int64 `json:"delivery_id"`
	// Reason why the attempt failed, or a note that its outcome is unknown. Null if it succeeded or is in flight.
	Error *string `json:"error"`
	// ID of the event.
	EventID string `json:"event_id"`
	// Type of the event.
	EventType string `json:"event_type"`
	// Time at which the attempt ended; null without a recorded outcome.
	FinishedAt *time.Time `json:"finished_at"`
	// Unique identifier of the order that the event is about; 0 for a test delivery, and for events of payouts and
	// wallets.
	OrderID int64 `json:"order_id"`
	// Outcome of the attempt.
	Outcome AttemptOutcome `json:"outcome"`
	// Value of the header `X-Request-ID` that the attempt was sent with.
	RequestID string `json:"request_id"`
	// HTTP status that your endpoint returned; null if it returned none.
	ResponseStatus *int32 `json:"response_status"`
	// Duration of the attempt, in milliseconds; null while it is in flight or if its outcome is unknown.
	ResponseTimeMs *int32 `json:"response_time_ms"`
	// Time at which the attempt was sent.
	StartedAt time.Time `json:"started_at"`
}

// LoggedOut: Confirmation that the session has ended.
type LoggedOut struct {
	// Confirmation in plain English.
	Message string `json:"message"`
}

// Login: The credentials of a user.
type Login struct {
	// Email address of the user. Case does not matter.
	Email string `json:"email"`
	// Password of the user.
	Password Secret `json:"password"`
	// Code from the authenticator app, or a recovery code, for a user with two-factor authentication. Each works
	// once.
	OTP *Secret `json:"otp,omitempty"`
}

// LowBalanceNotice: Notice of a low balance.
type LowBalanceNotice struct {
	// Amount that the balance must fall below; null for no notices.
	Below *string `json:"below"`
	// Wallet that the notice is about.
	WalletID int64 `json:"wallet_id"`
}

// OneTimeCode: A code of the second factor.
type OneTimeCode struct {
	// Six digits from the authenticator app. To disable two-factor authentication, a recovery code is accepted too.
	OTP Secret `json:"otp"`
}

// Order: An order for units of one product, priced and debited from a wallet when it is placed.
type Order struct {
	// Amount debited from the wallet.
	Amount string `json:"amount"`
	// Reason given with the cancellation. Null if there was none or the data is erased.
	CancelReason *string `json:"cancel_reason"`
	// Time of the cancellation; null unless the status is `CANCELLED`.
	CancelledOn *time.Time `json:"cancelled_on"`
	// Your own reference for the order, as sent when it was placed.
	ClientReference *string `json:"client_reference"`
	// Time at which the order was placed.
	CreatedAt time.Time `json:"created_at"`
	// Currency of all amounts of the order, as an ISO 4217 code.
	Currency string `json:"currency"`
	// Time at which the last unit was delivered; null unless the status is `DELIVERED`.
	DeliveredOn *time.Time `json:"delivered_on"`
	// Number of units delivered so far.
	DeliveredQuantity int32 `json:"delivered_quantity"`
	// Face value of one unit.
	Denomination string `json:"denomination"`
	// Discount at the time of the order, in percent.
	Discount string `json:"discount"`
	// Amount saved by the discount: `face_value` − `amount`.
	DiscountAmount string `json:"discount_amount"`
	// Total face value: `denomination` × `quantity`.
	FaceValue string `json:"face_value"`
	// Unique identifier of the order.
	ID int64 `json:"id"`
	// Metadata sent with the order. Null if there was none or the data is erased.
	Metadata map[string]interface{} `json:"metadata"`
	// Delivered units, grouped into one item per delivery.
	OrderItems []OrderItem `json:"order_items"`
	// Unique identifier of the product.
	ProductID int64 `json:"product_id"`
	// Name of the product at the time of the order.
	ProductName string `json:"product_name"`
	// Number of units ordered.
	Quantity int32 `json:"quantity"`
	// Human-readable reference of the order, assigned by the service.
	ReferenceCode string `json:"reference_code"`
	// Amount that the cancellation returned to the wallet; `0.00` if the order is not cancelled.
	RefundedAmount string `json:"refunded_amount"`
	// Current status of the order.
	Status OrderStatus `json:"status"`
	// Detail of the status: empty, `OUT_OF_STOCK`, `AWAITING_REMAINDER`, `CANCELLED_BY_CLIENT`,
	// `CANCELLED_BY_OPERATOR` or `REMAINDER_CANCELLED`. New values may be added; treat an unknown one as information
	// only.
	SubStatus string `json:"sub_status"`
	// Unique identifier of the wallet transaction that debited the amount.
	TransactionID int64 `json:"transaction_id"`
	// Time of the order's latest change.
	UpdatedAt time.Time `json:"updated_at"`
}

// OrderDay: Orders and spend of one day (UTC).
type OrderDay struct {
	// The day, as `YYYY-MM-DD`.
	Day string `json:"day"`
	// Number of orders placed on the day.
	Orders int64 `json:"orders"`
	// Spend of the day, by currency. Empty if nothing was spent or refunded.
	Spend []Spend `json:"spend"`
}

// OrderItem: Units of an order that were delivered together.
type OrderItem struct {
	// Time at which the units were delivered.
	DeliveredOn time.Time `json:"delivered_on"`
	// Status of the item, always `DELIVERED`.
	Status string `json:"status"`
	// The vouchers, one per unit.
	Vouchers []VoucherReference `json:"vouchers"`
}

// OrderStatistics: Orders and spend by day.
type OrderStatistics struct {
	// The days, oldest first, up to today. Days without orders are included.
	Days []OrderDay `json:"days"`
	// All orders of the account by their present status. Each status is listed.
	Statuses []OrdersInStatus `json:"statuses"`
}

// OrderStatus: Status of an order. `DELIVERED` and `CANCELLED` are final.
//
// - `PENDING`: placed and paid.
// - `DELAYED`: waiting for stock; no unit is delivered yet.
// - `PARTIALLY_DELIVERED`: some units are delivered, the others wait for stock.
// - `DELIVERED`: all units are delivered.
// - `CANCELLED`: cancelled by the client or an operator. Undelivered units are refunded.
//
// The service may send values that this version of the library does not know.
type OrderStatus string

// Values of OrderStatus.
const (
	OrderStatusPending            OrderStatus = "PENDING"
	OrderStatusDelayed            OrderStatus = "DELAYED"
	OrderStatusPartiallyDelivered OrderStatus = "PARTIALLY_DELIVERED"
	OrderStatusDelivered          OrderStatus = "DELIVERED"
	OrderStatusCancelled          OrderStatus = "CANCELLED"
)

// OrderTimeline: Everything that happened to an order.
type OrderTimeline struct {
	// Events of the order, oldest first.
	Entries []OrderTimelineEntry `json:"entries"`
	// Number of code readings that `entries` omits. After 1,000 entries, only the last 100 readings are included.
	EntriesLeftOut int64 `json:"entries_left_out"`
	// Unique identifier of the order.
	OrderID int64 `json:"order_id"`
	// Human-readable reference of the order, assigned by the service.
	ReferenceCode string `json:"reference_code"`
	// Current status of the order.
	Status string `json:"status"`
}

// OrderTimelineEntry: An event of an order, with its effects.
type OrderTimelineEntry struct {
	// Person or process that caused the event. Operators of the service are not named.
	Actor HistoryActor `json:"actor"`
	// Webhook deliveries of the event, in their current state.
	Deliveries []HistoryDelivery `json:"deliveries"`
	// Description of the event in plain English. Vouchers appear by reference only. Do not parse it.
	Description string `json:"description"`
	// Unique identifier of the event. Webhook deliveries carry the same identifier.
	EventID string `json:"event_id"`
	// Type of the event in the log, such as `OrderPlaced`. New types may be added.
	EventType string `json:"event_type"`
	// Reason given with a cancellation, if any.
	Reason *string `json:"reason"`
	// Time at which the event was recorded.
	RecordedAt time.Time `json:"recorded_at"`
	// `X-Request-ID` of the request that caused the event, or the name of the background process.
	RequestID string `json:"request_id"`
	// A movement of money into or out of a wallet.
	Transaction *Transaction `json:"transaction"`
}

// OrdersInStatus: Number of orders in a status.
type OrdersInStatus struct {
	// Number of the account's orders that are in this status now, whenever they were placed.
	Orders int64 `json:"orders"`
	// Status of an order. `DELIVERED` and `CANCELLED` are final.
	//
	// - `PENDING`: placed and paid.
	// - `DELAYED`: waiting for stock; no unit is delivered yet.
	// - `PARTIALLY_DELIVERED`: some units are delivered, the others wait for stock.
	// - `DELIVERED`: all units are delivered.
	// - `CANCELLED`: cancelled by the client or an operator. Undelivered units are refunded.
	Status OrderStatus `json:"status"`
}

// Payout: A payment from a wallet to a beneficiary.
type Payout struct {
	// Amount debited from the wallet.
	Amount string `json:"amount"`
	// Unique identifier of the beneficiary that receives the money.
	BeneficiaryID int64 `json:"beneficiary_id"`
	// Your own reference for the payout, as sent when it was requested.
	ClientReference *string `json:"client_reference"`
	// Time at which the payout was requested.
	CreatedAt time.Time `json:"created_at"`
	// Currency of the amount, as an ISO 4217 code.
	Currency string `json:"currency"`
	// Reason given by the operator for a failed payout. Null if there is none or the data is erased.
	FailureReason *string `json:"failure_reason"`
	// Unique identifier of the payout.
	ID int64 `json:"id"`
	// Time at which the payout became `PAID`, `FAILED` or `CANCELLED`; null while it is `PENDING`.
	SettledAt *time.Time `json:"settled_at"`
	// Current status of the payout.
	Status PayoutStatus `json:"status"`
	// Unique identifier of the wallet that was debited.
	WalletID int64 `json:"wallet_id"`
}

// PayoutStatus: Status of a payout. `PAID`, `FAILED` and `CANCELLED` are final.
//
// - `PENDING`: debited from the wallet and waiting for an operator to settle it.
// - `PAID`: the money was sent.
// - `FAILED`: the money could not be sent and was returned to the wallet.
// - `CANCELLED`: cancelled by the client, and the money was returned to the wallet.
//
// The service may send values that this version of the library does not know.
type PayoutStatus string

// Values of PayoutStatus.
const (
	PayoutStatusPending   PayoutStatus = "PENDING"
	PayoutStatusPaid      PayoutStatus = "PAID"
	PayoutStatusFailed    PayoutStatus = "FAILED"
	PayoutStatusCancelled PayoutStatus = "CANCELLED"
)

// PlaceOrder: An order to place. The service prices it and debits the wallet in the product's currency.
type PlaceOrder struct {
	// Product to order, from `GET /api/v1/products`.
	ProductID int64 `json:"product_id"`
	// Face value of one unit, as a number with at most two decimals. It is read exactly, without floating-point
	// rounding.
	Denomination json.Number `json:"denomination"`
	// Number of units, from 1 to the product's `max_quantity`.
	Quantity int32 `json:"quantity"`
	// Your own reference for the order, unique within the account forever. Repeating the same request returns the
	// existing order with status 200. A different request with the same reference fails with 409
	// `E_DUPLICATE_REFERENCE`.
	ClientReference *string `json:"client_reference,omitempty"`
	// Additional data of your own to store with the order, as a JSON object of at most 4 KiB. The order returns it.
	Metadata map[string]interface{} `json:"metadata,omitempty"`
}

// Product: A product that can be ordered, such as a gift card.
type Product struct {
	// Brand of the product.
	Brand string `json:"brand"`
	// Unique identifier of the product's category, from `GET /api/v1/categories`; null if it has none.
	CategoryID *int64 `json:"category_id"`
	// Country of the product, as an ISO 3166-1 alpha-2 code.
	Country string `json:"country"`
	// Currency of the product, as an ISO 4217 code. Orders are paid from the wallet in this currency.
	Currency string `json:"currency"`
	// Kind of face values: `FIXED` or `RANGE`.
	DenominationType DenominationType `json:"denomination_type"`
	// Available face values of a `FIXED` product; empty for a `RANGE` product.
	Denominations []string `json:"denominations"`
	// Description of the product, for people.
	Description string `json:"description"`
	// Your account's discount on the product, in percent.
	Discount string `json:"discount"`
	// Unique identifier of the product.
	ID int64 `json:"id"`
	// URL of the product's image; null if it has none. GET it with your API key. The URL changes when the image
	// does.
	ImageURL *string `json:"image_url"`
	// Whether the product is active. Inactive products cannot be ordered.
	IsActive bool `json:"is_active"`
	// Largest face value of a `RANGE` product; null for a `FIXED` product.
	MaxDenomination *string `json:"max_denomination"`
	// Maximum number of units per order.
	MaxQuantity int32 `json:"max_quantity"`
	// Smallest face value of a `RANGE` product; null for a `FIXED` product.
	MinDenomination *string `json:"min_denomination"`
	// Name of the product.
	Name string `json:"name"`
	// Terms of use, for people.
	Terms string `json:"terms"`
	// Time of the product's latest change. A change of your discount does not count.
	UpdatedAt time.Time `json:"updated_at"`
}

// ProductImage: Location of a product's image.
type ProductImage struct {
	// Media type of the image: `image/png`, `image/jpeg` or `image/webp`.
	ContentType string `json:"content_type"`
	// URL of the image. GET it with your API key. The URL changes when the image does.
	ImageURL string `json:"image_url"`
	// Unique identifier of the product.
	ProductID int64 `json:"product_id"`
	// Time at which the image was set.
	UpdatedAt time.Time `json:"updated_at"`
}

// QuoteCharge: An order to price.
type QuoteCharge struct {
	// Product to price, from `GET /api/v1/products`.
	ProductID int64 `json:"product_id"`
	// Face value of one unit, as a number with at most two decimals. It is read exactly, without floating-point
	// rounding.
	Denomination json.Number `json:"denomination"`
	// Number of units, from 1 to the product's `max_quantity`.
	Quantity int32 `json:"quantity"`
	// Metadata as in an order, at most 4 KiB of JSON. It does not affect the price and is not stored.
	Metadata map[string]interface{} `json:"metadata,omitempty"`
}

// RateLimitError: The response to a request that exceeds a rate limit.
type RateLimitError struct {
	// Always `rate_limit_exceeded`.
	Error string `json:"error"`
	// Human-readable explanation. Do not parse it.
	Message string `json:"message"`
	// Seconds until the rate limit's window ends. Equals the header `Retry-After`.
	RetryAfter int64 `json:"retry_after"`
}

// RecordedTransaction: A transaction with the event that recorded it.
type RecordedTransaction struct {
	// Amount moved, always positive. `type` gives the direction.
	Amount string `json:"amount"`
	// Balance of the wallet right after the transaction.
	BalanceAfter string `json:"balance_after"`
	// Reason for the transaction: `FUNDING`, `ORDER`, `ORDER_REFUND`, `ADJUSTMENT`, `PAYOUT` or `PAYOUT_REFUND`.
	Category string `json:"category"`
	// Time at which the money moved.
	CreatedAt time.Time `json:"created_at"`
	// Currency of the wallet, as an ISO 4217 code.
	Currency string `json:"currency"`
	// Description in plain English. Do not parse it.
	Description string `json:"description"`
	// Unique identifier of the event in the log that moved the money. Support finds the event by it. Webhooks about
	// the order or the payout have an `event_id` of their own.
	EventID string `json:"event_id"`
	// Unique identifier of the transaction.
	ID int64 `json:"id"`
	// Unique identifier of the order that was paid or refunded; null for other categories.
	OrderID *int64 `json:"order_id"`
	// The `reference_code` of the order, the reference of the funding, or `PAY-` followed by the payout's ID; null
	// if none.
	Reference *string `json:"reference"`
	// Direction of the transaction: `CREDIT` or `DEBIT`.
	Type TransactionType `json:"type"`
	// Unique identifier of the wallet.
	WalletID int64 `json:"wallet_id"`
}

// RecoveryCodes: Recovery codes. They are shown only in this response.
type RecoveryCodes struct {
	// Codes that replace the authenticator app, each once. Keep them where the app is not.
	RecoveryCodes []Secret `json:"recovery_codes"`
}

// Refresh: A refresh token to exchange for new tokens.
type Refresh struct {
	// Refresh token from the latest login or refresh. This request uses it up.
	RefreshToken Secret `json:"refresh_token"`
}

// RegisterWebhook: A webhook to register.
type RegisterWebhook struct {
	// Name of the webhook, for people to recognize it.
	Name string `json:"name"`
	// URL that receives the events. It must begin with `https://` and must not contain a user name or a password.
	URL string `json:"url"`
	// Event types that the webhook is subscribed to.
	Events []WebhookEventType `json:"events"`
	// API credential to link: its signing secret becomes the token. Without it, the service generates a separate
	// token. Linking requires the role owner, or a request made with that credential.
	CredentialID *int64 `json:"credential_id,omitempty"`
	// Headers of your own that each delivery carries, such as `Authorization`. At most 10.
	Headers []WebhookHeader `json:"headers,omitempty"`
}

// RegisteredWebhook: A newly registered webhook. The token is shown only in this response.
type RegisteredWebhook struct {
	// Time at which the webhook was registered.
	CreatedAt time.Time `json:"created_at"`
	// Event types that the webhook is subscribed to.
	Events []WebhookEventType `json:"events"`
	// Unique identifier of the webhook. Each delivery has it in the header `X-Webhook-ID`.
	ID int64 `json:"id"`
	// Whether the webhook is active. An inactive webhook receives no events.
	IsActive bool `json:"is_active"`
	// Name of the webhook, for people to recognize it.
	Name string `json:"name"`
	// Secret that signs the deliveries. Store it safely: it is not shown again.
	Token Secret `json:"token"`
	// URL that receives the events.
	URL string `json:"url"`
}

// ReplayEvents: Events to deliver again.
type ReplayEvents struct {
	// Only events recorded at or after this time.
	Since time.Time `json:"since"`
	// Whether to count the events only, without starting a replay. Default: false.
	DryRun *bool `json:"dry_run,omitempty"`
	// Only events at or after this position of the log. To go on with a dry run that is not complete, give its
	// `next_position` here. Default: no limit.
	FromPosition *int64 `json:"from_position,omitempty"`
	// Part of the events that never reached the webhook.
	//
	// - `failed`: events that were sent to the webhook, and failed.
	// - `missed`: events that were never sent to the webhook, for example because it was inactive or did not exist.
	Only *ReplayedEvents `json:"only,omitempty"`
}

// ReplayRequested: A started replay, or the result of a dry run.
type ReplayRequested struct {
	// Number of events found. Null unless this was a dry run.
	Found *int64 `json:"found"`
	// Whether the dry run has counted all events. If not, there may be more. Null unless this was a dry run.
	IsComplete *bool `json:"is_complete"`
	// Position of the log at which the next dry run continues the count. Null if the count is complete.
	NextPosition *int64 `json:"next_position"`
	// A replay of events to a webhook, and the outcome of its deliveries.
	Replay *WebhookReplay `json:"replay"`
	// Position of the log at which the count will be complete. Null unless this was a dry run.
	UntilPosition *int64 `json:"until_position"`
}

// ReplayStatus: Status of a replay.
//
// - `RUNNING`: the replay is creating deliveries.
// - `COMPLETED`: the replay has created all its deliveries.
// - `CANCELLED`: the replay was cancelled. Deliveries that were still pending have failed.
// - `FAILED`: the webhook was deactivated or deleted before the replay completed.
//
// The service may send values that this version of the library does not know.
type ReplayStatus string

// Values of ReplayStatus.
const (
	ReplayStatusRunning   ReplayStatus = "RUNNING"
	ReplayStatusCompleted ReplayStatus = "COMPLETED"
	ReplayStatusCancelled ReplayStatus = "CANCELLED"
	ReplayStatusFailed    ReplayStatus = "FAILED"
)

// ReplayedEvents: Part of the events that never reached the webhook.
//
// - `failed`: events that were sent to the webhook, and failed.
// - `missed`: events that were never sent to the webhook, for example because it was inactive or did not exist.
//
// The service may send values that this version of the library does not know.
type ReplayedEvents string

// Values of ReplayedEvents.
const (
	ReplayedEventsFailed ReplayedEvents = "failed"
	ReplayedEventsMissed ReplayedEvents = "missed"
)

// RequestPasswordReset: The email address of a user who forgot the password.
type RequestPasswordReset struct {
	// Email address of the user. Case does not matter.
	Email string `json:"email"`
}

// RequestPayout: A payout to request. The wallet is debited at once; an operator sends the money.
type RequestPayout struct {
	// Beneficiary that receives the money.
	BeneficiaryID int64 `json:"beneficiary_id"`
	// Wallet to pay from. It must be in the beneficiary's currency.
	WalletID int64 `json:"wallet_id"`
	// Amount to pay, greater than `0.00`.
	Amount string `json:"amount"`
	// Your own reference for the payout, unique within the account forever. Repeating the same request returns the
	// existing payout with status 200. A different request with the same reference fails with 409
	// `E_DUPLICATE_REFERENCE`.
	ClientReference *string `json:"client_reference,omitempty"`
}

// RotateSecret: Details of the rotation of a signing secret.
type RotateSecret struct {
	// Hours for which deliveries are signed with the replaced secret, too, in the header `X-Signature-Previous`.
	// Without it, they are signed with the new one alone.
	PreviousValidHours *int64 `json:"previous_valid_hours,omitempty"`
}

// RotateToken: Details of a rotation.
type RotateToken struct {
	// Hours for which deliveries are signed with the replaced secret, too, in the header `X-Signature-Previous`.
	// Without it, they are signed with the new one alone.
	PreviousValidHours *int64 `json:"previous_valid_hours,omitempty"`
}

// RotatedSecret: A rotated signing secret. It is shown only in this response.
type RotatedSecret struct {
	// Unique identifier of the API key.
	CredentialID int64 `json:"credential_id"`
	// Time up to which deliveries are signed with the replaced secret, too. Null if it stopped at once.
	PreviousValidUntil *time.Time `json:"previous_valid_until"`
	// Time of the rotation.
	RotatedAt time.Time `json:"rotated_at"`
	// The new signing secret. Requests with the API key, and deliveries of webhooks linked to it, are signed with it
	// from now on.
	SigningSecret Secret `json:"signing_secret"`
}

// RotatedToken: The new token of a webhook. It is shown only in this response.
type RotatedToken struct {
	// Time up to which deliveries are signed with the replaced token, too. Null if it stopped at once.
	PreviousValidUntil *time.Time `json:"previous_valid_until"`
	// Time of the rotation.
	RotatedAt time.Time `json:"rotated_at"`
	// Secret that signs the deliveries from now on. Store it safely: it is not shown again.
	Token Secret `json:"token"`
	// Unique identifier of the webhook.
	WebhookID int64 `json:"webhook_id"`
}

// SecurityPolicy: The account's rules for logins.
type SecurityPolicy struct {
	// Whether owners need two-factor authentication. An owner without it may only enrol.
	OwnersNeedTwoFactor bool `json:"owners_need_two_factor"`
}

// SentMail: A mail that the sandbox has sent.
type SentMail struct {
	// Time at which the mail was sent.
	SentAt time.Time `json:"sent_at"`
	// Subject of the mail.
	Subject string `json:"subject"`
	// Plain text of the mail, with its link.
	Text Secret `json:"text"`
	// Email address of the recipient.
	To string `json:"to"`
}

// Session: A session of the signed-in user.
type Session struct {
	// Unique identifier of the session.
	ID int64 `json:"id"`
	// Whether this request belongs to the session.
	IsCurrent bool `json:"is_current"`
	// Time of the login or of the latest token refresh.
	LastUsedAt time.Time `json:"last_used_at"`
	// IP address of the login; for IPv6 the first address of its /64.
	Network *string `json:"network"`
	// Time of the login. Null for a session from before an upgrade.
	StartedAt *time.Time `json:"started_at"`
	// `User-Agent` of the login, up to 256 characters.
	UserAgent *string `json:"user_agent"`
}

// SetNotice: Amount below which the account wants to be told about a wallet's balance.
type SetNotice struct {
	// Amount, greater than 0.00; null for no notices.
	Below *string `json:"below,omitempty"`
}

// Spend: Amounts that orders moved on a day, in one currency.
type Spend struct {
	// Currency of the amounts, as an ISO 4217 code.
	Currency string `json:"currency"`
	// Amount returned for cancelled orders, whenever they were placed.
	Refunded string `json:"refunded"`
	// Amount debited for orders.
	Spent string `json:"spent"`
}

// Statement: Statement of a wallet for a period. `opening_balance` + `total_credits` + `total_refunds` − `total_debits` =
// `closing_balance`.
type Statement struct {
	// Balance at the end of the period.
	ClosingBalance string `json:"closing_balance"`
	// Currency of the wallet, as an ISO 4217 code.
	Currency string `json:"currency"`
	// Start of the period; null for the opening of the wallet.
	From *time.Time `json:"from"`
	// Balance at the start of the period.
	OpeningBalance string `json:"opening_balance"`
	// End of the period; null for the latest transaction.
	To *time.Time `json:"to"`
	// Sum of credits in the period, excluding refunds.
	TotalCredits string `json:"total_credits"`
	// Sum of debits in the period.
	TotalDebits string `json:"total_debits"`
	// Sum of refunds in the period, for orders and payouts.
	TotalRefunds string `json:"total_refunds"`
	// Transactions of the period, oldest first.
	Transactions []Transaction `json:"transactions"`
	// Unique identifier of the wallet.
	WalletID int64 `json:"wallet_id"`
}

// TeamMember: A user of the own account.
type TeamMember struct {
	// Time at which the user was created.
	CreatedAt time.Time `json:"created_at"`
	// Email address to log in with. Empty after it is erased.
	Email string `json:"email"`
	// Whether each login of the user takes a code.
	HasTwoFactor bool `json:"has_two_factor"`
	// Unique identifier of the user.
	ID int64 `json:"id"`
	// Role of the user.
	Role UserRole `json:"role"`
}

// TestWebhook: A test of a webhook.
type TestWebhook struct {
	// Type of an event that a webhook can subscribe to. New types may be added.
	//
	// - `order.created`: an order was placed and debited from the wallet.
	// - `order.pending`: fulfilment has started to process the order.
	// - `order.partially_delivered`: some units of the order are delivered.
	// - `order.delivered`: all units of the order are delivered.
	// - `order.cancelled`: the order was cancelled, and its undelivered units are refunded.
	// - `payout.requested`: a payout was requested and debited from the wallet.
	// - `payout.paid`: the money of the payout was sent.
	// - `payout.failed`: the money could not be sent, and was returned to the wallet.
	// - `payout.cancelled`: the payout was cancelled, and the money was returned to the wallet.
	// - `wallet.low_balance`: the balance of a wallet fell below the amount that is set for notices about it.
	EventType *WebhookEventType `json:"event_type,omitempty"`
}

// Tokens: The tokens of a session. They are shown only in this response.
type Tokens struct {
	// JWT to send as `Authorization: Bearer`.
	AccessToken Secret `json:"access_token"`
	// Unique identifier of the user's account.
	AccountID int64 `json:"account_id"`
	// Seconds until the access token expires.
	ExpiresIn int64 `json:"expires_in"`
	// Time at which the refresh token expires.
	RefreshExpiresAt time.Time `json:"refresh_expires_at"`
	// Token for one call of `POST /auth/refresh`.
	RefreshToken Secret `json:"refresh_token"`
	// Type of the access token, always `Bearer`.
	TokenType string `json:"token_type"`
}

// Transaction: A movement of money into or out of a wallet.
type Transaction struct {
	// Amount moved, always positive. `type` gives the direction.
	Amount string `json:"amount"`
	// Balance of the wallet right after the transaction.
	BalanceAfter string `json:"balance_after"`
	// Reason for the transaction: `FUNDING`, `ORDER`, `ORDER_REFUND`, `ADJUSTMENT`, `PAYOUT` or `PAYOUT_REFUND`.
	Category string `json:"category"`
	// Time at which the money moved.
	CreatedAt time.Time `json:"created_at"`
	// Currency of the wallet, as an ISO 4217 code.
	Currency string `json:"currency"`
	// Description in plain English. Do not parse it.
	Description string `json:"description"`
	// Unique identifier of the transaction.
	ID int64 `json:"id"`
	// Unique identifier of the order that was paid or refunded; null for other categories.
	OrderID *int64 `json:"order_id"`
	// The `reference_code` of the order, the reference of the funding, or `PAY-` followed by the payout's ID; null
	// if none.
	Reference *string `json:"reference"`
	// Direction of the transaction: `CREDIT` or `DEBIT`.
	Type TransactionType `json:"type"`
	// Unique identifier of the wallet.
	WalletID int64 `json:"wallet_id"`
}

// TransactionCategory: Reason for a transaction.
//
// - `FUNDING`: money added to the wallet.
// - `ORDER`: payment of an order.
// - `ORDER_REFUND`: refund of a cancelled order.
// - `ADJUSTMENT`: correction by an operator.
// - `PAYOUT`: payment to a beneficiary.
// - `PAYOUT_REFUND`: refund of a failed or cancelled payout.
//
// The service may send values that this version of the library does not know.
type TransactionCategory string

// Values of TransactionCategory.
const (
	TransactionCategoryFunding      TransactionCategory = "FUNDING"
	TransactionCategoryOrder        TransactionCategory = "ORDER"
	TransactionCategoryOrderRefund  TransactionCategory = "ORDER_REFUND"
	TransactionCategoryAdjustment   TransactionCategory = "ADJUSTMENT"
	TransactionCategoryPayout       TransactionCategory = "PAYOUT"
	TransactionCategoryPayoutRefund TransactionCategory = "PAYOUT_REFUND"
)

// TransactionType: Direction of a transaction.
//
// - `CREDIT`: the amount was added to the wallet.
// - `DEBIT`: the amount was taken from the wallet.
//
// The service may send values that this version of the library does not know.
type TransactionType string

// Values of TransactionType.
const (
	TransactionTypeCredit TransactionType = "CREDIT"
	TransactionTypeDebit  TransactionType = "DEBIT"
)

// TwoFactor: State of the signed-in user's two-factor authentication.
type TwoFactor struct {
	// Whether each login takes a code.
	IsEnabled bool `json:"is_enabled"`
	// Number of unused recovery codes.
	RecoveryCodesLeft int64 `json:"recovery_codes_left"`
}

// UserRole: Role of a user. Each role includes the permissions of the roles before it.
//
// - `viewer`: reads everything except voucher codes.
// - `operator`: places and cancels orders, reads voucher codes, and manages webhooks.
// - `owner`: manages payouts, beneficiaries and API keys.
//
// The service may send values that this version of the library does not know.
type UserRole string

// Values of UserRole.
const (
	UserRoleViewer   UserRole = "viewer"
	UserRoleOperator UserRole = "operator"
	UserRoleOwner    UserRole = "owner"
)

// Voucher: A voucher with its codes.
type Voucher struct {
	// Code of the voucher.
	CardNumber Secret `json:"card_number"`
	// URL at which the end user can claim the voucher; null if there is none.
	ClaimURL *Secret `json:"claim_url"`
	// Last day on which the voucher is valid, as `YYYY-MM-DD`; null if it has no expiry date.
	ExpiresOn *string `json:"expires_on"`
	// PIN that belongs to the card number; null if there is none.
	Pin *Secret `json:"pin"`
	// Reference number of the voucher. It does not reveal the code.
	VoucherReferenceNumber string `json:"voucher_reference_number"`
}

// VoucherReference: A reference to a delivered voucher, without its codes.
type VoucherReference struct {
	// Reference number of the voucher. It does not reveal the code.
	VoucherReferenceNumber string `json:"voucher_reference_number"`
}

// Vouchers: The delivered vouchers of an order, with their codes.
type Vouchers struct {
	// The vouchers, one per delivered unit.
	Vouchers []Voucher `json:"vouchers"`
}

// Wallet: A wallet. An account has at most one per currency.
type Wallet struct {
	// Current balance, never negative.
	Balance string `json:"balance"`
	// Currency of the wallet, as an ISO 4217 code.
	Currency string `json:"currency"`
	// Unique identifier of the wallet.
	ID int64 `json:"id"`
	// Time of the latest change of the balance.
	UpdatedAt time.Time `json:"updated_at"`
}

// Webhook: An endpoint of yours that receives events by HTTP POST.
type Webhook struct {
	// Time at which the webhook was registered.
	CreatedAt time.Time `json:"created_at"`
	// Linked API credential, whose signing secret is the token. Null if the webhook has a separate token.
	CredentialID *int64 `json:"credential_id"`
	// A deactivation of a webhook by the service.
	Deactivation *WebhookDeactivation `json:"deactivation"`
	// Event types that the webhook is subscribed to.
	Events []WebhookEventType `json:"events"`
	// Names of the headers of your own that each delivery carries, in lower case. Their values are never shown.
	HeaderNames []string `json:"header_names"`
	// Unique identifier of the webhook. Each delivery has it in the header `X-Webhook-ID`.
	ID int64 `json:"id"`
	// Whether the webhook is active. An inactive webhook receives no events.
	IsActive bool `json:"is_active"`
	// Name of the webhook, for people to recognize it.
	Name string `json:"name"`
	// Time of the webhook's latest change.
	UpdatedAt time.Time `json:"updated_at"`
	// URL that receives the events.
	URL string `json:"url"`
}

// WebhookAttempts: A page of a webhook's attempts, the latest first.
type WebhookAttempts struct {
	// Attempts of this page. It can be empty although older attempts follow.
	Attempts []ListedAttempt `json:"attempts"`
	// Value of `before` for the next page. Null at the end.
	NextBefore *string `json:"next_before"`
}

// WebhookDay: Delivery attempts of a webhook on one day (UTC).
type WebhookDay struct {
	// Number of attempts that ended on the day.
	Attempts int64 `json:"attempts"`
	// Average duration of an attempt, in milliseconds; null without attempts.
	AverageMs *int64 `json:"average_ms"`
	// The day, as `YYYY-MM-DD`.
	Day string `json:"day"`
	// Number of attempts that your endpoint answered with a 2xx status.
	Delivered int64 `json:"delivered"`
	// Number of attempts that failed.
	Failed int64 `json:"failed"`
	// Duration of the longest attempt, in milliseconds; null without attempts.
	LongestMs *int32 `json:"longest_ms"`
}

// WebhookDeactivation: A deactivation of a webhook by the service.
type WebhookDeactivation struct {
	// Time of the deactivation.
	DeactivatedAt time.Time `json:"deactivated_at"`
	// Time since which all attempts have failed. Null for other reasons.
	FailingSince *time.Time `json:"failing_since"`
	// Reason for the deactivation.
	Reason DeactivationReason `json:"reason"`
}

// WebhookEnvelope: Body of a webhook request. Its bytes are the same in every attempt.
type WebhookEnvelope struct {
	// Time of the event.
	CreatedAt time.Time `json:"created_at"`
	// State of the object right after the event.
	Data json.RawMessage `json:"data"`
	// Unique identifier of the event. Use it to detect duplicates.
	EventID string `json:"event_id"`
	// Type of the event. New types may be added; ignore types that you do not know.
	EventType WebhookEventType `json:"event_type"`
}

// WebhookEventType: Type of an event that a webhook can subscribe to. New types may be added.
//
// - `order.created`: an order was placed and debited from the wallet.
// - `order.pending`: fulfilment has started to process the order.
// - `order.partially_delivered`: some units of the order are delivered.
// - `order.delivered`: all units of the order are delivered.
// - `order.cancelled`: the order was cancelled, and its undelivered units are refunded.
// - `payout.requested`: a payout was requested and debited from the wallet.
// - `payout.paid`: the money of the payout was sent.
// - `payout.failed`: the money could not be sent, and was returned to the wallet.
// - `payout.cancelled`: the payout was cancelled, and the money was returned to the wallet.
// - `wallet.low_balance`: the balance of a wallet fell below the amount that is set for notices about it.
//
// The service may send values that this version of the library does not know.
type WebhookEventType string

// Values of WebhookEventType.
const (
	WebhookEventTypeOrderCreated            WebhookEventType = "order.created"
	WebhookEventTypeOrderPending            WebhookEventType = "order.pending"
	WebhookEventTypeOrderDelivered          WebhookEventType = "order.delivered"
	WebhookEventTypeOrderPartiallyDelivered WebhookEventType = "order.partially_delivered"
	WebhookEventTypeOrderCancelled          WebhookEventType = "order.cancelled"
	WebhookEventTypePayoutRequested         WebhookEventType = "payout.requested"
	WebhookEventTypePayoutPaid              WebhookEventType = "payout.paid"
	WebhookEventTypePayoutFailed            WebhookEventType = "payout.failed"
	WebhookEventTypePayoutCancelled         WebhookEventType = "payout.cancelled"
	WebhookEventTypeWalletLowBalance        WebhookEventType = "wallet.low_balance"
)

// WebhookExplanation: Explanation of which events of an order a webhook received.
type WebhookExplanation struct {
	// Events of the order, oldest first.
	Events []EventExplanation `json:"events"`
	// Unique identifier of the order.
	OrderID int64 `json:"order_id"`
	// Unique identifier of the webhook.
	WebhookID int64 `json:"webhook_id"`
}

// WebhookHeader: A header of your own that each delivery of a webhook carries.
type WebhookHeader struct {
	// Name of the header: letters, digits, hyphens and underscores. Upper and lower case are the same. Headers of
	// HTTP, of proxies, of cloud metadata and of the service itself are refused.
	Name string `json:"name"`
	// Value of the header: printable ASCII characters. It is never shown again.
	Value Secret `json:"value"`
}

// WebhookLowBalance: Fall of a wallet's balance. New fields may be added; ignore unknown fields.
type WebhookLowBalance struct {
	// Balance right after the movement that made it fall.
	Balance string `json:"balance"`
	// Amount below which the balance fell.
	Below string `json:"below"`
	// Currency as an ISO 4217 code.
	Currency string `json:"currency"`
	// Time of the movement.
	FellAt time.Time `json:"fell_at"`
	// Unique identifier of the wallet.
	WalletID int64 `json:"wallet_id"`
}

// WebhookOrder: State of an order right after the event. New fields may be added; ignore unknown fields.
type WebhookOrder struct {
	// Amount debited from the wallet.
	Amount string `json:"amount"`
	// Time at which the order was placed.
	CreatedAt time.Time `json:"created_at"`
	// Time at which the status became `DELIVERED`; null until then.
	DeliveredOn *time.Time `json:"delivered_on"`
	// Number of units delivered so far.
	DeliveredQuantity int32 `json:"delivered_quantity"`
	// Face value of one unit.
	Denomination string `json:"denomination"`
	// Unique identifier of the order.
	ID int64 `json:"id"`
	// Delivered items, without codes. Only in `order.delivered` and `order.partially_delivered`.
	OrderItems []OrderItem `json:"order_items,omitempty"`
	// Name of the product at the time of the order.
	ProductName string `json:"product_name"`
	// Number of units ordered.
	Quantity int32 `json:"quantity"`
	// Reference code assigned by the service, for people to quote.
	ReferenceCode string `json:"reference_code"`
	// Status of the order.
	Status OrderStatus `json:"status"`
	// Detail of the status, or empty. New values may be added and are informational.
	SubStatus string `json:"sub_status"`
}

// WebhookPayout: State of a payout right after the event. New fields may be added; ignore unknown fields.
type WebhookPayout struct {
	// Amount debited from the wallet.
	Amount string `json:"amount"`
	// Unique identifier of the beneficiary that receives the money.
	BeneficiaryID int64 `json:"beneficiary_id"`
	// Your own reference for the payout, as sent when it was requested.
	ClientReference *string `json:"client_reference"`
	// Time at which the payout was requested.
	CreatedAt time.Time `json:"created_at"`
	// Currency as an ISO 4217 code.
	Currency string `json:"currency"`
	// Unique identifier of the payout.
	ID int64 `json:"id"`
	// Time at which the payout became `PAID`, `FAILED` or `CANCELLED`; null until then.
	SettledAt *time.Time `json:"settled_at"`
	// Status of the payout.
	Status PayoutStatus `json:"status"`
	// Unique identifier of the wallet that was debited.
	WalletID int64 `json:"wallet_id"`
}

// WebhookReplay: A replay of events to a webhook, and the outcome of its deliveries.
type WebhookReplay struct {
	// Time at which the replay was requested.
	CreatedAt time.Time `json:"created_at"`
	// Number of these deliveries that were answered with a 2xx status.
	DeliveredCount int64 `json:"delivered_count"`
	// Number of deliveries created so far.
	Deliveries int64 `json:"deliveries"`
	// Number of these deliveries that failed and are not retried.
	FailedCount int64 `json:"failed_count"`
	// Unique identifier of the replay.
	ID int64 `json:"id"`
	// Number of these deliveries that wait for an attempt.
	PendingCount int64 `json:"pending_count"`
	// Share of the replay's part of the log that is examined so far, in percent, from 0 to 100. A completed replay
	// has 100.
	ProgressPercent int64 `json:"progress_percent"`
	// Status of the replay.
	Status ReplayStatus `json:"status"`
	// Time of the replay's last progress.
	UpdatedAt time.Time `json:"updated_at"`
	// Webhook that receives the deliveries.
	WebhookID int64 `json:"webhook_id"`
}

// WebhookState: State of the webhook when the event happened.
//
// - `subscribed`: the webhook was active and subscribed to the event type.
// - `not_subscribed`: the webhook was active, but not subscribed to the event type.
// - `inactive`: the webhook was deactivated.
// - `created_later`: the webhook did not exist yet.
// - `deleted`: the webhook was already deleted.
//
// The service may send values that this version of the library does not know.
type WebhookState string

// Values of WebhookState.
const (
	WebhookStateSubscribed    WebhookState = "subscribed"
	WebhookStateNotSubscribed WebhookState = "not_subscribed"
	WebhookStateInactive      WebhookState = "inactive"
	WebhookStateCreatedLater  WebhookState = "created_later"
	WebhookStateDeleted       WebhookState = "deleted"
)

// WebhookStatistics: Delivery attempts of a webhook by day.
type WebhookStatistics struct {
	// The days, oldest first, up to today. Days without attempts are included.
	Days []WebhookDay `json:"days"`
	// Unique identifier of the webhook.
	WebhookID int64 `json:"webhook_id"`
}

// WebhookTest: Confirmation that a test delivery was created.
type WebhookTest struct {
	// Unique identifier of the test delivery.
	DeliveryID int64 `json:"delivery_id"`
	// ID of the event. The envelope's `event_id` and the header `X-Event-ID` have the same value.
	EventID string `json:"event_id"`
	// Confirmation in plain English.
	Message string `json:"message"`
}
