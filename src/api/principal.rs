//! The caller, as a handler's first argument. A middleware that sees the raw bytes authenticates the request before. This
//! module reads the outcome and documents it.
//!
//! The type of a handler's first argument determines who may call it, and nothing else does:
//!
//! | First argument | Callers |
//! |---|---|
//! | `Caller` | any client: an API key with the scope `read`, or a user of any role |
//! | `Caller<ClientOperator>` | an API key with the scope `orders`, or a user with the role operator or owner |
//! | `Caller<WebhookOperator>` | an API key with the scope `webhooks`, or a user with the role operator or owner |
//! | `Caller<ClientOwner>` | an API key with the scope `payouts`, or a user with the role owner |
//! | `Caller<PortalUser>`, `Caller<PortalOperator>`, `Caller<PortalOwner>` | a user of at least that role, by portal cookie or access token |
//! | `Caller<Operator>` | an operator of the service, of any role, by token or console cookie |
//! | `Caller<Auditor>`, `Caller<Finance>`, `Caller<Admin>` | an operator of that role, or an admin |
//! | `Caller<ConsoleSession>` | an operator's user, by console cookie |

use std::ops::Deref;

use ledger_events::restrictions::Scope;
use ledger_events::user::UserRole;
use poem::{Request, RequestBody};
use poem_openapi::registry::{MetaSecurityScheme, Registry};
use poem_openapi::{ApiExtractor, ApiExtractorType, ExtractParamOptions};

use super::error::{ApiError, Code};
use super::queries::UnknownParameters;
use crate::access::{ClientIdentity, ConsoleSession, Operator, Principal, Role};

/// An authentication scheme, as the document shows it.
#[derive(Debug, Clone, Copy)]
pub enum Scheme {
    /// A header that carries a key: name of the scheme, name of the header, description.
    Header(&'static str, &'static str, &'static str),
    /// `Authorization: Bearer`: name of the scheme, description of the token.
    Bearer(&'static str, &'static str),
    /// A cookie: name of the scheme, name of the cookie, description.
    Cookie(&'static str, &'static str, &'static str),
}

/// Name of the scheme for `X-API-Key`. The document requires it together with [`API_SECRET`].
pub const API_KEY: &str = "ApiKey";
pub const API_SECRET: &str = "ApiSecret";
pub const PORTAL_SESSION: &str = "PortalSession";
pub const CONSOLE_SESSION: &str = "ConsoleSession";

/// An identity that authentication stores in the request's extensions. Handlers get a clone.
pub trait Identity: Clone + Send + Sync + 'static {
    /// Schemes that authenticate this identity.
    const SCHEMES: &'static [Scheme];
    /// Error code if the request does not have this identity.
    const ABSENT: Code;

    /// Returns the identity of the request.
    ///
    /// # Errors
    /// [`Self::ABSENT`] if it has none, and 403 if the caller lacks the role that this identity requires.
    fn of(request: &Request) -> Result<Self, ApiError> {
        request.extensions().get::<Self>().cloned().ok_or_else(|| ApiError::new(Self::ABSENT))
    }
}

/// Name of the cookie of a portal session.
pub const PORTAL_COOKIE: &str = "__Host-portal";
/// Name of the cookie of a console session.
pub const CONSOLE_COOKIE: &str = "__Host-console";

const ACCESS_TOKEN: Scheme =
    Scheme::Bearer("AccessToken", "An access token from `POST /auth/login`. It is valid for 15 minutes.");

const CLIENT: &[Scheme] = &[
    Scheme::Header(API_KEY, "X-API-Key", "The API key. Send it together with `X-API-Secret`."),
    Scheme::Header(API_SECRET, "X-API-Secret", "The secret of the API key."),
    ACCESS_TOKEN,
];

const PORTAL: &[Scheme] = &[
    Scheme::Cookie(
        PORTAL_SESSION,
        PORTAL_COOKIE,
        "The cookie that `POST /auth/login` sets. Requests that change something also need the header `Origin`.",
    ),
    ACCESS_TOKEN,
];

/// Any client. It may read everything except voucher codes.
impl Identity for Principal {
    const SCHEMES: &'static [Scheme] = CLIENT;
    const ABSENT: Code = Code::Unauthorized;

