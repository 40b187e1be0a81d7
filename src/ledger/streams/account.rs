//! Accounts.

use ledger_events::account::Account;
use ledger_events::{AccountId, ShardId};

use super::{Loader, Slot, Stream, StreamRead, projected};
use crate::ledger::lookup::Lookup;
use crate::ledger::user_security::{self, OpenInvitation};

#[derive(Debug, Default)]
pub struct Index {
    /// Open invitations of accounts.
    pub invitations: Lookup<AccountId, Vec<OpenInvitation>>,
}

#[derive(Debug, Default)]
pub struct Query {
    /// Accounts that invite somebody.
    pub inviting: Vec<AccountId>,
}

impl Stream for Account {
    type Index = Index;
    type Query<'a> = Query;

    const NAME: &'static str = "account";
    const SEQUENCE: Option<&'static str> = Some("account_ids");

    projected!(written);

    async fn fetch(slot: &mut Slot<Self>, read: &mut StreamRead<'_, Self>, loader: &mut Loader<'_>) -> Result<(), sqlx::Error> {
        slot.load_missing(read, loader).await?;
        let inviting = &read.query.inviting;
        if !inviting.is_empty() {
            let open = user_security::open_invitations(&mut *loader.conn, inviting).await?;
            slot.index.invitations.extend(inviting.iter().map(|id| (*id, vec![])));
            for (account_id, invitation) in open {
                slot.index.invitations.get_mut(&account_id).into_iter().for_each(|known| known.push(invitation.clone()));
            }
        }
        Ok(())
    }

    fn is_cached(_: ShardId) -> bool {
        true
    }
}

impl Index {
    /// Removes an invitation that ends in this batch.
    pub fn end_invitation(&mut self, id: i64) {
        self.invitations.retain(|_, open| {
            open.retain(|known| known.id != id);
            true
        });
    }
}
