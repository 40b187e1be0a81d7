use ledger_events::StatementId;
use ledger_events::reconciliation::BankStatement;

use crate::ledger::commands::prelude::*;
use crate::ledger::texts::REVOCATION_REASON;

#[derive(Clone, Debug)]
pub struct RevokeMatchDecision {
    pub statement_id: StatementId,
    pub line: i32,
    pub reason: Secret,
}

impl Handler for RevokeMatchDecision {
    fn reads<'a>(&'a self, reads: &mut ReadSet<'a>) {
        reads.streams.statements.id(self.statement_id);
    }

    fn decide(&self, batch: &mut Batch, context: &CommandContext<'_>) -> Decided {
        let reason = Salted::new(&self.reason);
        let known = batch.streams.statements.find(self.statement_id)?;
        let event = known.revoke(self.line, reason.hash())?;
        let decision_id = known.decisions.get(&self.line).map(|decided| decided.id);
        batch.append::<BankStatement>(self.statement_id, event, context);
        if let Some(decision_id) = decision_id {
            reason.keep(batch, REVOCATION_REASON, decision_id.0)?;
        }
        let statement = batch.streams.statements.find(self.statement_id)?.clone();
        Ok(CommandResult::Statement { statement, is_new: false })
    }
}
