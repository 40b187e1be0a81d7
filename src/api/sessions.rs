//! `/auth`: logging in, refreshing tokens, logging out.

use ledger_events::Actor;
use poem::Request;
use poem::http::header;
use poem_openapi::registry::{MetaResponses, Registry};
use poem_openapi::{ApiResponse, Object, OpenApi};
use serde::Serialize;

use super::audit_log::{Kind, note, signed_in};
use super::auth::{refuse, refuse_blocked};
use super::body::{NoFields, StrictJson};
use super::cookies::{PortalCookie, WithCookie};
use super::error::ApiError;
use super::fields::body;
use super::principal::{Caller, PortalUser};
use super::readers::{line, text};
use super::reply::{NoStore, Reply};
use super::scalars::Timestamp;
use super::source::source_ip;
use super::state::{ApiState, State, Tag};
use crate::access::gate::{LoginBudget, Verdict};
use crate::access::limits::{Rule, source_network};
use crate::access::sessions::{Granted, Login as Credentials};
use crate::access::tokens::ACCESS_LIFETIME;
use crate::access::two_factor::SecondFactor;
use crate::access::{AccessError, ClientIdentity};
use crate::secrets::seal::Secret;

body! {
    /// The credentials of a user.
    #[derive(Object)]
    struct Login {
        /// Email address of the user. Case does not matter.
        email: String = required(text(1..=254)),
        /// Password of the user.
        password: String = required(text(1..=128)),
        /// Code from the authenticator app, or a recovery code, for a user with two-factor authentication. Each works once.
        otp: Option<String> = optional(line(6..=32)),
    }
}

body! {
    /// A refresh token to exchange for new tokens.
    #[derive(Object)]
    struct Refresh {
        /// Refresh token from the latest login or refresh. This request uses it up.
        refresh_token: String = required(text(1..=256)),
    }
}

/// The tokens of a session. They are shown only in this response.
#[derive(Object, Serialize)]
struct Tokens {
    /// JWT to send as `Authorization: Bearer`.
    access_token: String,
    /// Type of the access token, always `Bearer`.
    token_type: String,
    /// Seconds until the access token expires.
    expires_in: i64,
    /// Token for one call of `POST /auth/refresh`.
    refresh_token: String,
    /// Time at which the refresh token expires.
    refresh_expires_at: Timestamp,
    /// Unique identifier of the user's account.
    account_id: i64,
}

impl From<Granted> for Tokens {
    fn from(granted: Granted) -> Self {
        Self {
            access_token: granted.access_token.expose().to_owned(),
            token_type: "Bearer".to_owned(),
            expires_in: ACCESS_LIFETIME.num_seconds(),
            refresh_token: granted.refresh_token.expose().to_owned(),
            refresh_expires_at: granted.refresh_expires_at.into(),
            account_id: granted.account_id.0,
        }
    }
}

/// Confirmation that the session has ended.
#[derive(Object, Serialize)]
pub(super) struct LoggedOut {
    /// Confirmation in plain English.
    pub message: String,
}

/// Confirmation that the request has been carried out.
#[derive(Object, Serialize)]
pub(crate) struct Confirmation {
    /// Confirmation in plain English.
    pub(crate) message: String,
}

impl Confirmation {
    pub(crate) fn new(message: &str) -> Self {
        Self { message: message.to_owned() }
    }
}

/// Parses a code or a recovery code.
///
/// # Errors
/// 400 naming the field `otp`.
pub(crate) fn second_factor(text: &str) -> Result<SecondFactor, ApiError> {
    SecondFactor::parse(text).ok_or_else(|| ApiError::invalid("otp", "must be 6 digits or a recovery code"))
}

/// A response that sets or deletes the portal cookie.
type WithPortalCookie<R> = WithCookie<PortalCookie, R>;

/// The reason why a login is rejected.
pub(super) enum LoginError {
    Refused(ApiError),
    /// A 429: the user has too many failed logins, or the address was blocked in the meantime.
    Limited(poem::Error),
}

impl<E: Into<ApiError>> From<E> for LoginError {
    fn from(error: E) -> LoginError {
        LoginError::Refused(error.into())
    }
}

impl From<LoginError> for poem::Error {
    fn from(error: LoginError) -> poem::Error {
        match error {
            LoginError::Refused(error) => error.into(),
            LoginError::Limited(error) => error,
        }
    }
}

impl ApiResponse for LoginError {
    fn meta() -> MetaResponses {
        ApiError::meta()
    }

    fn register(registry: &mut Registry) {
        ApiError::register(registry);
    }
}

