//! Second factors of operators' users.

use ledger_events::operator::{OperatorTwoFactorEnabled, OperatorTwoFactorRemoved, SignIn};

use super::{Changed, present};
use crate::ledger::commands::prelude::*;
use crate::ledger::operator_users::{EndedSessions, TwoFactorChange, UserRow};
use crate::ledger::streams::Operator;
use crate::ledger::texts::OPERATOR_TOTP;
use crate::secrets::rows::Row;

/// Enables the second factor of a user, whom a code has shown to have the secret. It ends the user's other sessions.
#[derive(Clone, Debug)]
pub struct EnableOperatorTwoFactor {
    pub id: i64,
    pub secret: Secret,
    /// Time step of the code. No code of this step or an earlier one is accepted again.
    pub step: i64,
    /// Keyed hashes.
    pub recovery_codes: Vec<[u8; 32]>,
    /// Session that enables the second factor.
    pub session_id: i64,
}

impl Handler for EnableOperatorTwoFactor {
    fn reads<'a>(&'a self, reads: &mut ReadSet<'a>) {
        reads.streams.operators.id(self.id);
    }

    fn decide(&self, batch: &mut Batch, context: &CommandContext<'_>) -> Decided {
        let row = present(batch, self.id)?;
        if row.sign_in() == SignIn::OpenId {
            return Err(Rejection::Conflict("the identity provider asks for the second factor of this operator").into());
        }
        if row.totp_hash.is_some() {
            return Err(Rejection::Conflict("two-factor authentication is enabled already").into());
        }
        let secret_hash = batch.keep_text(OPERATOR_TOTP, self.id, new_salt(), &self.secret)?;
        let mut codes = Vec::with_capacity(self.recovery_codes.len());
        for code_hash in &self.recovery_codes {
            let mac = batch.keyring.row_mac(Row::OperatorRecoveryCode { operator_id: self.id, code_hash })?;
            codes.push((*code_hash, mac));
        }
        let changed = Changed::new(batch, UserRow { totp_hash: Some(secret_hash.clone()), ..row })?;
        let event = OperatorTwoFactorEnabled { secret_hash, row_mac: changed.mac() };
        batch.append::<Operator>(self.id, event, context);
        let two_factor = TwoFactorChange::Enable { step: self.step, codes };
        Ok(CommandResult::OperatorUser(changed.keep(batch, EndedSessions::AllBut(self.session_id), two_factor)))
    }
}

/// Removes the second factor of a user. Without one, nothing happens.
#[derive(Clone, Debug)]
pub struct RemoveOperatorTwoFactor {
    pub id: i64,
}

impl Handler for RemoveOperatorTwoFactor {
    fn reads<'a>(&'a self, reads: &mut ReadSet<'a>) {
        reads.streams.operators.id(self.id);
    }

    fn decide(&self, batch: &mut Batch, context: &CommandContext<'_>) -> Decided {
        let row = present(batch, self.id)?;
        if row.totp_hash.is_none() {
            return Ok(CommandResult::OperatorUser(row.public()));
        }
        let changed = Changed::new(batch, UserRow { totp_hash: None, ..row })?;
        batch.append::<Operator>(self.id, OperatorTwoFactorRemoved { row_mac: changed.mac() }, context);
        Ok(CommandResult::OperatorUser(changed.keep(batch, EndedSessions::None, TwoFactorChange::Remove)))
    }
}
