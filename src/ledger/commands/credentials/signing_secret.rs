use ledger_events::account::{Credential, HmacRequirementChanged};
use ledger_events::{AccountId, CredentialId};

use super::{keep_signing_secret, own, usable};
use crate::ledger::commands::prelude::*;
use crate::ledger::commands::previous_secret;
use crate::ledger::texts::CREDENTIAL_PREVIOUS_SECRET;
use crate::secrets::SIGNING_SECRET;

/// Sets whether the credential's requests must be signed. A credential without a signing secret gets the new one.
#[derive(Clone, Debug)]
pub struct SetHmacRequired {
    pub account_id: AccountId,
    pub credential_id: CredentialId,
    pub is_required: bool,
    pub new_secret: Secret,
}

impl Handler for SetHmacRequired {
    fn reads<'a>(&'a self, reads: &mut ReadSet<'a>) {
        reads.streams.credentials.id(self.credential_id);
        reads.streams.credentials.query.signing_secrets.insert(self.credential_id);
    }

    fn decide(&self, batch: &mut Batch, context: &CommandContext<'_>) -> Decided {
        let Self { account_id, credential_id: id, is_required, .. } = *self;
        let known = usable(batch, account_id, id)?;
        let mut context = context.of_account(account_id);
        let is_missing = is_required && batch.streams.credentials.index.signing_secrets.get(&id).is_none();
        if is_missing {
            context = context.after(keep_signing_secret(batch, id, &self.new_secret, None, &context)?);
        }
        if known.hmac_required != is_required {
            batch.append::<Credential>(id, HmacRequirementChanged { is_required }, &context);
        }
        let signing_secret = is_missing.then(|| self.new_secret.clone());
        Ok(CommandResult::Signing { credential: own(batch, account_id, id)?, signing_secret, previous_until: None })
    }
}

/// Replaces the signing secret. The account's own people rotate it.
#[derive(Clone, Debug)]
pub struct RotateSigningSecret {
    pub account_id: AccountId,
    pub credential_id: CredentialId,
    pub new_secret: Secret,
    /// Hours for which deliveries are signed with the replaced secret, too. Requests need the new one at once.
    pub previous_valid_hours: Option<i64>,
}

impl Handler for RotateSigningSecret {
    fn reads<'a>(&'a self, reads: &mut ReadSet<'a>) {
        reads.streams.accounts.id(self.account_id);
        reads.streams.credentials.id(self.credential_id);
        reads.streams.credentials.query.signing_secrets.insert(self.credential_id);
        reads.texts.push((CREDENTIAL_PREVIOUS_SECRET, self.credential_id.0));
    }

    fn decide(&self, batch: &mut Batch, context: &CommandContext<'_>) -> Decided {
        let (account_id, id) = (self.account_id, self.credential_id);
        usable(batch, account_id, id)?;
        require_active(batch, account_id)?;
        let sealed = batch.streams.credentials.index.signing_secrets.get(&id);
        let replaced = sealed.map(|sealed| batch.keyring.open_text(SIGNING_SECRET, id.0, sealed)).transpose()?;
        let hours = self.previous_valid_hours;
        let previous_until = previous_secret::keep(batch, (CREDENTIAL_PREVIOUS_SECRET, id.0), replaced, hours)?;
        keep_signing_secret(batch, id, &self.new_secret, previous_until, &context.of_account(account_id))?;
        let signing_secret = Some(self.new_secret.clone());
        Ok(CommandResult::Signing { credential: own(batch, account_id, id)?, signing_secret, previous_until })
    }
}
