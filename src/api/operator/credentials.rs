//! API credentials: issued to accounts, shown once, revoked.

use ledger_events::{AccountId, CredentialId, ShardId, account};
use ledger_projections::accounts;
use poem_openapi::param::Path;
use poem_openapi::{Object, OpenApi};
use serde::Serialize;

use crate::access::seal::{Private, random_secret};
use crate::api::body::StrictJson;
use crate::api::error::ApiError;
use crate::api::fields::{Fields, FromFields};
use crate::api::outcome::{answered, unexpected};
use crate::api::principal::{Admin, Caller};
use crate::api::readers::{boolean, line};
use crate::api::reply::{Created, NoStore, Reply};
use crate::api::state::{ApiState, State, Tag, not_found, origin};
use crate::ledger::{Answer, Command, WriteError};

/// How often a key is drawn. Two with the same first 8 characters are one in billions; the
/// database refuses the second.
const DRAWS: usize = 3;

/// A new API key.
#[derive(Object)]
struct IssueCredential {
    /// For people.
    #[oai(validator(min_length = 1, max_length = 100))]
    name: String,
}

impl FromFields for IssueCredential {
    fn from_fields(fields: &mut Fields<'_>) -> Self {
        Self { name: fields.required("name", line(1..=100)) }
    }
}

/// A credential right after it was issued: the one time that it is shown.
#[derive(Object, Serialize)]
struct IssuedCredential {
    /// Its id.
    id: i64,
    /// For the header `X-API-Key`. Its first 8 characters name it in logs and reports.
    api_key: String,
    /// For the header `X-API-Secret`.
    api_secret: String,
}

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

/// A credential without its key.
#[derive(Object, Serialize)]
struct Credential {
    /// Its id.
    id: i64,
    /// Whose it is.
    account_id: i64,
    /// For people.
    name: String,
    /// The key's first 8 characters.
    key_prefix: String,
    /// Whether it is of no more use.
    is_revoked: bool,
}

impl From<account::Credential> for Credential {
    fn from(credential: account::Credential) -> Self {
        Self {
            id: credential.id,
            account_id: credential.account_id,
            name: credential.name,
            key_prefix: credential.key_prefix,
            is_revoked: credential.is_revoked,
        }
    }
}

/// 128 random bits as 32 hex characters.
fn random_key() -> Private {
    Private::new(hex::encode(rand::random::<[u8; 16]>()))
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
        let api_secret = random_secret();
        for draws_left in (0..DRAWS).rev() {
            let api_key = random_key();
            let command = Command::IssueCredential {
                account_id: id.0,
                name: body.0.name.clone(),
                api_key: api_key.clone(),
                api_secret: api_secret.clone(),
            };
            let answer = match state.ledger.execute(shard, command, origin(caller.0.0.actor())).await {
                Err(WriteError::Refused) if draws_left > 0 => continue,
                answer => answer?,
            };
            let issued = answered!(answer, Answer::Credential(credential) => credential)?;
            let (api_key, api_secret) = (api_key.expose().to_owned(), api_secret.expose().to_owned());
            return Ok(NoStore(Created(IssuedCredential { id: issued.id, api_key, api_secret })));
        }
        Err(unexpected())
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
