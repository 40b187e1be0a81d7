//! `/admin/v1/credentials`: API credentials of accounts. They are shown once, when they are issued.

use ledger_events::{AccountId, CredentialId, ShardId};
use ledger_projections::accounts;
use poem_openapi::param::Path;
use poem_openapi::{Object, OpenApi};
use serde::Serialize;

use crate::api::body::{NoFields, StrictJson};
use crate::api::credentials::{self, Credential, IssueCredential, IssuedCredential};
use crate::api::error::ApiError;
use crate::api::fields::{Fields, FromFields};
use crate::api::outcome::answered;
use crate::api::principal::{Admin, Caller};
use crate::api::readers::boolean;
use crate::api::reply::{Created, NoStore, Reply};
use crate::api::state::{ApiState, State, Tag, not_found, origin};
use crate::ledger::{CommandResult, commands};
use crate::secrets::seal::random_secret;

/// Change of a credential.
#[derive(Object)]
struct ChangeCredential {
    /// Whether every request with this credential must carry a valid `X-Signature` header.
    hmac_required: bool,
}

impl FromFields for ChangeCredential {
    fn from_fields(fields: &mut Fields<'_>) -> Self {
        Self { hmac_required: fields.required("hmac_required", boolean) }
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

pub struct Credentials;

#[OpenApi(prefix_path = "/admin/v1", tag = "Tag::Accounts")]
impl Credentials {
    /// Issue a credential
    ///
    /// Issues an API key and secret for an account. Both appear only in this response.
    #[oai(path = "/accounts/:id/credentials", method = "post", operation_id = "issue_credential")]
    async fn issue(
        &self,
        caller: Caller<Admin>,
        state: State<'_>,
        /// Unique identifier of the account.
        id: Path<i64>,
        body: StrictJson<IssueCredential>,
    ) -> Result<NoStore<Created<IssuedCredential>>, ApiError> {
        let shard = state.shard_of(id.0).await?;
        credentials::issue(&state, shard, id.0, &body.0, caller.0.0.actor()).await
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
    ) -> Result<NoStore<Reply<CredentialSigning>>, ApiError> {
        let (shard, account_id) = owner(&state, id.0).await?;
        let command = commands::SetHmacRequired {
            account_id,
            credential_id: id.0,
            is_required: body.0.hmac_required,
            new_secret: random_secret(),
        };
        let answer = state.ledger.execute(shard, command, origin(caller.0.0.actor())).await?;
        let (credential, secret) =
            answered!(answer, CommandResult::Signing { credential, signing_secret } => (credential, signing_secret))?;
        Ok(NoStore(Reply(CredentialSigning {
            id: credential.id,
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
        let (shard, account_id) = owner(&state, id.0).await?;
        let command = commands::RevokeCredential { account_id, credential_id: id.0 };
        let answer = state.ledger.execute(shard, command, origin(caller.0.0.actor())).await?;
        Ok(Reply(answered!(answer, CommandResult::Credential(credential) => credential)?.into()))
    }
}

/// Returns the shard and the account of a credential.
async fn owner(state: &ApiState, id: CredentialId) -> Result<(ShardId, AccountId), ApiError> {
    let mut connection = state.ledger.pool().acquire().await?;
    for shard in state.ledger.shards() {
        if let Some(known) = accounts::load_credentials(&mut connection, shard, &[id]).await?.pop() {
            return Ok((shard, known.account_id));
        }
    }
    Err(not_found())
}
