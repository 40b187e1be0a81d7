//! Operators: their tokens and users.

mod tokens;
mod two_factor;
mod users;

use ledger_events::Rejection;

use crate::ledger::batch::Batch;
use crate::ledger::operator_users::{self, EndedSessions, TwoFactorChange, UserRow};
use crate::ledger::operators::Change;
use crate::secrets::seal::SealError;
pub use tokens::{IssueOperatorToken, RevokeOperatorToken};
pub use two_factor::{EnableOperatorTwoFactor, RemoveOperatorTwoFactor};
pub use users::{AdmitOperatorUser, ChangeOperatorUser, CreateOperatorUser, OwnChange, RemoveOperatorUser};

/// Returns a user's row with the changes of earlier commands of the batch.
fn row(batch: &Batch, id: i64) -> Result<UserRow, Rejection> {
    let changed = batch.pending.operators.iter().rev().find_map(|change| match change {
        Change::User(change) if change.row.id == id => Some(change.row.clone()),
        _ => None,
    });
    let row = match changed {
        Some(row) => Some(row),
        None => batch.streams.operators.find(id)?.user.clone(),
    };
    row.ok_or(Rejection::NotFound)
}

/// Returns the row of a user who was not removed.
fn present(batch: &Batch, id: i64) -> Result<UserRow, Rejection> {
    row(batch, id).and_then(|row| if row.removed_at.is_none() { Ok(row) } else { Err(Rejection::NotFound) })
}

/// A user's new row with its MAC, to which an event commits before the row is written.
struct Changed {
    row: UserRow,
    mac: [u8; 32],
}

impl Changed {
    fn new(batch: &Batch, row: UserRow) -> Result<Changed, SealError> {
        let mac = batch.keyring.row_mac(row.protected())?;
        Ok(Changed { row, mac })
    }

    fn mac(&self) -> String {
        hex::encode(self.mac)
    }

    fn keep(self, batch: &mut Batch, sessions: EndedSessions, two_factor: TwoFactorChange) -> operator_users::OperatorUser {
        let Changed { row, mac } = self;
        let public = row.public();
        batch.pending.operators.push(Change::User(Box::new(operator_users::Change { row, mac, sessions, two_factor })));
        public
    }
}
