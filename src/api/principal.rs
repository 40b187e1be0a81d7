//! Who is calling, as a handler's first argument: authentication itself is done before, by a
//! middleware that sees the raw bytes; here its outcome is read, and documented.
//!
//! What a handler's first argument is says who may call it, and is the only place that does:
//!
//! | First argument | Who |
//! |---|---|
//! | `Caller` | any client: an API key, or a user of any role |
//! | `Caller<ClientOperator>` | an API key, or a user who is operator or owner |
//! | `Caller<ClientOwner>` | an API key, or a user who is owner |
//! | `Caller<PortalUser>`, `Caller<PortalOwner>` | a user, by portal cookie or access token |
//! | `Caller<Operator>` | an operator of the service, of any role |
//! | `Caller<Auditor>`, `Caller<Finance>`, `Caller<Admin>` | an operator of that role, or an admin |

use std::ops::Deref;

use ledger_events::user::UserRole;
use poem::{Request, RequestBody};
use poem_openapi::registry::{MetaSecurityScheme, Registry};
use poem_openapi::{ApiExtractor, ApiExtractorType, ExtractParamOptions};

use super::error::{ApiError, Code};
use super::queries::UnknownParameters;
use crate::access::{Operator, Principal, Role, Who};

/// A way to say who is calling, as the document shows it.
#[derive(Debug, Clone, Copy)]
pub enum Scheme {
    /// A header that carries a key: the scheme's name, the header, and what it holds.
    Header(&'static str, &'static str, &'static str),
    /// `Authorization: Bearer`: the scheme's name, and what the token is.
    Bearer(&'static str, &'static str),
    /// A cookie: the scheme's name, the cookie's, and what it is.
    Cookie(&'static str, &'static str, &'static str),
}

/// The two headers of an API key. The document asks for both together.
pub const API_KEY: &str = "ApiKey";
pub const API_SECRET: &str = "ApiSecret";
pub const PORTAL_SESSION: &str = "PortalSession";

/// What authentication leaves in the request's extensions. Cloned for the handler.
pub trait Identity: Clone + Send + Sync + 'static {
    /// The ways to become it.
    const SCHEMES: &'static [Scheme];
    /// What its absence is answered with.
    const ABSENT: Code;

    /// The request's identity.
    ///
    /// # Errors
    /// [`Self::ABSENT`], and 403 for one that may not do what this identity stands for.
    fn of(request: &Request) -> Result<Self, ApiError> {
        request.extensions().get::<Self>().cloned().ok_or_else(|| ApiError::new(Self::ABSENT))
    }
}

/// The cookie of a portal session.
pub const PORTAL_COOKIE: &str = "__Host-portal";

const ACCESS_TOKEN: Scheme = Scheme::Bearer("AccessToken", "An access token of `POST /auth/login`.");

const CLIENT: &[Scheme] = &[
    Scheme::Header(API_KEY, "X-API-Key", "The API key. Goes with `X-API-Secret`."),
    Scheme::Header(API_SECRET, "X-API-Secret", "The API key's secret."),
    ACCESS_TOKEN,
];

const PORTAL: &[Scheme] = &[
    Scheme::Cookie(
        PORTAL_SESSION,
        PORTAL_COOKIE,
        "The cookie that `POST /auth/login` sets. A change needs the header `Origin` with it.",
    ),
    ACCESS_TOKEN,
];

/// Any client: may read all but voucher codes.
impl Identity for Principal {
    const SCHEMES: &'static [Scheme] = CLIENT;
    const ABSENT: Code = Code::Unauthorized;
}

/// A client who may order, cancel, read voucher codes and manage webhooks.
#[derive(Debug, Clone, Copy)]
pub struct ClientOperator(pub Principal);

/// A client who may also manage payouts and beneficiaries.
#[derive(Debug, Clone, Copy)]
pub struct ClientOwner(pub Principal);

/// A user in the portal: may read.
#[derive(Debug, Clone, Copy)]
pub struct PortalUser(pub Principal);

/// A user in the portal who may manage API keys.
#[derive(Debug, Clone, Copy)]
pub struct PortalOwner(pub Principal);

macro_rules! user_role {
    ($identity:ident, $role:expr, $schemes:expr, $absent:expr, $is_known:pat) => {
        impl Identity for $identity {
            const SCHEMES: &'static [Scheme] = $schemes;
            const ABSENT: Code = $absent;

            fn of(request: &Request) -> Result<Self, ApiError> {
                let principal = request.extensions().get::<Principal>().filter(|p| matches!(p.who, $is_known));
                let principal = principal.copied().ok_or_else(|| ApiError::new(Self::ABSENT))?;
                if principal.may($role) { Ok(Self(principal)) } else { Err(ApiError::new(Code::Forbidden)) }
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

user_role!(ClientOperator, UserRole::Operator, CLIENT, Code::Unauthorized, _);
user_role!(ClientOwner, UserRole::Owner, CLIENT, Code::Unauthorized, _);
user_role!(PortalUser, UserRole::Viewer, PORTAL, Code::InvalidToken, Who::User { .. });
user_role!(PortalOwner, UserRole::Owner, PORTAL, Code::InvalidToken, Who::User { .. });

const OPERATOR: &[Scheme] = &[Scheme::Bearer("OperatorToken", "An operator's token.")];

/// Any operator: may read.
impl Identity for Operator {
    const SCHEMES: &'static [Scheme] = OPERATOR;
    const ABSENT: Code = Code::Unauthorized;
}

/// An operator who may change everything.
#[derive(Debug, Clone, Copy)]
pub struct Admin(pub Operator);

/// An operator who may move money.
#[derive(Debug, Clone, Copy)]
pub struct Finance(pub Operator);

/// An operator who may read the log's own entries.
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

/// The caller: `caller: Caller`, as the first argument, so that an unknown one learns nothing from
/// how the rest of the request is read.
///
/// # Errors
/// 401 if no middleware left a principal, 403 if it is one that may not do this, 400 if the request has query
/// parameters that the operation does not have.
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
