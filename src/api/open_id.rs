//! `/console/oidc`: signing in to the console through OpenID Connect. These are pages for browsers, and no part of the API.

use std::sync::Arc;

use chrono::TimeDelta;
use ledger_events::Actor;
use poem::http::{HeaderValue, StatusCode, header};
use poem::{Endpoint, EndpointExt, IntoResponse, Request, Response, Route, get};

use super::audit_log::{Kind, note, signed_in};
use super::browser_headers;
use super::cookies::{ConsoleCookie, WithCookie, add as add_cookie};
use super::error::{ApiError, Code};
use super::outcome::unexpected;
use super::request_id::current_text;
use super::state::{ApiState, origin};
use super::user_auth::cookie;
use crate::access::AccessError;
use crate::access::console::SignedIn;
use crate::access::open_id::{FLOW_LIFETIME, OpenId, OpenIdError};
use crate::ledger::{CommandResult, FIRST_SHARD, WriteError, commands};
use crate::secrets::seal::Secret;

/// Path that begins a sign-in.
pub const START: &str = "/console/oidc/start";
/// Path that the identity provider redirects the browser to.
pub const CALLBACK: &str = "/console/oidc/callback";

/// Name of the cookie that keeps the state of a sign-in. The callback comes from the provider's site, so the cookie cannot
/// be `SameSite=Strict`.
const FLOW_COOKIE: &str = "__Host-console-oidc";

/// Adds the routes of the sign-in.
pub fn add(route: Route, state: &Arc<ApiState>) -> Route {
    let (starting, finishing) = (state.clone(), state.clone());
    let start = poem::endpoint::make(move |_: Request| {
        let state = starting.clone();
        async move { start(&state).await }
    });
    let callback = poem::endpoint::make(move |request: Request| {
        let state = finishing.clone();
        async move { callback(&state, &request).await }
    });
    route.at(START, get(boxed(start))).at(CALLBACK, get(boxed(callback)))
}

fn boxed<E>(endpoint: E) -> poem::endpoint::BoxEndpoint<'static, Response>
where
    E: Endpoint<Output = Response> + 'static,
{
    endpoint.boxed()
}

fn configured(state: &ApiState) -> Result<&OpenId, ApiError> {
    state.open_id.as_ref().ok_or_else(|| ApiError::new(Code::NotFound))
}

async fn start(state: &ApiState) -> poem::Result<Response> {
    let (url, flow) = match configured(state)?.start().await {
        Ok(started) => started,
        Err(error) => return Ok(refusal(error)),
    };
    let mut response = Response::builder().status(StatusCode::SEE_OTHER).finish();
    let location = HeaderValue::from_str(url.as_str()).map_err(ApiError::internal)?;
    response.headers_mut().insert(header::LOCATION, location);
    add_cookie(&mut response, FLOW_COOKIE, flow.expose(), FLOW_LIFETIME, "Lax");
    Ok(response)
}

/// Finishes a sign-in. The page that it returns continues to the console by itself: a redirect would belong to the
/// provider's navigation, on which a browser sends no `SameSite=Strict` cookie.
async fn callback(state: &ApiState, request: &Request) -> poem::Result<Response> {
    let open_id = configured(state)?;
    note(Kind::SignIn);
    let parameter = |name: &str| {
        let pairs = url::form_urlencoded::parse(request.uri().query().unwrap_or_default().as_bytes());
        let mut found = pairs.filter(|(key, _)| key == name).map(|(_, value)| value.into_owned());
        found.next().filter(|_| found.next().is_none())
    };
    let flow = cookie(request, FLOW_COOKIE);
    // The provider may state its issuer, so that an answer of another provider is not mistaken for its own (RFC 9207).
    let is_own = parameter("iss").is_none_or(|issuer| issuer == open_id.issuer());
    let started = match (flow, parameter("state"), parameter("code")) {
        (Some(flow), Some(given), Some(code)) if is_own => sign_in(state, open_id, flow, &given, &code).await?,
        _ => Err(refusal(OpenIdError::Refused)),
    };
    let mut response = match started {
        Ok(SignedIn { session, cookie }) => {
            signed_in(session.operator.actor());
            let page = page(StatusCode::OK, "Signed in", "You are signed in.", "/console", "Continue to the console", true);
            WithCookie::<ConsoleCookie, _>::set(page, cookie).into_response()
        }
        Err(refused) => refused,
    };
    add_cookie(&mut response, FLOW_COOKIE, "", TimeDelta::zero(), "Lax");
    Ok(response)
}

/// Verifies the provider's answer, and starts a session. Returns a page if the person may not sign in.
async fn sign_in(
    state: &ApiState,
    open_id: &OpenId,
    flow: &str,
    given: &str,
    code: &str,
) -> Result<Result<SignedIn, Response>, ApiError> {
    let identity = match open_id.finish(flow, given, code).await {
        Ok(identity) => identity,
        Err(error) => return Ok(Err(refusal(error))),
    };
    let subject_lookup = state.console.subject_lookup(&identity.issuer, &identity.subject);
    let Some(role) = identity.role else {
        tracing::warn!(request_id = current_text(), "refused a sign-in without a role");
        return Ok(Err(forbidden("Your account has no role here. Ask your administrator.")));
    };
    let admit = commands::AdmitOperatorUser { subject_lookup, role, name: clipped(&identity.name) };
    // The configuration names the provider whose people are admitted, so its operator is the actor.
    let user = match state.ledger.execute(FIRST_SHARD, admit, origin(Actor::Operator(0))).await {
        Ok(CommandResult::OperatorUser(user)) => user,
        Ok(_) => return Err(unexpected()),
        Err(WriteError::Rejected(_)) => return Ok(Err(forbidden("Your access was removed."))),
        Err(error) => return Err(error.into()),
    };
    match state.console.begin_by_provider(user.id).await {
        Ok(signed_in) => Ok(Ok(signed_in)),
        Err(AccessError::Unknown) => Ok(Err(forbidden("Your access was removed."))),
        Err(error) => Err(error.into()),
    }
}

/// Limits a name of the provider to the length of an email address, without control characters.
fn clipped(name: &Secret) -> Secret {
    Secret::new(name.expose().chars().filter(|c| !c.is_control()).take(254).collect::<String>())
}

fn refusal(error: OpenIdError) -> Response {
    let (status, text) = match error {
        OpenIdError::Unavailable => (StatusCode::SERVICE_UNAVAILABLE, "The identity provider does not answer. Try again later."),
        OpenIdError::Refused => (StatusCode::BAD_REQUEST, "The sign-in was refused, or it took too long."),
    };
    page(status, "Not signed in", text, START, "Try again", false)
}

fn forbidden(text: &str) -> Response {
    page(StatusCode::FORBIDDEN, "Not signed in", text, START, "Sign in as somebody else", false)
}

/// Builds a page of fixed texts with one link, which it may follow by itself.
fn page(status: StatusCode, title: &str, text: &str, link: &str, label: &str, follows: bool) -> Response {
    let refresh = if follows { format!("<meta http-equiv=\"refresh\" content=\"0; url={link}\">") } else { String::new() };
    let page = format!(
        "<!DOCTYPE html><html lang=\"en\"><head><meta charset=\"utf-8\"><title>{title}</title>{refresh}</head>\
         <body><main><h1>{title}</h1><p>{text}</p><p><a href=\"{link}\">{label}</a></p></main></body></html>"
    );
    let policy = browser_headers::policy(&page);
    let mut response = Response::builder().status(status).content_type("text/html; charset=utf-8").body(page);
    browser_headers::protect(Some(&policy), &mut response);
    response
}
