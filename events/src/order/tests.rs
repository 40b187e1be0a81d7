//! Tests of the form given a history, when a command, then events or a refusal; and properties of all histories.

use crate::{AccountId, OrderId, ProductId, TransactionId, WalletId};
use chrono::{DateTime, Utc};
use proptest::prelude::*;
use uuid::Uuid;

use super::*;

fn money(text: &str) -> Money {
    text.parse().unwrap()
}

fn placed(quantity: i32) -> OrderEvent {
    OrderPlaced {
        account_id: AccountId(7),
        reference_code: "ORD-0000000042".into(),
        client_reference: None,
        product_id: ProductId(3),
        product_name: "Book voucher".into(),
        currency: "EUR".parse().unwrap(),
        denomination: money("10.00"),
        quantity,
        face_value: Money::from_cents(1000 * i64::from(quantity)).unwrap(),
        discount: Percent::ZERO,
        discount_amount: Money::ZERO,
        amount: Money::from_cents(1000 * i64::from(quantity)).unwrap(),
        wallet_id: WalletId(5),
        transaction_id: TransactionId(1001),
        metadata_hash: None,
    }
    .into()
}

fn moment(version: i64) -> Moment {
    let recorded_at = DateTime::<Utc>::from_timestamp(1_800_000_000 + version, 0).unwrap();
    Moment { position: 100 + version, event_id: Uuid::from_u128(version as u128), version, recorded_at }
}

fn fold(events: &[OrderEvent]) -> Order {
    let mut state = None;
    for (version, event) in (1..).zip(events) {
        state = evolve(state, OrderId(42), event, &moment(version));
    }
    state.unwrap()
}

struct Given(Vec<OrderEvent>);

impl Given {
    fn when(&self, command: OrderCommand) -> Result<Vec<OrderEvent>, Rejection> {
        decide(&fold(&self.0), command)
    }
}

fn vouchers(n: i32) -> Vec<String> {
    (0..n).map(|i| format!("VR-{i}")).collect()
}

fn cancel() -> OrderCommand {
    OrderCommand::Cancel { by: CancelledBy::Client, refund_transaction_id: TransactionId(9), reason_hash: None }
}

#[test]
fn a_new_order_is_queued_and_delivered_in_one_append() {
    let given = Given(vec![placed(2)]);
    let then = given.when(OrderCommand::Fulfil { vouchers: vouchers(2) }).unwrap();
    assert_eq!(then, [OrderQueued {}.into(), OrderDelivered { vouchers: vouchers(2) }.into()]);
}

#[test]
fn an_order_without_stock_is_delayed_only_once() {
    let none = OrderCommand::Fulfil { vouchers: vec![] };
    assert_eq!(Given(vec![placed(2)]).when(none.clone()).unwrap(), [OrderQueued {}.into(), OrderDelayed {}.into()]);
    let delayed = Given(vec![placed(2), OrderQueued {}.into(), OrderDelayed {}.into()]);
    assert_eq!(delayed.when(none).unwrap(), []);
}

#[test]
fn partial_stock_delivers_a_part_and_later_stock_delivers_the_rest() {
    let some = OrderPartiallyDelivered { vouchers: vouchers(1) };
    let given = Given(vec![placed(3), OrderQueued {}.into(), some.clone().into()]);
    assert_eq!(Given(given.0[..2].to_vec()).when(OrderCommand::Fulfil { vouchers: vouchers(1) }).unwrap(), [some.into()]);
    let rest = given.when(OrderCommand::Fulfil { vouchers: vouchers(2) }).unwrap();
    assert_eq!(rest, [OrderDelivered { vouchers: vouchers(2) }.into()]);
    let order = fold(&[given.0, rest].concat());
    assert_eq!((order.status, order.sub_status, order.delivered_quantity), (OrderStatus::Delivered, "", 3));
    assert_eq!(order.items.len(), 2);
    assert_eq!(order.delivered_on, Some(moment(4).recorded_at));
}