    fn of(request: &Request) -> Result<Self, ApiError> {
        let principal = request.extensions().get::<Self>().copied().ok_or_else(|| ApiError::new(Self::ABSENT))?;
        require_scope(principal, Scope::Read)
    }
}

/// Refuses an API key without the scope that an operation requires.
fn require_scope(principal: Principal, scope: Scope) -> Result<Principal, ApiError> {
    match principal.has(scope) {
        true => Ok(principal),
        false => {
            let message = format!("The API key does not have the scope `{}`, which the operation requires.", scope.as_str());
            Err(ApiError::new(Code::InsufficientScope).message(message))
        }
    }
}

/// A client that may place and cancel orders, and read voucher codes.
#[derive(Debug, Clone, Copy)]
pub struct ClientOperator(pub Principal);

/// A client that may manage webhooks and repeat deliveries.
#[derive(Debug, Clone, Copy)]
pub struct WebhookOperator(pub Principal);

/// A client that may manage payouts and beneficiaries.
#[derive(Debug, Clone, Copy)]
pub struct ClientOwner(pub Principal);

/// A user of the portal, who may read.
#[derive(Debug, Clone, Copy)]
pub struct PortalUser(pub Principal);

/// A user of the portal who may change the account's settings.
#[derive(Debug, Clone, Copy)]
pub struct PortalOperator(pub Principal);

/// A user of the portal who may manage API keys.
#[derive(Debug, Clone, Copy)]
pub struct PortalOwner(pub Principal);

macro_rules! user_role {
    ($identity:ident, $role:expr, $scope:expr, $schemes:expr, $absent:expr, $is_known:pat) => {
        impl Identity for $identity {
            const SCHEMES: &'static [Scheme] = $schemes;
            const ABSENT: Code = $absent;

            fn of(request: &Request) -> Result<Self, ApiError> {
                let principal = request.extensions().get::<Principal>().filter(|p| matches!(p.identity, $is_known));
                let principal = principal.copied().ok_or_else(|| ApiError::new(Self::ABSENT))?;
                if !principal.may($role) {
                    return Err(ApiError::new(Code::Forbidden));
                }
                require_scope(principal, $scope).map(Self)
            }
        }

        impl Deref for $identity {
            type Target = Principal;

            fn deref(&self) -> &Principal {
                &self.0
            }
        }
    };
}

user_role!(ClientOperator, UserRole::Operator, Scope::Orders, CLIENT, Code::Unauthorized, _);
user_role!(WebhookOperator, UserRole::Operator, Scope::Webhooks, CLIENT, Code::Unauthorized, _);
user_role!(ClientOwner, UserRole::Owner, Scope::Payouts, CLIENT, Code::Unauthorized, _);
user_role!(PortalUser, UserRole::Viewer, Scope::Read, PORTAL, Code::InvalidToken, ClientIdentity::User { .. });
user_role!(PortalOperator, UserRole::Operator, Scope::Read, PORTAL, Code::InvalidToken, ClientIdentity::User { .. });
user_role!(PortalOwner, UserRole::Owner, Scope::Read, PORTAL, Code::InvalidToken, ClientIdentity::User { .. });

const CONSOLE: Scheme = Scheme::Cookie(
    CONSOLE_SESSION,
    CONSOLE_COOKIE,
    "The cookie that `POST /admin/auth/login` sets. Requests that change something also need the header `Origin`.",
);

const OPERATOR: &[Scheme] = &[Scheme::Bearer("OperatorToken", "The token of an operator of the service."), CONSOLE];

/// Any operator. It may read.
impl Identity for Operator {
    const SCHEMES: &'static [Scheme] = OPERATOR;
    const ABSENT: Code = Code::Unauthorized;
}

/// An operator's user, with the session of the console.
impl Identity for ConsoleSession {
    const SCHEMES: &'static [Scheme] = &[CONSOLE];
    const ABSENT: Code = Code::Unauthorized;

