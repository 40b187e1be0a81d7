//! Conditional GET (RFC 9110, 13): a response with a strong ETag, or 304 if the caller already has it.

use poem::http::{HeaderValue, StatusCode, header};
use poem::web::headers::{self, HeaderMapExt};
use poem::{IntoResponse, Request, RequestBody, Response};
use poem_openapi::registry::{MetaParamIn, MetaResponse, MetaResponses, MetaSchema, MetaSchemaRef, Registry};
use poem_openapi::{ApiExtractor, ApiExtractorType, ApiResponse, ExtractParamOptions};
use serde::Serialize;
use sha2::{Digest, Sha256};

use super::error::{ApiError, documented_header};

/// Entity tags that the caller already has, as a handler's argument named `If-None-Match`. A malformed header counts as
/// absent, as RFC 9110 asks for conditions that a server does not understand.
#[derive(Debug, Clone)]
pub struct IfNoneMatch(Option<headers::IfNoneMatch>);

/// A strong, quoted ETag. It changes with the bytes that it identifies.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ETag(String);

impl ETag {
    /// Makes an ETag from a name that is derived from the content: letters, digits and hyphens.
    pub fn named(name: &str) -> Self {
        Self(format!("\"{name}\""))
    }

    /// Makes an ETag from content that is sent as JSON.
    ///
    /// # Errors
    ///
    /// 500 if the content cannot be serialized.
    pub fn of(content: &impl Serialize) -> Result<Self, ApiError> {
        let json = serde_json::to_vec(content).map_err(ApiError::internal)?;
        Ok(Self::named(&hex::encode(&Sha256::digest(json)[..16])))
    }
}

impl IfNoneMatch {
    pub fn has(&self, etag: &ETag) -> bool {
        let etag = etag.0.parse::<headers::ETag>();
        self.0.as_ref().zip(etag.ok()).is_some_and(|(known, etag)| !known.precondition_passes(&etag))
    }
}

/// A response that the caller may cache: 200, or 304 without a body.
#[derive(Debug)]
pub struct Conditional<R> {
    etag: ETag,
    cache_control: &'static str,
    /// `None` if the caller already has it.
    reply: Option<R>,
}

impl<R> Conditional<R> {
    pub fn modified(etag: ETag, cache_control: &'static str, reply: R) -> Self {
        Self { etag, cache_control, reply: Some(reply) }
    }

    pub fn not_modified(etag: ETag, cache_control: &'static str) -> Self {
        Self { etag, cache_control, reply: None }
    }
}

impl<R: IntoResponse> IntoResponse for Conditional<R> {
    fn into_response(self) -> Response {
        let mut response = match self.reply {
            Some(reply) => reply.into_response(),
            None => StatusCode::NOT_MODIFIED.into(),
        };
        let headers = response.headers_mut();
        headers.insert(header::CACHE_CONTROL, HeaderValue::from_static(self.cache_control));
        // An ETag consists of characters that are valid in a header.
        if let Ok(etag) = HeaderValue::from_str(&self.etag.0) {
            headers.insert(header::ETAG, etag);
        }
        response
    }
}

impl<R: ApiResponse> ApiResponse for Conditional<R> {
    fn meta() -> MetaResponses {
        let mut meta = R::meta();
        meta.responses.push(MetaResponse {
            description: "Not modified: your cached copy is current.",
            status: Some(304),
            status_range: None,
            content: vec![],
            headers: vec![],
        });
        for response in &mut meta.responses {
            response.headers.push(documented_header::<String>("ETag", "Entity tag to send as `If-None-Match`."));
            response
                .headers
                .push(documented_header::<String>("Cache-Control", "How long the response may be cached, and by whom."));
        }
        meta
    }

    fn register(registry: &mut Registry) {
        R::register(registry);
    }
}

impl<'a> ApiExtractor<'a> for IfNoneMatch {
    const TYPES: &'static [ApiExtractorType] = &[ApiExtractorType::Parameter];
    type ParamType = Option<String>;
    type ParamRawType = String;

    fn param_in() -> Option<MetaParamIn> {
        Some(MetaParamIn::Header)
    }

    fn param_schema_ref() -> Option<MetaSchemaRef> {
        Some(MetaSchemaRef::Inline(Box::new(MetaSchema::new("string"))))
    }

    async fn from_request(
        request: &'a Request,
        _: &mut RequestBody,
        _: ExtractParamOptions<Self::ParamType>,
    ) -> poem::Result<Self> {
        Ok(Self(request.headers().typed_get()))
    }
}
