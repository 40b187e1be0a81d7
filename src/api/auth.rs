//! Admission of a request before anything of it is parsed: IP blocks, caller, rate limits, raw body, signature (contract,
//! "The way of a request"). The caller goes into the request's extensions, where [`super::principal::Caller`] finds it.

use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};

use chrono::Utc;
use ledger_events::{Actor, UserId};
use poem::http::{HeaderName, HeaderValue};
use poem::{Endpoint, IntoResponse, Middleware, Request, Response, Result};

use super::audit_log::Notes;
use super::body;
use super::cross_site;
use super::error::{ApiError, Code, RateLimited};
use super::log::is_for_auditors;
use super::principal::{CONSOLE_COOKIE, PORTAL_COOKIE};
use super::probes;
use super::source::{Source, source_ip};
use super::state::ApiState;
use super::surface::{Surface, is_page};
use super::user_auth::{bearer, cookie, portal_user};
use super::wire_uri::WireUri;
use crate::access::gate::{Client, PresentedCredentials, Verdict};
use crate::access::limits::{Block, Quota, Rule, blocked_message, is_under};
use crate::access::request_signature::{self, SignatureError};
use crate::access::{AccessError, ClientIdentity, Operator, Operators, Principal};
use crate::secrets::SIGNING_SECRET;
use crate::secrets::seal::Secret;

impl From<AccessError> for ApiError {
    fn from(error: AccessError) -> ApiError {
        if error == AccessError::WrongSecondFactor {
            return ApiError::new(Code::InvalidCredentials).message("The code is wrong or was used before.");
        }
        ApiError::new(match error {
            AccessError::Unknown => Code::Unauthorized,
            AccessError::KeyExpired => Code::ApiKeyExpired,
            AccessError::NetworkNotAllowed => Code::NetworkNotAllowed,
            AccessError::WrongPassword | AccessError::WrongSecondFactor => Code::InvalidCredentials,
            AccessError::TwoFactorRequired => Code::TwoFactorRequired,
            AccessError::InvalidToken => Code::InvalidToken,
            AccessError::Unavailable | AccessError::PlanOutdated => Code::Unavailable,
        })
    }
}

impl From<SignatureError> for ApiError {
    fn from(error: SignatureError) -> ApiError {
        ApiError::new(match error {
            SignatureError::Required => Code::HmacSignatureRequired,
            SignatureError::Header => Code::HmacHeaderInvalid,
            SignatureError::Expired => Code::HmacTimestampExpired,
            SignatureError::Invalid => Code::HmacSignatureInvalid,
        })
    }
}

pub(super) const X_API_KEY: HeaderName = HeaderName::from_static("x-api-key");
const X_API_SECRET: HeaderName = HeaderName::from_static("x-api-secret");
pub(super) const X_SIGNATURE: HeaderName = HeaderName::from_static("x-signature");
const X_RATELIMIT_LIMIT: HeaderName = HeaderName::from_static("x-ratelimit-limit");
const X_RATELIMIT_REMAINING: HeaderName = HeaderName::from_static("x-ratelimit-remaining");
const X_RATELIMIT_RESET: HeaderName = HeaderName::from_static("x-ratelimit-reset");

/// Names and published descriptions of the three rate-limit headers.
pub(super) const RATE_LIMIT_HEADERS: [(&str, &str); 3] = [
    ("X-RateLimit-Limit", "Number of requests that the rate limit allows in one window."),
    ("X-RateLimit-Remaining", "Number of requests left in the current window."),
    ("X-RateLimit-Reset", "Time at which the current window ends, in Unix seconds."),
];

/// Holder of a request's quota, in every request's extensions. It supplies the headers of the response, whatever its
/// status.
#[derive(Clone, Debug, Default)]
pub struct QuotaSlot(Arc<Mutex<Option<Quota>>>);

impl QuotaSlot {
    /// Adds the three rate-limit headers, if a rate limit applies to the request.
    pub fn add_headers(&self, response: &mut Response) {
        let Some(quota) = *self.0.lock().unwrap_or_else(PoisonError::into_inner) else { return };
        let headers = response.headers_mut();
        headers.insert(X_RATELIMIT_LIMIT, HeaderValue::from(quota.ceiling));
        headers.insert(X_RATELIMIT_REMAINING, HeaderValue::from(quota.remaining));
        headers.insert(X_RATELIMIT_RESET, HeaderValue::from(quota.resets_at));
    }
}

/// Middleware that admits or refuses requests. It wraps every route.
#[derive(Clone, Debug)]
pub struct Admission {
    pub state: Arc<ApiState>,
    pub surface: Surface,
}

