//! Sample data of test deliveries: an order, a payout and a wallet that do not exist. The folds of the log give their states, and
//! [`payload`], [`payout_payload`] and [`low_balance_payload`] the bytes. So a sample looks like a real envelope of its type.

use std::fmt::Display;

use chrono::{DateTime, TimeDelta, Utc};
use ledger_events::account::LowBalanceReached;
use ledger_events::order::{
    self, CancelledBy, OrderCancelled, OrderDelivered, OrderEvent, OrderPartiallyDelivered, OrderPlaced, OrderQueued,
};
use ledger_events::payout::{self, PayoutCancelled, PayoutEvent, PayoutFailed, PayoutPaid, PayoutRequested};
use ledger_events::price::price;
use ledger_events::webhook::WebhookEventType;
use ledger_events::{
    AccountId, BeneficiaryId, Currency, Moment, Money, OrderId, PayoutId, Percent, ProductId, TransactionId, WalletId,
};

use super::{Head, low_balance_payload, payload, payout_payload};

/// Reference of the order and of the payout. Receivers tell a test by it, and by its ids, which are 0.
const REFERENCE: &str = "TEST";

const NO_ACCOUNT: AccountId = AccountId(0);
const NO_WALLET: WalletId = WalletId(0);
const NO_TRANSACTION: TransactionId = TransactionId(0);

/// References of the units in the order, as long as those that the ledger gives to vouchers.
const VOUCHERS: &[&str] = &["TEST-0000000001", "TEST-0000000002", "TEST-0000000003"];

/// Builds the bytes of a test delivery's envelope. Its object does not exist, and has the state that the event type
/// implies (contract, "Webhooks": `data.id` 0, `reference_code` "TEST"). `version` is that of the sample data, as the event
/// names it.
pub fn test_payload(head: Head, version: Option<i16>) -> Result<String, serde_json::Error> {
    let sample = match version {
        None => Sample::placeholders(head.event_type),
        Some(_) => Sample::realistic(head.event_type),
    };
    let refunded_amount = money(sample.payout)?;
    let (transaction_id, reason_hash) = (NO_TRANSACTION, None);
    match head.event_type {
        WebhookEventType::OrderCreated => sample.order(head, None),
        WebhookEventType::OrderPending => sample.order(head, Some(OrderQueued {}.into())),
        WebhookEventType::OrderDelivered => sample.order(head, Some(OrderDelivered { vouchers: sample.vouchers() }.into())),
        WebhookEventType::OrderPartiallyDelivered => {
            sample.order(head, Some(OrderPartiallyDelivered { vouchers: sample.vouchers() }.into()))
        }
        WebhookEventType::OrderCancelled => {
            let (by, refunded_amount, transaction_id) = (CancelledBy::Client, sample.amount()?, Some(transaction_id));
            sample.order(head, Some(OrderCancelled { by, refunded_amount, transaction_id, reason_hash }.into()))
        }
        WebhookEventType::PayoutRequested => sample.payout(head, None),
        WebhookEventType::PayoutPaid => sample.payout(head, Some(PayoutPaid {}.into())),
        WebhookEventType::PayoutFailed => {
            sample.payout(head, Some(PayoutFailed { refunded_amount, transaction_id, reason_hash }.into()))
        }
        WebhookEventType::PayoutCancelled => {
            sample.payout(head, Some(PayoutCancelled { refunded_amount, transaction_id }.into()))
        }
        WebhookEventType::WalletLowBalance => sample.low_balance(head),
    }
}

/// Values of the sample data that its version and its event type determine. Amounts are in cents.
#[derive(Debug)]
struct Sample {
    product_name: &'static str,
    denomination: i64,
    quantity: i32,
    /// References of the units that the event delivers, if it delivers some.
    vouchers: &'static [&'static str],
    payout: i64,
    balance: i64,
    /// Time from the first event of the object, or from the wallet's movement, to the event of the envelope.
    age: TimeDelta,
}

