//! The optional header `Idempotency-Key` of POST operations.

use poem::{Request, RequestBody};
use poem_openapi::registry::{MetaParamIn, MetaSchema, MetaSchemaRef};
use poem_openapi::{ApiExtractor, ApiExtractorType, ExtractParamOptions};
use serde::Serialize;
use sha2::digest::Update;
use sha2::{Digest, Sha256};

use super::error::ApiError;
use super::outcome::Render;
use crate::access::{Operator, Principal};
use crate::ledger::Idempotency;

const HEADER: &str = "Idempotency-Key";
const MAX_CHARACTERS: usize = 255;

/// The idempotency key of a request, if it has one: 1 to 255 printable ASCII characters. Handlers take it as an argument
/// named `Idempotency-Key`.
///
/// # Errors
/// 400 for any other value and for more than one header, because a key that is ignored would protect nothing.
#[derive(Debug, Clone)]
pub struct IdempotencyKey(Option<String>);

impl IdempotencyKey {
    /// Returns the data that the writer needs to replay the first response to a repeated request. The key's scope is the
    /// account, the method (POST) and the path. Two requests are equal if their parsed forms are.
    ///
    /// # Errors
    /// 500 if the request cannot be serialized.
    pub fn of(
        &self,
        caller: &Principal,
        path: &str,
        request: &impl Serialize,
        render: Render,
    ) -> Result<Option<Idempotency>, ApiError> {
        self.within(&caller.account_id.0.to_be_bytes(), path, request, render)
    }

    /// Returns the data for a request of an operator. The key's scope is the operator, the method (POST) and the path.
    ///
    /// # Errors
    /// 500 if the request cannot be serialized.
    pub fn of_operator(
        &self,
        caller: Operator,
        path: &str,
        request: &impl Serialize,
        render: Render,
    ) -> Result<Option<Idempotency>, ApiError> {
        self.within(caller.actor().to_string().as_bytes(), path, request, render)
    }

    fn within(
        &self,
        scope: &[u8],
        path: &str,
        request: &impl Serialize,
        render: Render,
    ) -> Result<Option<Idempotency>, ApiError> {
        let Some(key) = &self.0 else { return Ok(None) };
        // An account is eight bytes and an operator is a longer text, and no later part contains the newline that separates
        // it from the next. So different keys never hash the same text.
        let key_hash = Sha256::new().chain(scope).chain(b"\nPOST\n").chain(path).chain(b"\n").chain(key).finalize();
        let request = serde_json::to_vec(request).map_err(ApiError::internal)?;
        let fingerprint = Sha256::digest(request).into();
        Ok(Some(Idempotency { key_hash: key_hash.into(), fingerprint, render, renderer: None }))
    }
}

impl<'a> ApiExtractor<'a> for IdempotencyKey {
    const TYPES: &'static [ApiExtractorType] = &[ApiExtractorType::Parameter];
    type ParamType = Option<String>;
    type ParamRawType = String;

    fn param_in() -> Option<MetaParamIn> {
        Some(MetaParamIn::Header)
    }

    fn param_schema_ref() -> Option<MetaSchemaRef> {
        let schema = MetaSchema {
            min_length: Some(1),
            max_length: Some(MAX_CHARACTERS),
            // HTTP strips spaces around a header value, so the pattern excludes them.
            pattern: Some("^[!-~]([ -~]*[!-~])?$".to_owned()),
            ..MetaSchema::new("string")
        };
        Some(MetaSchemaRef::Inline(Box::new(schema)))
    }

    async fn from_request(
        request: &'a Request,
        _: &mut RequestBody,
        _: ExtractParamOptions<Self::ParamType>,
    ) -> poem::Result<Self> {
        let mut given = request.headers().get_all(HEADER).iter();
        let invalid = |what: &str| ApiError::invalid(HEADER, what);
        let Some(key) = given.next() else { return Ok(Self(None)) };
        if given.next().is_some() {
            return Err(invalid("is given more than once").into());
        }
        let key = key.as_bytes();
        let is_good = (1..=MAX_CHARACTERS).contains(&key.len()) && key.iter().all(|byte| (b' '..=b'~').contains(byte));
        match std::str::from_utf8(key) {
            Ok(key) if is_good => Ok(Self(Some(key.to_owned()))),
            _ => Err(invalid("must be 1 to 255 printable ASCII characters").into()),
        }
    }
}
