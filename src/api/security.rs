//! `/client/api`: the signed-in user's password, sessions and second factor, and the account's rule for owners.

use std::net::IpAddr;

use ledger_database::replanned;
use ledger_events::UserId;
use poem::Request;
use poem_openapi::param::Path;
use poem_openapi::{Object, OpenApi};
use serde::Serialize;

use super::audit_log::{Kind, note};
use super::body::{NoFields, StrictJson};
use super::error::ApiError;
use super::fields::body;
use super::outcome::answered;
use super::principal::{Caller, PortalOwner, PortalUser};
use super::readers::{boolean, line, text};
use super::reply::{Created, Listed, Plural, Reply, Revealing};
use super::scalars::Timestamp;
use super::sessions::{Confirmation, second_factor};
use super::source::source_ip;
use super::state::{ApiState, State, Tag, not_found, origin};
use super::users::hash;
use crate::access::limits::source_network;
use crate::access::sessions::UserSession;
use crate::access::two_factor::{SecondFactor, generate_recovery_codes, otpauth_url};
use crate::access::{AccessError, ClientIdentity, Lane, Principal};
use crate::ledger::commands::{DisableTwoFactor, OwnChange, SetOwnPassword, SetSecurityPolicy};
use crate::ledger::texts::{self, EMAIL};
use crate::ledger::{Command, CommandResult, user_security};
use crate::secrets::seal::Secret;

body! {
    /// The present and the new password of the signed-in user.
    #[derive(Object)]
    pub(crate) struct ChangePassword {
        /// Present password.
        pub current_password: String = required(text(1..=128)),
        /// New password, 8 to 128 characters. Common passwords, and close variants of them, are refused.
        pub new_password: String = required(text(8..=128)),
    }
}

/// A session of the signed-in user.
#[derive(Object, Serialize)]
pub(crate) struct Session {
    /// Unique identifier of the session.
    pub(crate) id: i64,
    /// Time of the login. Null for a session from before an upgrade.
    pub(crate) started_at: Option<Timestamp>,
    /// Time of the login or of the latest token refresh.
    pub(crate) last_used_at: Timestamp,
    /// IP address of the login; for IPv6 the first address of its /64.
    pub(crate) network: Option<String>,
    /// `User-Agent` of the login, up to 256 characters.
    pub(crate) user_agent: Option<String>,
    /// Whether this request belongs to the session.
    pub(crate) is_current: bool,
}

impl Plural for Session {
    const PLURAL: &'static str = "sessions";
}

impl Session {
    fn new(session: UserSession, current: i64) -> Self {
        let text = |secret: Secret| secret.expose().to_owned();
        Self {
            id: session.id,
            started_at: session.started_at.map(Into::into),
            last_used_at: session.last_used_at.into(),
            network: session.network.map(text),
            user_agent: session.user_agent.map(text),
            is_current: session.id == current,
        }
    }
}

/// State of the signed-in user's two-factor authentication.
#[derive(Object, Serialize)]
pub(crate) struct TwoFactor {
    /// Whether each login takes a code.
    pub(crate) is_enabled: bool,
    /// Number of unused recovery codes.
    pub(crate) recovery_codes_left: i64,
}

/// An enrolment in two-factor authentication that is not confirmed. It is shown only in this response.
#[derive(Object, Serialize)]
pub(crate) struct Enrolment {
    /// Secret to type into an authenticator app, in base32.
    pub(crate) secret: String,
    /// URL to show to an authenticator app as a QR code. It contains the secret.
    pub(crate) otpauth_url: String,
}

body! {
    /// A code of the second factor.
    #[derive(Object)]
    pub(crate) struct OneTimeCode {
        /// Six digits from the authenticator app. To disable two-factor authentication, a recovery code is accepted too.
        pub otp: String = required(line(6..=32)),
    }
}

/// Recovery codes. They are shown only in this response.
#[derive(Object, Serialize)]
pub(crate) struct RecoveryCodes {
    /// Codes that replace the authenticator app, each once. Keep them where the app is not.
    pub(crate) recovery_codes: Vec<String>,
}

/// The account's rules for logins.
#[derive(Object, Serialize)]
pub(crate) struct SecurityPolicy {
    /// Whether owners need two-factor authentication. An owner without it may only enrol.
    pub(crate) owners_need_two_factor: bool,
}