impl Sample {
    /// Returns the first version. It stays as it is, because the log has test deliveries that were made with it.
    fn placeholders(event_type: WebhookEventType) -> Sample {
        let quantity = if event_type == WebhookEventType::OrderPartiallyDelivered { 2 } else { 1 };
        let (product_name, denomination, vouchers) = ("Test product", 1_000, &[REFERENCE]);
        Sample { product_name, denomination, quantity, vouchers, payout: 1_000, balance: 9_500, age: TimeDelta::zero() }
    }

    /// Returns the second version. All event types of orders are about one order, and those of payouts about one payout.
    fn realistic(event_type: WebhookEventType) -> Sample {
        let age = match event_type {
            WebhookEventType::OrderCreated | WebhookEventType::PayoutRequested => TimeDelta::zero(),
            WebhookEventType::OrderPending | WebhookEventType::WalletLowBalance => TimeDelta::seconds(1),
            WebhookEventType::OrderPartiallyDelivered => TimeDelta::seconds(2),
            WebhookEventType::OrderDelivered => TimeDelta::seconds(3),
            WebhookEventType::OrderCancelled | WebhookEventType::PayoutCancelled => TimeDelta::minutes(20),
            WebhookEventType::PayoutFailed => TimeDelta::hours(5),
            WebhookEventType::PayoutPaid => TimeDelta::hours(26),
        };
        let vouchers = if event_type == WebhookEventType::OrderPartiallyDelivered { &VOUCHERS[..2] } else { VOUCHERS };
        let (product_name, denomination, quantity) = ("Acme Gift Card", 2_500, 3);
        Sample { product_name, denomination, quantity, vouchers, payout: 25_000, balance: 9_750, age }
    }

    fn vouchers(&self) -> Vec<String> {
        self.vouchers.iter().map(|&reference| reference.to_owned()).collect()
    }

    /// Returns what the wallet paid for the order, without a discount.
    fn amount(&self) -> Result<Money, serde_json::Error> {
        Ok(price(money(self.denomination)?, self.quantity, Percent::ZERO).map_err(invalid)?.amount)
    }

    /// Builds the envelope of the order, right after it was placed or after the event that followed.
    fn order(&self, head: Head, then: Option<OrderEvent>) -> Result<String, serde_json::Error> {
        let amount = self.amount()?;
        let placed = OrderPlaced {
            account_id: NO_ACCOUNT,
            reference_code: REFERENCE.to_owned(),
            client_reference: None,
            product_id: ProductId(0),
            product_name: self.product_name.to_owned(),
            currency: currency()?,
            denomination: money(self.denomination)?,
            quantity: self.quantity,
            face_value: amount,
            discount: Percent::ZERO,
            discount_amount: Money::ZERO,
            amount,
            wallet_id: NO_WALLET,
            transaction_id: NO_TRANSACTION,
            metadata_hash: None,
        };
        let id = OrderId(0);
        let mut order = order::evolve(None, id, &OrderEvent::from(placed), &moment(head, self.began_at(head)));
        if let Some(event) = then {
            order = order::evolve(order, id, &event, &moment(head, head.recorded_at));
        }
        payload(head, &order.ok_or_else(|| invalid("the order has no first event"))?)
    }

    /// Builds the envelope of the payout, right after it was requested or after the event that followed.
    fn payout(&self, head: Head, then: Option<PayoutEvent>) -> Result<String, serde_json::Error> {
        let requested = PayoutRequested {
            account_id: NO_ACCOUNT,
            beneficiary_id: BeneficiaryId(0),
            wallet_id: NO_WALLET,
            amount: money(self.payout)?,
            currency: currency()?,
            client_reference: Some(REFERENCE.to_owned()),
            transaction_id: NO_TRANSACTION,
        };
        let id = PayoutId(0);
        let mut payout = payout::evolve(None, id, &PayoutEvent::from(requested), &moment(head, self.began_at(head)));
        if let Some(event) = then {
            payout = payout::evolve(payout, id, &event, &moment(head, head.recorded_at));
        }
        payout_payload(head, &payout.ok_or_else(|| invalid("the payout has no first event"))?)
    }

