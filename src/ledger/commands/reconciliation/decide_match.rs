use ledger_events::StatementId;
use ledger_events::reconciliation::{BankStatement, Decision};

use crate::ledger::commands::prelude::*;
use crate::ledger::texts::DECISION_REASON;

/// Decides what a line of a statement is. The caller has checked that the funding or payout exists.
#[derive(Clone, Debug)]
pub struct DecideMatch {
    pub statement_id: StatementId,
    pub line: i32,
    pub decision: Decision,
    pub reason: Secret,
}

impl Handler for DecideMatch {
    fn reads<'a>(&'a self, reads: &mut ReadSet<'a>) {
        reads.streams.statements.id(self.statement_id);
        reads.streams.statements.query.decisions.push(self.decision);
        reads.new_ids.decisions += 1;
    }

    fn decide(&self, batch: &mut Batch, context: &CommandContext<'_>) -> Decided {
        let decision_id = batch.ids.decisions.next()?;
        let reason = Salted::new(&self.reason);
        let known = batch.streams.statements.find(self.statement_id)?;
        if let Some(event) = known.decide(decision_id, self.line, self.decision, reason.hash())? {
            let has_it = |other: &BankStatement| other.decisions.values().any(|decided| decided.decision == self.decision);
            if self.decision != Decision::Ignored && batch.streams.statements.values().any(has_it) {
                return Err(Rejection::Conflict("a line of another statement was decided to be this one").into());
            }
            batch.append::<BankStatement>(self.statement_id, event, context);
            reason.keep(batch, DECISION_REASON, decision_id.0)?;
        }
        let statement = batch.streams.statements.find(self.statement_id)?.clone();
        Ok(CommandResult::Statement { statement, is_new: false })
    }
}
