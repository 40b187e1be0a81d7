//! Accounts.

use ledger_events::account::{Account, AccountEvent, evolve};
use ledger_events::{AccountId, ShardId};
use ledger_projections::accounts;

use super::{Stream, projected};

impl Stream for Account {
    type Id = AccountId;
    type Event = AccountEvent;
    type Index = ();
    type Query<'a> = ();

    const NAME: &'static str = "account";
    const SEQUENCE: Option<&'static str> = Some("account_ids");

    projected!(evolve, accounts::load, accounts::write);

    fn is_cached(_: ShardId) -> bool {
        true
    }
}