body! {
    /// New rules for logins.
    #[derive(Object)]
    pub(crate) struct ChangeSecurityPolicy {
        /// Whether owners need two-factor authentication. An owner without it may only enrol.
        pub owners_need_two_factor: bool = required(boolean),
    }
}

/// Returns the ids of the signed-in user and of the session.
pub(crate) fn signed_in(caller: &Principal) -> Result<(UserId, i64), ApiError> {
    match caller.identity {
        ClientIdentity::User { id, session_id, .. } => Ok((id, session_id)),
        ClientIdentity::Credential(_) => Err(AccessError::InvalidToken.into()),
    }
}

/// Returns the email address of the signed-in user.
async fn email_of(state: &ApiState, caller: &Principal, id: UserId) -> Result<Secret, ApiError> {
    let mut emails = texts::load(state.ledger.pool(), &state.keyring, caller.shard_id, &[(EMAIL, id.0)]).await?;
    emails.remove(&(EMAIL, id.0)).ok_or_else(not_found)
}

/// Executes a command of the signed-in user on the own login.
async fn execute(state: &ApiState, caller: &Principal, command: impl Into<Command>) -> Result<(), ApiError> {
    let done = state.ledger.execute(caller.shard_id, command, origin(caller.actor())).await?;
    answered!(done, CommandResult::User(_) => ())
}

/// Changes the password of the signed-in user. The current session goes on, all others end.
///
/// # Errors
/// 400 for a wrong present password, and for a weak new one; 401 if the session has ended meanwhile; 409 if somebody else
/// has changed the password meanwhile.
pub(crate) async fn change_password(
    state: &ApiState,
    caller: &Principal,
    network: IpAddr,
    body: ChangePassword,
) -> Result<(), ApiError> {
    let (user_id, session_id) = signed_in(caller)?;
    let (lane, current) = (Lane::Source(network), Secret::new(body.current_password));
    let present_hash = state.sessions.hash_of_password(user_id, lane, current).await?;
    let present_hash = present_hash.ok_or_else(|| ApiError::invalid("current_password", "is not the present password"))?;
    let email = email_of(state, caller, user_id).await?;
    let password_hash = hash(state, lane, ("new_password", body.new_password), email.expose()).await?;
    // Hashing may have waited for long.
    state.sessions.require_live(session_id).await?;
    let (account_id, own) = (caller.account_id, Some(OwnChange { session_id, present_hash }));
    execute(state, caller, SetOwnPassword { account_id, user_id, password_hash, own }).await
}

/// Lists the sessions of the signed-in user, newest first.
///
/// # Errors
/// 503 if the database does not answer.
pub(crate) async fn sessions(state: &ApiState, caller: &Principal) -> Result<Vec<Session>, ApiError> {
    let (user_id, current) = signed_in(caller)?;
    let found = state.sessions.of_user(user_id).await?;
    Ok(found.into_iter().map(|session| Session::new(session, current)).collect())
}

/// Ends a session of the signed-in user.
///
/// # Errors
/// 404 if the user has no such session.
pub(crate) async fn end_session(state: &ApiState, caller: &Principal, id: i64) -> Result<(), ApiError> {
    let (user_id, _) = signed_in(caller)?;
    match state.sessions.end(user_id, id).await? {
        true => Ok(()),
        false => Err(not_found()),
    }
}

/// Returns the state of the signed-in user's second factor.
///
/// # Errors
/// 503 if the database does not answer.
pub(crate) async fn two_factor(state: &ApiState, caller: &Principal) -> Result<TwoFactor, ApiError> {
    let found = state.sessions.two_factor(signed_in(caller)?.0).await?;
    Ok(TwoFactor { is_enabled: found.is_enabled, recovery_codes_left: found.recovery_codes })
}

/// Begins an enrolment of the signed-in user. An earlier one that is not confirmed ends.
///
/// # Errors
/// 409 if the user has two-factor authentication.
pub(crate) async fn begin_two_factor(state: &ApiState, caller: &Principal) -> Result<Enrolment, ApiError> {
    let (user_id, _) = signed_in(caller)?;
    let email = email_of(state, caller, user_id).await?;
    let secret = state.sessions.begin_two_factor(user_id).await?;
    let secret = secret.ok_or_else(|| ApiError::conflict("Two-factor authentication is enabled already."))?;
    let host = state.public_url.split_once("://").map_or(&*state.public_url, |(_, host)| host);
    let url = otpauth_url(&secret, host, email.expose()).map_err(ApiError::internal)?;
    Ok(Enrolment { secret: secret.expose().to_owned(), otpauth_url: url.expose().to_owned() })
}

