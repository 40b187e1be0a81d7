use ledger_events::AccountId;
use ledger_events::account::{Credential, CredentialIssued};
use ledger_events::restrictions::Restrictions;
use sha2::{Digest, Sha256};

use super::{own, require_permission};
use crate::ledger::batch::NewCredential;
use crate::ledger::commands::prelude::*;
use crate::secrets::rows::{Row, restricted_hash};

#[derive(Clone, Debug)]
pub struct IssueCredential {
    pub account_id: AccountId,
    pub name: String,
    pub api_key: Secret,
    pub api_secret: Secret,
    pub restrictions: Restrictions,
}

impl Handler for IssueCredential {
    fn reads<'a>(&'a self, reads: &mut ReadSet<'a>) {
        reads.streams.accounts.id(self.account_id);
        reads.streams.credentials.new_id();
    }

    fn decide(&self, batch: &mut Batch, context: &CommandContext<'_>) -> Decided {
        let account_id = self.account_id;
        require_permission(batch, account_id, context)?;
        let id = batch.streams.credentials.next_id()?;
        let key_prefix = self.api_key.expose().chars().take(8).collect();
        let hash = |text: &Secret| -> [u8; 32] { Sha256::digest(text.expose().as_bytes()).into() };
        let (key_hash, mut secret_hash) = (hash(&self.api_key), hash(&self.api_secret));
        let restrictions = &self.restrictions;
        if restrictions.has_expired_at(batch.head.recorded_at) {
            return Err(Rejection::InvalidField { field: "expires_at", problem: "must be in the future" }.into());
        }
        if !restrictions.are_none() {
            secret_hash = restricted_hash(&secret_hash);
        }
        let row = Row::Credential { id, account_id, key_hash: &key_hash, secret_hash: &secret_hash, restrictions };
        let mac = batch.keyring.row_mac(row)?;
        let event = CredentialIssued {
            account_id,
            name: self.name.clone(),
            key_prefix,
            restrictions: restrictions.clone(),
            row_mac: Some(hex::encode(mac)),
        };
        batch.append::<Credential>(id, event, &context.of_account(account_id));
        batch.pending.credentials.push(NewCredential { id, key_hash, secret_hash, mac });
        Ok(CommandResult::Credential(own(batch, account_id, id)?))
    }
}
