//! `/auth`: requests with a token that was sent by mail. They set a forgotten password and accept an invitation.

use std::net::IpAddr;

use ledger_events::Actor;
use poem::Request;
use poem_openapi::{Object, OpenApi};
use serde::Serialize;

use super::body::StrictJson;
use super::error::ApiError;
use super::fields::body;
use super::outcome::answered;
use super::readers::{line, text};
use super::reply::{Created, Reply};
use super::sessions::Confirmation;
use super::source::source_ip;
use super::state::{ApiState, State, Tag, origin};
use super::users::{UserRole, hash};
use crate::access::Lane;
use crate::access::gate::Verdict;
use crate::access::limits::source_network;
use crate::access::one_time_tokens::{self, Invitation, PasswordReset};
use crate::ledger::commands::{AcceptInvitation as Accept, CreateUser, SetOwnPassword};
use crate::ledger::texts::{self, EMAIL};
use crate::ledger::{Command, CommandResult, WriteError};
use crate::secrets::seal::Secret;

body! {
    /// The email address of a user who forgot the password.
    #[derive(Object)]
    pub(crate) struct RequestPasswordReset {
        /// Email address of the user. Case does not matter.
        pub email: String = required(text(1..=254)),
    }
}

body! {
    /// A token from a mail, and the password to log in with from now on.
    #[derive(Object)]
    pub(crate) struct ChoosePassword {
        /// Token from the mail. A successful request uses it up.
        pub token: String = required(line(1..=256)),
        /// New password, 8 to 128 characters. Common passwords, and close variants of them, are refused.
        pub password: String = required(text(8..=128)),
    }
}

/// The user that an invitation has become.
#[derive(Object, Serialize)]
pub(crate) struct AcceptedInvitation {
    /// Unique identifier of the new user.
    id: i64,
    /// Unique identifier of the user's account.
    account_id: i64,
    /// Email address to log in with.
    pub(crate) email: String,
    /// Role of the user.
    role: UserRole,
}

/// Sends a mail with a token to the user with this email, if there is one. The outcome does not tell whether there is.
///
/// # Errors
/// 503 if the database does not answer.
pub(crate) async fn request_reset(state: &ApiState, ip: IpAddr, email: &str) -> Result<(), ApiError> {
    let budget = state.sessions.reset_budget(email);
    let may_send = match state.gate.request_reset(ip, budget).await? {
        Verdict::Blocked(_) => false,
        Verdict::Seen { quota, .. } => !quota.is_some_and(|quota| quota.is_exceeded),
    };
    if may_send {
        one_time_tokens::request_reset(state.ledger.pool(), &state.keyring, &state.sessions.email_lookup(email)).await?;
    }
    Ok(())
}

/// Sets the password of the user to whom the token was sent, and ends the user's sessions.
///
/// # Errors
/// 401 for a token that is unknown, expired or used; 400 for a weak password, which does not use up the token.
pub(crate) async fn confirm_reset(state: &ApiState, network: IpAddr, body: ChoosePassword) -> Result<(), ApiError> {
    let pool = state.ledger.pool();
    let reset = PasswordReset::find(pool, &state.keyring, &Secret::new(body.token)).await?;
    let (user_id, shard) = (reset.user_id, reset.shard_id);
    let email = texts::load(pool, &state.keyring, shard, &[(EMAIL, user_id.0)]).await?;
    let email = email.get(&(EMAIL, user_id.0)).map_or("", Secret::expose);
    let password_hash = hash(state, Lane::Source(network), ("password", body.password), email).await?;
    reset.take(pool).await?;
    let command = SetOwnPassword { account_id: reset.account_id, user_id, password_hash, own: None };
    let done = state.ledger.execute(shard, Command::SetOwnPassword(command), origin(Actor::User(user_id))).await;
    // Nothing happened, so the invitation can still be accepted.
    if matches!(done, Err(WriteError::Unavailable | WriteError::Rejected(_) | WriteError::Refused)) {
        reset.put_back(pool).await?;
    }
    answered!(done?, CommandResult::User(_) => ())
}

