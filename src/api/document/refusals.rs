//! Error codes that each operation can return. Codes that follow from an operation's shape (security, body, idempotency
//! key) are derived. A table lists the rest. The tests compare every response that they receive with this list.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::access::limits::Rule;
use crate::api::error::{Code, JSON};
use crate::api::principal::{API_KEY, PORTAL_SESSION};

/// Error codes that follow from what an operation does, by operation ID.
const OWN: &[(&str, &[Code])] = &[
    (
        "place_order",
        &[
            Code::NotFound,
            Code::InsufficientBalance,
            Code::DuplicateReference,
            Code::ProductUnavailable,
            Code::InvalidDenomination,
            Code::QuantityLimitExceeded,
            Code::CurrencyMismatch,
        ],
    ),
    ("quote_charge", PRICED),
    // A refund can exceed the maximum balance of a wallet.
    ("cancel_order", &[Code::OrderNotCancellable, Code::Conflict]),
    ("cancel_any_order", &[Code::OrderNotCancellable, Code::Conflict]),
    // Reading codes records an event, so its outcome can be unknown.
    ("get_order_vouchers", &[Code::OutcomeUnknown]),
    ("request_payout", &[Code::NotFound, Code::InsufficientBalance, Code::DuplicateReference, Code::CurrencyMismatch]),
    ("cancel_payout", &[Code::PayoutNotCancellable, Code::Conflict]),
    ("settle_payout", &[Code::Conflict]),
    // Making the movement can fail as the movement itself does.
    ("approve", &[Code::Conflict, Code::InsufficientBalance]),
    ("reject", &[Code::Conflict]),
    ("withdraw_approval", &[Code::Conflict]),
    ("register_webhook", &[Code::WebhookLimitReached]),
    ("rotate_webhook_token", &[Code::Conflict]),
    ("test_webhook", &[Code::WebhookInactive]),
    ("retry_delivery", &[Code::DeliveryNotFailed, Code::DeliveryAttemptsExhausted, Code::WebhookInactive]),
    ("fund_own_wallet", &[Code::Conflict]),
    ("fund_wallet", &[Code::Conflict]),
    ("adjust_wallet", &[Code::Conflict, Code::InsufficientBalance]),
    ("open_wallet", &[Code::Conflict]),
    ("create_user", &[Code::Conflict]),
    ("create_account", &[Code::Conflict]),
    ("add_shard", &[Code::Conflict]),
    ("set_shard_drain", &[Code::Conflict]),
    ("change_user", &[Code::Conflict]),
    ("end_user_sessions", &[Code::Conflict]),
    ("change_credential", &[Code::Conflict]),
    ("rotate_signing_secret", &[Code::Conflict]),
    ("load_vouchers", &[Code::InvalidDenomination]),
    ("set_stock_threshold", &[Code::InvalidDenomination]),
    ("set_product_image", &[Code::UnsupportedMediaType]),
    ("reconcile", &[Code::NotFound]),
    ("start_replay", &[Code::Conflict, Code::WebhookInactive]),
    ("replay_events", &[Code::Conflict, Code::WebhookInactive]),
    ("cancel_replay", &[Code::Conflict]),
    ("start_verification", &[Code::Conflict]),
    ("stop_verification", &[Code::Conflict]),
    ("import_statement", &[Code::Conflict]),
    ("decide_line", &[Code::Conflict]),
    // 403 for a request from a page of another site.
    ("log_in_to_console", &[Code::InvalidCredentials, Code::TwoFactorRequired, Code::Forbidden]),
    ("change_console_password", &[Code::NotFound, Code::Conflict]),
    ("begin_console_two_factor", &[Code::Conflict]),
    ("confirm_console_two_factor", &[Code::NotFound, Code::Conflict]),
    ("remove_console_two_factor", &[Code::NotFound]),
    ("create_operator", &[Code::Conflict]),
    ("change_operator", &[Code::Conflict]),
    ("log_in", &[Code::InvalidCredentials, Code::TwoFactorRequired, Code::Forbidden]),
    ("request_password_reset", &[Code::Forbidden]),
    ("reset_password", &[Code::InvalidToken, Code::Forbidden, Code::Conflict]),
    ("accept_invitation", &[Code::InvalidToken, Code::Forbidden, Code::AccountSuspended, Code::Conflict]),
    ("change_password", &[Code::NotFound, Code::Conflict]),
    ("begin_two_factor", &[Code::NotFound, Code::Conflict]),
    ("confirm_two_factor", &[Code::Conflict]),
    ("disable_two_factor", &[Code::Conflict]),
    ("change_security_policy", &[Code::Conflict]),
    ("invite_user", &[Code::Conflict, Code::AlreadyCreated]),
    ("create_api_key", &[Code::AlreadyCreated]),
    ("issue_credential", &[Code::AlreadyCreated]),
    ("create_operator_token", &[Code::AlreadyCreated]),
    ("list_sent_mails", &[Code::NotFound]),
    ("revoke_invitation", &[Code::Conflict]),
    ("change_team_member", &[Code::Conflict]),
    ("remove_team_member", &[Code::Conflict]),
    ("refresh_tokens", &[Code::InvalidToken, Code::Forbidden]),
    ("add_cosignatures", &[Code::Forbidden, Code::Conflict]),
];