/// Enables two-factor authentication with the first code of the app. Returns the recovery codes.
///
/// # Errors
/// 400 for a wrong code, 409 if no enrolment was begun.
pub(crate) async fn confirm_two_factor(state: &ApiState, caller: &Principal, otp: &str) -> Result<RecoveryCodes, ApiError> {
    let (user_id, session_id) = signed_in(caller)?;
    let SecondFactor::Code(code) = second_factor(otp)? else { return Err(wrong_code()) };
    let codes = generate_recovery_codes();
    let enable =
        state.sessions.confirm_two_factor((caller.account_id, user_id), session_id, &code, &codes).await.map_err(of_code)?;
    let enable = enable.ok_or_else(|| ApiError::conflict("No enrolment in two-factor authentication was begun."))?;
    execute(state, caller, enable).await?;
    Ok(RecoveryCodes { recovery_codes: codes.iter().map(|code| code.expose().to_owned()).collect() })
}

/// Disables the second factor of the signed-in user.
///
/// # Errors
/// 400 for a wrong code, 409 if the user has no second factor.
pub(crate) async fn disable_two_factor(state: &ApiState, caller: &Principal, otp: &str) -> Result<(), ApiError> {
    let (user_id, _) = signed_in(caller)?;
    state.sessions.use_second_factor(user_id, &second_factor(otp)?).await.map_err(of_code)?;
    execute(state, caller, DisableTwoFactor { account_id: caller.account_id, user_id }).await
}

/// Returns the account's rules for logins.
///
/// # Errors
/// 503 if the database does not answer.
pub(crate) async fn policy(state: &ApiState, caller: &Principal) -> Result<SecurityPolicy, ApiError> {
    let find = async || user_security::with_policy(&mut *state.ledger.pool().acquire().await?, &[caller.account_id]).await;
    let strict = replanned(find).await?;
    Ok(SecurityPolicy { owners_need_two_factor: !strict.is_empty() })
}

/// Sets the account's rules for logins.
///
/// # Errors
/// 409 if the owner who requires two-factor authentication has none.
pub(crate) async fn set_policy(state: &ApiState, caller: &Principal, owners_need_two_factor: bool) -> Result<(), ApiError> {
    let (user_id, _) = signed_in(caller)?;
    execute(state, caller, SetSecurityPolicy { account_id: caller.account_id, user_id, owners_need_two_factor }).await
}

fn wrong_code() -> ApiError {
    ApiError::invalid("otp", "is wrong or was used before")
}

/// Shows a wrong code of a signed-in user as a problem of its field.
fn of_code(error: AccessError) -> ApiError {
    if error == AccessError::WrongSecondFactor { wrong_code() } else { error.into() }
}

pub struct Security;

#[OpenApi(prefix_path = "/client/api", tag = "Tag::Sessions")]
impl Security {
    /// Change the password
    ///
    /// Changes the password of the signed-in user. The current session goes on; all other sessions of the user end. Returns
    /// 409 `E_CONFLICT` if somebody else changes the password at the same time.
    #[oai(path = "/password", method = "put", operation_id = "change_password")]
    pub(crate) async fn change_password(
        &self,
        caller: Caller<PortalUser>,
        request: &Request,
        state: State<'_>,
        body: StrictJson<ChangePassword>,
    ) -> Result<Reply<Confirmation>, ApiError> {
        let network = source_network(source_ip(request, &state.trusted_proxies));
        change_password(&state, &caller.0, network, body.0).await?;
        Ok(Reply(Confirmation::new("The password is changed. All other sessions have ended.")))
    }

    /// List sessions
    ///
    /// Returns up to 100 sessions of the signed-in user, newest first.
    #[oai(path = "/sessions", method = "get", operation_id = "list_sessions")]
    pub(crate) async fn list_sessions(&self, caller: Caller<PortalUser>, state: State<'_>) -> Result<Listed<Session>, ApiError> {
        Ok(Listed::whole(sessions(&state, &caller.0).await?))
    }