/// Creates the user to whom the invitation was sent.
///
/// # Errors
/// 401 for an invitation that is unknown, expired, used or revoked; 400 for a weak password, which does not use it up; 409 if
/// another user has the email address.
pub(crate) async fn accept_invitation(
    state: &ApiState,
    network: IpAddr,
    body: ChoosePassword,
) -> Result<AcceptedInvitation, ApiError> {
    let pool = state.ledger.pool();
    let invitation = Invitation::find(pool, &state.keyring, &Secret::new(body.token)).await?;
    let Invitation { id, account_id, role, ref email, invited_by, .. } = invitation;
    let shard = state.shard_of(account_id).await?;
    let password_hash = hash(state, Lane::Source(network), ("password", body.password), email.expose()).await?;
    let email_lookup = state.sessions.email_lookup(email.expose());
    let new = CreateUser { account_id, role, email: email.clone(), email_lookup, password_hash };
    let accept = Command::AcceptInvitation(Accept { invitation_id: id, invited_by, new });
    invitation.take(pool).await?;
    let origin = || origin(Actor::User(invited_by));
    let done = match state.ledger.execute(shard, accept.clone(), origin()).await {
        // Another shard has just taken the email address. A second try sees that and returns the right error.
        Err(WriteError::Refused) => state.ledger.execute(shard, accept, origin()).await,
        done => done,
    };
    // Nothing happened, so the invitation can still be accepted.
    if matches!(done, Err(WriteError::Unavailable | WriteError::Rejected(_) | WriteError::Refused)) {
        invitation.put_back(pool).await?;
    }
    let user = answered!(done?, CommandResult::User(user) => user)?;
    Ok(AcceptedInvitation { id: user.id.0, account_id: account_id.0, email: email.expose().to_owned(), role: user.role.into() })
}

fn network_of(request: &Request, state: &ApiState) -> IpAddr {
    source_network(source_ip(request, &state.trusted_proxies))
}

pub struct Recovery;

#[OpenApi(prefix_path = "/auth", tag = "Tag::Sessions")]
impl Recovery {
    /// Request a password reset
    ///
    /// Sends a mail with a token to the user with this email address. The token is valid for 30 minutes. The response is the
    /// same if there is no such user. At most 3 mails an hour are sent to an address.
    #[oai(path = "/password-reset", method = "post", operation_id = "request_password_reset")]
    pub(crate) async fn request(
        &self,
        request: &Request,
        state: State<'_>,
        body: StrictJson<RequestPasswordReset>,
    ) -> Result<Reply<Confirmation>, ApiError> {
        request_reset(&state, source_ip(request, &state.trusted_proxies), &body.0.email).await?;
        Ok(Reply(Confirmation::new("If a user has this email address, a mail is on its way.")))
    }

    /// Reset a password
    ///
    /// Sets a new password with the token from a mail, and ends all sessions of the user. Two-factor authentication stays
    /// as it is.
    #[oai(path = "/password-reset/confirm", method = "post", operation_id = "reset_password")]
    pub(crate) async fn confirm(
        &self,
        request: &Request,
        state: State<'_>,
        body: StrictJson<ChoosePassword>,
    ) -> Result<Reply<Confirmation>, ApiError> {
        confirm_reset(&state, network_of(request, &state), body.0).await?;
        Ok(Reply(Confirmation::new("The password is changed. Log in with the new one.")))
    }

    /// Accept an invitation
    ///
    /// Creates the user to whom the token was sent by mail. The user can then log in. Returns 409 `E_CONFLICT` if another
    /// user has the email address, or if the user who sent the invitation is no longer an owner.
    #[oai(path = "/invitations/accept", method = "post", operation_id = "accept_invitation")]
    pub(crate) async fn accept(
        &self,
        request: &Request,
        state: State<'_>,
        body: StrictJson<ChoosePassword>,
    ) -> Result<Created<AcceptedInvitation>, ApiError> {
        Ok(Created(accept_invitation(&state, network_of(request, &state), body.0).await?))
    }
}
