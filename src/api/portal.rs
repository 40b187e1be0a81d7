//! `/client/api/api-keys`: management of an account's API keys by its users.

use ledger_events::account;
use ledger_projections::accounts;
use poem_openapi::param::{Path, Query};
use poem_openapi::{Object, OpenApi};
use serde::Serialize;

use super::body::{NoFields, StrictJson};
use super::credentials::{self, IssueCredential, IssuedCredential};
use super::error::ApiError;
use super::outcome::{answered, unexpected};
use super::page::Page;
use super::principal::{Caller, PortalOwner, PortalUser};
use super::reply::{Created, Listed, NoStore, Plural, Reply};
use super::scalars::Timestamp;
use super::state::{State, Tag, listed, origin, rows_of};
use crate::ledger::{CommandResult, commands};
use crate::secrets::seal::random_secret;

/// An API key of the account, without its secret.
#[derive(Object, Serialize)]
struct ApiKey {
    /// Unique identifier of the API key. Webhooks refer to it as `credential_id`.
    id: i64,
    /// Name of the API key, for people to recognize it.
    name: String,
    /// First 8 characters of the API key.
    key_prefix: String,
    /// Whether requests with this API key must have a valid `X-Signature`.
    hmac_required: bool,
    /// Whether the API key is revoked. Requests with a revoked key are refused.
    is_revoked: bool,
    /// Time at which the API key was created.
    created_at: Timestamp,
}

impl Plural for ApiKey {
    const PLURAL: &'static str = "api_keys";
}

impl From<account::Credential> for ApiKey {
    fn from(credential: account::Credential) -> Self {
        Self {
            id: credential.id,
            name: credential.name,
            key_prefix: credential.key_prefix,
            hmac_required: credential.hmac_required,
            is_revoked: credential.is_revoked,
            created_at: credential.created_at.into(),
        }
    }
}

/// A rotated signing secret. It is shown only in this response.
#[derive(Object, Serialize)]
struct RotatedSecret {
    /// Unique identifier of the API key.
    credential_id: i64,
    /// The new signing secret. Requests with the API key, and deliveries of webhooks linked to it, are signed with it from
    /// now on.
    signing_secret: String,
    /// Time of the rotation.
    rotated_at: Timestamp,
}

pub struct Portal;

#[OpenApi(prefix_path = "/client/api", tag = "Tag::ApiKeys")]
impl Portal {
    /// List API keys
    ///
    /// Returns the account's API keys, newest first, revoked ones included.
    #[oai(path = "/api-keys", method = "get", operation_id = "list_api_keys")]
    async fn list(
        &self,
        caller: Caller<PortalUser>,
        state: State<'_>,
        /// Page number, from 1. Default: 1.
        page: Query<Option<i64>>,
        /// Keys per page, 1 to 100. Default: 20.
        limit: Query<Option<i64>>,
    ) -> Result<Listed<ApiKey>, ApiError> {
        let page = Page::of(page.0, limit.0, 20, 100)?;
        let found = accounts::list_credentials(state.ledger.pool(), caller.0.account_id, rows_of(page)).await?;
        Ok(listed(found, page, ApiKey::from))
    }

    /// Create an API key
    ///
    /// Creates an API key for the account. Key and secret are shown only in this response. Requires the role owner.
    #[oai(path = "/api-keys", method = "post", operation_id = "create_api_key")]
    async fn create(
        &self,
        caller: Caller<PortalOwner>,
        state: State<'_>,
        body: StrictJson<IssueCredential>,
    ) -> Result<NoStore<Created<IssuedCredential>>, ApiError> {
        let caller = caller.0;
        credentials::issue(&state, caller.shard_id, caller.account_id, &body.0, caller.actor()).await
    }

    /// Revoke an API key
    ///
    /// Takes effect on the next request with the key. Webhooks linked to the key keep working. Requires the role owner.
    #[oai(path = "/api-keys/:id", method = "delete", operation_id = "revoke_api_key")]
    async fn revoke(
        &self,
        caller: Caller<PortalOwner>,
        state: State<'_>,
        /// Unique identifier of the API key.
        id: Path<i64>,
        _no_fields: NoFields,
    ) -> Result<Reply<ApiKey>, ApiError> {
        let caller = caller.0;
        let command = commands::RevokeCredential { account_id: caller.account_id, credential_id: id.0 };
        let answer = state.ledger.execute(caller.shard_id, command, origin(caller.actor())).await?;
        Ok(Reply(answered!(answer, CommandResult::Credential(credential) => credential)?.into()))
    }

    /// Rotate a signing secret
    ///
    /// Replaces the signing secret of an API key. Requests with the key, and deliveries of webhooks linked to it, are signed
    /// with the new secret from now on. The secret is shown only in this response. Requires the role owner.
    #[oai(path = "/api-keys/:id/rotate-signing-secret", method = "post", operation_id = "rotate_signing_secret")]
    async fn rotate(
        &self,
        caller: Caller<PortalOwner>,
        state: State<'_>,
        /// Unique identifier of the API key.
        id: Path<i64>,
        _no_fields: NoFields,
    ) -> Result<NoStore<Reply<RotatedSecret>>, ApiError> {
        let caller = caller.0;
        let (account_id, new_secret) = (caller.account_id, random_secret());
        let command = commands::RotateSigningSecret { account_id, credential_id: id.0, new_secret };
        let answer = state.ledger.execute(caller.shard_id, command, origin(caller.actor())).await?;
        let (credential, secret) =
            answered!(answer, CommandResult::Signing { credential, signing_secret } => (credential, signing_secret))?;
        let secret = secret.ok_or_else(unexpected)?;
        Ok(NoStore(Reply(RotatedSecret {
            credential_id: credential.id,
            signing_secret: secret.expose().to_owned(),
            rotated_at: credential.updated_at.into(),
        })))
    }
}
