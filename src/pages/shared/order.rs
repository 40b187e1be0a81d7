//! An order, and the form that cancels it.

use chrono::{DateTime, Utc};
use ledger_events::{Money, price};
use maud::{Markup, html};
use serde::Deserialize;
use serde_json::Value;

use crate::pages::parts::fields::Filled;
use crate::pages::parts::values::money;
use crate::pages::shared::delivery::excerpt;
use crate::pages::shared::story::{Places, Story};

/// Statuses of orders.
pub const STATUSES: [&str; 5] = ["PENDING", "DELAYED", "PARTIALLY_DELIVERED", "DELIVERED", "CANCELLED"];

/// An order, as the API returns it.
#[derive(Debug, Deserialize)]
pub struct Order {
    pub id: i64,
    pub reference_code: String,
    pub client_reference: Option<String>,
    pub status: String,
    pub sub_status: String,
    pub product_id: i64,
    pub product_name: String,
    pub currency: String,
    pub denomination: String,
    pub quantity: i32,
    pub discount: String,
    pub amount: String,
    pub refunded_amount: String,
    pub transaction_id: i64,
    pub delivered_quantity: i32,
    pub delivered_on: Option<DateTime<Utc>>,
    pub cancelled_on: Option<DateTime<Utc>>,
    pub cancel_reason: Option<String>,
    /// Data that the client has stored with the order.
    pub metadata: Option<Value>,
    pub created_at: DateTime<Utc>,
}

impl Order {
    /// Returns whether a cancellation can still take effect.
    pub fn is_open(&self) -> bool {
        !matches!(self.status.as_str(), "DELIVERED" | "CANCELLED")
    }
}

/// Renders the data that the client has stored with an order.
pub fn metadata(order: &Order) -> Markup {
    html! { @if let Some(metadata) = &order.metadata { h2 { "Metadata" } (excerpt(&format!("{metadata:#}"))) } }
}

/// Renders the units of an order. The delivered ones lead to their events in the story on the page.
pub fn units(order: &Order) -> Markup {
    html! {
        a href="#story" { (order.delivered_quantity) } " of " (order.quantity) " delivered, "
        (money(&order.denomination, &order.currency)) " each"
    }
}

/// Renders the refunded amount of an order. It leads to the movement of the refund.
pub fn refunded(order: &Order, story: &Story, places: &Places) -> Markup {
    let amount = money(&order.refunded_amount, &order.currency);
    html! {
        @match story.refund() { Some(movement) => a href=((places.transaction)(movement)) { (amount) }, None => (amount) }
    }
}

/// Returns the amount that a cancellation would refund now.
fn refund(order: &Order) -> Option<Money> {
    price::refund_due(order.amount.parse().ok()?, order.delivered_quantity, order.quantity).ok()
}

/// Renders the form that cancels an order, with the refund that it leads to. `orders` is the path of orders' pages.
pub fn cancellation(orders: &str, order: &Order, fields: &Filled<'_>) -> Markup {
    let undelivered = order.quantity - order.delivered_quantity;
    html! {
        details.card open[fields.refusal.is_some()] {
            summary { "Cancel this order" }
            form method="post" action={ (orders) "/" (order.id) "/cancel" } {
                p {
                    @if let Some(refund) = refund(order) {
                        strong { (money(&refund.to_string(), &order.currency)) } " return to the wallet for "
                        (undelivered) @if undelivered == 1 { " unit" } @else { " units" } " not yet delivered. "
                    }
                    "Delivered vouchers stay valid. If a unit is delivered in the meantime, it is not refunded."
                }
                (fields.input("reason", "Reason", "text", "Optional. The order shows it."))
                button.danger { "Cancel the order" }
            }
        }
    }
}

#[cfg(test)]
pub mod tests {
    use serde_json::json;

    use super::*;
    use crate::pages::form::Form;

    /// Builds an order as the API shows it.
    pub fn order(id: i64) -> Order {
        let order = json!({
            "id": id, "reference_code": format!("ORD-{id:010}"), "client_reference": "=1+1", "status": "PENDING", "sub_status": "",
            "product_id": 7, "product_name": "Card, blue", "currency": "EUR", "denomination": "10.00", "quantity": 3,
            "discount": "0.00", "amount": "30.00", "refunded_amount": "0.00", "transaction_id": 9, "delivered_quantity": 1,
            "delivered_on": null, "cancelled_on": null, "cancel_reason": null, "created_at": "2026-01-31T12:00:00.000Z"
        });
        serde_json::from_value(order).unwrap()
    }

    #[test]
    fn a_refunded_amount_leads_to_its_movement() {
        let places = Places {
            transaction: |movement| format!("/transactions/{}", movement.id),
            deliveries: "",
            request: |_| html! {},
            moment: |_, _| html! {},
            readings: |_| html! {},
        };
        let movement = |id: i64, category: &str| {
            let movement = json!({"id": id, "wallet_id": 2, "type": "CREDIT", "category": category, "amount": "20.00",
                "balance_after": "20.00", "currency": "EUR", "order_id": 5, "reference": null, "description": "",
                "created_at": "2026-01-31T12:00:00Z"});
            json!({"position": id, "event_type": "OrderCancelled", "recorded_at": "2026-01-31T12:00:00Z", "request_id": "r",
                "actor": {"kind": "operator", "actor_id": null, "name": null}, "description": "", "reason": null,
                "transaction": movement, "deliveries": []})
        };
        let shown = |entries: Vec<Value>| {
            let story = json!({"order_id": 5, "entries": entries, "entries_left_out": 0});
            refunded(&order(5), &serde_json::from_value(story).unwrap(), &places).0
        };
        assert!(shown(vec![movement(8, "ORDER"), movement(9, "ORDER_REFUND")]).starts_with("<a href=\"/transactions/9\"><span"));
        assert!(!shown(vec![movement(8, "ORDER")]).contains("href"));
    }

    #[test]
    fn a_cancellation_shows_its_refund() {
        let order = order(5);
        assert_eq!(refund(&order).map(|refund| refund.to_string()).as_deref(), Some("20.00"));
        let markup = cancellation("/portal/orders", &order, &Filled { form: &Form::default(), refusal: None }).0;
        assert!(markup.contains("20.00") && markup.contains("2 units not yet delivered"), "{markup}");
    }
}