/// Charges a login to its budget, as a failed one.
///
/// # Errors
/// 429 if the budget is used up, or the address was blocked in the meantime.
pub(super) async fn charge(state: &ApiState, request: &Request, budget: LoginBudget) -> Result<(), LoginError> {
    let ip = source_ip(request, &state.trusted_proxies);
    match state.gate.log_in(ip, budget).await? {
        Verdict::Blocked(block) => Err(LoginError::Limited(refuse_blocked(state, request, block))),
        Verdict::Seen { quota: Some(quota), .. } if quota.is_exceeded => {
            state.metrics.rate_limited(Rule::UserLogin.name());
            let message = Rule::UserLogin.message(quota.retry_after);
            Err(LoginError::Limited(refuse(request, quota, message)))
        }
        Verdict::Seen { .. } => Ok(()),
    }
}

/// Takes the charge of a login back, because it was not a failed one.
pub(super) async fn refund(state: &ApiState, budget: LoginBudget) {
    if let Err(error) = state.gate.refund_login(budget).await {
        // The login still succeeds. The user has one failed login less left.
        tracing::warn!(%error, "failed to refund the rate limit for a successful login");
    }
}

/// Starts a session. Returns its tokens and the text of its portal cookie. A failed login is charged to the user.
async fn log_in(state: &ApiState, request: &Request, body: Login) -> Result<(Granted, Secret), LoginError> {
    note(Kind::SignIn);
    let otp = body.otp.as_deref().map(second_factor).transpose()?;
    let network = source_network(source_ip(request, &state.trusted_proxies));
    let budget = state.sessions.login_budget(&body.email, network).await?;
    charge(state, request, budget).await?;
    let user_agent = request.header(header::USER_AGENT).map(Secret::new);
    let credentials = Credentials { otp, user_agent, ..Credentials::new(body.email, Secret::new(body.password), network) };
    let granted = state.sessions.log_in(credentials).await;
    // A right password without a code costs nothing, because the login goes on with a code.
    if matches!(granted, Ok(_) | Err(AccessError::TwoFactorRequired)) {
        refund(state, budget).await;
    }
    let (granted, cookie) = granted?;
    signed_in(Actor::User(granted.user_id));
    Ok((granted, cookie))
}

pub struct Sessions;

#[OpenApi(prefix_path = "/auth", tag = "Tag::Sessions")]
impl Sessions {
    /// Log in
    ///
    /// Starts a session. Returns an access token, valid for 15 minutes, and a refresh token, valid for 7 days. Also sets the
    /// portal cookie, valid for 8 hours. An unknown email and a wrong password both return 401 `E_INVALID_CREDENTIALS`. A user
    /// with two-factor authentication also sends `otp`; without it, a right password returns 401 `E_TWO_FACTOR_REQUIRED`.
    /// Failed logins of a user are rate limited: see [Rate limits and polling](/docs/guides/limits).
    #[oai(path = "/login", method = "post", operation_id = "log_in")]
    async fn log_in(
        &self,
        request: &Request,
        state: State<'_>,
        body: StrictJson<Login>,
    ) -> Result<WithPortalCookie<NoStore<Reply<Tokens>>>, LoginError> {
        let (granted, cookie) = log_in(&state, request, body.0).await?;
        Ok(WithPortalCookie::set(NoStore(Reply(granted.into())), cookie))
    }

    /// Refresh tokens
    ///
    /// Exchanges a refresh token for a new access token and a new refresh token. A refresh token works only once. A second
    /// use means that it was copied, so it ends the whole session, and the user must log in again.
    #[oai(path = "/refresh", method = "post", operation_id = "refresh_tokens")]
    async fn refresh(&self, state: State<'_>, body: StrictJson<Refresh>) -> Result<NoStore<Reply<Tokens>>, ApiError> {
        let granted = state.sessions.refresh(&body.0.refresh_token).await?;
        Ok(NoStore(Reply(granted.into())))
    }

    /// Log out
    ///
    /// Ends the session. Its tokens and its portal cookie are invalid from the next request on.
    #[oai(path = "/logout", method = "post", operation_id = "log_out")]
    async fn log_out(
        &self,
        caller: Caller<PortalUser>,
        state: State<'_>,
        _no_fields: NoFields,
    ) -> Result<WithPortalCookie<Reply<LoggedOut>>, ApiError> {
        note(Kind::SignOut);
        if let ClientIdentity::User { session_id, .. } = caller.0.identity {
            state.sessions.log_out(session_id).await?;
        }
        let message = "The session has ended.".to_owned();
        Ok(WithPortalCookie::delete(Reply(LoggedOut { message })))
    }
}
