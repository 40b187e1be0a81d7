use ledger_events::reconciliation::{BankStatement, StatementImported};

use crate::ledger::commands::prelude::*;

/// Imports a statement whose lines are stored already. Importing a file again returns the statement that it became.
#[derive(Clone, Debug)]
pub struct ImportStatement(pub StatementImported);

impl Handler for ImportStatement {
    fn reads<'a>(&'a self, reads: &mut ReadSet<'a>) {
        reads.streams.statements.query.fingerprints.push(&self.0.fingerprint);
        reads.streams.statements.new_id();
    }

    fn decide(&self, batch: &mut Batch, context: &CommandContext<'_>) -> Decided {
        let imported = &self.0;
        let statements = &mut batch.streams.statements;
        if let Some(known) = statements.values().find(|known| known.imported.fingerprint == imported.fingerprint) {
            return Ok(CommandResult::Statement { statement: known.clone(), is_new: false });
        }
        // `erase finish` deletes stored lines that no statement has yet.
        if statements.index.kept_lines.get(&imported.fingerprint) != Some(&imported.lines.into()) {
            return Err(Rejection::Conflict("the file's lines were deleted meanwhile: send it again").into());
        }
        let id = statements.next_id()?;
        batch.append::<BankStatement>(id, imported.clone(), context);
        Ok(CommandResult::Statement { statement: batch.streams.statements.find(id)?.clone(), is_new: true })
    }
}