    /// End a session
    ///
    /// Ends a session of the signed-in user. Its tokens and its portal cookie are invalid from the next request on.
    #[oai(path = "/sessions/:id", method = "delete", operation_id = "end_session")]
    pub(crate) async fn end_session(
        &self,
        caller: Caller<PortalUser>,
        state: State<'_>,
        /// Unique identifier of the session.
        id: Path<i64>,
        _no_fields: NoFields,
    ) -> Result<Reply<Confirmation>, ApiError> {
        note(Kind::SignOut);
        end_session(&state, &caller.0, id.0).await?;
        Ok(Reply(Confirmation::new("The session has ended.")))
    }

    /// Get two-factor authentication
    ///
    /// Returns whether the signed-in user has two-factor authentication.
    #[oai(path = "/two-factor", method = "get", operation_id = "get_two_factor")]
    pub(crate) async fn get_two_factor(
        &self,
        caller: Caller<PortalUser>,
        state: State<'_>,
    ) -> Result<Reply<TwoFactor>, ApiError> {
        Ok(Reply(two_factor(&state, &caller.0).await?))
    }

    /// Begin two-factor enrolment
    ///
    /// Creates a secret for an authenticator app (TOTP, RFC 6238). It has no effect until a code confirms it. Returns 409
    /// `E_CONFLICT` if the user has two-factor authentication.
    #[oai(path = "/two-factor", method = "post", operation_id = "begin_two_factor")]
    pub(crate) async fn begin_two_factor(
        &self,
        caller: Caller<PortalUser>,
        state: State<'_>,
        _no_fields: NoFields,
    ) -> Result<Revealing<Created<Enrolment>>, ApiError> {
        Ok(Revealing(Created(begin_two_factor(&state, &caller.0).await?)))
    }

    /// Confirm two-factor enrolment
    ///
    /// Enables two-factor authentication with a code of the app. Each login takes a code from now on, and the user's other
    /// sessions end. The recovery codes are shown only in this response. Returns 409 `E_CONFLICT` if no enrolment was begun.
    #[oai(path = "/two-factor/confirm", method = "post", operation_id = "confirm_two_factor")]
    pub(crate) async fn confirm_two_factor(
        &self,
        caller: Caller<PortalUser>,
        state: State<'_>,
        body: StrictJson<OneTimeCode>,
    ) -> Result<Revealing<Reply<RecoveryCodes>>, ApiError> {
        Ok(Revealing(Reply(confirm_two_factor(&state, &caller.0, &body.0.otp).await?)))
    }

    /// Disable two-factor authentication
    ///
    /// Takes a code of the app, or a recovery code. Returns 409 `E_CONFLICT` if the user has no two-factor authentication.
    #[oai(path = "/two-factor", method = "delete", operation_id = "disable_two_factor")]
    pub(crate) async fn disable_two_factor(
        &self,
        caller: Caller<PortalUser>,
        state: State<'_>,
        body: StrictJson<OneTimeCode>,
    ) -> Result<Reply<TwoFactor>, ApiError> {
        disable_two_factor(&state, &caller.0, &body.0.otp).await?;
        Ok(Reply(two_factor(&state, &caller.0).await?))
    }

    /// Get the security policy
    ///
    /// Returns the account's rules for logins.
    #[oai(path = "/security", method = "get", operation_id = "get_security_policy")]
    pub(crate) async fn get_policy(
        &self,
        caller: Caller<PortalUser>,
        state: State<'_>,
    ) -> Result<Reply<SecurityPolicy>, ApiError> {
        Ok(Reply(policy(&state, &caller.0).await?))
    }

    /// Change the security policy
    ///
    /// Sets whether owners need two-factor authentication. From the next request on, an owner without it gets 403
    /// `E_TWO_FACTOR_ENROLMENT` for everything but enrolment and logout. Returns 409 `E_CONFLICT` if the owner who requires
    /// it has none. Requires the role owner.
    #[oai(path = "/security", method = "put", operation_id = "change_security_policy")]
    pub(crate) async fn change_policy(
        &self,
        caller: Caller<PortalOwner>,
        state: State<'_>,
        body: StrictJson<ChangeSecurityPolicy>,
    ) -> Result<Reply<SecurityPolicy>, ApiError> {
        let owners_need_two_factor = body.0.owners_need_two_factor;
        set_policy(&state, &caller.0, owners_need_two_factor).await?;
        Ok(Reply(SecurityPolicy { owners_need_two_factor }))
    }
}