impl<E: Endpoint> Middleware<E> for Admission {
    type Output = Admitted<E>;

    fn transform(&self, inner: E) -> Self::Output {
        Admitted { state: self.state.clone(), surface: self.surface, inner }
    }
}

/// Endpoint that [`Admission`] wraps around another one.
#[derive(Debug)]
pub struct Admitted<E> {
    state: Arc<ApiState>,
    surface: Surface,
    inner: E,
}

impl<E: Endpoint> Endpoint for Admitted<E> {
    type Output = Response;

    async fn call(&self, mut request: Request) -> Result<Response> {
        // The path belongs to another listener, so it is hidden from every caller.
        if !self.surface.serves(request.uri().path()) {
            return Err(ApiError::new(Code::NotFound).into());
        }
        // The service's operators depend on probes, so no probe is refused.
        if !probes::PATHS.contains(&request.uri().path()) {
            admit(&self.state, &mut request).await?;
        }
        self.inner.call(request).await.map(IntoResponse::into_response)
    }
}

/// Admits a request or refuses it. An admitted caller is in the request's extensions.
async fn admit(state: &ApiState, request: &mut Request) -> Result<()> {
    let ip = source_ip(request, &state.trusted_proxies);
    if let Some(notes) = request.extensions().get::<Notes>() {
        notes.set_source(ip);
    }
    request.extensions_mut().insert(Source(ip));
    let refused_operator = match admit_operator(state, request).await {
        Some(Ok(())) => return Ok(()),
        Some(Err(error)) => Some(error),
        None => None,
    };
    let rule = match &refused_operator {
        // A request without a token is not a guess, so only a wrong token counts.
        Some(error) if error.code == Code::Unauthorized && bearer(request).is_some() => Some(Rule::Operator),
        _ => Rule::of(request.method().as_str(), request.uri().path()),
    };
    if let Some(error) = cross_site::refusal(state.origins(), request) {
        return Err(refuse_cross_site(state, request, ip, rule, error).await);
    }
    let user = user(state, request).await.transpose();
    let client = pass_gate(state, request, ip, &user, rule).await?;
    if let Some(error) = refused_operator {
        return Err(error.into());
    }
    let client = match user? {
        Some((_, principal)) if principal.must_enrol() && !serves_enrolment(request.uri().path()) => {
            return Err(ApiError::new(Code::TwoFactorEnrolment).into());
        }
        Some((_, principal)) => Some(Client { principal, signing_secret: None }),
        None if is_client_api(request) => Some(client.map_err(ApiError::from)?),
        None => None,
    };
    if rule.is_some() {
        read_body(state, request, client.as_ref()).await?;
    }
    if let Some(client) = client {
        request.extensions_mut().insert(client.principal);
    }
    Ok(())
}

/// Returns whether an owner who must enrol in two-factor authentication may use the path.
fn serves_enrolment(path: &str) -> bool {
    const PATHS: [&str; 4] = ["/client/api/two-factor", "/auth/logout", "/portal/account/two-factor", "/portal/logout"];
    PATHS.into_iter().any(|served| is_under(path, served))
}

fn is_client_api(request: &Request) -> bool {
    is_under(request.uri().path(), "/api/v1")
}

/// Admits an operator. Returns `None` if the path is not for operators.
///
/// Operators are exempt from blocks and limits that other traffic from their address causes. A token takes precedence over
/// the cookie of a session.
async fn admit_operator(state: &ApiState, request: &mut Request) -> Option<Result<(), ApiError>> {
    let path = request.uri().path();
    let is_of_session = is_under(path, "/admin/auth") && !is_under(path, "/admin/auth/login");
    // A login counts against the limits of its address, also if a session exists.
    let is_login = !request.method().is_safe() && is_under(path, "/console/login");
    let is_console = is_under(path, "/console") && is_page(path) && !is_login;
    if !is_of_session && !is_under(path, "/admin/v1") && !is_for_auditors(path) && !is_console {
        return None;
    }
    let session = cookie(request, CONSOLE_COOKIE).filter(|_| is_console || bearer(request).is_none());
    let Some(session) = session else {
        // A page without a session leads to the login.
        if is_console {
            return None;
        }
        let operator = operator(&state.operators, bearer(request)).await;
        return Some(operator.map(|operator| {
            name(request, operator.actor());
            request.extensions_mut().insert(operator);
        }));
    };
    // The caller refuses a request of another site before it looks at this error.
    let found = match cross_site::refusal(state.origins(), request) {
        Some(error) => Err(error),
        None => match state.console.by_cookie(session).await {
            Err(AccessError::Unknown | AccessError::InvalidToken) if is_console => return None,
            found => found.map_err(refused_session),
        },
    };
    Some(found.map(|session| {
        name(request, session.operator.actor());
        request.extensions_mut().insert(session.operator);
        request.extensions_mut().insert(session);
    }))
}

