//! Request bodies: read up to a limit, then parsed strictly.

use std::future::Future;

use futures::TryStreamExt;
use poem::{Body, Request, RequestBody};
use poem_openapi::payload::{ParsePayload, Payload};
use poem_openapi::registry::{MetaMediaType, MetaRequest, MetaSchemaRef, Registry};
use poem_openapi::types::Type;
use poem_openapi::{ApiExtractor, ApiExtractorType, ExtractParamOptions, impl_apirequest_for_payload};

use super::error::{ApiError, Code, JSON};
use super::fields::{self, FromFields};

/// Maximum size of a body in bytes, unless the operation sets another limit.
pub const DEFAULT_LIMIT: usize = 1 << 20;
/// Maximum size of a body under `/auth`, in bytes. It is small because these bodies are read before the caller is known.
pub const SESSION_LIMIT: usize = 16 << 10;
/// Maximum size of a supplier's notice, in bytes. It is read before the supplier is known.
pub const NOTICE_LIMIT: usize = 64 << 10;

/// A JSON body of at most `LIMIT` bytes. `T` defines the schema, and `T::from_fields` reads it.
///
/// # Errors
///
/// 415 for another Content-Type, 413 over the limit, 400 as described at [`fields::parse`].
#[derive(Debug, Clone)]
pub struct StrictJson<T, const LIMIT: usize = DEFAULT_LIMIT>(pub T);

/// An optional JSON body. An empty body, of any Content-Type, reads as `{}`. With `ANY_TYPE`, the Content-Type is not checked
/// at all: clients of an operation that had no fields before may send `{}` with any.
#[derive(Debug, Clone)]
pub struct OptionalJson<T, const ANY_TYPE: bool = false>(pub T);

/// An operation without fields: the body is empty or `{}`. Any field is refused by name, as in every other operation.
#[derive(Debug, Clone, Copy)]
pub struct NoFields;

impl FromFields for NoFields {
    fn from_fields(_: &mut fields::Fields<'_>) -> Self {
        Self
    }
}

/// Reads a body into memory. It stops at the first byte over the limit, regardless of `Content-Length` and chunking.
///
/// # Errors
///
/// 413 over the limit; 400 if the connection breaks off.
pub async fn read(body: Body, limit: usize) -> Result<Vec<u8>, ApiError> {
    let mut chunks = std::pin::pin!(body.into_bytes_stream());
    let mut bytes = Vec::new();
    let broken = |_| ApiError::new(Code::MalformedJson).message("The request body is incomplete.");
    while let Some(chunk) = chunks.try_next().await.map_err(broken)? {
        if chunk.len() > limit - bytes.len() {
            let message = format!("The request body exceeds its limit of {limit} bytes.");
            return Err(ApiError::new(Code::PayloadTooLarge).message(message));
        }
        bytes.extend_from_slice(&chunk);
    }
    Ok(bytes)
}

/// Returns whether the Content-Type is JSON's, parameters aside.
pub(super) fn is_json(content_type: &str) -> bool {
    let essence = content_type.split(';').next().unwrap_or_default();
    essence.trim().eq_ignore_ascii_case(JSON)
}

impl<T: Type + FromFields, const LIMIT: usize> Payload for StrictJson<T, LIMIT> {
    const CONTENT_TYPE: &'static str = JSON;

    fn check_content_type(content_type: &str) -> bool {
        is_json(content_type)
    }

    fn schema_ref() -> MetaSchemaRef {
        T::schema_ref()
    }

    fn register(registry: &mut Registry) {
        T::register(registry);
        fields::describe::<T>(registry);
    }
}

impl<T: FromFields + Send, const LIMIT: usize> ParsePayload for StrictJson<T, LIMIT> {
    const IS_REQUIRED: bool = true;

    fn from_request(_: &Request, body: &mut RequestBody) -> impl Future<Output = poem::Result<Self>> + Send {
        let body = body.take();
        async move { Ok(Self(fields::parse(&read(body?, LIMIT).await?)?)) }
    }
}

impl_apirequest_for_payload!(StrictJson<T, LIMIT>, T: Type + FromFields, const LIMIT: usize);

impl<'a> ApiExtractor<'a> for NoFields {
    const TYPES: &'static [ApiExtractorType] = &[ApiExtractorType::PoemExtractor];
    type ParamType = ();
    type ParamRawType = ();

    async fn from_request(_: &'a Request, body: &mut RequestBody, _: ExtractParamOptions<()>) -> poem::Result<Self> {
        let bytes = read(body.take()?, DEFAULT_LIMIT).await?;
        if bytes.is_empty() { Ok(Self) } else { Ok(fields::parse(&bytes)?) }
    }
}

impl<'a, T: Type + FromFields, const ANY_TYPE: bool> ApiExtractor<'a> for OptionalJson<T, ANY_TYPE> {
    const TYPES: &'static [ApiExtractorType] = &[ApiExtractorType::RequestObject];
    type ParamType = ();
    type ParamRawType = ();

    fn register(registry: &mut Registry) {
        T::register(registry);
        fields::describe::<T>(registry);
    }

    fn request_meta() -> Option<MetaRequest> {
        Some(MetaRequest {
            description: None,
            content: vec![MetaMediaType { content_type: JSON, schema: T::schema_ref() }],
            required: false,
        })
    }

    async fn from_request(request: &'a Request, body: &mut RequestBody, _: ExtractParamOptions<()>) -> poem::Result<Self> {
        let bytes = read(body.take()?, DEFAULT_LIMIT).await?;
        if bytes.is_empty() {
            return Ok(Self(fields::parse(b"{}")?));
        }
        match ANY_TYPE || request.content_type().is_some_and(is_json) {
            true => Ok(Self(fields::parse(&bytes)?)),
            false => Err(ApiError::new(Code::UnsupportedMediaType).into()),
        }
    }
}
