//! `/auth`: logging in, refreshing tokens, logging out.

use poem::http::{HeaderValue, header};
use poem::{IntoResponse, Request, Response};
use poem_openapi::registry::{MetaHeader, MetaResponses, Registry};
use poem_openapi::{ApiResponse, Object, OpenApi};
use serde::Serialize;

use super::auth::{refuse, refuse_blocked};
use super::body::{NoFields, StrictJson};
use super::error::{ApiError, documented_header};
use super::fields::{Fields, FromFields};
use super::principal::{Caller, PORTAL_COOKIE, PortalUser};
use super::readers::text;
use super::reply::{NoStore, Reply};
use super::scalars::Timestamp;
use super::source::source_ip;
use super::state::{State, Tag};
use crate::access::ClientIdentity;
use crate::access::gate::Verdict;
use crate::access::limits::{Rule, source_network};
use crate::access::sessions::{Granted, PORTAL_LIFETIME};
use crate::access::tokens::ACCESS_LIFETIME;
use crate::secrets::seal::Secret;

/// The credentials of a user.
#[derive(Object)]
struct Login {
    /// Email address of the user. Case does not matter.
    #[oai(validator(min_length = 1, max_length = 254))]
    email: String,
    /// Password of the user.
    #[oai(validator(min_length = 1, max_length = 128))]
    password: String,
}

impl FromFields for Login {
    fn from_fields(fields: &mut Fields<'_>) -> Self {
        Self { email: fields.required("email", text(1..=254)), password: fields.required("password", text(1..=128)) }
    }
}

/// A refresh token to exchange for new tokens.
#[derive(Object)]
struct Refresh {
    /// Refresh token from the latest login or refresh. This request uses it up.
    #[oai(validator(min_length = 1, max_length = 256))]
    refresh_token: String,
}

impl FromFields for Refresh {
    fn from_fields(fields: &mut Fields<'_>) -> Self {
        Self { refresh_token: fields.required("refresh_token", text(1..=256)) }
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
            account_id: granted.account_id,
        }
    }
}

/// Confirmation that the session has ended.
#[derive(Object, Serialize)]
struct LoggedOut {
    /// Confirmation in plain English.
    message: String,
}

/// A response that sets the portal cookie, or deletes it if there is no value.
#[derive(Debug)]
struct WithPortalCookie<R> {
    reply: R,
    value: Option<Secret>,
}

impl<R: IntoResponse> IntoResponse for WithPortalCookie<R> {
    fn into_response(self) -> Response {
        let mut response = self.reply.into_response();
        let (value, seconds) = match &self.value {
            Some(value) => (value.expose(), PORTAL_LIFETIME.num_seconds()),
            None => ("", 0),
        };
        let cookie = format!("{PORTAL_COOKIE}={value}; Path=/; Max-Age={seconds}; HttpOnly; Secure; SameSite=Strict");
        // The value has only digits, a dot and hex, so it is always a valid header.
        if let Ok(cookie) = HeaderValue::from_str(&cookie) {
            response.headers_mut().insert(header::SET_COOKIE, cookie);
        }
        response
    }
}

impl<R: ApiResponse> ApiResponse for WithPortalCookie<R> {
    fn meta() -> MetaResponses {
        let mut meta = R::meta();
        let cookie = || -> MetaHeader {
            documented_header::<String>(
                "Set-Cookie",
                "The portal session cookie, with `HttpOnly`, `Secure` and `SameSite=Strict`.",
            )
        };
        meta.responses.iter_mut().for_each(|response| response.headers.push(cookie()));
        meta
    }

    fn register(registry: &mut Registry) {
        R::register(registry);
    }
}

/// The reason why a login is rejected.
enum LoginError {
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

pub struct Sessions;

#[OpenApi(prefix_path = "/auth", tag = "Tag::Sessions")]
impl Sessions {
    /// Log in
    ///
    /// Starts a session. Returns an access token, valid for 15 minutes, and a refresh token, valid for 7 days. Also sets the
    /// portal cookie, valid for 8 hours. An unknown email and a wrong password both return 401 `E_INVALID_CREDENTIALS`.
    /// Failed logins of a user are rate limited: see [Rate limits and polling](/docs/guides/limits).
    #[oai(path = "/login", method = "post", operation_id = "log_in")]
    async fn log_in(
        &self,
        request: &Request,
        state: State<'_>,
        body: StrictJson<Login>,
    ) -> Result<WithPortalCookie<NoStore<Reply<Tokens>>>, LoginError> {
        let Login { email, password } = body.0;
        let ip = source_ip(request, &state.trusted_proxies);
        let network = source_network(ip);
        let budget = state.sessions.login_budget(&email, network).await?;
        match state.gate.log_in(ip, budget).await? {
            Verdict::Blocked(block) => return Err(LoginError::Limited(refuse_blocked(&state, request, block))),
            Verdict::Seen { quota: Some(quota), .. } if quota.is_exceeded => {
                state.metrics.rate_limited(Rule::UserLogin.name());
                let message = Rule::UserLogin.message(quota.retry_after);
                return Err(LoginError::Limited(refuse(request, quota, message)));
            }
            Verdict::Seen { .. } => {}
        }
        let (granted, cookie) = state.sessions.log_in(&email, Secret::new(password), network).await?;
        if let Err(error) = state.gate.refund_login(budget).await {
            // The session has started, so the login still succeeds. The user has one failed login less left.
            tracing::warn!(%error, "failed to refund the rate limit for a successful login");
        }
        Ok(WithPortalCookie { reply: NoStore(Reply(granted.into())), value: Some(cookie) })
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
        if let ClientIdentity::User { session_id, .. } = caller.0.identity {
            state.sessions.log_out(session_id).await?;
        }
        let message = "The session has ended.".to_owned();
        Ok(WithPortalCookie { reply: Reply(LoggedOut { message }), value: None })
    }
}
