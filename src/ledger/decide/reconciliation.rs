//! Importing banks' statements, and deciding about their lines.

use ledger_events::reconciliation::{Decision, ReconciliationEvent, Statement};
use ledger_events::{Rejection, StatementId};

use super::{Decided, Story, new_salt, next};
use crate::ledger::answer::Answer;
use crate::ledger::batch::Batch;
use crate::ledger::command::{DecideMatch, ImportStatement};
use crate::ledger::texts::{DECISION_REASON, REVOCATION_REASON};
use crate::secrets::seal::{Private, salted_hash};

/// The same file again answers the statement that it became.
pub(super) fn import(batch: &mut Batch, command: &ImportStatement, story: Story<'_>) -> Decided {
    let imported = &command.0;
    if let Some(known) = batch.statements.values().find(|known| known.imported.fingerprint == imported.fingerprint) {
        return Ok(Answer::Statement { statement: known.clone(), is_new: false });
    }
    // They were stored before; `erase finish` takes what is no statement's yet.
    if batch.kept_lines.get(&imported.fingerprint) != Some(&imported.lines.into()) {
        return Err(Rejection::Conflict("the file's lines were deleted meanwhile: send it again").into());
    }
    let id = next(batch.ids.statements.pop_front(), "statement")?;
    batch.append(id, ReconciliationEvent::from(imported.clone()), &story);
    Ok(Answer::Statement { statement: statement(batch, id)?, is_new: true })
}

pub(super) fn decide(batch: &mut Batch, command: &DecideMatch, story: Story<'_>) -> Decided {
    let id = next(batch.ids.decisions.pop_front(), "decision")?;
    let (salt, known) = (new_salt(), statement(batch, command.statement_id)?);
    let reason_hash = salted_hash(&salt, command.reason.expose());
    if let Some(event) = known.decide(id, command.line, command.decision, reason_hash)? {
        let has_it = |other: &Statement| other.decisions.values().any(|decided| decided.decision == command.decision);
        if command.decision != Decision::Ignored && batch.statements.values().any(has_it) {
            return Err(Rejection::Conflict("a line of another statement was decided to be this one").into());
        }
        batch.append(known.id, event, &story);
        batch.keep_text(DECISION_REASON, id, salt, &command.reason)?;
    }
    Ok(Answer::Statement { statement: statement(batch, command.statement_id)?, is_new: false })
}

pub(super) fn revoke(batch: &mut Batch, id: StatementId, line: i32, reason: &Private, story: Story<'_>) -> Decided {
    let (salt, known) = (new_salt(), statement(batch, id)?);
    let event = known.revoke(line, salted_hash(&salt, reason.expose()))?;
    batch.append(id, event, &story);
    if let Some(decided) = known.decisions.get(&line) {
        batch.keep_text(REVOCATION_REASON, decided.id, salt, reason)?;
    }
    Ok(Answer::Statement { statement: statement(batch, id)?, is_new: false })
}

fn statement(batch: &Batch, id: StatementId) -> Result<Statement, Rejection> {
    batch.statements.get(&id).cloned().ok_or(Rejection::NotFound)
}