    fn low_balance(&self, head: Head) -> Result<String, serde_json::Error> {
        let (balance, below, fell_at) = (money(self.balance)?, money(10_000)?, self.began_at(head));
        let wallet_id = NO_WALLET;
        low_balance_payload(head, &LowBalanceReached { wallet_id, currency: currency()?, below, balance, position: 0, fell_at })
    }

    fn began_at(&self, head: Head) -> DateTime<Utc> {
        head.recorded_at.checked_sub_signed(self.age).unwrap_or(head.recorded_at)
    }
}

/// Returns a place in the log. Envelopes show only its time.
fn moment(head: Head, recorded_at: DateTime<Utc>) -> Moment {
    Moment { position: 0, event_id: head.event_id, version: 0, recorded_at }
}

fn money(cents: i64) -> Result<Money, serde_json::Error> {
    Money::from_cents(cents).map_err(invalid)
}

fn currency() -> Result<Currency, serde_json::Error> {
    "USD".parse().map_err(invalid)
}

fn invalid(problem: impl Display) -> serde_json::Error {
    serde::ser::Error::custom(problem)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use ledger_events::webhook::SAMPLE_VERSION;
    use serde_json::{Value, json};

    use super::*;

    const RECORDED_AT: &str = "2026-01-31T12:00:02.345Z";

    fn head(event_type: WebhookEventType) -> Head {
        let event_id = "019c13e2-6f00-7abc-8def-0123456789ab".parse().unwrap();
        Head { event_id, event_type, recorded_at: RECORDED_AT.parse().unwrap() }
    }

    /// Returns the data of the current version.
    fn sample(event_type: WebhookEventType) -> Value {
        let payload = test_payload(head(event_type), Some(SAMPLE_VERSION)).unwrap();
        let mut envelope: Value = serde_json::from_str(&payload).unwrap();
        assert_eq!((&envelope["event_type"], &envelope["created_at"]), (&json!(event_type), &json!(RECORDED_AT)));
        envelope["data"].take()
    }

    fn amount(value: &Value) -> Money {
        value.as_str().unwrap().parse().unwrap()
    }

    fn names(value: &Value) -> BTreeSet<&String> {
        value.as_object().unwrap().keys().collect()
    }

    /// Returns the references of all delivered units.
    fn delivered(order: &Value) -> Vec<&str> {
        let items = order["order_items"].as_array().into_iter().flatten();
        let vouchers = items.flat_map(|item| item["vouchers"].as_array().unwrap());
        vouchers.map(|voucher| voucher["voucher_reference_number"].as_str().unwrap()).collect()
    }

    #[test]
    fn the_first_version_keeps_its_bytes() {
        let golden = include_str!("../../fixtures/first_samples.jsonl").lines();
        let payloads = WebhookEventType::ALL.map(|event_type| test_payload(head(event_type), None).unwrap());
        assert_eq!(payloads.iter().map(String::as_str).collect::<Vec<_>>(), golden.collect::<Vec<_>>());
    }

    #[test]
    fn a_sample_has_the_status_of_its_type() {
        for (event_type, status, sub_status, delivered_quantity) in [
            (WebhookEventType::OrderCreated, "PENDING", "", 0),
            (WebhookEventType::OrderPending, "PENDING", "", 0),
            (WebhookEventType::OrderDelivered, "DELIVERED", "", 3),
            (WebhookEventType::OrderPartiallyDelivered, "PARTIALLY_DELIVERED", "AWAITING_REMAINDER", 2),
            (WebhookEventType::OrderCancelled, "CANCELLED", "CANCELLED_BY_CLIENT", 0),
        ] {
            let order = sample(event_type);
            assert_eq!((&order["status"], &order["sub_status"]), (&json!(status), &json!(sub_status)), "{order}");
            assert_eq!(order["delivered_quantity"], json!(delivered_quantity), "{order}");
            assert_eq!(order["delivered_on"].is_string(), status == "DELIVERED", "{order}");
        }
        for (event_type, status) in [
            (WebhookEventType::PayoutRequested, "PENDING"),
            (WebhookEventType::PayoutPaid, "PAID"),
            (WebhookEventType::PayoutFailed, "FAILED"),
            (WebhookEventType::PayoutCancelled, "CANCELLED"),
        ] {
            let payout = sample(event_type);
            assert_eq!(payout["status"], json!(status), "{payout}");
            assert_eq!(payout["settled_at"].is_string(), status != "PENDING", "{payout}");
        }
    }

    #[test]
    fn samples_are_about_one_order_or_one_payout_that_does_not_exist() {
        let (first_order, first_payout) = (sample(WebhookEventType::OrderCreated), sample(WebhookEventType::PayoutRequested));
        for event_type in WebhookEventType::ALL {
            let data = sample(event_type);
            let (first, fields): (_, &[&str]) = match event_type.as_str().split_once('.').unwrap().0 {
                "order" => (&first_order, &["id", "reference_code", "product_name", "denomination", "quantity", "amount"]),
                "payout" => (&first_payout, &["id", "beneficiary_id", "wallet_id", "client_reference", "amount", "currency"]),
                _ => (&first_payout, &["wallet_id", "currency"]),
            };
            fields.iter().for_each(|field| assert_eq!(data[field], first[field], "{event_type:?}: {field}"));
            for field in ["id", "beneficiary_id", "wallet_id"] {
                assert!(data.get(field).is_none_or(|id| *id == json!(0)), "{data}");
            }
            for field in ["reference_code", "client_reference"] {
                assert!(data.get(field).is_none_or(|reference| *reference == json!("TEST")), "{data}");
            }
        }
    }

    #[test]
    fn the_amounts_of_a_sample_agree() {
        for event_type in WebhookEventType::OF_ORDERS {
            let order = sample(event_type);
            let (quantity, units) = (order["quantity"].as_i64().unwrap(), delivered(&order));
            let expected = amount(&order["denomination"]).decimal() * rust_decimal::Decimal::from(quantity);
            assert_eq!(amount(&order["amount"]).decimal(), expected, "{order}");
            assert_eq!(order["delivered_quantity"], json!(units.len()), "{order}");
            assert_eq!(units.iter().collect::<BTreeSet<_>>().len(), units.len(), "{order}");
        }
        let wallet = sample(WebhookEventType::WalletLowBalance);
        assert!(amount(&wallet["balance"]) < amount(&wallet["below"]), "{wallet}");
    }

    #[test]
    fn the_times_of_a_sample_are_in_order() {
        for event_type in WebhookEventType::ALL {
            let data = sample(event_type);
            let began_at = data.get("created_at").unwrap_or(&data["fell_at"]).as_str().unwrap();
            let is_first = matches!(event_type, WebhookEventType::OrderCreated | WebhookEventType::PayoutRequested);
            // All times have the same form, so their texts are in the order of the times.
            assert!(if is_first { began_at == RECORDED_AT } else { began_at < RECORDED_AT }, "{event_type:?}: {data}");
            let items = data["order_items"].as_array().into_iter().flatten().map(|item| &item["delivered_on"]);
            for time in items.chain([&data["delivered_on"], &data["settled_at"]]).filter(|time| !time.is_null()) {
                assert_eq!(*time, json!(RECORDED_AT), "{event_type:?}: {data}");
            }
        }
    }

    #[test]
    fn the_versions_have_the_same_fields() {
        for event_type in WebhookEventType::ALL {
            let first: Value = serde_json::from_str(&test_payload(head(event_type), None).unwrap()).unwrap();
            assert_eq!(names(&sample(event_type)), names(&first["data"]), "{event_type:?}");
        }
    }
}
