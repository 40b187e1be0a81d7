//! The purchase stream: vouchers that a supplier is asked for, from the request to the codes or the refusal.
//!
//! The request is in the log before the supplier sees it. Its event id is the idempotency key, so every node sends the same key,
//! before and after a crash.

use chrono::{DateTime, Utc};
use rust_decimal::Decimal;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::{Currency, Moment, Money, OrderId, ProductId, PurchaseId};

/// A request for vouchers that an order lacks.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PurchaseRequested {
    pub order_id: OrderId,
    pub product_id: ProductId,
    pub currency: Currency,
    pub denomination: Money,
    pub quantity: i32,
    /// Name of the supplier in the settings.
    pub supplier: String,
    /// The supplier's name of the product.
    pub sku: String,
    /// Money that the supplier's budget sets aside until the cost is known.
    pub reserved: Money,
}

/// An acceptance by the supplier, who delivers later.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PurchasePending {
    pub supplier_reference: Option<String>,
}

/// The arrival of the vouchers. The same transaction adds them to the stock.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PurchaseFulfilled {
    /// Number of vouchers that the supplier has delivered.
    pub vouchers: i32,
    /// Number of those that the stock did not have yet.
    pub accepted: i32,
    /// Number of accepted vouchers that an order can get. The others have expired.
    pub usable: i32,
    /// Cost of each voucher in the product's currency, if the supplier has named it.
    pub cost: Option<Money>,
    pub supplier_reference: Option<String>,
}

/// A refusal by the supplier. Nothing was bought.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PurchaseRefused {
    /// The supplier's code for the reason.
    pub reason: String,
    /// Whether the same request may succeed later.
    pub may_succeed_later: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum PurchaseStatus {
    /// The supplier may know of it or not.
    Requested,
    /// The supplier has accepted it, and delivers later.
    Pending,
    Fulfilled,
    Refused,
}

impl PurchaseStatus {
    pub const ALL: [PurchaseStatus; 4] = [Self::Requested, Self::Pending, Self::Fulfilled, Self::Refused];

    pub fn as_str(self) -> &'static str {
        match self {
            Self::Requested => "REQUESTED",
            Self::Pending => "PENDING",
            Self::Fulfilled => "FULFILLED",
            Self::Refused => "REFUSED",
        }
    }

    pub fn parse(text: &str) -> Option<PurchaseStatus> {
        Self::ALL.into_iter().find(|status| status.as_str() == text)
    }

    /// Returns whether the supplier still has to answer.
    pub fn is_open(self) -> bool {
        matches!(self, Self::Requested | Self::Pending)
    }
}

/// State of a purchase: the fold of its stream, and the row of the table `purchases`.
#[derive(Clone, Debug, PartialEq)]
pub struct Purchase {
    pub id: PurchaseId,
    pub version: i64,
    pub requested: PurchaseRequested,
    /// Idempotency key at the supplier: the id of the event `PurchaseRequested`.
    pub key: Uuid,
    pub status: PurchaseStatus,
    /// Money that counts against the supplier's budget: what is set aside, or the cost.
    pub spent: Money,
    pub vouchers: i32,
    /// Number of delivered vouchers that an order can get.
    pub usable: i32,
    pub supplier_reference: Option<String>,
    /// The supplier's code for a refusal.
    pub refusal: Option<String>,
    pub may_succeed_later: bool,
    pub requested_at: DateTime<Utc>,
    pub updated_at: DateTime<Utc>,
}

impl Purchase {
    /// Takes back a refusal: what was set aside counts against the budget again.
    fn reopen(&mut self) {
        self.spent = self.requested.reserved;
        self.refusal = None;
        self.may_succeed_later = false;
    }
}

/// An answer of the supplier, as far as it concerns the purchase.
#[derive(Clone, Debug, PartialEq)]
pub enum PurchaseAnswer {
    Pending(PurchasePending),
    Fulfilled(PurchaseFulfilled),
    Refused(PurchaseRefused),
}

/// Decides what follows from an answer. A purchase is fulfilled once, and an answer that repeats the last one is no event. An
/// acceptance reopens a refused purchase: the refusal was a late one, and the vouchers are paid for.
pub fn decide(purchase: &Purchase, answer: PurchaseAnswer) -> Vec<PurchaseEvent> {
    match (purchase.status, answer) {
        (PurchaseStatus::Fulfilled, _) | (PurchaseStatus::Refused, PurchaseAnswer::Refused(_)) => vec![],
        (PurchaseStatus::Pending, PurchaseAnswer::Pending(pending))
            if purchase.supplier_reference == pending.supplier_reference =>
        {
            vec![]
        }
        (_, PurchaseAnswer::Pending(pending)) => vec![pending.into()],
        (_, PurchaseAnswer::Fulfilled(fulfilled)) => vec![fulfilled.into()],
        (_, PurchaseAnswer::Refused(refused)) => vec![refused.into()],
    }
}

