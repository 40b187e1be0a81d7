//! Adapter for suppliers with an interface over HTTP: an order under an idempotency key, and a question about that key. Access
//! tokens come from OAuth client credentials (RFC 6749, section 4.4).

use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use oauth2::basic::BasicClient;
use oauth2::{AsyncHttpClient, ClientId, ClientSecret, HttpRequest, HttpResponse, Scope, TokenResponse, TokenUrl};
use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use reqwest::{Method, StatusCode};
use serde_json::{Map, Value};
use tokio::sync::Mutex;
use webhook_client::address::AddressFilter;
use webhook_client::resolver::Resolver;

use super::answer::{self, Answer, Unknown};
use super::port::{Supplier, Wanted};
use super::settings::SupplierSettings;
use crate::response_body;
use crate::secrets::seal::Secret;

/// Maximum size of an answer, in bytes: a thousand vouchers with the longest texts.
const MAX_BYTES: usize = 4 << 20;
/// Time before its end from which an access token is no longer used.
const TOKEN_MARGIN: Duration = Duration::from_secs(30);
/// Lifetime of an access token that names none.
const TOKEN_LIFETIME: Duration = Duration::from_secs(300);
/// Longest lifetime of an access token, whatever the supplier names.
const LONGEST_TOKEN_LIFETIME: Duration = Duration::from_secs(3_600);

/// Problem of an answer that may be one of a proxy, whatever it says.
const ERROR_STATUS: Unknown = Unknown("the supplier answered with an unexpected status");

/// A supplier that is reached over HTTP.
pub struct HttpSupplier {
    settings: SupplierSettings,
    http: Http,
    token: Mutex<Option<(Secret, Instant)>>,
}

impl std::fmt::Debug for HttpSupplier {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("HttpSupplier").field("name", &self.settings.name).finish_non_exhaustive()
    }
}

impl HttpSupplier {
    /// Creates a client. It contacts the supplier with the first purchase.
    ///
    /// # Errors
    /// If a certificate is malformed, or TLS cannot be set up.
    pub fn new(settings: SupplierSettings) -> Result<HttpSupplier, reqwest::Error> {
        let resolver = Resolver::new(AddressFilter { allowed: settings.allowed_networks.clone() });
        let mut http = reqwest::Client::builder()
            .timeout(settings.timeout)
            .redirect(reqwest::redirect::Policy::none())
            .no_proxy()
            .https_only(true)
            .dns_resolver(Arc::new(Filtered(Arc::new(resolver))));
        if let Some(pem) = &settings.ca_pem {
            http = http.tls_certs_merge(reqwest::Certificate::from_pem_bundle(pem)?);
        }
        Ok(HttpSupplier { http: Http(http.build()?), settings, token: Mutex::default() })
    }

    /// Returns an access token, from the supplier if the last one ends soon.
    async fn token(&self) -> Result<Secret, Unknown> {
        let mut token = self.token.lock().await;
        if let Some((token, ends_at)) = &*token
            && Instant::now() < *ends_at
        {
            return Ok(token.clone());
        }
        let settings = &self.settings;
        let client = BasicClient::new(ClientId::new(settings.client_id.clone()))
            .set_client_secret(ClientSecret::new(settings.client_secret.expose().to_owned()))
            .set_token_uri(TokenUrl::from_url(settings.token_url.clone()));
        let request = client.exchange_client_credentials().add_scopes(settings.scopes.iter().cloned().map(Scope::new));
        // The text of an error may repeat what was sent.
        let answer = request.request_async(&self.http).await.map_err(|_| Unknown("the supplier gave no access token"))?;
        let lifetime = answer.expires_in().unwrap_or(TOKEN_LIFETIME).min(LONGEST_TOKEN_LIFETIME).saturating_sub(TOKEN_MARGIN);
        let new = Secret::new(answer.access_token().secret().clone());
        *token = Some((new.clone(), Instant::now() + lifetime));
        Ok(new)
    }

