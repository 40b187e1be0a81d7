//! Cookies of sessions. Only this origin's pages send them, no script reads them, and no plain connection carries them.

use std::marker::PhantomData;

use chrono::TimeDelta;
use poem::http::{HeaderValue, header};
use poem::{IntoResponse, Response};
use poem_openapi::ApiResponse;
use poem_openapi::registry::{MetaResponses, Registry};

use super::error::documented_header;
use super::principal::{CONSOLE_COOKIE, PORTAL_COOKIE};
use crate::access::console::CONSOLE_LIFETIME;
use crate::access::sessions::PORTAL_LIFETIME;
use crate::secrets::seal::Secret;

/// A kind of session that a cookie carries.
pub trait CookieKind: Send {
    const NAME: &'static str;
    const LIFETIME: TimeDelta;
    /// Description of the header `Set-Cookie` in the document.
    const DESCRIPTION: &'static str;
}

/// The cookie of a portal session.
#[derive(Debug)]
pub struct PortalCookie;

impl CookieKind for PortalCookie {
    const NAME: &'static str = PORTAL_COOKIE;
    const LIFETIME: TimeDelta = PORTAL_LIFETIME;
    const DESCRIPTION: &'static str = "The portal session cookie, with `HttpOnly`, `Secure` and `SameSite=Strict`.";
}

/// The cookie of a console session.
#[derive(Debug)]
pub struct ConsoleCookie;

impl CookieKind for ConsoleCookie {
    const NAME: &'static str = CONSOLE_COOKIE;
    const LIFETIME: TimeDelta = CONSOLE_LIFETIME;
    const DESCRIPTION: &'static str = "The console session cookie, with `HttpOnly`, `Secure` and `SameSite=Strict`.";
}

/// A response that sets the cookie of a session, or deletes it if there is no value.
#[derive(Debug)]
pub struct WithCookie<K, R> {
    reply: R,
    value: Option<Secret>,
    kind: PhantomData<K>,
}

impl<K: CookieKind, R> WithCookie<K, R> {
    pub fn set(reply: R, value: Secret) -> Self {
        Self { reply, value: Some(value), kind: PhantomData }
    }

    pub fn delete(reply: R) -> Self {
        Self { reply, value: None, kind: PhantomData }
    }
}

impl<K: CookieKind, R: IntoResponse> IntoResponse for WithCookie<K, R> {
    fn into_response(self) -> Response {
        let mut response = self.reply.into_response();
        let (value, lifetime) = match &self.value {
            Some(value) => (value.expose(), K::LIFETIME),
            None => ("", TimeDelta::zero()),
        };
        add(&mut response, K::NAME, value, lifetime, "Strict");
        response
    }
}

impl<K: CookieKind, R: ApiResponse> ApiResponse for WithCookie<K, R> {
    fn meta() -> MetaResponses {
        let mut meta = R::meta();
        let cookie = || documented_header::<String>("Set-Cookie", K::DESCRIPTION);
        meta.responses.iter_mut().for_each(|response| response.headers.push(cookie()));
        meta
    }

    fn register(registry: &mut Registry) {
        R::register(registry);
    }
}

/// Adds a cookie to a response. The value has only letters, digits, dots, hyphens and underscores.
pub fn add(response: &mut Response, name: &str, value: &str, lifetime: TimeDelta, same_site: &str) {
    let seconds = lifetime.num_seconds();
    let cookie = format!("{name}={value}; Path=/; Max-Age={seconds}; HttpOnly; Secure; SameSite={same_site}");
    // Such a value is always a valid header.
    if let Ok(cookie) = HeaderValue::from_str(&cookie) {
        response.headers_mut().append(header::SET_COOKIE, cookie);
    }
}
