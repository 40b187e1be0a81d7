//! API credentials and their signing secrets.

mod issue;
mod revoke;
mod signing_secret;

use chrono::{DateTime, Utc};
use ledger_events::account::{Credential, SigningSecretRotated};
use ledger_events::{AccountId, Actor, CredentialId};
use uuid::Uuid;

pub use issue::IssueCredential;
pub use revoke::RevokeCredential;
pub use signing_secret::{RotateSigningSecret, SetHmacRequired};

use crate::ledger::commands::prelude::*;
use crate::secrets::SIGNING_SECRET;
use crate::secrets::rows::Row;
use crate::secrets::seal::SealError;

/// Makes a secret the signing secret of a credential, from the next request and delivery on. Returns the event's id.
pub(super) fn keep_signing_secret(
    batch: &mut Batch,
    id: CredentialId,
    secret: &Secret,
    previous_until: Option<DateTime<Utc>>,
    context: &CommandContext<'_>,
) -> Result<Uuid, SealError> {
    let sealed = batch.keyring.seal(SIGNING_SECRET, id.0, secret.expose().as_bytes())?;
    let mac = batch.keyring.row_mac(Row::SigningSecret { id, secret: secret.expose() })?;
    let rotated = SigningSecretRotated { secret_mac: Some(hex::encode(mac)), previous_until };
    let event_id = batch.append::<Credential>(id, rotated, context);
    batch.streams.credentials.index.signing_secrets.insert(id, sealed.clone());
    batch.pending.signing_secrets.push((id, sealed, mac));
    Ok(event_id)
}

/// Returns the account's own credential.
fn own(batch: &Batch, account_id: AccountId, id: CredentialId) -> Result<Credential, Rejection> {
    let known = batch.streams.credentials.get(id).filter(|credential| credential.account_id == account_id);
    known.cloned().ok_or(Rejection::NotFound)
}

/// Returns the account's own credential if it is not revoked. Deliveries go on with a revoked credential's last secret, so
/// that one stays as it is.
fn usable(batch: &Batch, account_id: AccountId, id: CredentialId) -> Result<Credential, Rejection> {
    match own(batch, account_id, id)? {
        credential if credential.is_revoked => Err(Rejection::Conflict("the credential is revoked")),
        credential => Ok(credential),
    }
}

/// Lets operators change any account's credentials, and an account's own people while it is active.
fn require_permission(batch: &Batch, account_id: AccountId, context: &CommandContext<'_>) -> Result<(), Rejection> {
    match context.origin.actor {
        Actor::Credential(_) | Actor::User(_) => require_active(batch, account_id),
        Actor::Operator(_) | Actor::Fulfilment | Actor::Replay | Actor::Sandbox | Actor::Service => {
            batch.streams.accounts.find(account_id).map(drop)
        }
    }
}
