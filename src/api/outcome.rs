//! What became of a command or a read, as the API says it: the one place where the ledger's
//! refusals become codes.

use ledger_events::Rejection;
use poem_openapi::types::Type;

use super::error::{ApiError, Code};
use super::reply::Stored;
use crate::ledger::history::HistoryError;
use crate::ledger::reader::ReadError;
use crate::ledger::story::StoryError;
use crate::ledger::texts::VaultError;
use crate::ledger::{Answer, Rendered, Reply, WriteError, connect};

/// Writes down the answer to a request, in the writer's transaction or after it: the same bytes.
pub type Render = fn(&Answer) -> Result<Rendered, serde_json::Error>;

/// The HTTP answer to a command, whether the writer rendered it (under an idempotency key) or not.
///
/// # Errors
/// 500 if the answer cannot be written as JSON.
pub fn respond<B: Type, const STATUS: u16, const ALSO: u16>(
    reply: Reply,
    render: Render,
) -> Result<Stored<B, STATUS, ALSO>, ApiError> {
    let (rendered, is_replay) = match reply {
        Reply::Answer(answer) => (render(&answer).map_err(ApiError::internal)?, false),
        Reply::Rendered { rendered, is_replay } => (rendered, is_replay),
    };
    Ok(Stored::new(rendered.status, rendered.body, is_replay))
}

/// What a command answered, where it can only be one kind of thing.
macro_rules! answered {
    ($answer:expr, $pattern:pat => $value:expr) => {
        match $answer {
            $pattern => Ok($value),
            _ => Err($crate::api::outcome::unexpected()),
        }
    };
}
pub(super) use answered;

pub(super) fn unexpected() -> ApiError {
    ApiError::internal("a command answered with another kind of thing")
}

/// The same within a [`Render`].
pub fn unrenderable<T>() -> Result<T, serde_json::Error> {
    Err(serde::ser::Error::custom("a command answered with another kind of thing"))
}

/// The refusal of a client who may not be shown the signing secret of a webhook's credential.
pub(super) fn secret_not_visible() -> ApiError {
    ApiError::new(Code::Forbidden).message(
        "A webhook shows its credential's signing secret to its URL: linking one, or changing a linked one's URL, takes the \
         owner's role, or that very credential.",
    )
}

impl From<Rejection> for ApiError {
    fn from(rejection: Rejection) -> ApiError {
        let code = match rejection {
            Rejection::NotFound => Code::NotFound,
            Rejection::AccountSuspended => Code::AccountSuspended,
            Rejection::CredentialRevoked => Code::Unauthorized,
            Rejection::UserRemoved => Code::InvalidToken,
            Rejection::SecretNotVisible => return secret_not_visible(),
            Rejection::ProductUnavailable => Code::ProductUnavailable,
            Rejection::InvalidDenomination => Code::InvalidDenomination,
            Rejection::QuantityLimitExceeded { max_quantity } => {
                let message = format!("The quantity is over the product's maximum of {max_quantity}.");
                return ApiError::new(Code::QuantityLimitExceeded).message(message);
            }
            Rejection::CurrencyMismatch => Code::CurrencyMismatch,
            Rejection::InsufficientBalance => Code::InsufficientBalance,
            Rejection::OrderNotCancellable => Code::OrderNotCancellable,
            Rejection::PayoutNotCancellable => Code::PayoutNotCancellable,
            Rejection::DuplicateReference => Code::DuplicateReference,
            Rejection::IdempotencyKeyReused => Code::IdempotencyKeyReused,
            Rejection::WebhookLimitReached => Code::WebhookLimitReached,
            Rejection::WebhookInactive => Code::WebhookInactive,
            Rejection::DeliveryNotFailed => Code::DeliveryNotFailed,
            Rejection::DeliveryAttemptsExhausted => Code::DeliveryAttemptsExhausted,
            Rejection::Conflict(why) => return ApiError::new(Code::Conflict).message(sentence(why)),
            Rejection::InvalidField { field, problem } => return ApiError::invalid(field, problem),
        };
        ApiError::new(code)
    }
}

