/// Why a command was refused. A refused command has no effect.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Rejection {
    #[error("not found")]
    NotFound,
    #[error("the account is suspended")]
    AccountSuspended,
    #[error("the credential is revoked")]
    CredentialRevoked,
    #[error("the user was removed")]
    UserRemoved,
    #[error("the caller may not be shown the signing secret of the webhook's credential")]
    SecretNotVisible,
    #[error("the product is not available")]
    ProductUnavailable,
    #[error("the denomination is not one of the product's")]
    InvalidDenomination,
    #[error("the quantity is above the product's maximum of {max_quantity}")]
    QuantityLimitExceeded { max_quantity: i32 },
    #[error("the account has no wallet in the currency that is asked for")]
    CurrencyMismatch,
    #[error("the wallet's balance does not cover the amount")]
    InsufficientBalance,
    #[error("the order can no longer be cancelled")]
    OrderNotCancellable,
    #[error("the payout is no longer pending")]
    PayoutNotCancellable,
    #[error("another request carries this client_reference")]
    DuplicateReference,
    #[error("the idempotency key was used with another request")]
    IdempotencyKeyReused,
    #[error("the account has as many webhooks as it may")]
    WebhookLimitReached,
    #[error("the webhook is inactive or deleted")]
    WebhookInactive,
    #[error("the delivery has not failed")]
    DeliveryNotFailed,
    #[error("the delivery has used all its attempts")]
    DeliveryAttemptsExhausted,
    #[error("{0}")]
    Conflict(&'static str),
    /// A field of the request that only the ledger's state shows to be wrong.
    #[error("{field} {problem}")]
    InvalidField { field: &'static str, problem: &'static str },
}