    fn of(request: &Request) -> Result<Self, ApiError> {
        let session = request.extensions().get::<Self>().copied();
        session.ok_or_else(|| ApiError::new(Self::ABSENT).message("The operation requires a session of the console."))
    }
}

/// An operator who may change everything.
#[derive(Debug, Clone, Copy)]
pub struct Admin(pub Operator);

/// An operator who may move money.
#[derive(Debug, Clone, Copy)]
pub struct Finance(pub Operator);

/// An operator who may read the entries of the transparency log.
#[derive(Debug, Clone, Copy)]
pub struct Auditor(pub Operator);

macro_rules! role {
    ($identity:ident, $role:expr) => {
        impl Identity for $identity {
            const SCHEMES: &'static [Scheme] = OPERATOR;
            const ABSENT: Code = Code::Unauthorized;

            fn of(request: &Request) -> Result<Self, ApiError> {
                let operator = Operator::of(request)?;
                if operator.may($role) { Ok(Self(operator)) } else { Err(ApiError::new(Code::Forbidden)) }
            }
        }
    };
}

role!(Admin, Role::Admin);
role!(Finance, Role::Finance);
role!(Auditor, Role::Auditor);

/// The caller of an operation, as `caller: Caller`. It is the first argument, so that an unauthenticated caller learns
/// nothing from how the rest of the request is parsed.
///
/// # Errors
/// 401 if the request is not authenticated. 403 if the caller lacks the role. 400 if the request has unknown query
/// parameters.
#[derive(Debug, Clone)]
pub struct Caller<P = Principal>(pub P);

impl<'a, P: Identity> ApiExtractor<'a> for Caller<P> {
    const TYPES: &'static [ApiExtractorType] = &[ApiExtractorType::SecurityScheme];
    type ParamType = ();
    type ParamRawType = ();

    fn register(registry: &mut Registry) {
        for scheme in P::SCHEMES {
            let (name, meta) = scheme.meta();
            registry.create_security_scheme(name, meta);
        }
    }

    fn security_schemes() -> Vec<&'static str> {
        P::SCHEMES.iter().map(|scheme| scheme.meta().0).collect()
    }

    async fn from_request(request: &'a Request, _: &mut RequestBody, _: ExtractParamOptions<()>) -> poem::Result<Self> {
        let caller = P::of(request)?;
        request.extensions().get::<UnknownParameters>().map_or(Ok(()), UnknownParameters::refuse)?;
        Ok(Self(caller))
    }
}

impl Scheme {
    fn meta(self) -> (&'static str, MetaSecurityScheme) {
        let empty = MetaSecurityScheme {
            ty: "",
            description: None,
            name: None,
            key_in: None,
            scheme: None,
            bearer_format: None,
            flows: None,
            openid_connect_url: None,
        };
        match self {
            Scheme::Header(name, header, description) => (
                name,
                MetaSecurityScheme {
                    ty: "apiKey",
                    description: Some(description),
                    name: Some(header),
                    key_in: Some("header"),
                    ..empty
                },
            ),
            Scheme::Cookie(name, cookie, description) => (
                name,
                MetaSecurityScheme {
                    ty: "apiKey",
                    description: Some(description),
                    name: Some(cookie),
                    key_in: Some("cookie"),
                    ..empty
                },
            ),
            Scheme::Bearer(name, description) => {
                (name, MetaSecurityScheme { ty: "http", description: Some(description), scheme: Some("bearer"), ..empty })
            }
        }
    }
}