/// Folds an event into the state. This is the only fold of the purchase stream. Returns `None` only before
/// `PurchaseRequested`.
pub fn evolve(state: Option<Purchase>, id: PurchaseId, event: &PurchaseEvent, at: &Moment) -> Option<Purchase> {
    let mut purchase = match (state, event) {
        (None, PurchaseEvent::PurchaseRequested(requested)) => {
            return Some(Purchase {
                id,
                version: at.version,
                requested: requested.clone(),
                key: at.event_id,
                status: PurchaseStatus::Requested,
                spent: requested.reserved,
                vouchers: 0,
                usable: 0,
                supplier_reference: None,
                refusal: None,
                may_succeed_later: false,
                requested_at: at.recorded_at,
                updated_at: at.recorded_at,
            });
        }
        (None, _) => return None,
        (Some(purchase), _) => purchase,
    };
    match event {
        PurchaseEvent::PurchaseRequested(_) => return Some(purchase),
        PurchaseEvent::PurchasePending(e) => {
            purchase.status = PurchaseStatus::Pending;
            purchase.reopen();
            purchase.supplier_reference.clone_from(&e.supplier_reference);
        }
        PurchaseEvent::PurchaseFulfilled(e) => {
            purchase.status = PurchaseStatus::Fulfilled;
            purchase.reopen();
            purchase.vouchers = e.vouchers;
            purchase.usable = e.usable;
            // A price of zero would let no budget end a fault.
            let cost = e.cost.filter(|cost| *cost > Money::ZERO);
            if let Some(total) = cost.and_then(|cost| Money::try_from(cost.decimal() * Decimal::from(e.vouchers)).ok()) {
                purchase.spent = total;
            }
            if e.supplier_reference.is_some() {
                purchase.supplier_reference.clone_from(&e.supplier_reference);
            }
        }
        PurchaseEvent::PurchaseRefused(e) => {
            purchase.status = PurchaseStatus::Refused;
            purchase.spent = Money::ZERO;
            purchase.refusal = Some(e.reason.clone());
            purchase.may_succeed_later = e.may_succeed_later;
        }
    }
    purchase.version = at.version;
    purchase.updated_at = at.recorded_at;
    Some(purchase)
}

crate::codec::stream_events! {
    /// Events of a purchase.
    PurchaseEvent {
        PurchaseRequested = 1,
        PurchasePending = 1,
        PurchaseFulfilled = 1,
        PurchaseRefused = 1,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn money(text: &str) -> Money {
        text.parse().unwrap()
    }

    fn at(version: i64) -> Moment {
        let recorded_at = DateTime::from_timestamp(version, 0).unwrap();
        Moment { position: version, event_id: Uuid::from_u128(7), version, recorded_at }
    }

    fn requested() -> Purchase {
        let requested = PurchaseRequested {
            order_id: OrderId(4),
            product_id: ProductId(5),
            currency: "EUR".parse().unwrap(),
            denomination: money("10.00"),
            quantity: 3,
            supplier: "acme".into(),
            sku: "A-10".into(),
            reserved: money("30.00"),
        };
        evolve(None, PurchaseId(1), &requested.into(), &at(1)).unwrap()
    }

    fn after(purchase: Purchase, answer: PurchaseAnswer) -> Purchase {
        let events = decide(&purchase, answer);
        events.iter().fold(purchase, |purchase, event| {
            let at = at(purchase.version + 1);
            evolve(Some(purchase), PurchaseId(1), event, &at).unwrap()
        })
    }

    fn fulfilled(cost: Option<&str>) -> PurchaseAnswer {
        let cost = cost.map(money);
        PurchaseAnswer::Fulfilled(PurchaseFulfilled {
            vouchers: 3,
            accepted: 3,
            usable: 3,
            cost,
            supplier_reference: Some("S-1".into()),
        })
    }

    fn pending(reference: &str) -> PurchaseAnswer {
        PurchaseAnswer::Pending(PurchasePending { supplier_reference: Some(reference.into()) })
    }

    #[test]
    fn the_key_is_the_id_of_the_request_and_the_budget_is_set_aside_until_the_cost_is_known() {
        let purchase = requested();
        assert_eq!((purchase.key, purchase.spent), (Uuid::from_u128(7), money("30.00")));
        assert_eq!(after(purchase.clone(), fulfilled(Some("9.50"))).spent, money("28.50"));
        for unpriced in [None, Some("0.00")] {
            assert_eq!(after(purchase.clone(), fulfilled(unpriced)).spent, money("30.00"));
        }
        let refused = PurchaseRefused { reason: "OUT_OF_STOCK".into(), may_succeed_later: true };
        let refused = after(purchase, PurchaseAnswer::Refused(refused));
        assert_eq!((refused.status, refused.spent), (PurchaseStatus::Refused, Money::ZERO));
    }

    /// The node that got the refusal was late, and another one has ordered under the same key meanwhile.
    #[test]
    fn vouchers_that_arrive_after_a_refusal_are_taken() {
        let refused = || PurchaseAnswer::Refused(PurchaseRefused { reason: "X".into(), may_succeed_later: true });
        let ended = after(requested(), refused());
        assert_eq!(after(ended.clone(), refused()), ended);
        let reopened = after(ended.clone(), pending("S-1"));
        assert_eq!((reopened.status, reopened.spent, &reopened.refusal), (PurchaseStatus::Pending, money("30.00"), &None));
        let bought = after(ended, fulfilled(Some("9.50")));
        assert_eq!((bought.status, bought.spent, bought.refusal), (PurchaseStatus::Fulfilled, money("28.50"), None));
    }

    #[test]
    fn a_purchase_is_fulfilled_once() {
        let accepted = after(requested(), pending("S-1"));
        assert_eq!(accepted.status, PurchaseStatus::Pending);
        assert_eq!(decide(&accepted, pending("S-1")), []);
        let ended = after(accepted, fulfilled(Some("9.50")));
        let refused = PurchaseRefused { reason: "X".into(), may_succeed_later: false };
        for late in [pending("S-2"), fulfilled(Some("1.00")), PurchaseAnswer::Refused(refused)] {
            assert_eq!(after(ended.clone(), late), ended);
        }
    }
}
