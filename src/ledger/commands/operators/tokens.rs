//! Operators' tokens.

use ledger_events::operator::{OperatorRole, OperatorTokenIssued, OperatorTokenRevoked};

use crate::ledger::commands::prelude::*;
use crate::ledger::operators::{self, Change};
use crate::ledger::streams::Operator;
use crate::ledger::texts::OPERATOR_NAME;
use crate::secrets::rows::Row;

/// Issues a token to an operator. The caller keeps the token itself.
#[derive(Clone, Debug)]
pub struct IssueOperatorToken {
    /// Name of the operator.
    pub name: Secret,
    pub role: OperatorRole,
    pub token_hash: [u8; 32],
}

impl IssueOperatorToken {
    pub fn of(name: &str, role: OperatorRole, token: &Secret) -> IssueOperatorToken {
        IssueOperatorToken { name: Secret::new(name), role, token_hash: operators::hash(token.expose()) }
    }
}

impl Handler for IssueOperatorToken {
    fn reads<'a>(&'a self, reads: &mut ReadSet<'a>) {
        reads.streams.operators.new_id();
    }

    fn decide(&self, batch: &mut Batch, context: &CommandContext<'_>) -> Decided {
        let IssueOperatorToken { name, role, token_hash } = self;
        let id = batch.streams.operators.next_id()?;
        let name_hash = batch.keep_text(OPERATOR_NAME, id, new_salt(), name)?;
        let mac = batch.keyring.row_mac(Row::Operator { id, role: role.as_str(), token_hash })?;
        let event = OperatorTokenIssued { role: *role, name_hash, row_mac: Some(hex::encode(mac)) };
        batch.append::<Operator>(id, event, context);
        let issued_at = batch.head.recorded_at;
        let issue = Change::Issue { id, name: name.clone(), role: *role, token_hash: *token_hash, mac, issued_at };
        batch.pending.operators.push(issue);
        Ok(CommandResult::OperatorToken { id })
    }
}

#[derive(Clone, Debug)]
pub struct RevokeOperatorToken {
    pub id: i64,
}

impl Handler for RevokeOperatorToken {
    fn reads<'a>(&'a self, reads: &mut ReadSet<'a>) {
        reads.streams.operators.id(self.id);
    }

    fn decide(&self, batch: &mut Batch, context: &CommandContext<'_>) -> Decided {
        let known = batch.streams.operators.find(self.id)?;
        if known.is_revoked || known.user.is_some() {
            return Err(Rejection::NotFound.into());
        }
        batch.append::<Operator>(self.id, OperatorTokenRevoked {}, context);
        batch.pending.operators.push(Change::Revoke { id: self.id, revoked_at: batch.head.recorded_at });
        Ok(CommandResult::OperatorToken { id: self.id })
    }
}
