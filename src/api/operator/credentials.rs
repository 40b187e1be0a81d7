//! API credentials: issued to accounts, shown once, revoked.

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
use crate::ledger::{Answer, Command};
use crate::secrets::seal::random_secret;

/// A change of a credential.
#[derive(Object)]
struct ChangeCredential {
    /// Whether each request with it must carry a valid `X-Signature`.
    hmac_required: bool,
}

impl FromFields for ChangeCredential {
    fn from_fields(fields: &mut Fields<'_>) -> Self {
        Self { hmac_required: fields.required("hmac_required", boolean) }
    }
}

/// What a credential's requests must carry.
#[derive(Object, Serialize)]
struct CredentialSigning {
    /// Its id.
    id: i64,
    /// Whether each request with it must carry a valid `X-Signature`.
    hmac_required: bool,
    /// The secret to sign with, if it was made now: the one time that it is shown.
    signing_secret: Option<String>,
}

pub struct Credentials;

#[OpenApi(prefix_path = "/admin/v1", tag = "Tag::Accounts")]
impl Credentials {
    /// Issue a credential
    ///
    /// Key and secret are shown in this answer and never again.
    #[oai(path = "/accounts/:id/credentials", method = "post", operation_id = "issue_credential")]
    async fn issue(
        &self,
        caller: Caller<Admin>,
        state: State<'_>,
        /// The account's id.
        id: Path<i64>,
        body: StrictJson<IssueCredential>,
    ) -> Result<NoStore<Created<IssuedCredential>>, ApiError> {
        let shard = state.shard_of(id.0).await?;
        credentials::issue(&state, shard, id.0, &body.0, caller.0.0.actor()).await
    }

    /// Make signatures required, or not
    ///
    /// Counts on the very next request. A credential that has no signing secret yet gets one, which
    /// is shown in this answer and never again; a lost one is replaced by rotating it.
    #[oai(path = "/credentials/:id", method = "put", operation_id = "change_credential")]
    async fn change(
        &self,
        caller: Caller<Admin>,
        state: State<'_>,
        /// The credential's id.
        id: Path<i64>,
        body: StrictJson<ChangeCredential>,
    ) -> Result<NoStore<Reply<CredentialSigning>>, ApiError> {
        let (shard, account_id) = owner(&state, id.0).await?;
        let command = Command::SetHmacRequired {
            account_id,
            credential_id: id.0,
            is_required: body.0.hmac_required,
            new_secret: random_secret(),
        };
        let answer = state.ledger.execute(shard, command, origin(caller.0.0.actor())).await?;
        let (credential, secret) =
            answered!(answer, Answer::Signing { credential, signing_secret } => (credential, signing_secret))?;
        Ok(NoStore(Reply(CredentialSigning {
            id: credential.id,
            hmac_required: credential.hmac_required,
            signing_secret: secret.map(|secret| secret.expose().to_owned()),
        })))
    }

    /// Revoke a credential
    ///
    /// Counts on the very next request. Webhooks linked to it go on.
    #[oai(path = "/credentials/:id", method = "delete", operation_id = "revoke_credential")]
    async fn revoke(
        &self,
        caller: Caller<Admin>,
        state: State<'_>,
        /// The credential's id.
        id: Path<i64>,
        _no_fields: NoFields,
    ) -> Result<Reply<Credential>, ApiError> {
        let (shard, account_id) = owner(&state, id.0).await?;
        let command = Command::RevokeCredential { account_id, credential_id: id.0 };
        let answer = state.ledger.execute(shard, command, origin(caller.0.0.actor())).await?;
        Ok(Reply(answered!(answer, Answer::Credential(credential) => credential)?.into()))
    }
}

/// The shard and the account of a credential that an operator names.
async fn owner(state: &ApiState, id: CredentialId) -> Result<(ShardId, AccountId), ApiError> {
    let mut connection = state.ledger.pool().acquire().await?;
    for shard in state.ledger.shards() {
        if let Some(known) = accounts::load_credentials(&mut connection, shard, &[id]).await?.pop() {
            return Ok((shard, known.account_id));
        }
    }
    Err(not_found())
}
