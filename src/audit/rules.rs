//! Rules that every history must follow, whoever wrote it. They are pure functions of events and folded states.

use ledger_events::beneficiary::{Beneficiary, BeneficiaryEvent};
use ledger_events::order::{Order, OrderEvent};
use ledger_events::payout::{Payout, PayoutEvent, PayoutStatus};
use ledger_events::price::{price, refund_due};
use ledger_events::wallet::{Movement, Purpose, Wallet, WalletEvent};
use ledger_events::{Event, Money, OrderId, PayoutId, Recorded, StreamType, TransactionId, WalletId};

/// The wallet movement that must directly follow an event of an order or payout.
#[derive(Clone, Debug, PartialEq)]
pub struct ExpectedMovement {
    pub stream: StreamType,
    pub id: i64,
    pub position: i64,
    pub purpose: Purpose,
    pub is_refund: bool,
    amount: Money,
    transaction_id: Option<TransactionId>,
    /// None for a refund, whose event does not name the wallet. The payment's event names it.
    wallet_id: Option<WalletId>,
}

impl ExpectedMovement {
    /// Returns the movement that an event requires, if any.
    pub fn by(recorded: &Recorded) -> Option<ExpectedMovement> {
        let (order, payout) = (Purpose::Order(OrderId(recorded.stream_id)), Purpose::Payout(PayoutId(recorded.stream_id)));
        let (purpose, is_refund, amount, transaction_id, wallet_id) = match &recorded.event {
            Event::Order(OrderEvent::OrderPlaced(e)) => (order, false, e.amount, Some(e.transaction_id), Some(e.wallet_id)),
            Event::Order(OrderEvent::OrderCancelled(e)) if !e.refunded_amount.is_zero() || e.transaction_id.is_some() => {
                (order, true, e.refunded_amount, e.transaction_id, None)
            }
            Event::Payout(PayoutEvent::PayoutRequested(e)) => {
                (payout, false, e.amount, Some(e.transaction_id), Some(e.wallet_id))
            }
            Event::Payout(PayoutEvent::PayoutFailed(e)) => (payout, true, e.refunded_amount, Some(e.transaction_id), None),
            Event::Payout(PayoutEvent::PayoutCancelled(e)) => (payout, true, e.refunded_amount, Some(e.transaction_id), None),
            _ => return None,
        };
        let (stream, id, position) = (recorded.stream_type, recorded.stream_id, recorded.moment.position);
        Some(ExpectedMovement { stream, id, position, purpose, is_refund, amount, transaction_id, wallet_id })
    }

    fn category(&self) -> &'static str {
        if self.is_refund { self.purpose.refund() } else { self.purpose.payment() }
    }

    /// Checks the event at the position of the required movement. Returns the problem, if any.
    pub fn unmet_by(&self, next: Option<&Recorded>) -> Option<String> {
        let noun = if self.is_refund { "refund" } else { "payment" };
        let movement = next.and_then(|next| match &next.event {
            Event::Wallet(event) => Some((WalletId(next.stream_id), Movement::of(event)?)),
            _ => None,
        });
        let Some((wallet_id, movement)) =
            movement.filter(|(_, m)| m.category == self.category() && m.purpose == Some(self.purpose))
        else {
            return Some(format!("its {noun} of {} is not the next event", self.amount));
        };
        if movement.amount != self.amount {
            return Some(format!("its {noun} is {} instead of {}", movement.amount, self.amount));
        }
        if Some(movement.transaction_id) != self.transaction_id {
            return Some(format!(
                "its {noun} is transaction {}, but it names {:?}",
                movement.transaction_id, self.transaction_id
            ));
        }
        match self.wallet_id {
            Some(named) if named != wallet_id => Some(format!("its {noun} is in wallet {wallet_id} instead of {named}")),
            _ => None,
        }
    }

    /// Returns the problem of a movement for an order or payout that no event required.
    pub fn unexpected(recorded: &Recorded) -> Option<String> {
        let (verb, amount, purpose) = match &recorded.event {
            Event::Wallet(WalletEvent::WalletDebited(e)) => ("debits", e.amount, e.purpose),
            Event::Wallet(WalletEvent::WalletRefunded(e)) => ("refunds", e.amount, e.purpose),
            _ => return None,
        };
        let (kind, id, missing) = match (purpose, verb) {
            (Purpose::Order(id), "debits") => ("order", id.0, "placed"),
            (Purpose::Order(id), _) => ("order", id.0, "cancelled"),
            (Purpose::Payout(id), "debits") => ("payout", id.0, "requested"),
            (Purpose::Payout(id), _) => ("payout", id.0, "failed or cancelled"),
        };
        Some(format!("{verb} {amount} for {kind} {id}, which was not {missing} by the preceding event"))
    }
}

