//! The rules that every history keeps, whoever wrote it: pure, over events and folded states.

use ledger_events::order::{Order, OrderEvent};
use ledger_events::price::{price, refund_due};
use ledger_events::wallet::{Movement, Wallet, WalletEvent};
use ledger_events::{Event, Money, OrderId, Recorded, TransactionId, WalletId};

/// The movement of money that must directly follow an order's event.
#[derive(Clone, Debug, PartialEq)]
pub struct Owed {
    pub order_id: OrderId,
    pub position: i64,
    category: &'static str,
    amount: Money,
    transaction_id: Option<TransactionId>,
    /// `OrderCancelled` does not name it; the order does.
    wallet_id: Option<WalletId>,
}

impl Owed {
    /// What an event owes, if anything.
    pub fn by(recorded: &Recorded) -> Option<Owed> {
        let owed = |category, amount, transaction_id, wallet_id| Owed {
            order_id: recorded.stream_id,
            position: recorded.moment.position,
            category,
            amount,
            transaction_id,
            wallet_id,
        };
        match &recorded.event {
            Event::Order(OrderEvent::OrderPlaced(e)) => Some(owed("ORDER", e.amount, Some(e.transaction_id), Some(e.wallet_id))),
            Event::Order(OrderEvent::OrderCancelled(e)) if !e.refunded_amount.is_zero() || e.transaction_id.is_some() => {
                Some(owed("ORDER_REFUND", e.refunded_amount, e.transaction_id, None))
            }
            _ => None,
        }
    }

    pub fn noun(&self) -> &'static str {
        if self.category == "ORDER" { "payment" } else { "refund" }
    }

    /// What is wrong with the event that stands where the movement is owed.
    pub fn unmet_by(&self, next: Option<&Recorded>) -> Option<String> {
        let noun = self.noun();
        let movement = next.and_then(|next| match &next.event {
            Event::Wallet(event) => Some((next.stream_id, Movement::of(event)?)),
            _ => None,
        });
        let Some((wallet_id, movement)) =
            movement.filter(|(_, m)| m.category == self.category && m.order_id == Some(self.order_id))
        else {
            return Some(format!("its {noun} of {} does not follow", self.amount));
        };
        if movement.amount != self.amount {
            return Some(format!("its {noun} is {} instead of {}", movement.amount, self.amount));
        }
        if Some(movement.transaction_id) != self.transaction_id {
            return Some(format!("its {noun} is transaction {}, it names {:?}", movement.transaction_id, self.transaction_id));
        }
        match self.wallet_id {
            Some(named) if named != wallet_id => Some(format!("its {noun} is in wallet {wallet_id} instead of {named}")),
            _ => None,
        }
    }

    /// What is wrong with an order's movement for which nothing was owed.
    pub fn not_owed(recorded: &Recorded) -> Option<String> {
        match &recorded.event {
            Event::Wallet(WalletEvent::WalletDebited(e)) => {
                Some(format!("debits {} for order {}, which was not placed right before", e.amount, e.order_id))
            }
            Event::Wallet(WalletEvent::WalletRefunded(e)) => {
                Some(format!("refunds {} for order {}, which was not cancelled right before", e.amount, e.order_id))
            }
            _ => None,
        }
    }
}

/// What is wrong with an event of an order that stood as `before`.
pub fn of_order(before: Option<&Order>, event: &OrderEvent) -> Option<String> {
    let order = match (before, event) {
        (None, OrderEvent::OrderPlaced(placed)) => {
            return match price(placed.denomination, placed.quantity, placed.discount) {
                Ok(price)
                    if (price.face_value, price.discount_amount, price.amount)
                        == (placed.face_value, placed.discount_amount, placed.amount) =>
                {
                    None
                }
                Ok(price) => Some(format!("its amount is {}, its price is {}", placed.amount, price.amount)),
                Err(error) => Some(format!("it cannot be priced: it {error}")),
            };
        }
        (None, _) => return Some(format!("begins with {}", event.type_and_version().0)),
        (Some(order), _) => order,
    };
    let name = event.type_and_version().0;
    match event {
        OrderEvent::OrderPlaced(_) => Some("is placed a second time".to_owned()),
        OrderEvent::VouchersRevealed(_) => None,
        _ if order.status.is_final() => Some(format!("{name} after {}", order.status.as_str())),
        OrderEvent::OrderQueued(_) => order.is_queued.then(|| "is queued a second time".to_owned()),
        OrderEvent::OrderDelayed(_) if order.delivered_quantity > 0 => Some("is delayed after a part was delivered".to_owned()),
        OrderEvent::OrderDelayed(_) => None,
        OrderEvent::OrderPartiallyDelivered(e) => {
            let is_part = !e.vouchers.is_empty() && count(&e.vouchers) < order.undelivered_quantity();
            (!is_part).then(|| format!("{} units are no part of {}", e.vouchers.len(), order.undelivered_quantity()))
        }
        OrderEvent::OrderDelivered(e) => (count(&e.vouchers) != order.undelivered_quantity())
            .then(|| format!("{} units are delivered where {} are missing", e.vouchers.len(), order.undelivered_quantity())),
        OrderEvent::OrderCancelled(e) => match refund_due(order.placed.amount, order.delivered_quantity, order.placed.quantity) {
            Ok(due) if due == e.refunded_amount => None,
            Ok(due) => Some(format!("its refund is {}, due is {due}", e.refunded_amount)),
            Err(error) => Some(format!("its refund cannot be computed: it {error}")),
        },
    }
}

fn count(vouchers: &[String]) -> i32 {
    i32::try_from(vouchers.len()).unwrap_or(i32::MAX)
}

/// What is wrong with an event of a wallet, given the state that the fold made of it.
pub fn of_wallet(is_first: bool, event: &WalletEvent, after: Option<&Wallet>) -> Option<String> {
    let Some(wallet) = after else { return Some(format!("begins with {}", event.type_and_version().0)) };
    let Some(movement) = Movement::of(event) else { return (!is_first).then(|| "is opened a second time".to_owned()) };
    if wallet.balance < Money::ZERO {
        return Some(format!("the balance falls to {}", wallet.balance));
    }
    if movement.amount < Money::ZERO {
        return Some(format!("transaction {} moves {}", movement.transaction_id, movement.amount));
    }
    (movement.balance_after != wallet.balance).then(|| {
        let (id, said) = (movement.transaction_id, movement.balance_after);
        format!("transaction {id} says the balance after it is {said}, the movements make {}", wallet.balance)
    })
}