#[test]
fn more_vouchers_than_units_are_refused() {
    let given = Given(vec![placed(1)]);
    assert!(matches!(given.when(OrderCommand::Fulfil { vouchers: vouchers(2) }), Err(Rejection::Conflict(_))));
}

#[test]
fn a_cancellation_refunds_the_undelivered_units() {
    let whole = Given(vec![placed(3)]).when(cancel()).unwrap();
    let cancelled = |refund, transaction_id| -> OrderEvent {
        OrderCancelled { by: CancelledBy::Client, refunded_amount: money(refund), transaction_id, reason_hash: None }.into()
    };
    assert_eq!(whole, [cancelled("30.00", Some(TransactionId(9)))]);
    let partly = Given(vec![placed(3), OrderQueued {}.into(), OrderPartiallyDelivered { vouchers: vouchers(1) }.into()]);
    let then = partly.when(cancel()).unwrap();
    assert_eq!(then, [cancelled("20.00", Some(TransactionId(9)))]);
    assert_eq!(fold(&[partly.0, then].concat()).sub_status, "REMAINDER_CANCELLED");
}

#[test]
fn a_final_order_stays_final() {
    let delivered = Given(vec![placed(1), OrderQueued {}.into(), OrderDelivered { vouchers: vouchers(1) }.into()]);
    assert_eq!(delivered.when(cancel()), Err(Rejection::OrderNotCancellable));
    assert_eq!(delivered.when(OrderCommand::Fulfil { vouchers: vouchers(1) }).unwrap(), []);
    let cancelled = Given([vec![placed(1)], Given(vec![placed(1)]).when(cancel()).unwrap()].concat());
    assert_eq!(cancelled.when(cancel()), Err(Rejection::OrderNotCancellable));
    assert_eq!(cancelled.when(OrderCommand::Fulfil { vouchers: vouchers(1) }).unwrap(), []);
    assert_eq!(fold(&cancelled.0).sub_status, "CANCELLED_BY_CLIENT");
}

#[test]
fn revealing_codes_changes_nothing_but_the_version() {
    let given = vec![placed(1), OrderQueued {}.into(), OrderDelivered { vouchers: vouchers(1) }.into()];
    let before = fold(&given);
    let after = fold(&[given, vec![VouchersRevealed { units: 1 }.into()]].concat());
    assert_eq!((after.updated_at, after.status, after.version), (before.updated_at, before.status, before.version + 1));
}

proptest! {
    /// Applies any commands in any order. The constraints of the table hold after each one.
    #[test]
    fn every_reachable_state_satisfies_the_table(quantity in 1i32..6, steps in prop::collection::vec((0u8..3, 0i32..7), 0..12)) {
        let mut history = vec![placed(quantity)];
        for (kind, n) in steps {
            let command = match kind {
                0 => OrderCommand::Fulfil { vouchers: vouchers(n) },
                1 => cancel(),
                _ => OrderCommand::RevealVouchers,
            };
            if let Ok(events) = decide(&fold(&history), command) {
                history.extend(events);
            }
            let order = fold(&history);
            prop_assert_eq!(order.version, history.len() as i64);
            prop_assert_eq!(order.status == OrderStatus::Delivered, order.delivered_on.is_some());
            prop_assert_eq!(order.status == OrderStatus::Delivered, order.delivered_quantity == quantity);
            prop_assert_eq!(order.status == OrderStatus::Cancelled, order.cancelled_on.is_some());
            prop_assert!(order.refunded_amount <= order.placed.amount);
            prop_assert_eq!(order.items.iter().map(|i| i.vouchers.len() as i32).sum::<i32>(), order.delivered_quantity);
            // An interrupted fold resumes to the same state.
            let half = history.len() / 2;
            let mut resumed = (half > 0).then(|| fold(&history[..half]));
            for (version, event) in (half as i64 + 1..).zip(&history[half..]) {
                resumed = evolve(resumed, OrderId(42), event, &moment(version));
            }
            prop_assert_eq!(resumed, Some(order));
        }
    }
}
