//! Accounts.

use ledger_events::ShardId;
use ledger_events::account::Account;

use super::{Stream, projected};

impl Stream for Account {
    type Index = ();
    type Query<'a> = ();

    const NAME: &'static str = "account";
    const SEQUENCE: Option<&'static str> = Some("account_ids");

    projected!(written);

    fn is_cached(_: ShardId) -> bool {
        true
    }
}