/// Builds the refusal of a session of the console.
pub(super) fn refused_session(error: AccessError) -> ApiError {
    match error {
        AccessError::Unavailable | AccessError::PlanOutdated => error.into(),
        _ => ApiError::new(Code::Unauthorized).message("The session is invalid, expired or ended. Sign in again."),
    }
}

/// Builds the refusal of a request that another site's page sent. A block takes precedence over `error`. The response shows
/// the caller's quota, but the request is not charged.
async fn refuse_cross_site(state: &ApiState, request: &Request, ip: IpAddr, rule: Option<Rule>, error: ApiError) -> poem::Error {
    match state.gate.look(ip, rule).await {
        Err(unavailable) => {
            keep_last_known(state, request, ip, PresentedCredentials::Nobody, rule);
            ApiError::from(unavailable).into()
        }
        Ok(Verdict::Blocked(block)) => refuse_blocked(state, request, block),
        Ok(Verdict::Seen { quota, .. }) => {
            quota.into_iter().for_each(|quota| keep(request, quota));
            error.into()
        }
    }
}

/// Checks a request at the gate: block, API key and rate limit. Returns the owner of the API key, or why there is none.
async fn pass_gate(
    state: &ApiState,
    request: &Request,
    ip: IpAddr,
    user: &Result<Option<(UserId, Principal)>, ApiError>,
    rule: Option<Rule>,
) -> Result<Result<Client, AccessError>> {
    let credentials = match user {
        Ok(Some((user_id, principal))) => PresentedCredentials::User { user_id: *user_id, account_id: principal.account_id },
        Ok(None) if is_client_api(request) => presented_key(request),
        _ => PresentedCredentials::Nobody,
    };
    let asked = match user {
        Err(error) if error.code == Code::Unavailable => Err(error.clone()),
        _ => state.gate.ask(ip, credentials, rule).await.map_err(ApiError::from),
    };
    let verdict = asked.inspect_err(|_| keep_last_known(state, request, ip, credentials, rule));
    let (client, quota) = match verdict? {
        Verdict::Blocked(block) => return Err(refuse_blocked(state, request, block)),
        Verdict::Seen { client, quota } => (client, quota),
    };
    let user = user.as_ref().ok().and_then(Option::as_ref).map(|(_, principal)| principal);
    if let Some(principal) = user.or(client.as_ref().ok().map(|client| &client.principal)) {
        name(request, principal.actor());
    }
    if let (Some(quota), Some(rule)) = (quota, rule) {
        if quota.is_exceeded {
            state.metrics.rate_limited(rule.name());
            return Err(refuse(request, quota, rule.message(quota.retry_after)));
        }
        keep(request, quota);
    }
    Ok(client)
}

/// Shows the quota that the caller was last told, because the gate could not check the request.
fn keep_last_known(state: &ApiState, request: &Request, ip: IpAddr, credentials: PresentedCredentials<'_>, rule: Option<Rule>) {
    if let Some(rule) = rule {
        keep(request, state.gate.last_known(ip, credentials, rule));
    }
}

/// Reads the raw body and checks the client's signature over it.
async fn read_body(state: &ApiState, request: &mut Request, client: Option<&Client>) -> Result<()> {
    // Paths under `/auth`, the sign-in to the console and notices of suppliers need no credentials.
    let is_under_any = |prefixes: &[&str]| prefixes.iter().any(|prefix| is_under(request.uri().path(), prefix));
    let limit = match () {
        () if is_under_any(&["/auth", "/admin/auth", "/console/oidc"]) => body::SESSION_LIMIT,
        () if is_under_any(&["/suppliers"]) => body::NOTICE_LIMIT,
        () => body::DEFAULT_LIMIT,
    };
    let body = body::read(request.take_body(), limit).await?;
    if let Some(client) = client {
        check_signature(state, request, client, &body)?;
    }
    request.set_body(body);
    Ok(())
}

