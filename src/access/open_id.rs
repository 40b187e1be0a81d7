//! Sign-in of operators' users through OpenID Connect: the authorization code flow with PKCE (RFC 7636).
//!
//! Between its two steps, the browser keeps the flow's state in a sealed cookie, so every node can finish what another one
//! began. Every call of the identity provider has a deadline, and none happens in a transaction.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use chrono::{DateTime, TimeDelta, Utc};
use openidconnect::core::{
    CoreAuthDisplay, CoreAuthPrompt, CoreAuthenticationFlow, CoreErrorResponseType, CoreGenderClaim, CoreJsonWebKey,
    CoreJweContentEncryptionAlgorithm, CoreJwsSigningAlgorithm, CoreProviderMetadata, CoreRevocableToken,
    CoreRevocationErrorResponse, CoreTokenIntrospectionResponse, CoreTokenType,
};
use openidconnect::{
    AdditionalClaims, AsyncHttpClient, AuthorizationCode, ClaimsVerificationError, Client, ClientId, ClientSecret, CsrfToken,
    EmptyExtraTokenFields, EndpointMaybeSet, EndpointNotSet, EndpointSet, HttpRequest, HttpResponse, IdTokenClaims,
    IdTokenFields, IssuerUrl, Nonce, PkceCodeChallenge, PkceCodeVerifier, RedirectUrl, Scope, StandardErrorResponse,
    StandardTokenResponse, TokenResponse,
};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use subtle::ConstantTimeEq;
use tokio::sync::Mutex;
use url::Url;

use super::Role;
use crate::response_body;
use crate::secrets::seal::{Keyring, Secret};

/// Time that a person has to sign in at the provider.
pub const FLOW_LIFETIME: TimeDelta = TimeDelta::minutes(10);
/// Kind that the state of a flow is sealed under.
const FLOW: &str = "console.open_id";
/// Longest time for one request to the provider, and for one step of a flow.
const REQUEST_DEADLINE: Duration = Duration::from_secs(8);
const STEP_DEADLINE: Duration = Duration::from_secs(20);
/// Maximum size of a response of the provider.
const MAX_BYTES: usize = 1 << 20;
/// Time for which the provider's metadata and keys are kept, and time after which a failed fetch is repeated.
const KEPT: Duration = Duration::from_secs(3_600);
const RETRY_AFTER: Duration = Duration::from_secs(2);
/// Shortest time between two fetches because of an unknown key. Only a code of the provider leads to one.
const REFETCH_AFTER: Duration = Duration::from_secs(1);

/// Algorithms of an ID token's signature: public-key algorithms only.
const ALGORITHMS: [CoreJwsSigningAlgorithm; 9] = [
    CoreJwsSigningAlgorithm::RsaSsaPkcs1V15Sha256,
    CoreJwsSigningAlgorithm::RsaSsaPkcs1V15Sha384,
    CoreJwsSigningAlgorithm::RsaSsaPkcs1V15Sha512,
    CoreJwsSigningAlgorithm::RsaSsaPssSha256,
    CoreJwsSigningAlgorithm::RsaSsaPssSha384,
    CoreJwsSigningAlgorithm::RsaSsaPssSha512,
    CoreJwsSigningAlgorithm::EcdsaP256Sha256,
    CoreJwsSigningAlgorithm::EcdsaP384Sha384,
    CoreJwsSigningAlgorithm::EdDsa,
];

/// Claims of the ID token beyond the standard ones.
#[derive(Debug, Serialize, Deserialize)]
struct MoreClaims(Map<String, Value>);

impl AdditionalClaims for MoreClaims {}

type Tokens = StandardTokenResponse<
    IdTokenFields<MoreClaims, EmptyExtraTokenFields, CoreGenderClaim, CoreJweContentEncryptionAlgorithm, CoreJwsSigningAlgorithm>,
    CoreTokenType,
>;
type Claims = IdTokenClaims<MoreClaims, CoreGenderClaim>;
type ProviderClient = Client<
    MoreClaims,
    CoreAuthDisplay,
    CoreGenderClaim,
    CoreJweContentEncryptionAlgorithm,
    CoreJsonWebKey,
    CoreAuthPrompt,
    StandardErrorResponse<CoreErrorResponseType>,
    Tokens,
    CoreTokenIntrospectionResponse,
    CoreRevocableToken,
    CoreRevocationErrorResponse,
    EndpointSet,
    EndpointNotSet,
    EndpointNotSet,
    EndpointNotSet,
    EndpointMaybeSet,
    EndpointMaybeSet,
>;

