//! `/auth`: logging in, carrying a session on, logging out.

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
use crate::access::Who;
use crate::access::gate::Verdict;
use crate::access::limits::{Rule, source_network};
use crate::access::sessions::{Granted, PORTAL_LIFETIME};
use crate::access::tokens::ACCESS_LIFETIME;
use crate::secrets::seal::Private;

/// Who logs in.
#[derive(Object)]
struct Login {
    /// The user's email, upper and lower case being the same.
    #[oai(validator(min_length = 1, max_length = 254))]
    email: String,
    /// The user's password.
    #[oai(validator(min_length = 1, max_length = 128))]
    password: String,
}

impl FromFields for Login {
    fn from_fields(fields: &mut Fields<'_>) -> Self {
        Self { email: fields.required("email", text(1..=254)), password: fields.required("password", text(1..=128)) }
    }
}

/// What carries a session on.
#[derive(Object)]
struct Refresh {
    /// Of the last login or refresh. It is used up by this request.
    #[oai(validator(min_length = 1, max_length = 256))]
    refresh_token: String,
}

impl FromFields for Refresh {
    fn from_fields(fields: &mut Fields<'_>) -> Self {
        Self { refresh_token: fields.required("refresh_token", text(1..=256)) }
    }
}

/// The tokens of a session. They are never shown again.
#[derive(Object, Serialize)]
struct Tokens {
    /// A JWT, for `Authorization: Bearer`.
    access_token: String,
    /// Always `Bearer`.
    token_type: String,
    /// Seconds for which the access token counts.
    expires_in: i64,
    /// For `POST /auth/refresh`, once.
    refresh_token: String,
    /// Until when the refresh token counts.
    refresh_expires_at: Timestamp,
    /// Whose user it is.
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

/// The session has ended.
#[derive(Object, Serialize)]
struct LoggedOut {
    /// For people.
    message: String,
}

/// An answer that sets the portal cookie, or with no value takes it back.
#[derive(Debug)]
struct WithPortalCookie<R> {
    reply: R,
    value: Option<Private>,
}

impl<R: IntoResponse> IntoResponse for WithPortalCookie<R> {
    fn into_response(self) -> Response {
        let mut response = self.reply.into_response();
        let (value, seconds) = match &self.value {
            Some(value) => (value.expose(), PORTAL_LIFETIME.num_seconds()),
            None => ("", 0),
        };
        let cookie = format!("{PORTAL_COOKIE}={value}; Path=/; Max-Age={seconds}; HttpOnly; Secure; SameSite=Strict");
        // Digits, a dot and hex: always a header's value.
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
            documented_header::<String>("Set-Cookie", "The portal cookie: HttpOnly, Secure, SameSite=Strict.")
        };
        meta.responses.iter_mut().for_each(|response| response.headers.push(cookie()));
        meta
    }

    fn register(registry: &mut Registry) {
        R::register(registry);
    }
}

/// Why a login is refused.
enum LoginError {
    Refused(ApiError),
    /// 429: there are too many of the user, or the address was blocked meanwhile.
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
    /// Begins a session: an access token for 15 minutes, a refresh token for 7 days, and the portal
    /// cookie for 8 hours. 401 `E_INVALID_CREDENTIALS` for an unknown email as for a wrong password. Failed logins
    /// of one user are limited, too: see [Rate limits and polling](/docs/guides/limits).
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
        let (granted, cookie) = state.sessions.log_in(&email, Private::new(password), network).await?;
        if let Err(error) = state.gate.forgive(budget).await {
            // The session has begun: the user is logged in, with one login less to fail.
            tracing::warn!(%error, "failed to take back the charge of a login that succeeded");
        }
        Ok(WithPortalCookie { reply: NoStore(Reply(granted.into())), value: Some(cookie) })
    }

    /// Refresh the tokens
    ///
    /// A refresh token counts once. If one comes a second time, it was copied: the whole session ends,
    /// and the user has to log in again.
    #[oai(path = "/refresh", method = "post", operation_id = "refresh_tokens")]
    async fn refresh(&self, state: State<'_>, body: StrictJson<Refresh>) -> Result<NoStore<Reply<Tokens>>, ApiError> {
        let granted = state.sessions.refresh(&body.0.refresh_token).await?;
        Ok(NoStore(Reply(granted.into())))
    }

    /// Log out
    ///
    /// Ends the session: its tokens and its portal cookie count no more, from the next request on.
    #[oai(path = "/logout", method = "post", operation_id = "log_out")]
    async fn log_out(
        &self,
        caller: Caller<PortalUser>,
        state: State<'_>,
        _no_fields: NoFields,
    ) -> Result<WithPortalCookie<Reply<LoggedOut>>, ApiError> {
        if let Who::User { session_id, .. } = caller.0.who {
            state.sessions.log_out(session_id).await?;
        }
        let message = "The session has ended.".to_owned();
        Ok(WithPortalCookie { reply: Reply(LoggedOut { message }), value: None })
    }
}