/// Returns the problem of an event of an order in the state `before`, if any.
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
                Ok(price) => Some(format!("its amount is {}, but its price is {}", placed.amount, price.amount)),
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
        OrderEvent::PersonalDataErased(_) => (!order.status.is_final()).then(|| format!("{name} before it is final")),
        _ if order.status.is_final() => Some(format!("{name} after {}", order.status.as_str())),
        OrderEvent::OrderQueued(_) => order.is_queued.then(|| "is queued a second time".to_owned()),
        OrderEvent::OrderDelayed(_) if order.delivered_quantity > 0 => Some("is delayed after a part was delivered".to_owned()),
        OrderEvent::OrderDelayed(_) => None,
        OrderEvent::OrderPartiallyDelivered(e) => {
            let is_part = !e.vouchers.is_empty() && count(&e.vouchers) < order.undelivered_quantity();
            (!is_part).then(|| {
                format!("{} delivered units are not a part of the remaining {}", e.vouchers.len(), order.undelivered_quantity())
            })
        }
        OrderEvent::OrderDelivered(e) => (count(&e.vouchers) != order.undelivered_quantity())
            .then(|| format!("{} units are delivered, but {} remain", e.vouchers.len(), order.undelivered_quantity())),
        OrderEvent::OrderCancelled(e) => match refund_due(order.placed.amount, order.delivered_quantity, order.placed.quantity) {
            Ok(due) if due == e.refunded_amount => None,
            Ok(due) => Some(format!("its refund is {} instead of {due}", e.refunded_amount)),
            Err(error) => Some(format!("its refund cannot be computed: it {error}")),
        },
    }
}

/// Returns the problem of an event of a payout in the state `before`, if any.
pub fn of_payout(before: Option<&Payout>, event: &PayoutEvent) -> Option<String> {
    let name = event.type_and_version().0;
    let payout = match (before, event) {
        (None, PayoutEvent::PayoutRequested(e)) => {
            return (!e.amount.is_positive()).then(|| format!("its amount is {}", e.amount));
        }
        (None, _) => return Some(format!("begins with {name}")),
        (Some(payout), _) => payout,
    };
    let refunded = match event {
        PayoutEvent::PayoutRequested(_) => return Some("is requested a second time".to_owned()),
        _ if payout.status != PayoutStatus::Pending => return Some(format!("{name} after {}", payout.status.as_str())),
        PayoutEvent::PayoutPaid(_) => return None,
        PayoutEvent::PayoutFailed(e) => e.refunded_amount,
        PayoutEvent::PayoutCancelled(e) => e.refunded_amount,
    };
    let paid = payout.requested.amount;
    (refunded != paid).then(|| format!("its refund is {refunded} instead of {paid}"))
}

/// Returns the problem of an event of a beneficiary in the state `before`, if any.
pub fn of_beneficiary(before: Option<&Beneficiary>, event: &BeneficiaryEvent) -> Option<String> {
    match (before, event) {
        (None, BeneficiaryEvent::BeneficiaryAdded(_)) => None,
        (None, _) => Some(format!("begins with {}", event.type_and_version().0)),
        (Some(_), BeneficiaryEvent::BeneficiaryAdded(_)) => Some("is added a second time".to_owned()),
        (Some(_), BeneficiaryEvent::PersonalDataErased(_)) => None,
        (Some(known), BeneficiaryEvent::BeneficiaryDeleted(_)) => known.is_deleted.then(|| "is deleted twice".to_owned()),
    }
}

fn count(vouchers: &[String]) -> i32 {
    i32::try_from(vouchers.len()).unwrap_or(i32::MAX)
}

/// Returns the problem of an event of a wallet, given the state `after` it.
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
        format!("transaction {id} states the balance after it as {said}, but the movements add up to {}", wallet.balance)
    })
}
