//! Webhooks, and deliveries to them that may be retried.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet};

use ledger_events::webhook::{Retryable, Webhook};
use ledger_events::{AccountId, WebhookId};
use ledger_projections::{deliveries, state};

use super::{Loader, Slot, Stream, StreamRead, projected};
use crate::ledger::lookup::Lookup;
use crate::ledger::reader;

#[derive(Debug, Default)]
pub struct Index {
    /// Deliveries that are to be retried, with their account and webhook.
    pub retryable: Lookup<i64, (AccountId, WebhookId, Retryable)>,
}

#[derive(Debug, Default)]
pub struct Query {
    /// Accounts whose webhooks are read: a command counts them, or checks the owner.
    pub of_accounts: HashSet<AccountId>,
    /// Deliveries that are to be retried.
    pub retried: Vec<i64>,
}

impl StreamRead<'_, Webhook> {
    /// Asks for all webhooks of an account.
    pub fn of_account(&mut self, account_id: AccountId) {
        self.query.of_accounts.insert(account_id);
    }

    /// Asks for a webhook of an account.
    pub fn id_of_account(&mut self, account_id: AccountId, id: WebhookId) {
        self.of_account(account_id);
        self.expect(id);
    }
}

impl Stream for Webhook {
    type Index = Index;
    type Query<'a> = Query;

    const NAME: &'static str = "webhook";
    const SEQUENCE: Option<&'static str> = Some("webhook_ids");

    projected!(written);

    async fn fetch(slot: &mut Slot<Self>, read: &mut StreamRead<'_, Self>, loader: &mut Loader<'_>) -> Result<(), sqlx::Error> {
        let (shard, query) = (loader.shard, &read.query);
        if !query.of_accounts.is_empty() {
            let accounts: Vec<_> = query.of_accounts.iter().copied().collect();
            slot.keep(state::load_of_accounts(loader.conn, shard, &accounts).await?);
        }
        if !query.retried.is_empty() {
            slot.index.retryable.ask(query.retried.iter().copied());
            let mut later = HashMap::new();
            for (id, account, webhook, delivery, version) in deliveries::retryable(loader.conn, shard, &query.retried).await? {
                if let Entry::Vacant(unread) = later.entry(webhook) {
                    unread.insert(reader::webhook_events_after(&mut *loader.conn, shard, webhook, version).await?);
                }
                slot.ask([webhook]);
                slot.index.retryable.insert(id, (account, webhook, delivery.after(&later[&webhook])));
            }
        }
        slot.load_missing(read, loader).await
    }
}
