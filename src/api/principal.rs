//! Who is calling, as a handler's first argument: authentication itself is done before, by a
//! middleware that sees the raw bytes; here its outcome is read, and documented.

use poem::{Request, RequestBody};
use poem_openapi::registry::{MetaSecurityScheme, Registry};
use poem_openapi::{ApiExtractor, ApiExtractorType, ExtractParamOptions};

use super::error::{ApiError, Code};
use crate::access::{Operator, Principal, Role};

/// A way to say who is calling, as the document shows it.
#[derive(Debug, Clone, Copy)]
pub enum Scheme {
    /// A header that carries a key: the scheme's name, the header, and what it holds.
    Header(&'static str, &'static str, &'static str),
    /// `Authorization: Bearer`: the scheme's name, and what the token is.
    Bearer(&'static str, &'static str),
}

/// The two headers of an API key. The document asks for both together.
pub const API_KEY: &str = "ApiKey";
pub const API_SECRET: &str = "ApiSecret";

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

impl Identity for Principal {
    const SCHEMES: &'static [Scheme] = &[
        Scheme::Header(API_KEY, "X-API-Key", "The API key. Goes with `X-API-Secret`."),
        Scheme::Header(API_SECRET, "X-API-Secret", "The API key's secret."),
        Scheme::Bearer("AccessToken", "An access token of `POST /auth/login`."),
    ];
    const ABSENT: Code = Code::Unauthorized;
}

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

/// The caller: `caller: Caller`, as the first argument, so that an unknown one learns nothing from
/// how the rest of the request is read.
///
/// # Errors
/// 401 if no middleware left a principal, 403 if it is one that may not do this.
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
        Ok(Self(P::of(request)?))
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
            Scheme::Bearer(name, description) => {
                (name, MetaSecurityScheme { ty: "http", description: Some(description), scheme: Some("bearer"), ..empty })
            }
        }
    }
}