/// Settings of the identity provider.
#[derive(Clone, Debug)]
pub struct OpenIdSettings {
    pub issuer: String,
    pub client_id: String,
    pub client_secret: Option<Secret>,
    /// Name of the claim with the operator's role.
    pub role_claim: String,
    /// Certificates to trust in addition to the platform's, in PEM.
    pub ca_pem: Option<Vec<u8>>,
    /// Base URL at which operators reach the console, without a trailing slash.
    pub console_url: String,
}

/// Reason that a sign-in fails. The log has the cause.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OpenIdError {
    #[error("the identity provider does not answer")]
    Unavailable,
    /// The answer does not belong to this browser's flow, is late, or is not authentic.
    #[error("the sign-in was refused or has expired")]
    Refused,
}

/// A setting that no client can be made of.
#[derive(Debug, thiserror::Error)]
pub enum OpenIdSettingsError {
    #[error("--oidc-issuer must be an https URL")]
    Issuer,
    #[error("--console-url is not a URL")]
    ConsoleUrl,
    #[error("--oidc-ca-file: {0}")]
    Http(#[from] reqwest::Error),
}

/// Person whom the identity provider has authenticated.
#[derive(Debug)]
pub struct Identity {
    pub issuer: String,
    pub subject: String,
    /// Email address or other name that the provider states.
    pub name: Secret,
    /// Role by the claim, if the claim names one.
    pub role: Option<Role>,
}

/// State of a flow, in the browser's sealed cookie.
#[derive(Serialize, Deserialize)]
struct Flow {
    state: String,
    nonce: String,
    verifier: String,
    expires_at: DateTime<Utc>,
}

/// Client of the identity provider. Cheap to clone.
#[derive(Clone)]
pub struct OpenId {
    settings: Arc<OpenIdSettings>,
    issuer: IssuerUrl,
    redirect_url: RedirectUrl,
    http: Http,
    keyring: Arc<Keyring>,
    provider: Arc<Mutex<Provider>>,
}

impl fmt::Debug for OpenId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OpenId").field("issuer", &self.settings.issuer).finish_non_exhaustive()
    }
}

/// Metadata and keys of the provider, as they were last fetched.
#[derive(Default)]
struct Provider {
    client: Option<(Arc<ProviderClient>, Instant)>,
    failed_at: Option<Instant>,
}

impl OpenId {
    /// Creates a client. It contacts the provider at the first sign-in, so a node starts without it.
    ///
    /// # Errors
    /// If the issuer is not an https URL, except on the loopback interface, or a certificate is malformed.
    pub fn new(settings: OpenIdSettings, keyring: Arc<Keyring>) -> Result<OpenId, OpenIdSettingsError> {
        let url = Url::parse(&settings.issuer).map_err(|_| OpenIdSettingsError::Issuer)?;
        if url.scheme() != "https" && !is_loopback(&url) {
            return Err(OpenIdSettingsError::Issuer);
        }
        let redirect_url = RedirectUrl::new(format!("{}/console/oidc/callback", settings.console_url));
        let mut http = reqwest::Client::builder().timeout(REQUEST_DEADLINE).redirect(reqwest::redirect::Policy::none());
        if let Some(pem) = &settings.ca_pem {
            http = http.tls_certs_merge(reqwest::Certificate::from_pem_bundle(pem)?);
        }
        Ok(OpenId {
            issuer: IssuerUrl::new(settings.issuer.clone()).map_err(|_| OpenIdSettingsError::Issuer)?,
            redirect_url: redirect_url.map_err(|_| OpenIdSettingsError::ConsoleUrl)?,
            settings: Arc::new(settings),
            http: Http(http.build()?),
            keyring,
            provider: Arc::default(),
        })
    }

    pub fn issuer(&self) -> &str {
        &self.settings.issuer
    }

    /// Begins a sign-in. Returns the provider's URL, and the text of the cookie that the browser keeps meanwhile.
    ///
    /// # Errors
    /// [`OpenIdError::Unavailable`] if the provider does not answer.
    pub async fn start(&self) -> Result<(Url, Secret), OpenIdError> {
        let client = within(self.client(KEPT)).await?;
        let (challenge, verifier) = PkceCodeChallenge::new_random_sha256();
        let request = client
            .authorize_url(CoreAuthenticationFlow::AuthorizationCode, CsrfToken::new_random, Nonce::new_random)
            .add_scope(Scope::new("email".to_owned()))
            .add_scope(Scope::new("profile".to_owned()))
            .set_pkce_challenge(challenge);
        let (url, state, nonce) = request.url();
        let flow = Flow {
            state: state.into_secret(),
            nonce: nonce.secret().clone(),
            verifier: verifier.into_secret(),
            expires_at: Utc::now() + FLOW_LIFETIME,
        };
        let cookie = self.seal(&flow).map_err(|error| {
            tracing::error!(%error, "failed to seal the state of a sign-in");
            OpenIdError::Unavailable
        })?;
        Ok((url, cookie))
    }

