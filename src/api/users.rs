//! Users, as operators and the portal create and show them.

use ledger_events::user;
use poem_openapi::Enum;
use serde::Serialize;

use super::error::{ApiError, Code};
use super::limits::Reader;
use super::mirror::mirror;
use super::problems::Problems;
use super::readers::line;
use super::state::ApiState;
use crate::access::{Lane, NewPasswordError};
use crate::secrets::seal::Secret;

/// Role of a user. Each role includes the permissions of the roles before it.
///
/// - `viewer`: reads everything except voucher codes.
/// - `operator`: places and cancels orders, reads voucher codes, and manages webhooks.
/// - `owner`: manages payouts, beneficiaries and API keys.
#[derive(Clone, Copy, Default, Enum, Serialize)]
#[oai(rename_all = "lowercase")]
#[serde(rename_all = "lowercase")]
pub(crate) enum UserRole {
    #[default]
    Viewer,
    Operator,
    Owner,
}

mirror!(UserRole, user::UserRole: Viewer, Operator, Owner);

/// Reads an email address, roughly checked: text on both sides of a single `@`, without white space.
pub(crate) fn email() -> impl Reader<String> {
    line(3..=254).and(|text: String| {
        let is_address = match text.split_once('@') {
            Some((local, domain)) => !local.is_empty() && !domain.is_empty() && !domain.contains('@'),
            None => false,
        };
        match is_address && !text.contains(char::is_whitespace) {
            true => Ok(text),
            false => Err(Problems::from("must be an email address")),
        }
    })
}

/// Hashes a new password for the user with this email address.
///
/// # Errors
///
/// 400 for a password that is easy to guess, naming the field.
pub(crate) async fn hash(
    state: &ApiState,
    lane: Lane,
    (field, password): (&'static str, String),
    email: &str,
) -> Result<Secret, ApiError> {
    let parts = email.split(|c: char| !c.is_alphanumeric()).chain([email]).filter(|part| !part.is_empty());
    let hashed = state.sessions.passwords().hash_in(lane, Secret::new(password), parts.map(Secret::new).collect()).await;
    hashed.map_err(|error| match error {
        NewPasswordError::Weak => ApiError::invalid(field, "is a common password, or close to one: choose another"),
        NewPasswordError::Unavailable => ApiError::new(Code::Unavailable),
    })
}