/// Returns the user behind a request to a path that accepts users. An API key's headers take precedence over a token, so
/// that a token cannot bypass signatures.
///
/// # Errors
///
/// Fails as [`portal_user`] does.
async fn user(state: &ApiState, request: &Request) -> Option<Result<(UserId, Principal), ApiError>> {
    let path = request.uri().path();
    let headers = request.headers();
    if is_under(path, "/portal") {
        // A page without a session leads to the login.
        return match portal_user(state, request).await {
            Err(error) if error.code == Code::InvalidToken => None,
            principal => Some(principal.and_then(named)),
        };
    }
    let is_read = request.method().is_safe();
    let has_key = headers.contains_key(&X_API_KEY) || headers.contains_key(&X_API_SECRET);
    let principal = if is_under(path, "/client/api") || is_under(path, "/auth/logout") {
        portal_user(state, request).await
    } else if is_under(path, "/api/v1") && !has_key && bearer(request).is_some() {
        state.sessions.by_access_token(bearer(request)?).await.map_err(ApiError::from)
    } else if is_under(path, "/api/v1") && !has_key && is_read && cookie(request, PORTAL_COOKIE).is_some() {
        portal_user(state, request).await
    } else {
        return None;
    };
    Some(principal.and_then(named))
}

/// Returns the user that a session belongs to.
fn named(principal: Principal) -> Result<(UserId, Principal), ApiError> {
    match principal.identity {
        ClientIdentity::User { id, .. } => Ok((id, principal)),
        ClientIdentity::Credential(_) => Err(AccessError::InvalidToken.into()),
    }
}

/// Returns a header's value if the header occurs exactly once and is text.
pub(super) fn only<'a>(request: &'a Request, name: &HeaderName) -> Option<&'a str> {
    let mut values = request.headers().get_all(name).iter();
    let value = values.next()?;
    if values.next().is_some() { None } else { value.to_str().ok() }
}

fn presented_key(request: &Request) -> PresentedCredentials<'_> {
    match (only(request, &X_API_KEY), only(request, &X_API_SECRET)) {
        (Some(api_key), Some(api_secret)) => PresentedCredentials::Key { api_key, api_secret },
        _ => PresentedCredentials::Nobody,
    }
}

async fn operator(operators: &Operators, token: Option<&str>) -> Result<Operator, ApiError> {
    let refused = |error| match error {
        AccessError::Unknown => ApiError::from(error).message("The operator token is missing or invalid."),
        error => error.into(),
    };
    operators.authenticate(token.ok_or(AccessError::Unknown).map_err(refused)?).await.map_err(refused)
}

fn name(request: &Request, caller: Actor) {
    if let Some(notes) = request.extensions().get::<Notes>() {
        notes.set_caller(caller);
    }
}

fn keep(request: &Request, quota: Quota) {
    if let Some(slot) = request.extensions().get::<QuotaSlot>() {
        // A login has two rules. The second counts: it is checked only if the first allows the request.
        *slot.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(quota);
    }
}

/// Builds a 429 whose headers show this quota.
pub(super) fn refuse(request: &Request, quota: Quota, message: String) -> poem::Error {
    keep(request, quota);
    RateLimited { message, retry_after: quota.retry_after }.into()
}

pub(super) fn refuse_blocked(state: &ApiState, request: &Request, block: Block) -> poem::Error {
    let quota = block.quota(state.gate.limits.login);
    state.metrics.rate_limited("block");
    refuse(request, quota, blocked_message(quota.retry_after))
}

/// Checks the signature over the bytes that came over the wire, if the credential requires one.
fn check_signature(state: &ApiState, request: &Request, client: &Client, body: &[u8]) -> Result<(), ApiError> {
    let Some(sealed) = &client.signing_secret else { return Ok(()) };
    let ClientIdentity::Credential(id) = client.principal.identity else { return Ok(()) };
    let secret = state.keyring.open_text(SIGNING_SECRET, id.0, sealed).map_err(ApiError::internal)?;
    Ok(verify_signature(request, &secret, body)?)
}

/// Checks that a request is signed with the secret.
///
/// # Errors
/// If the signature is absent, malformed, expired or wrong.
pub(super) fn verify_signature(request: &Request, secret: &Secret, body: &[u8]) -> Result<(), SignatureError> {
    let is_absent = !request.headers().contains_key(&X_SIGNATURE);
    // A header that occurs twice, or is not text, is malformed.
    let header = if is_absent { None } else { Some(only(request, &X_SIGNATURE).unwrap_or_default()) };
    let uri = request.extensions().get::<WireUri>().map_or(request.uri(), |wire| &wire.0);
    let now = Utc::now().timestamp();
    request_signature::check(secret.expose(), header, now, request.method().as_str(), uri.path(), uri.query(), body)
}