/// Error codes of pricing an order.
const PRICED: &[Code] =
    &[Code::ProductUnavailable, Code::InvalidDenomination, Code::QuantityLimitExceeded, Code::CurrencyMismatch];

/// Operations other than GET that suspended accounts may use.
const MAY_THOUGH_SUSPENDED: &[&str] = &[
    "quote_charge",
    "log_out",
    "change_password",
    "end_session",
    "begin_two_factor",
    "confirm_two_factor",
    "disable_two_factor",
];
/// Operations with which an owner enrols in two-factor authentication, and the logout.
const MAY_BEFORE_ENROLMENT: &[&str] =
    &["log_out", "get_two_factor", "begin_two_factor", "confirm_two_factor", "disable_two_factor"];

/// Returns the error codes from the table for this operation.
pub fn own(operation: &Value) -> &'static [Code] {
    let id = operation["operationId"].as_str().unwrap_or_default();
    OWN.iter().find(|(known, _)| *known == id).map_or(&[], |(_, codes)| codes)
}

/// Returns every error code that an operation can return, except the flat 429.
pub fn of(path: &str, method: &str, operation: &Value) -> Vec<Code> {
    let mut codes = vec![Code::ValidationFailure, Code::Internal, Code::Unavailable];
    codes.extend_from_slice(own(operation));
    let id = operation["operationId"].as_str().unwrap_or_default();
    let schemes: BTreeSet<&str> = operation["security"]
        .as_array()
        .into_iter()
        .flatten()
        .flat_map(|entry| entry.as_object().into_iter().flatten().map(|(name, _)| name.as_str()))
        .collect();
    let is_change = method != "get";
    for scheme in &schemes {
        codes.extend_from_slice(match *scheme {
            API_KEY => &[
                Code::Unauthorized,
                Code::ApiKeyExpired,
                Code::InsufficientScope,
                Code::NetworkNotAllowed,
                Code::HmacSignatureRequired,
                Code::HmacTimestampExpired,
                Code::HmacSignatureInvalid,
                Code::HmacHeaderInvalid,
            ],
            "AccessToken" | PORTAL_SESSION => &[Code::InvalidToken],
            _ => &[Code::Unauthorized],
        });
    }
    if !schemes.is_empty() {
        codes.push(Code::Forbidden);
    }
    if schemes.contains("AccessToken") && is_change && !MAY_THOUGH_SUSPENDED.contains(&id) {
        codes.push(Code::AccountSuspended);
    }
    if schemes.contains("AccessToken") && !MAY_BEFORE_ENROLMENT.contains(&id) {
        codes.push(Code::TwoFactorEnrolment);
    }
    if path.contains('{') {
        codes.push(Code::NotFound);
    }
    let content = operation.pointer("/requestBody/content");
    // The gate reads the body of every rate-limited request, even if the operation expects none. So do operations without
    // fields.
    let takes_none = content.is_none() && matches!(method, "post" | "delete");
    let is_governed = Rule::of(&method.to_uppercase(), path).is_some();
    if content.is_some() || takes_none || is_governed {
        codes.push(Code::PayloadTooLarge);
    }
    if content.is_some() {
        codes.push(Code::UnsupportedMediaType);
    }
    if is_governed || content.map_or(takes_none, |content| content.get(JSON).is_some()) {
        codes.push(Code::MalformedJson);
    }
    let parameters = operation["parameters"].as_array();
    if parameters.is_some_and(|all| all.iter().any(|parameter| parameter["name"] == "Idempotency-Key")) {
        codes.extend([Code::IdempotencyInProgress, Code::IdempotencyKeyReused]);
    }
    if is_change {
        codes.push(Code::OutcomeUnknown);
    }
    // In the order of `Code::ALL`, without duplicates.
    Code::ALL.iter().copied().filter(|code| codes.contains(code)).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn error_codes_follow_from_the_shape_of_an_operation() {
        let read = json!({"operationId": "list_log_keys", "security": []});
        assert_eq!(of("/log/keys", "get", &read), [Code::ValidationFailure, Code::Internal, Code::Unavailable]);
        let cancel = json!({
            "operationId": "cancel_order", "security": [{"OperatorToken": []}],
            "parameters": [{"name": "Idempotency-Key"}],
            "requestBody": {"content": {"application/json": {}}}
        });
        let codes = of("/orders/{id}/cancel", "post", &cancel);
        for code in [Code::MalformedJson, Code::NotFound, Code::OrderNotCancellable, Code::IdempotencyKeyReused] {
            assert!(codes.contains(&code), "{code:?}");
        }
        for code in [Code::InsufficientBalance, Code::HmacHeaderInvalid, Code::AccountSuspended] {
            assert!(!codes.contains(&code), "{code:?}");
        }
    }
}
