//! `/admin/v1/credentials`: API credentials of accounts. They are shown once, when they are issued.

use std::collections::HashMap;

use chrono::{DateTime, Utc};
use ledger_database::replanned;
use ledger_events::{AccountId, CredentialId, Id, ShardId, account};
use ledger_projections::accounts;
use ledger_projections::state::State as _;
use poem_openapi::param::{Path, Query};
use poem_openapi::{Object, OpenApi};
use serde::Serialize;

use crate::access::{Operator, last_used};
use crate::api::body::{NoFields, StrictJson};
use crate::api::credentials::{self, Credential, IssueCredential, IssuedCredential, KeyScope};
use crate::api::error::ApiError;
use crate::api::fields::body;
use crate::api::idempotency::IdempotencyKey;
use crate::api::outcome::{answered, made};
use crate::api::page::Page;
use crate::api::principal::{Admin, Caller};
use crate::api::readers::boolean;
use crate::api::reply::{Created, Listed, Plural, Reply, Revealing};
use crate::api::scalars::Timestamp;
use crate::api::state::{ApiState, State, Tag, listed, not_found, origin, rows_of};
use crate::ledger::{CommandResult, commands};
use crate::secrets::seal::random_secret;

body! {
    /// Change of a credential.
    #[derive(Object)]
    struct ChangeCredential {
        /// Whether every request with this credential must carry a valid `X-Signature` header.
        hmac_required: bool = required(boolean),
    }
}

/// Signing requirements of a credential.
#[derive(Object, Serialize)]
struct CredentialSigning {
    /// Unique identifier of the credential.
    id: i64,
    /// Whether every request with this credential must carry a valid `X-Signature` header.
    hmac_required: bool,
    /// Secret to sign requests with. Present only in the response that creates it.
    signing_secret: Option<String>,
}

/// An API credential of an account, without its key and secret.
#[derive(Object, Serialize)]
struct AccountCredential {
    #[oai(flatten)]
    #[serde(flatten)]
    credential: Credential,
    /// Whether every request with this credential must carry a valid `X-Signature` header.
    hmac_required: bool,
    /// Operations that the credential may use; null means all.
    scopes: Option<Vec<KeyScope>>,
    /// Time from which on requests with the credential are refused; null means never.
    expires_at: Option<Timestamp>,
    /// Networks that requests with the credential may come from; null means any.
    allowed_networks: Option<Vec<String>>,
    /// Time of the last request with the credential, exact to about a minute; null if there was none yet.
    last_used_at: Option<Timestamp>,
    /// Time at which the credential was issued.
    created_at: Timestamp,
    /// Time of the credential's latest change.
    updated_at: Timestamp,
}

impl Plural for AccountCredential {
    const PLURAL: &'static str = "credentials";
}

impl AccountCredential {
    fn of(credential: account::Credential, last_used: &HashMap<CredentialId, DateTime<Utc>>) -> Self {
        let restrictions = &credential.restrictions;
        let networks: Vec<String> = restrictions.allowed_networks.iter().map(ToString::to_string).collect();
        Self {
            hmac_required: credential.hmac_required,
            scopes: restrictions.scopes.as_ref().map(|scopes| scopes.iter().map(KeyScope::from).collect()),
            expires_at: restrictions.expires_at.map(Into::into),
            allowed_networks: (!networks.is_empty()).then_some(networks),
            last_used_at: last_used.get(&credential.id).copied().map(Into::into),
            created_at: credential.created_at.into(),
            updated_at: credential.updated_at.into(),
            credential: credential.into(),
        }
    }
}

pub struct Credentials;

#[OpenApi(prefix_path = "/admin/v1", tag = "Tag::Accounts")]
impl Credentials {
    /// Issue a credential
    ///
    /// Issues an API key and secret for an account. Both appear only in this response. Returns 409 `E_ALREADY_CREATED` for a
    /// repeated request with the same `Idempotency-Key`.
    #[oai(path = "/accounts/:id/credentials", method = "post", operation_id = "issue_credential")]
    async fn issue(
        &self,
        caller: Caller<Admin>,
        state: State<'_>,
        /// Unique identifier of the account.
        id: Path<i64>,
        /// Unique key that makes retries safe: a repeated request with the same key creates nothing, and returns 409.
        #[oai(name = "Idempotency-Key")]
        key: IdempotencyKey,
        body: StrictJson<IssueCredential>,
    ) -> Result<Revealing<Created<IssuedCredential>>, ApiError> {
        let id = AccountId(id.0);
        let (shard, caller) = (state.shard_of(id).await?, caller.0.0);
        let idempotency = key.of_operator(caller, &format!("/admin/v1/accounts/{}/credentials", id.0), &body.0, made)?;
        credentials::issue(&state, shard, id, &body.0, caller.actor(), idempotency).await
    }

