//! `/client/api/api-keys`: management of an account's API keys by its users.

use std::collections::HashMap;

use chrono::{DateTime, Utc};
use ledger_events::{CredentialId, account};
use ledger_projections::accounts;
use poem_openapi::param::{Path, Query};
use poem_openapi::{Object, OpenApi};
use serde::Serialize;

use super::body::{NoFields, OptionalJson, StrictJson};
use super::credentials::{self, IssueCredential, IssuedCredential, KeyScope};
use super::error::ApiError;
use super::fields::body;
use super::idempotency::IdempotencyKey;
use super::outcome::{answered, made, unexpected};
use super::page::Page;
use super::principal::{Caller, PortalOwner, PortalUser};
use super::readers::integer;
use super::reply::{Created, Listed, Plural, Reply, Revealing};
use super::scalars::Timestamp;
use super::state::{State, Tag, listed, not_found, origin, rows_of};
use crate::access::last_used;
use crate::ledger::previous_secret::MAX_HOURS;
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
    /// Operations that the API key may use; null means all.
    scopes: Option<Vec<KeyScope>>,
    /// Time from which on requests with the API key are refused; null means never.
    expires_at: Option<Timestamp>,
    /// Networks that requests with the API key may come from; null means any.
    allowed_networks: Option<Vec<String>>,
    /// Time of the last request with the API key, exact to about a minute; null if there was none yet.
    last_used_at: Option<Timestamp>,
    /// Time at which the API key was created.
    created_at: Timestamp,
}

impl Plural for ApiKey {
    const PLURAL: &'static str = "api_keys";
}

impl ApiKey {
    fn of(credential: account::Credential, last_used: &HashMap<CredentialId, DateTime<Utc>>) -> Self {
        let restrictions = credential.restrictions;
        let networks: Vec<String> = restrictions.allowed_networks.iter().map(ToString::to_string).collect();
        Self {
            id: credential.id.0,
            name: credential.name,
            key_prefix: credential.key_prefix,
            hmac_required: credential.hmac_required,
            is_revoked: credential.is_revoked,
            scopes: restrictions.scopes.map(|scopes| scopes.iter().map(KeyScope::from).collect()),
            expires_at: restrictions.expires_at.map(Into::into),
            allowed_networks: (!networks.is_empty()).then_some(networks),
            last_used_at: last_used.get(&credential.id).copied().map(Into::into),
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
    /// Time up to which deliveries are signed with the replaced secret, too. Null if it stopped at once.
    previous_valid_until: Option<Timestamp>,
    /// Time of the rotation.
    rotated_at: Timestamp,
}

body! {
    /// Details of the rotation of a signing secret.
    #[derive(Object, Serialize)]
    struct RotateSecret {
        /// Hours for which deliveries are signed with the replaced secret, too, in the header `X-Signature-Previous`. Without it,
        /// they are signed with the new one alone.
        previous_valid_hours: Option<i64> = optional(integer(1..=MAX_HOURS)),
    }
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
        let pool = state.ledger.pool();
        let found = accounts::list_credentials(pool, caller.0.account_id, rows_of(page)).await?;
        let ids: Vec<CredentialId> = found.rows.iter().map(|credential| credential.id).collect();
        let last_used = last_used(pool, &ids).await?;
        Ok(listed(found, page, |credential| ApiKey::of(credential, &last_used)))
    }

    /// Retrieve an API key
    ///
    /// Returns an API key of the account, revoked or not, without its secret.
    #[oai(path = "/api-keys/:id", method = "get", operation_id = "get_api_key")]
    async fn get(
        &self,
        caller: Caller<PortalUser>,
        state: State<'_>,
        /// Unique identifier of the API key.
        id: Path<i64>,
    ) -> Result<Reply<ApiKey>, ApiError> {
        let pool = state.ledger.pool();
        let found = accounts::find_credential(pool, caller.0.account_id, CredentialId(id.0)).await?;
        let credential = found.ok_or_else(not_found)?;
        let last_used = last_used(pool, &[credential.id]).await?;
        Ok(Reply(ApiKey::of(credential, &last_used)))
    }

    /// Create an API key
    ///
    /// Creates an API key for the account. Key and secret are shown only in this response. `scopes`, `expires_at` and
    /// `allowed_networks` restrict the key; they cannot be changed later. Returns 409 `E_ALREADY_CREATED` for a repeated
    /// request with the same `Idempotency-Key`. Requires the role owner.
    #[oai(path = "/api-keys", method = "post", operation_id = "create_api_key")]
    async fn create(
        &self,
        caller: Caller<PortalOwner>,
        state: State<'_>,
        /// Unique key that makes retries safe: a repeated request with the same key creates nothing, and returns 409.
        #[oai(name = "Idempotency-Key")]
        key: IdempotencyKey,
        body: StrictJson<IssueCredential>,
    ) -> Result<Revealing<Created<IssuedCredential>>, ApiError> {
        let caller = caller.0;
        let idempotency = key.of(&caller, "/client/api/api-keys", &body.0, made)?;
        credentials::issue(&state, caller.shard_id, caller.account_id, &body.0, caller.actor(), idempotency).await
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
        let command = commands::RevokeCredential { account_id: caller.account_id, credential_id: CredentialId(id.0) };
        let answer = state.ledger.execute(caller.shard_id, command, origin(caller.actor())).await?;
        let revoked = answered!(answer, CommandResult::Credential(credential) => credential)?;
        let last_used = last_used(state.ledger.pool(), &[revoked.id]).await?;
        Ok(Reply(ApiKey::of(revoked, &last_used)))
    }

    /// Rotate a signing secret
    ///
    /// Replaces the signing secret of an API key. Requests with the key, and deliveries of webhooks linked to it, are signed
    /// with the new secret from now on. The secret is shown only in this response. Requires the role owner.
    ///
    /// With `previous_valid_hours`, deliveries carry a second signature for that time, made with the replaced secret, in the
    /// header `X-Signature-Previous`. Requests need the new secret at once.
    #[oai(path = "/api-keys/:id/rotate-signing-secret", method = "post", operation_id = "rotate_signing_secret")]
    async fn rotate(
        &self,
        caller: Caller<PortalOwner>,
        state: State<'_>,
        /// Unique identifier of the API key.
        id: Path<i64>,
        body: OptionalJson<RotateSecret, true>,
    ) -> Result<Revealing<Reply<RotatedSecret>>, ApiError> {
        let (caller, previous_valid_hours) = (caller.0, body.0.previous_valid_hours);
        let (account_id, new_secret) = (caller.account_id, random_secret());
        let credential_id = CredentialId(id.0);
        let command = commands::RotateSigningSecret { account_id, credential_id, new_secret, previous_valid_hours };
        let answer = state.ledger.execute(caller.shard_id, command, origin(caller.actor())).await?;
        let (credential, secret, previous_until) = answered!(answer, CommandResult::Signing { credential, signing_secret, previous_until } => (credential, signing_secret, previous_until))?;
        let secret = secret.ok_or_else(unexpected)?;
        Ok(Revealing(Reply(RotatedSecret {
            credential_id: credential.id.0,
            signing_secret: secret.expose().to_owned(),
            previous_valid_until: previous_until.map(Into::into),
            rotated_at: credential.updated_at.into(),
        })))
    }
}
