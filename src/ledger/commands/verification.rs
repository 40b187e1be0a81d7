//! The start of a verification, and its end by an operator.

use ledger_events::verification::{VerificationStarted, VerificationStopped};

use crate::ledger::commands::prelude::*;
use crate::ledger::streams::Verification;

/// Records who starts a verification. The id is that of its run.
#[derive(Clone, Debug)]
pub struct StartVerification {
    pub run_id: i64,
}

impl Handler for StartVerification {
    fn reads<'a>(&'a self, reads: &mut ReadSet<'a>) {
        reads.streams.verifications.id(self.run_id);
    }

    fn decide(&self, batch: &mut Batch, context: &CommandContext<'_>) -> Decided {
        batch.append::<Verification>(self.run_id, VerificationStarted {}, context);
        Ok(CommandResult::VerificationStarted)
    }
}

/// Records who stops a verification. A command may have started it; then this is its first event.
#[derive(Clone, Debug)]
pub struct StopVerification {
    pub run_id: i64,
}

impl Handler for StopVerification {
    fn reads<'a>(&'a self, reads: &mut ReadSet<'a>) {
        reads.streams.verifications.id(self.run_id);
    }

    fn decide(&self, batch: &mut Batch, context: &CommandContext<'_>) -> Decided {
        batch.append::<Verification>(self.run_id, VerificationStopped {}, context);
        Ok(CommandResult::VerificationStopped)
    }
}
