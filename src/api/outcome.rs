//! Outcomes of commands and reads as API responses. This is the only place that maps the ledger's rejections to error
//! codes.

use ledger_events::Rejection;
use poem_openapi::types::Type;
use serde::{Deserialize, Serialize};

use super::error::{ApiError, Code};
use super::reply::Stored;
use crate::ledger::history::HistoryError;
use crate::ledger::reader::ReadError;
use crate::ledger::texts::VaultError;
use crate::ledger::timeline::TimelineError;
use crate::ledger::{CommandResult, Reply, StoredResponse, WriteError, connect};

/// A function that serializes the response to a request. It yields the same bytes in the writer's transaction and after it.
pub type Render = fn(&CommandResult) -> Result<StoredResponse, serde_json::Error>;

/// Returns the HTTP response to a command, whether or not the writer rendered it (it does so under an idempotency key).
///
/// # Errors
/// 500 if the answer cannot be serialized.
pub fn respond<B: Type, const STATUS: u16, const ALSO: u16>(
    reply: Reply,
    render: Render,
) -> Result<Stored<B, STATUS, ALSO>, ApiError> {
    let (response, is_replay) = match reply {
        Reply::Result(answer) => (render(&answer).map_err(ApiError::internal)?, false),
        Reply::Stored { response, is_replay } => (response, is_replay),
    };
    Ok(Stored::new(response.status, response.body, is_replay))
}

/// The part that is stored of a response whose other parts are secret.
#[derive(Deserialize, Serialize)]
struct Made {
    id: i64,
}

/// Renders the id of what a command created, and nothing that its response shows only once.
pub fn made(result: &CommandResult) -> Result<StoredResponse, serde_json::Error> {
    let id = match result {
        CommandResult::Credential(credential) => credential.id.0,
        CommandResult::OperatorToken { id } | CommandResult::Invitation { id } => *id,
        _ => return unrenderable(),
    };
    Ok(StoredResponse { status: 201, body: serde_json::to_string(&Made { id })?, is_secret: false })
}

/// Returns the id of what a command created, and whether an earlier request created it.
///
/// # Errors
/// 500 for an unexpected kind of answer.
pub fn made_by(reply: Reply) -> Result<(i64, bool), ApiError> {
    let (response, is_replay) = match reply {
        Reply::Result(result) => (made(&result).map_err(ApiError::internal)?, false),
        Reply::Stored { response, is_replay } => (response, is_replay),
    };
    let Made { id } = serde_json::from_str(&response.body).map_err(ApiError::internal)?;
    Ok((id, is_replay))
}

/// Returns the id of what a command created. Its response has a secret that is not stored.
///
/// # Errors
/// 409 if an earlier request created it, because its secret cannot be shown again.
pub fn made_once(reply: Reply) -> Result<i64, ApiError> {
    match made_by(reply)? {
        (id, false) => Ok(id),
        (id, true) => Err(already_created(id)),
    }
}

/// The refusal of a request that an earlier one with its key has carried out.
pub fn already_created(id: i64) -> ApiError {
    let message =
        format!("An earlier request with this Idempotency-Key created it, with the ID {id}. Its response cannot be repeated.");
    ApiError::new(Code::AlreadyCreated).message(message)
}

/// Extracts the value of an answer that can only have one variant; any other variant is a 500.
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
    ApiError::internal("a command returned an unexpected kind of answer")
}

/// Returns the error for an unexpected kind of answer, within a [`Render`].
pub fn unrenderable<T>() -> Result<T, serde_json::Error> {
    Err(serde::ser::Error::custom("a command returned an unexpected kind of answer"))
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
            Rejection::SecondOperatorRequired => {
                return ApiError::new(Code::Forbidden).message("You requested this. Another operator must decide it.");
            }
            Rejection::RequesterRequired => {
                return ApiError::new(Code::Forbidden)
                    .message("Another operator requested this. Only that operator can withdraw it.");
            }
            Rejection::CredentialExpired => Code::ApiKeyExpired,
            Rejection::UserRemoved => Code::InvalidToken,
            Rejection::SecretNotVisible => return secret_not_visible(),
            Rejection::ProductUnavailable => Code::ProductUnavailable,
            Rejection::InvalidDenomination => Code::InvalidDenomination,
            Rejection::QuantityLimitExceeded { max_quantity } => {
                let message = format!("The quantity exceeds the product's max_quantity of {max_quantity}.");
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

/// Makes a sentence of `the reference was used`: a capital letter first, a full stop last.
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

/// Converts a failed read: 503 if the error is transient, 500 if the statement or a row is at fault.
impl From<sqlx::Error> for ApiError {
    fn from(error: sqlx::Error) -> ApiError {
        if !connect::is_transient(&error) {
            return ApiError::internal(error);
        }
        tracing::warn!(%error, "failed to read from the database");
        ApiError::new(Code::Unavailable)
    }
}

/// Converts a failed read of the log.
impl From<ReadError> for ApiError {
    fn from(error: ReadError) -> ApiError {
        match error {
            ReadError::Database(error) => error.into(),
            error => ApiError::internal(error),
        }
    }
}

/// Converts a failed query of a past state.
impl From<HistoryError> for ApiError {
    fn from(error: HistoryError) -> ApiError {
        match error {
            HistoryError::Read(error) => error.into(),
            HistoryError::BeyondHead { .. } => {
                ApiError::invalid("as_of", format!("is a position that does not exist yet: {error}"))
            }
        }
    }
}

/// Converts a failure to load an order's history.
impl From<TimelineError> for ApiError {
    fn from(error: TimelineError) -> ApiError {
        match error {
            TimelineError::Read(error) => error.into(),
            TimelineError::Vault(error) => error.into(),
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
    fn every_rejection_maps_to_its_code() {
        let invalid = Rejection::InvalidField { field: "credential_id", problem: "is unknown" };
        for (error, status, code) in [
            (WriteError::Rejected(Rejection::CredentialRevoked), 401, "E_UNAUTHORIZED"),
            (WriteError::Rejected(Rejection::CredentialExpired), 401, "E_API_KEY_EXPIRED"),
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