    /// Sends a request with a token. A refused token is forgotten.
    async fn send(&self, method: Method, url: &str, body: Option<&Value>, key: &str) -> Result<(StatusCode, Vec<u8>), Unknown> {
        let token = self.token().await?;
        let mut request = self.http.0.request(method, url).bearer_auth(token.expose()).header("Accept", "application/json");
        if let Some(body) = body {
            request = request.header("Idempotency-Key", key).header("Content-Type", "application/json").body(body.to_string());
        }
        let request = request.build().map_err(|_| Unknown("the request cannot be sent"))?;
        let (status, body) = self.http.read(request).await.map_err(|error| error.unknown())?;
        match status {
            StatusCode::UNAUTHORIZED => {
                *self.token.lock().await = None;
                Err(Unknown("the supplier refused the access token"))
            }
            StatusCode::TOO_MANY_REQUESTS => Err(Unknown("the supplier has too many requests")),
            status if status.is_server_error() => Err(Unknown("the supplier failed")),
            status => Ok((status, body)),
        }
    }
}

#[async_trait]
impl Supplier for HttpSupplier {
    fn settings(&self) -> &SupplierSettings {
        &self.settings
    }

    async fn order(&self, wanted: &Wanted) -> Result<Answer, Unknown> {
        let (fields, key) = (&self.settings.fields, wanted.key.to_string());
        let body: Map<String, Value> = [
            (&fields.sku, Value::from(&*wanted.sku)),
            (&fields.denomination, wanted.denomination.to_string().into()),
            (&fields.currency, wanted.currency.as_str().into()),
            (&fields.quantity, wanted.quantity.into()),
            (&fields.key, (&*key).into()),
        ]
        .into_iter()
        .map(|(name, value)| (name.clone(), value))
        .collect();
        let (status, answer) = self.send(Method::POST, self.settings.order_url.as_str(), Some(&body.into()), &key).await?;
        let may_refuse = self.settings.refusal_statuses.contains(&status.as_u16());
        if !status.is_success() && !may_refuse {
            return Err(ERROR_STATUS);
        }
        let answer = answer::read(&answer, fields, wanted.currency)?;
        if status.is_success() || matches!(answer, Answer::Refused { .. }) { Ok(answer) } else { Err(ERROR_STATUS) }
    }

    async fn ask(&self, wanted: &Wanted) -> Result<Option<Answer>, Unknown> {
        let key = wanted.key.to_string();
        let url = self.settings.status_url.replace("{key}", &key);
        match self.send(Method::GET, &url, None, &key).await? {
            (StatusCode::NOT_FOUND, _) => Ok(None),
            (status, answer) if status.is_success() => answer::read(&answer, &self.settings.fields, wanted.currency).map(Some),
            _ => Err(ERROR_STATUS),
        }
    }
}

/// Resolver that refuses addresses that are not public, as for webhooks.
struct Filtered(Arc<Resolver>);

impl Resolve for Filtered {
    fn resolve(&self, name: Name) -> Resolving {
        let resolver = self.0.clone();
        Box::pin(async move {
            let found: Vec<SocketAddr> = resolver.resolve(&url::Host::Domain(name.as_str().to_owned()), 0).await?;
            Ok(Box::new(found.into_iter()) as Addrs)
        })
    }
}

#[derive(Debug, thiserror::Error)]
enum HttpError {
    #[error(transparent)]
    Request(#[from] reqwest::Error),
    #[error(transparent)]
    Response(#[from] oauth2::http::Error),
    #[error("the response is larger than {MAX_BYTES} bytes")]
    TooLarge,
}

impl HttpError {
    /// Returns the fault without the URL and the addresses.
    fn unknown(&self) -> Unknown {
        match self {
            Self::TooLarge => Unknown("the answer is too large"),
            Self::Request(error) if error.is_timeout() => Unknown("the supplier did not answer in time"),
            Self::Request(error) if error.is_connect() => Unknown("the supplier could not be reached"),
            _ => Unknown("the connection to the supplier broke"),
        }
    }
}

/// HTTP client that reads answers up to a limit.
struct Http(reqwest::Client);

impl Http {
    async fn read(&self, request: reqwest::Request) -> Result<(StatusCode, Vec<u8>), HttpError> {
        let mut response = self.0.execute(request).await?;
        let body = response_body::up_to(MAX_BYTES, &mut response).await?.ok_or(HttpError::TooLarge)?;
        Ok((response.status(), body))
    }
}

impl<'c> AsyncHttpClient<'c> for Http {
    type Error = HttpError;
    type Future = Pin<Box<dyn Future<Output = Result<HttpResponse, HttpError>> + Send + 'c>>;

    fn call(&'c self, request: HttpRequest) -> Self::Future {
        Box::pin(async move {
            let (status, body) = self.read(request.try_into()?).await?;
            let response = oauth2::http::Response::builder().status(status).header("Content-Type", "application/json");
            Ok(response.body(body)?)
        })
    }
}
