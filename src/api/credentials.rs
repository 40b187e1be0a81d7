//! API credentials, as operators and the portal show and issue them.

use ledger_events::{AccountId, Actor, ShardId, account};
use poem_openapi::Object;
use serde::Serialize;

use super::error::ApiError;
use super::fields::{Fields, FromFields};
use super::outcome::{answered, unexpected};
use super::readers::line;
use super::reply::{Created, NoStore};
use super::state::{ApiState, origin};
use crate::ledger::{Answer, Command, WriteError};
use crate::secrets::seal::{Private, random_secret};

/// How often a key is drawn. Two with the same first 8 characters are one in billions; the
/// database refuses the second.
const DRAWS: usize = 3;

/// A new API key.
#[derive(Object)]
pub struct IssueCredential {
    /// For people.
    #[oai(validator(min_length = 1, max_length = 100))]
    pub name: String,
}

impl FromFields for IssueCredential {
    fn from_fields(fields: &mut Fields<'_>) -> Self {
        Self { name: fields.required("name", line(1..=100)) }
    }
}

/// A credential right after it was issued: the one time that it is shown.
#[derive(Object, Serialize)]
pub struct IssuedCredential {
    /// Its id.
    pub id: i64,
    /// For the header `X-API-Key`. Its first 8 characters name it in logs and reports.
    pub api_key: String,
    /// For the header `X-API-Secret`.
    pub api_secret: String,
}

/// A credential without its key.
#[derive(Object, Serialize)]
pub struct Credential {
    /// Its id.
    pub id: i64,
    /// Whose it is.
    pub account_id: i64,
    /// For people.
    pub name: String,
    /// The key's first 8 characters.
    pub key_prefix: String,
    /// Whether it is of no more use.
    pub is_revoked: bool,
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

/// Issues a key for an account: shown in this answer and never again.
pub async fn issue(
    state: &ApiState,
    shard: ShardId,
    account_id: AccountId,
    request: &IssueCredential,
    actor: Actor,
) -> Result<NoStore<Created<IssuedCredential>>, ApiError> {
    let api_secret = random_secret();
    for draws_left in (0..DRAWS).rev() {
        let api_key = random_key();
        let command = Command::IssueCredential {
            account_id,
            name: request.name.clone(),
            api_key: api_key.clone(),
            api_secret: api_secret.clone(),
        };
        let answer = match state.ledger.execute(shard, command, origin(actor)).await {
            Err(WriteError::Refused) if draws_left > 0 => continue,
            answer => answer?,
        };
        let issued = answered!(answer, Answer::Credential(credential) => credential)?;
        let (api_key, api_secret) = (api_key.expose().to_owned(), api_secret.expose().to_owned());
        return Ok(NoStore(Created(IssuedCredential { id: issued.id, api_key, api_secret })));
    }
    Err(unexpected())
}
