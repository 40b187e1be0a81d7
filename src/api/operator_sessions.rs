//! `/admin/auth`: signing in to the console, and out again.

use ledger_events::operator;
use poem::Request;
use poem_openapi::{Enum, Object, OpenApi};
use serde::Serialize;

use super::audit_log::{Kind, note, signed_in};
use super::auth::refused_session;
use super::body::{NoFields, StrictJson};
use super::cookies::{ConsoleCookie, WithCookie};
use super::error::ApiError;
use super::fields::body;
use super::mirror::mirror;
use super::principal::{CONSOLE_COOKIE, Caller};
use super::readers::text;
use super::reply::{NoStore, Reply};
use super::scalars::Timestamp;
use super::sessions::{LoggedOut, LoginError, charge, refund};
use super::source::source_ip;
use super::state::{State, Tag};
use super::user_auth::cookie;
use crate::access::limits::source_network;
use crate::access::{AccessError, ConsoleSession};
use crate::secrets::seal::Secret;

/// Role of an operator.
///
/// - `admin`: does everything.
/// - `finance`: reads, funds and adjusts wallets, settles payouts, and reconciles.
/// - `auditor`: reads, including the entries of the transparency log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Enum, Serialize)]
#[oai(rename_all = "lowercase")]
#[serde(rename_all = "lowercase")]
pub(crate) enum OperatorRole {
    #[default]
    Auditor,
    Finance,
    Admin,
}

mirror!(OperatorRole, operator::OperatorRole: Admin, Finance, Auditor);

/// Proof of identity that an operator signs in with.
///
/// - `password`: email address, password, and a code if a second factor is enrolled.
/// - `open_id`: OpenID Connect. The identity provider assigns the role.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Enum, Serialize)]
#[oai(rename_all = "snake_case")]
#[serde(rename_all = "snake_case")]
pub(crate) enum SignIn {
    Password,
    OpenId,
}

mirror!(SignIn, operator::SignIn: Password, OpenId);

body! {
    /// The credentials of an operator's user.
    #[derive(Object)]
    pub(crate) struct ConsoleLogin {
        /// Email address of the operator. Case does not matter.
        pub email: String = required(text(1..=254)),
        /// Password of the operator.
        pub password: String = required(text(1..=128)),
        /// Six digits from the authenticator app, or a recovery code. Required if a second factor is enrolled. Each code
        /// works only once.
        pub otp: Option<String> = optional(text(1..=64)),
    }
}

/// A session of the console.
#[derive(Object, Serialize)]
pub(crate) struct ConsoleSessionView {
    /// Unique identifier of the operator.
    operator_id: i64,
    /// Role of the operator.
    role: OperatorRole,
    /// Proof of identity that the operator signs in with.
    sign_in: SignIn,
    /// Whether a second factor is enrolled.
    two_factor: bool,
    /// Time at which the session ends.
    expires_at: Timestamp,
}

impl From<ConsoleSession> for ConsoleSessionView {
    fn from(session: ConsoleSession) -> Self {
        Self {
            operator_id: session.operator.id,
            role: session.operator.role.into(),
            sign_in: if session.is_by_provider { SignIn::OpenId } else { SignIn::Password },
            two_factor: session.has_two_factor,
            expires_at: session.expires_at.into(),
        }
    }
}

/// A response that sets or deletes the console cookie.
pub(crate) type WithConsoleCookie<R> = WithCookie<ConsoleCookie, R>;

pub struct OperatorSessions;

#[OpenApi(prefix_path = "/admin/auth", tag = "Tag::Console")]
impl OperatorSessions {
    /// Sign in to the console
    ///
    /// Starts a session of 8 hours and sets its cookie. The cookie authorizes requests to `/admin/v1` by the operator's
    /// role, as a token does. An unknown email, a wrong password and a wrong code all return 401 `E_INVALID_CREDENTIALS`. A
    /// right password without a code returns 401 `E_TWO_FACTOR_REQUIRED` if a second factor is enrolled. Failed logins are
    /// rate limited as those of users: see [Rate limits and polling](/docs/guides/limits).
    #[oai(path = "/login", method = "post", operation_id = "log_in_to_console")]
    async fn log_in(
        &self,
        request: &Request,
        state: State<'_>,
        body: StrictJson<ConsoleLogin>,
    ) -> Result<WithConsoleCookie<NoStore<Reply<ConsoleSessionView>>>, LoginError> {
        note(Kind::SignIn);
        let ConsoleLogin { email, password, otp } = body.0;
        let network = source_network(source_ip(request, &state.trusted_proxies));
        let budget = state.console.login_budget(&email, network).await?;
        charge(&state, request, budget).await?;
        let started = state.console.log_in(&email, Secret::new(password), otp.as_deref(), network).await;
        // A right password alone is no failed login.
        if matches!(started, Ok(_) | Err(AccessError::TwoFactorRequired)) {
            refund(&state, budget).await;
        }
        let started = started?;
        signed_in(started.session.operator.actor());
        // A browser that signs in again replaces its cookie, so the old session has nobody left.
        if let Some(old) = cookie(request, CONSOLE_COOKIE)
            && let Ok(old) = state.console.by_cookie(old).await
        {
            state.console.log_out(old.id).await?;
        }
        Ok(WithConsoleCookie::set(NoStore(Reply(started.session.into())), started.cookie))
    }

    /// Retrieve the session
    ///
    /// Returns the operator who is signed in, and the time at which the session ends.
    #[oai(path = "/session", method = "get", operation_id = "get_console_session")]
    async fn session(&self, caller: Caller<ConsoleSession>, state: State<'_>) -> Result<Reply<ConsoleSessionView>, ApiError> {
        // A page that stays open asks again, long after its own request was admitted.
        state.console.require_live(&caller.0).await.map_err(refused_session)?;
        Ok(Reply(caller.0.into()))
    }

    /// Sign out of the console
    ///
    /// Ends the session. Its cookie is invalid from the next request on.
    #[oai(path = "/logout", method = "post", operation_id = "log_out_of_console")]
    async fn log_out(
        &self,
        caller: Caller<ConsoleSession>,
        state: State<'_>,
        _no_fields: NoFields,
    ) -> Result<WithConsoleCookie<Reply<LoggedOut>>, ApiError> {
        note(Kind::SignOut);
        state.console.log_out(caller.0.id).await?;
        let message = "The session has ended.".to_owned();
        Ok(WithConsoleCookie::delete(Reply(LoggedOut { message })))
    }
}
