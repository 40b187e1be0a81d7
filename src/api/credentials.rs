//! API credentials, as operators and the portal issue and show them.

use ledger_events::{AccountId, Actor, ShardId, account};
use poem_openapi::Object;
use serde::Serialize;

use super::error::ApiError;
use super::fields::{Fields, FromFields};
use super::outcome::{answered, unexpected};
use super::readers::line;
use super::reply::{Created, NoStore};
use super::state::{ApiState, origin};
use crate::ledger::{CommandResult, WriteError, commands};
use crate::secrets::seal::{Secret, random_secret};

/// Maximum number of keys drawn for one credential. Two keys share their first 8 characters once in billions of draws.
/// The database refuses the second.
const DRAWS: usize = 3;

/// A new API credential.
#[derive(Object)]
pub struct IssueCredential {
    /// Name of the credential, for people to recognize it.
    #[oai(validator(min_length = 1, max_length = 100))]
    pub name: String,
}

impl FromFields for IssueCredential {
    fn from_fields(fields: &mut Fields<'_>) -> Self {
        Self { name: fields.required("name", line(1..=100)) }
    }
}

/// A newly issued credential. Key and secret are shown only in this response.
#[derive(Object, Serialize)]
pub struct IssuedCredential {
    /// Unique identifier of the credential.
    pub id: i64,
    /// API key to send in the `X-API-Key` header. Logs and reports identify it by its first 8 characters.
    pub api_key: String,
    /// API secret to send in the `X-API-Secret` header.
    pub api_secret: String,
}

/// An API credential without its key and secret.
#[derive(Object, Serialize)]
pub struct Credential {
    /// Unique identifier of the credential.
    pub id: i64,
    /// Account that the credential belongs to.
    pub account_id: i64,
    /// Name of the credential, for people to recognize it.
    pub name: String,
    /// First 8 characters of the API key.
    pub key_prefix: String,
    /// Whether the credential is revoked. Requests with a revoked credential are refused.
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

/// Returns 128 random bits as 32 hexadecimal characters.
fn random_key() -> Secret {
    Secret::new(hex::encode(rand::random::<[u8; 16]>()))
}

/// Issues a credential for an account. Key and secret appear only in this response.
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
        let command = commands::IssueCredential {
            account_id,
            name: request.name.clone(),
            api_key: api_key.clone(),
            api_secret: api_secret.clone(),
        };
        let answer = match state.ledger.execute(shard, command, origin(actor)).await {
            Err(WriteError::Refused) if draws_left > 0 => continue,
            answer => answer?,
        };
        let issued = answered!(answer, CommandResult::Credential(credential) => credential)?;
        let (api_key, api_secret) = (api_key.expose().to_owned(), api_secret.expose().to_owned());
        return Ok(NoStore(Created(IssuedCredential { id: issued.id, api_key, api_secret })));
    }
    Err(unexpected())
}
