use ledger_events::account::{Credential, CredentialRevoked};
use ledger_events::{AccountId, CredentialId};

use super::{own, require_permission};
use crate::ledger::commands::prelude::*;

#[derive(Clone, Debug)]
pub struct RevokeCredential {
    pub account_id: AccountId,
    pub credential_id: CredentialId,
}

impl Handler for RevokeCredential {
    fn reads<'a>(&'a self, reads: &mut ReadSet<'a>) {
        reads.streams.accounts.id(self.account_id);
        reads.streams.credentials.id(self.credential_id);
    }

    fn decide(&self, batch: &mut Batch, context: &CommandContext<'_>) -> Decided {
        let (account_id, id) = (self.account_id, self.credential_id);
        require_permission(batch, account_id, context)?;
        if !own(batch, account_id, id)?.is_revoked {
            batch.append::<Credential>(id, CredentialRevoked {}, &context.of_account(account_id));
        }
        Ok(CommandResult::Credential(own(batch, account_id, id)?))
    }
}