    /// List an account's credentials
    ///
    /// Returns the API credentials of an account, newest first, revoked ones included.
    #[oai(path = "/accounts/:id/credentials", method = "get", operation_id = "list_credentials")]
    async fn list(
        &self,
        _caller: Caller<Operator>,
        state: State<'_>,
        /// Unique identifier of the account.
        id: Path<i64>,
        /// Page number, from 1. Default: 1.
        page: Query<Option<i64>>,
        /// Credentials per page, 1 to 100. Default: 20.
        limit: Query<Option<i64>>,
    ) -> Result<Listed<AccountCredential>, ApiError> {
        let page = Page::of(page.0, limit.0, 20, 100)?;
        state.shard_of(AccountId(id.0)).await?;
        let pool = state.ledger.pool();
        let found = accounts::list_credentials(pool, AccountId(id.0), rows_of(page)).await?;
        let ids: Vec<CredentialId> = found.rows.iter().map(|credential| credential.id).collect();
        let last_used = last_used(pool, &ids).await?;
        Ok(listed(found, page, |credential| AccountCredential::of(credential, &last_used)))
    }

    /// Retrieve a credential of an account
    ///
    /// Returns an API credential, revoked or not, without its key and secret.
    #[oai(path = "/accounts/:id/credentials/:credential_id", method = "get", operation_id = "get_credential")]
    async fn get(
        &self,
        _caller: Caller<Operator>,
        state: State<'_>,
        /// Unique identifier of the account.
        id: Path<i64>,
        /// Unique identifier of the credential.
        credential_id: Path<i64>,
    ) -> Result<Reply<AccountCredential>, ApiError> {
        let pool = state.ledger.pool();
        let found = accounts::find_credential(pool, AccountId(id.0), CredentialId(credential_id.0)).await?;
        let credential = found.ok_or_else(not_found)?;
        let last_used = last_used(pool, &[credential.id]).await?;
        Ok(Reply(AccountCredential::of(credential, &last_used)))
    }

    /// Require or waive request signatures
    ///
    /// Takes effect with the next request. A credential without a signing secret gets one, which appears only in this
    /// response. To replace a lost secret, rotate it.
    #[oai(path = "/credentials/:id", method = "put", operation_id = "change_credential")]
    async fn change(
        &self,
        caller: Caller<Admin>,
        state: State<'_>,
        /// Unique identifier of the credential.
        id: Path<i64>,
        body: StrictJson<ChangeCredential>,
    ) -> Result<Revealing<Reply<CredentialSigning>>, ApiError> {
        let id = CredentialId(id.0);
        let (shard, account_id) = owner(&state, id).await?;
        let command = commands::SetHmacRequired {
            account_id,
            credential_id: id,
            is_required: body.0.hmac_required,
            new_secret: random_secret(),
        };
        let answer = state.ledger.execute(shard, command, origin(caller.0.0.actor())).await?;
        let (credential, secret) =
            answered!(answer, CommandResult::Signing { credential, signing_secret, .. } => (credential, signing_secret))?;
        Ok(Revealing(Reply(CredentialSigning {
            id: credential.id.0,
            hmac_required: credential.hmac_required,
            signing_secret: secret.map(|secret| secret.expose().to_owned()),
        })))
    }

    /// Revoke a credential
    ///
    /// Takes effect with the next request. Webhooks linked to the credential stay active.
    #[oai(path = "/credentials/:id", method = "delete", operation_id = "revoke_credential")]
    async fn revoke(
        &self,
        caller: Caller<Admin>,
        state: State<'_>,
        /// Unique identifier of the credential.
        id: Path<i64>,
        _no_fields: NoFields,
    ) -> Result<Reply<Credential>, ApiError> {
        let id = CredentialId(id.0);
        let (shard, account_id) = owner(&state, id).await?;
        let command = commands::RevokeCredential { account_id, credential_id: id };
        let answer = state.ledger.execute(shard, command, origin(caller.0.0.actor())).await?;
        Ok(Reply(answered!(answer, CommandResult::Credential(credential) => credential)?.into()))
    }
}

/// Returns the shard and the account of a credential.
async fn owner(state: &ApiState, id: CredentialId) -> Result<(ShardId, AccountId), ApiError> {
    let pool = state.ledger.pool();
    for shard in id.shards_among(&state.ledger.shards()) {
        let load = async || account::Credential::load(&mut *pool.acquire().await?, shard, &[id]).await;
        if let Some(known) = replanned(load).await?.pop() {
            return Ok((shard, known.account_id));
        }
    }
    Err(not_found())
}
