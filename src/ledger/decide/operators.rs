//! Operators' tokens.

use ledger_events::Rejection;
use ledger_events::operator::{OperatorEvent, OperatorTokenIssued, OperatorTokenRevoked};

use super::{Decided, Story, new_salt, next};
use crate::ledger::answer::Answer;
use crate::ledger::batch::Batch;
use crate::ledger::command::IssueOperatorToken;
use crate::ledger::operators::{Change, Known};
use crate::ledger::texts::OPERATOR_NAME;
use crate::secrets::rows::Row;

pub(super) fn issue(batch: &mut Batch, token: &IssueOperatorToken, story: Story<'_>) -> Decided {
    let IssueOperatorToken { name, role, token_hash } = token;
    let id = next(batch.ids.operators.pop_front(), "operator")?;
    let name_hash = batch.keep_text(OPERATOR_NAME, id, new_salt(), name)?;
    batch.operators.insert(id, Known::default());
    let mac = batch.keyring.row_mac(Row::Operator { id, role: role.as_str(), token_hash })?;
    let row_mac = Some(hex::encode(mac));
    batch.append(id, OperatorEvent::from(OperatorTokenIssued { role: *role, name_hash, row_mac }), &story);
    let issued_at = batch.recorded_at;
    batch.vault.operators.push(Change::Issue { id, name: name.clone(), role: *role, token_hash: *token_hash, mac, issued_at });
    Ok(Answer::OperatorToken { id })
}

pub(super) fn revoke(batch: &mut Batch, id: i64, story: Story<'_>) -> Decided {
    let known = batch.operators.get_mut(&id).filter(|known| !known.is_revoked).ok_or(Rejection::NotFound)?;
    known.is_revoked = true;
    batch.append(id, OperatorEvent::from(OperatorTokenRevoked {}), &story);
    batch.vault.operators.push(Change::Revoke { id, revoked_at: batch.recorded_at });
    Ok(Answer::OperatorToken { id })
}