/// `the reference was used` as a sentence: a capital first, a full stop last.
fn sentence(text: &str) -> String {
    let mut characters = text.chars();
    characters.next().into_iter().flat_map(char::to_uppercase).chain(characters).chain(['.']).collect()
}

impl From<WriteError> for ApiError {
    fn from(error: WriteError) -> ApiError {
        match error {
            WriteError::Rejected(rejection) => rejection.into(),
            WriteError::Unavailable => ApiError::new(Code::Unavailable),
            WriteError::InProgress => ApiError::new(Code::IdempotencyInProgress),
            WriteError::OutcomeUnknown => ApiError::new(Code::OutcomeUnknown),
            WriteError::Refused => ApiError::internal(error),
        }
    }
}

/// A read that failed: the database is away, or something is wrong with the statement or a row.
impl From<sqlx::Error> for ApiError {
    fn from(error: sqlx::Error) -> ApiError {
        if !connect::is_passing(&error) {
            return ApiError::internal(error);
        }
        tracing::warn!(%error, "the database cannot be read");
        ApiError::new(Code::Unavailable)
    }
}

/// A read of the log that failed.
impl From<ReadError> for ApiError {
    fn from(error: ReadError) -> ApiError {
        match error {
            ReadError::Database(error) => error.into(),
            error => ApiError::internal(error),
        }
    }
}

/// A look into the past that failed.
impl From<HistoryError> for ApiError {
    fn from(error: HistoryError) -> ApiError {
        match error {
            HistoryError::Read(error) => error.into(),
            HistoryError::BeyondHead { .. } => ApiError::invalid("as_of", format!("is a position to come: {error}")),
        }
    }
}

/// The story of an order that could not be read.
impl From<StoryError> for ApiError {
    fn from(error: StoryError) -> ApiError {
        match error {
            StoryError::Read(error) => error.into(),
            StoryError::Vault(error) => error.into(),
        }
    }
}

impl From<VaultError> for ApiError {
    fn from(error: VaultError) -> ApiError {
        match error {
            VaultError::Database(error) => error.into(),
            VaultError::Seal(_) | VaultError::Damaged(_) => ApiError::internal(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_refusal_has_its_code() {
        let invalid = Rejection::InvalidField { field: "credential_id", problem: "is unknown" };
        for (error, status, code) in [
            (WriteError::Rejected(Rejection::CredentialRevoked), 401, "E_UNAUTHORIZED"),
            (WriteError::Rejected(Rejection::InsufficientBalance), 402, "E_INSUFFICIENT_BALANCE"),
            (WriteError::Rejected(Rejection::NotFound), 404, "E_NOT_FOUND"),
            (WriteError::Rejected(Rejection::Conflict("it is taken")), 409, "E_CONFLICT"),
            (WriteError::Rejected(Rejection::QuantityLimitExceeded { max_quantity: 3 }), 422, "E_QUANTITY_LIMIT_EXCEEDED"),
            (WriteError::Rejected(invalid), 400, "E_VALIDATION_FAILURE"),
            (WriteError::Refused, 500, "E_INTERNAL"),
            (WriteError::Unavailable, 503, "E_UNAVAILABLE"),
            (WriteError::InProgress, 409, "E_IDEMPOTENCY_IN_PROGRESS"),
            (WriteError::OutcomeUnknown, 504, "E_OUTCOME_UNKNOWN"),
        ] {
            let error = ApiError::from(error);
            assert_eq!((error.code.status(), error.code.as_str()), (status, code));
        }
        assert_eq!(ApiError::from(Rejection::Conflict("it is taken")).message, "It is taken.");
        assert_eq!(ApiError::from(sqlx::Error::PoolTimedOut).code, Code::Unavailable);
        assert_eq!(ApiError::from(sqlx::Error::RowNotFound).code, Code::Internal);
    }
}
