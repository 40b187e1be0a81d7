//! Changes of the counts of orders: the orders that entered or left a status between two positions of the log.
//!
//! The reader of the log hands in the events, and the one fold of orders yields the status before and after them. So an
//! event that changes a status cannot be missed here.

use ledger_events::order::{Order, OrderStatus, evolve};
use ledger_events::{AccountId, Event, OrderId, Position, ProductId, Recorded};

/// A change of a count: an order entered or left a status.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Move {
    pub account_id: AccountId,
    pub product_id: ProductId,
    pub status: OrderStatus,
    pub placed_position: Position,
    /// 1 if the order entered the status, -1 if it left it.
    pub orders: i64,
}

impl Move {
    fn new(order: &Order, status: OrderStatus, orders: i64) -> Move {
        let Order { placed, placed_position, .. } = order;
        let (account_id, product_id) = (placed.account_id, placed.product_id);
        Move { account_id, product_id, status, placed_position: *placed_position, orders }
    }
}

/// Folds streams of orders, and returns the changes of their statuses after a position.
///
/// `events` are one stream after the other, each from its beginning. Events that change no status may be left out.
pub fn after(after: Position, events: impl IntoIterator<Item = Recorded>) -> Vec<Move> {
    let mut moves = vec![];
    let mut folding = Folding::default();
    for recorded in events {
        let id = OrderId(recorded.stream_id);
        if folding.id != Some(id) {
            moves.extend(std::mem::take(&mut folding).moves());
            folding.id = Some(id);
        }
        if let Event::Order(event) = &recorded.event {
            folding.order = evolve(folding.order, id, event, &recorded.moment);
            if recorded.moment.position <= after {
                folding.before = folding.order.as_ref().map(|order| order.status);
            }
        }
    }
    moves.extend(folding.moves());
    moves
}

/// A stream that is being folded.
#[derive(Default)]
struct Folding {
    id: Option<OrderId>,
    order: Option<Order>,
    /// Status before the changes.
    before: Option<OrderStatus>,
}

impl Folding {
    fn moves(self) -> impl Iterator<Item = Move> {
        let Folding { order, before, .. } = self;
        let order = order.filter(|order| before != Some(order.status));
        let left = order.as_ref().zip(before).map(|(order, before)| Move::new(order, before, -1));
        let entered = order.as_ref().map(|order| Move::new(order, order.status, 1));
        entered.into_iter().chain(left)
    }
}

/// Changes of the counts that the stored counts do not include.
#[derive(Clone, Debug)]
pub enum Uncounted {
    Moves(Vec<Move>),
    /// The changes are too many or unreadable, so the orders themselves are counted.
    Unknown,
}

/// Columns of moves, for `unnest`.
pub(super) struct Columns {
    pub accounts: Vec<AccountId>,
    pub products: Vec<ProductId>,
    pub statuses: Vec<&'static str>,
    pub placed_positions: Vec<Position>,
    pub orders: Vec<i64>,
}

impl Columns {
    pub fn new<'m>(moves: impl IntoIterator<Item = &'m Move>) -> Columns {
        let (mut accounts, mut products, mut statuses) = (vec![], vec![], vec![]);
        let (mut placed_positions, mut orders) = (vec![], vec![]);
        for one in moves {
            accounts.push(one.account_id);
            products.push(one.product_id);
            statuses.push(one.status.as_str());
            placed_positions.push(one.placed_position);
            orders.push(one.orders);
        }
        Columns { accounts, products, statuses, placed_positions, orders }
    }
}

#[cfg(test)]
mod tests {
    use chrono::DateTime;
    use ledger_events::order::{OrderCancelled, OrderDelayed, OrderEvent, OrderPlaced, OrderQueued};
    use ledger_events::{Actor, Metadata, Moment, Money, Percent, StreamType, TransactionId, WalletId};
    use uuid::Uuid;

    use super::*;

    fn recorded(order: OrderId, position: Position, event: impl Into<OrderEvent>) -> Recorded {
        let metadata = Metadata {
            actor: Actor::Fulfilment,
            account_id: Some(AccountId(7)),
            request_id: String::new(),
            correlation_id: Uuid::nil(),
            causation_id: None,
            idempotency_key_hash: None,
            traceparent: None,
        };
        Recorded {
            shard_id: 1,
            moment: Moment { position, event_id: Uuid::nil(), version: position, recorded_at: DateTime::UNIX_EPOCH },
            stream_type: StreamType::Order,
            stream_id: order.0,
            event: Event::Order(event.into()),
            metadata,
        }
    }

    fn placed() -> OrderPlaced {
        OrderPlaced {
            account_id: AccountId(7),
            reference_code: "ORD-1".into(),
            client_reference: None,
            product_id: ProductId(3),
            product_name: "Card".into(),
            currency: "EUR".parse().unwrap(),
            denomination: Money::ZERO,
            quantity: 1,
            face_value: Money::ZERO,
            discount: Percent::ZERO,
            discount_amount: Money::ZERO,
            amount: Money::ZERO,
            wallet_id: WalletId(5),
            transaction_id: TransactionId(9),
            metadata_hash: None,
        }
    }

    fn cancelled() -> OrderCancelled {
        let by = ledger_events::order::CancelledBy::Client;
        OrderCancelled { by, refunded_amount: Money::ZERO, transaction_id: None, reason_hash: None }
    }

    #[test]
    fn a_move_leads_from_the_status_before_to_the_one_after() {
        let events = || {
            vec![
                recorded(OrderId(1), 1, placed()),
                recorded(OrderId(1), 3, OrderQueued {}),
                recorded(OrderId(1), 4, OrderDelayed {}),
                recorded(OrderId(1), 6, cancelled()),
                recorded(OrderId(2), 5, placed()),
            ]
        };
        let of = |placed_position, status, orders| Move {
            account_id: AccountId(7),
            product_id: ProductId(3),
            status,
            placed_position,
            orders,
        };
        let both = [of(1, OrderStatus::Cancelled, 1), of(5, OrderStatus::Pending, 1)];
        assert_eq!(after(0, events()), both, "two new orders");
        let [cancelled, pending] = both;
        let left = |status| of(1, status, -1);
        assert_eq!(after(3, events()), [cancelled.clone(), left(OrderStatus::Pending), pending.clone()]);
        assert_eq!(after(4, events()), [cancelled.clone(), left(OrderStatus::Delayed), pending]);
        assert_eq!(after(5, events()), [cancelled, left(OrderStatus::Delayed)], "the second order stays as it is");
        assert_eq!(after(6, events()), []);
    }
}
