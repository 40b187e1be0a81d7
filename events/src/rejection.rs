use serde::{Deserialize, Serialize};

/// Reason for refusing a command. A refused command has no effect. It can be serialized unless it has a text of its own.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
pub enum Rejection {
    #[error("not found")]
    NotFound,
    #[error("the account is suspended")]
    AccountSuspended,
    #[error("the credential is revoked")]
    CredentialRevoked,
    #[error("another operator must decide the approval than the one who requested it")]
    SecondOperatorRequired,
    #[error("only the operator who requested the approval can withdraw it")]
    RequesterRequired,
    #[error("the credential has expired")]
    CredentialExpired,
    #[error("the user was removed")]
    UserRemoved,
    #[error("the caller is not allowed to see the signing secret of the webhook's credential")]
    SecretNotVisible,
    #[error("the product is not available")]
    ProductUnavailable,
    #[error("the product does not offer this denomination")]
    InvalidDenomination,
    #[error("the quantity exceeds the product's maximum of {max_quantity}")]
    QuantityLimitExceeded { max_quantity: i32 },
    #[error("the account has no wallet in the required currency, or the named wallet has another currency")]
    CurrencyMismatch,
    #[error("the wallet's balance does not cover the amount")]
    InsufficientBalance,
    #[error("the order can no longer be cancelled")]
    OrderNotCancellable,
    #[error("the payout is no longer pending")]
    PayoutNotCancellable,
    #[error("another request already uses this client_reference")]
    DuplicateReference,
    #[error("the idempotency key was used with another request")]
    IdempotencyKeyReused,
    #[error("the account has reached the limit of 20 webhooks")]
    WebhookLimitReached,
    #[error("the webhook is inactive or deleted")]
    WebhookInactive,
    #[error("the delivery has not failed")]
    DeliveryNotFailed,
    #[error("the delivery has used all its attempts")]
    DeliveryAttemptsExhausted,
    #[error("{0}")]
    #[serde(skip)]
    Conflict(#[serde(skip)] &'static str),
    /// An invalid request field that only the state of the ledger reveals.
    #[error("{field} {problem}")]
    #[serde(skip)]
    InvalidField {
        #[serde(skip)]
        field: &'static str,
        #[serde(skip)]
        problem: &'static str,
    },
}
