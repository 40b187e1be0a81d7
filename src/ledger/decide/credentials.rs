//! API credentials: issued, made to be signed with, revoked.

use ledger_events::account::{
    Credential, CredentialEvent, CredentialIssued, CredentialRevoked, HmacRequirementChanged, SigningSecretRotated,
};
use ledger_events::{AccountId, Actor, CredentialId, Rejection};
use sha2::{Digest, Sha256};
use uuid::Uuid;

use super::{Decided, Story, active, next};
use crate::ledger::answer::Answer;
use crate::ledger::batch::{Batch, NewCredential};
use crate::secrets::SIGNING_SECRET;
use crate::secrets::rows::Row;
use crate::secrets::seal::{Private, SealError};

pub(super) fn issue(
    batch: &mut Batch,
    account_id: AccountId,
    name: &str,
    api_key: &Private,
    api_secret: &Private,
    story: Story<'_>,
) -> Decided {
    permitted(batch, account_id, &story)?;
    let id = next(batch.ids.credentials.pop_front(), "credential")?;
    let key_prefix = api_key.expose().chars().take(8).collect();
    let hash = |text: &Private| -> [u8; 32] { Sha256::digest(text.expose().as_bytes()).into() };
    let (key_hash, secret_hash) = (hash(api_key), hash(api_secret));
    let mac = batch.keyring.row_mac(Row::Credential { id, account_id, key_hash: &key_hash, secret_hash: &secret_hash })?;
    let row_mac = Some(hex::encode(mac));
    let event = CredentialEvent::from(CredentialIssued { account_id, name: name.to_owned(), key_prefix, row_mac });
    batch.append(id, event, &Story { account_id: Some(account_id), ..story });
    batch.vault.credentials.push(NewCredential { id, key_hash, secret_hash, mac });
    Ok(Answer::Credential(own(batch, account_id, id)?))
}

pub(super) fn revoke(batch: &mut Batch, account_id: AccountId, id: CredentialId, story: Story<'_>) -> Decided {
    permitted(batch, account_id, &story)?;
    if !own(batch, account_id, id)?.is_revoked {
        batch.append(id, CredentialEvent::from(CredentialRevoked {}), &Story { account_id: Some(account_id), ..story });
    }
    Ok(Answer::Credential(own(batch, account_id, id)?))
}

pub(super) fn set_hmac_required(
    batch: &mut Batch,
    account_id: AccountId,
    id: CredentialId,
    is_required: bool,
    new_secret: &Private,
    story: Story<'_>,
) -> Decided {
    let known = usable(batch, account_id, id)?;
    let mut story = Story { account_id: Some(account_id), ..story };
    let is_missing = is_required && !batch.signing_secrets.contains_key(&id);
    if is_missing {
        let kept = keep_signing_secret(batch, id, new_secret, &story)?;
        story = story.after(kept);
    }
    if known.hmac_required != is_required {
        batch.append(id, CredentialEvent::from(HmacRequirementChanged { is_required }), &story);
    }
    let signing_secret = is_missing.then(|| new_secret.clone());
    Ok(Answer::Signing { credential: own(batch, account_id, id)?, signing_secret })
}

pub(super) fn rotate_signing_secret(
    batch: &mut Batch,
    account_id: AccountId,
    id: CredentialId,
    new_secret: &Private,
    story: Story<'_>,
) -> Decided {
    usable(batch, account_id, id)?;
    active(batch, account_id)?;
    keep_signing_secret(batch, id, new_secret, &Story { account_id: Some(account_id), ..story })?;
    Ok(Answer::Signing { credential: own(batch, account_id, id)?, signing_secret: Some(new_secret.clone()) })
}

/// Makes a secret the one that the credential signs with, from the next request and delivery on; the
/// event that says so.
pub(super) fn keep_signing_secret(
    batch: &mut Batch,
    id: CredentialId,
    secret: &Private,
    story: &Story<'_>,
) -> Result<Uuid, SealError> {
    let sealed = batch.keyring.seal(SIGNING_SECRET, id, secret.expose().as_bytes())?;
    let mac = batch.keyring.row_mac(Row::SigningSecret { id, secret: secret.expose() })?;
    let secret_mac = Some(hex::encode(mac));
    let event_id = batch.append(id, CredentialEvent::from(SigningSecretRotated { secret_mac }), story);
    batch.signing_secrets.insert(id, sealed.clone());
    batch.vault.signing_secrets.push((id, sealed, mac));
    Ok(event_id)
}

fn own(batch: &Batch, account_id: AccountId, id: CredentialId) -> Result<Credential, Rejection> {
    batch.credentials.get(&id).filter(|c| c.account_id == account_id).cloned().ok_or(Rejection::NotFound)
}

/// Deliveries go on with a revoked credential's last secret, so that one stays as it is.
fn usable(batch: &Batch, account_id: AccountId, id: CredentialId) -> Result<Credential, Rejection> {
    match own(batch, account_id, id)? {
        credential if credential.is_revoked => Err(Rejection::Conflict("the credential is revoked")),
        credential => Ok(credential),
    }
}

/// Operators may for any account, its own people for one that is not suspended.
fn permitted(batch: &Batch, account_id: AccountId, story: &Story<'_>) -> Result<(), Rejection> {
    match story.origin.actor {
        Actor::Credential(_) | Actor::User(_) => active(batch, account_id),
        Actor::Operator(_) | Actor::Fulfilment | Actor::Replay | Actor::Sandbox => {
            batch.accounts.get(&account_id).map(|_| ()).ok_or(Rejection::NotFound)
        }
    }
}