    /// Finishes a sign-in: exchanges the code for an ID token, and verifies the token.
    ///
    /// # Errors
    /// [`OpenIdError::Refused`] if the state is not that of the cookie, or the provider or the token's verification refuses.
    pub async fn finish(&self, cookie: &str, state: &str, code: &str) -> Result<Identity, OpenIdError> {
        let flow = self.open(cookie).ok_or(OpenIdError::Refused)?;
        if flow.expires_at <= Utc::now() || !bool::from(flow.state.as_bytes().ct_eq(state.as_bytes())) {
            return Err(OpenIdError::Refused);
        }
        within(self.exchange(flow, code)).await
    }

    async fn exchange(&self, flow: Flow, code: &str) -> Result<Identity, OpenIdError> {
        let client = self.client(KEPT).await?;
        let refused = |error: &dyn fmt::Display| {
            tracing::warn!(error = %error, "the identity provider refused a sign-in");
            OpenIdError::Refused
        };
        let request = client.exchange_code(AuthorizationCode::new(code.to_owned())).map_err(|error| refused(&error))?;
        let request = request.set_pkce_verifier(PkceCodeVerifier::new(flow.verifier));
        let tokens: Tokens = request.request_async(&self.http).await.map_err(|error| match error {
            openidconnect::RequestTokenError::Request(error) => unavailable(&error),
            error => refused(&error),
        })?;
        let nonce = Nonce::new(flow.nonce);
        let claims = match verified(&client, &tokens, &nonce) {
            // The provider may have rotated its keys.
            Err(ClaimsVerificationError::SignatureVerification(_)) => {
                let client = self.client(REFETCH_AFTER).await?;
                verified(&client, &tokens, &nonce).map(|claims| self.identity(claims))
            }
            verified => verified.map(|claims| self.identity(claims)),
        };
        claims.map_err(|error| refused(&error))
    }

    fn identity(&self, claims: &Claims) -> Identity {
        let subject = claims.subject().as_str().to_owned();
        let email = claims.email().map(|email| email.as_str());
        let name = email.or(claims.preferred_username().map(|name| name.as_str())).unwrap_or(&subject);
        let role = claims.additional_claims().0.get(&self.settings.role_claim).and_then(role_of);
        Identity { issuer: self.settings.issuer.clone(), name: Secret::new(name), subject, role }
    }

    /// Returns a client with the provider's metadata and keys, which are at most this old.
    async fn client(&self, at_most: Duration) -> Result<Arc<ProviderClient>, OpenIdError> {
        let mut provider = self.provider.lock().await;
        if let Some((client, fetched_at)) = &provider.client
            && fetched_at.elapsed() < at_most
        {
            return Ok(client.clone());
        }
        if provider.failed_at.is_some_and(|at| at.elapsed() < RETRY_AFTER) {
            return Err(OpenIdError::Unavailable);
        }
        let metadata = CoreProviderMetadata::discover_async(self.issuer.clone(), &self.http).await.map_err(|error| {
            provider.failed_at = Some(Instant::now());
            unavailable(&error)
        })?;
        let secret = self.settings.client_secret.as_ref().map(|secret| ClientSecret::new(secret.expose().to_owned()));
        let id = ClientId::new(self.settings.client_id.clone());
        let client = ProviderClient::from_provider_metadata(metadata, id, secret);
        let client = Arc::new(client.set_redirect_uri(self.redirect_url.clone()));
        *provider = Provider { client: Some((client.clone(), Instant::now())), failed_at: None };
        Ok(client)
    }

    fn seal(&self, flow: &Flow) -> anyhow::Result<Secret> {
        let text = serde_json::to_vec(flow)?;
        Ok(Secret::new(URL_SAFE_NO_PAD.encode(self.keyring.seal(FLOW, 0, &text)?)))
    }

    fn open(&self, cookie: &str) -> Option<Flow> {
        let sealed = URL_SAFE_NO_PAD.decode(cookie).ok()?;
        serde_json::from_slice(&self.keyring.open(FLOW, 0, &sealed).ok()?).ok()
    }
}

/// Verifies an ID token: signature, issuer, audience, expiry and nonce.
fn verified<'t>(client: &ProviderClient, tokens: &'t Tokens, nonce: &Nonce) -> Result<&'t Claims, ClaimsVerificationError> {
    let missing = || ClaimsVerificationError::Other("the response has no ID token".to_owned());
    let token = tokens.id_token().ok_or_else(missing)?;
    token.claims(&client.id_token_verifier().set_allowed_algs(ALGORITHMS), nonce)
}

/// Returns the role that a claim names. Of several roles, the one with the most rights counts.
fn role_of(claim: &Value) -> Option<Role> {
    let names: Vec<&str> = match claim {
        Value::String(name) => vec![name],
        Value::Array(names) => names.iter().filter_map(Value::as_str).collect(),
        _ => vec![],
    };
    Role::ALL.into_iter().find(|role| names.contains(&role.as_str()))
}

