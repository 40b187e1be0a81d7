//! Orders.

use ledger_events::order::Order;
use ledger_events::{AccountId, OrderId, ShardId};
use ledger_projections::state;

use super::{Loader, Slot, Stream, StreamRead, projected};
use crate::ledger::ids::BLOCK;
use crate::ledger::keys::Owner;
use crate::ledger::lookup::Lookup;
use crate::ledger::texts::{CANCEL_REASON, METADATA};

/// Orders by account and `client_reference`.
#[derive(Debug, Default)]
pub struct Index {
    pub by_reference: Lookup<(AccountId, String), OrderId>,
}

#[derive(Debug, Default)]
pub struct Query<'a> {
    pub references: Vec<(AccountId, &'a str)>,
    /// Orders whose wallet may be refunded.
    pub cancelled: Vec<OrderId>,
}

/// Orders are written by the one statement of [`Batch::statement`](crate::ledger::batch::Batch::statement).
impl Stream for Order {
    type Index = Index;
    type Query<'a> = Query<'a>;

    const NAME: &'static str = "order";
    const SEQUENCE: Option<&'static str> = Some("order_ids");
    const BLOCK: i64 = BLOCK;

    projected!();

    async fn fetch(slot: &mut Slot<Self>, read: &mut StreamRead<'_, Self>, loader: &mut Loader<'_>) -> Result<(), sqlx::Error> {
        slot.load_missing(read, loader).await?;
        for order in read.query.cancelled.iter().filter_map(|id| slot.loaded(*id)) {
            loader.follow_ups.wallets.push(order.placed.wallet_id);
            loader.follow_ups.accounts.push(order.placed.account_id);
            loader.follow_ups.data_keys.push(Owner::Account(order.placed.account_id));
        }
        let references = &read.query.references;
        if !references.is_empty() {
            let (of, texts): (Vec<AccountId>, Vec<&str>) = references.iter().copied().unzip();
            let known: Vec<Order> = state::load_by_client_reference(loader.conn, loader.shard, &of, &texts).await?;
            slot.index.by_reference.ask(references.iter().map(|(account, text)| (*account, (*text).to_owned())));
            for order in &known {
                loader.follow_ups.texts.extend([(METADATA, order.id.0), (CANCEL_REASON, order.id.0)]);
                // A stored response that shows these texts again is sealed, too.
                loader.follow_ups.data_keys.push(Owner::Account(order.placed.account_id));
                if let Some(reference) = &order.placed.client_reference {
                    slot.index.by_reference.insert((order.placed.account_id, reference.clone()), order.id);
                }
            }
            slot.keep(known);
        }
        Ok(())
    }

    fn is_cached(_: ShardId) -> bool {
        true
    }
}