/// Returns whether a URL leads to this machine.
pub fn is_loopback(url: &Url) -> bool {
    match url.host() {
        Some(url::Host::Ipv4(ip)) => ip.is_loopback(),
        Some(url::Host::Ipv6(ip)) => ip.is_loopback(),
        Some(url::Host::Domain(name)) => name == "localhost",
        None => false,
    }
}

async fn within<T>(step: impl Future<Output = Result<T, OpenIdError>>) -> Result<T, OpenIdError> {
    tokio::time::timeout(STEP_DEADLINE, step).await.unwrap_or(Err(OpenIdError::Unavailable))
}

fn unavailable(error: &dyn std::error::Error) -> OpenIdError {
    let cause = error.source().map(ToString::to_string);
    tracing::warn!(%error, cause, "failed to reach the identity provider");
    OpenIdError::Unavailable
}

/// HTTP client with a deadline and without redirects, as the flow uses it.
#[derive(Clone)]
struct Http(reqwest::Client);

#[derive(Debug, thiserror::Error)]
enum HttpError {
    #[error(transparent)]
    Request(#[from] reqwest::Error),
    #[error(transparent)]
    Response(#[from] openidconnect::http::Error),
    #[error("the response is larger than {MAX_BYTES} bytes")]
    TooLarge,
}

impl<'c> AsyncHttpClient<'c> for Http {
    type Error = HttpError;
    type Future = Pin<Box<dyn Future<Output = Result<HttpResponse, HttpError>> + Send + 'c>>;

    fn call(&'c self, request: HttpRequest) -> Self::Future {
        Box::pin(async move {
            let mut response = self.0.execute(request.try_into()?).await?;
            let body = response_body::up_to(MAX_BYTES, &mut response).await?.ok_or(HttpError::TooLarge)?;
            let mut built = openidconnect::http::Response::builder().status(response.status());
            for (name, value) in response.headers() {
                built = built.header(name, value);
            }
            Ok(built.body(body)?)
        })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use serde_json::json;

    use super::*;

    fn open_id(issuer: &str) -> Result<OpenId, OpenIdSettingsError> {
        let settings = OpenIdSettings {
            issuer: issuer.to_owned(),
            client_id: "console".to_owned(),
            client_secret: None,
            role_claim: "role".to_owned(),
            ca_pem: None,
            console_url: "https://console.example".to_owned(),
        };
        OpenId::new(settings, Arc::new(Keyring::from_base64(&Keyring::generate()).unwrap()))
    }

    #[test]
    fn a_claim_names_a_role_or_several() {
        for (claim, role) in [
            (json!("finance"), Some(Role::Finance)),
            (json!(["auditor", "x", "finance"]), Some(Role::Finance)),
            (json!(["staff", "admin"]), Some(Role::Admin)),
            (json!("Admin"), None),
            (json!([]), None),
            (json!({"admin": true}), None),
            (json!(true), None),
        ] {
            assert_eq!(role_of(&claim), role, "{claim}");
        }
    }

    #[test]
    fn an_issuer_without_tls_is_refused_except_on_the_loopback_interface() {
        for issuer in ["https://id.example", "http://127.0.0.1:9000", "http://localhost:9000", "http://[::1]:1"] {
            assert!(open_id(issuer).is_ok(), "{issuer}");
        }
        for issuer in ["http://id.example", "ftp://id.example", "id.example", "", "http://127.0.0.1.example"] {
            assert!(open_id(issuer).is_err(), "{issuer}");
        }
    }

    #[tokio::test]
    async fn a_flow_of_another_browser_or_an_expired_one_is_refused() {
        let open_id = open_id("http://127.0.0.1:1").unwrap();
        let flow = |expires_at| Flow { state: "state".into(), nonce: "nonce".into(), verifier: "verifier".into(), expires_at };
        let sealed = |at| open_id.seal(&flow(at)).unwrap();
        let late = sealed(Utc::now() - TimeDelta::seconds(1));
        assert_eq!(open_id.finish(late.expose(), "state", "code").await.unwrap_err(), OpenIdError::Refused);
        let good = sealed(Utc::now() + FLOW_LIFETIME);
        for (cookie, state) in [(good.expose(), "other"), (good.expose(), ""), ("", "state"), ("x", "state")] {
            assert_eq!(open_id.finish(cookie, state, "code").await.unwrap_err(), OpenIdError::Refused, "{cookie} {state}");
        }
        // Everything fits, and only then the provider is asked.
        assert_eq!(open_id.finish(good.expose(), "state", "code").await.unwrap_err(), OpenIdError::Unavailable);
    }
}
