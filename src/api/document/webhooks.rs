//! Webhooks of the document: requests that clients receive, with their headers and their envelope.

use serde_json::{Value, json};

use crate::api::webhooks::Event;

/// Headers of a delivery, with type and description.
const HEADERS: [(&str, &str, &str); 9] = [
    ("User-Agent", "string", "`<service-name>-Webhooks/1`."),
    ("X-Webhook-ID", "integer", "Unique identifier of the webhook."),
    ("X-Event-ID", "string", "Same value as `event_id`, in every attempt and replay. Use it to detect duplicates."),
    ("X-Event-Type", "string", "Same value as `event_type`. Respond with 200 to types that you do not know."),
    (
        "X-Event-Sequence",
        "integer",
        "Grows with every event of the same order, payout or wallet, and is not consecutive. The same in every attempt. If it is \
         smaller than that of an event that you have processed, the delivery is late.",
    ),
    ("X-Timestamp", "integer", "Time of the attempt, in Unix seconds. Refuse a request that is more than 5 minutes off."),
    (
        "X-Signature",
        "string",
        "Lowercase hex HMAC-SHA256 over `X-Timestamp`, a dot and the raw body, keyed with the webhook's token. \
         See [Receiving webhooks](/docs/guides/webhooks).",
    ),
    ("X-Request-ID", "string", "Unique identifier of this attempt."),
    (
        "X-SERVICE-WEBHOOK-TOKEN",
        "string",
        "The webhook's token, for a quick check. `SERVICE` stands for the service's configured name.",
    ),
];

/// Header of a delivery after a rotation.
const PREVIOUS: (&str, &str, &str) = (
    "X-Signature-Previous",
    "string",
    "Signature made with the secret before a rotation. Only for the time for which the rotation has asked.",
);

/// Header of a delivery that belongs to a trace.
const TRACE: (&str, &str, &str) = (
    "traceparent",
    "string",
    "Place of the attempt in a trace (W3C Trace Context). Only if the service exports traces. It is not signed.",
);

/// Returns an example body of each event that a webhook can subscribe to.
pub fn webhook_examples() -> Vec<(&'static str, Value)> {
    examples().into_iter().map(|(event, _, _, example)| (event.as_str(), example)).collect()
}

/// Adds the webhooks, and the schemas of their bodies, to the client document.
pub fn describe_webhooks(document: &mut Value) {
    for (name, schema) in schemas().into_iter().chain(further_schemas()) {
        document["components"]["schemas"][name] = schema;
    }
    for (event, schema, text, example) in examples() {
        document["webhooks"][event.as_str()] = webhook(event, schema, text, &example);
    }
}

/// Returns each event with the schema of its envelope, a description, and an example.
fn examples() -> Vec<(Event, &'static str, &'static str, Value)> {
    let of_order = |(event, status, sub_status, delivered, text)| {
        (event, "WebhookEnvelope", text, envelope(event, order(status, sub_status, delivered)))
    };
    let of_payout = |(event, status, text)| (event, "WebhookPayoutEnvelope", text, envelope(event, payout(status)));
    let low_balance = json!({
        "wallet_id": 8, "currency": "USD", "balance": "97.50", "below": "100.00", "fell_at": "2026-01-31T12:00:01.000Z"
    });
    let low_balance = (
        Event::LowBalance,
        "WebhookLowBalanceEnvelope",
        "The balance of a wallet fell below the amount that is set for notices about it.",
        envelope(Event::LowBalance, low_balance),
    );
    ORDERS.into_iter().map(of_order).chain(PAYOUTS.into_iter().map(of_payout)).chain([low_balance]).collect()
}

/// Events with status and sub-status of the example order, number of delivered units out of two, and description.
const ORDERS: [(Event, &str, &str, i32, &str); 5] = [
    (Event::Created, "PENDING", "", 0, "An order was placed, and its amount was debited from the wallet."),
    (Event::Pending, "PENDING", "", 0, "Fulfilment of the order has started."),
    (Event::Delivered, "DELIVERED", "", 2, "All units of the order are delivered."),
    (Event::PartiallyDelivered, "PARTIALLY_DELIVERED", "AWAITING_REMAINDER", 1, "Some units are delivered, others are not yet."),
    (Event::Cancelled, "CANCELLED", "CANCELLED_BY_CLIENT", 0, "The order was cancelled, and the wallet refunded."),
];

/// Events with the status of the example payout, and description.
const PAYOUTS: [(Event, &str, &str); 4] = [
    (Event::PayoutRequested, "PENDING", "A payout was requested, and its amount was debited from the wallet."),
    (Event::PayoutPaid, "PAID", "The money of the payout was sent."),
    (Event::PayoutFailed, "FAILED", "The money of the payout could not be sent, and was returned to the wallet."),
    (Event::PayoutCancelled, "CANCELLED", "The payout was cancelled, and the money was returned to the wallet."),
];

fn webhook(event: Event, schema: &str, text: &str, example: &Value) -> Value {
    let header = |(name, kind, description): (&str, &str, &str), is_required: bool| json!({"name": name, "in": "header", "required": is_required, "description": description, "schema": {"type": kind}});
    let optional = [PREVIOUS, TRACE].map(|each| header(each, false));
    let parameters: Vec<Value> = HEADERS.map(|each| header(each, true)).into_iter().chain(optional).collect();
    json!({"post": {
        "summary": text,
        "description": "Sent at least once to every active webhook that is subscribed to the event. The order of events is not \
            guaranteed. Without a 2xx response within 30 seconds, the delivery is retried after 1, 2, 4 and 8 minutes: up to five \
            attempts in all.",
        "operationId": format!("receive_{}", event.as_str().replace('.', "_")),
        "tags": ["Webhooks"],
        "security": [],
        "parameters": parameters,
        "requestBody": {
            "required": true,
            "content": {"application/json": {"schema": {"$ref": format!("#/components/schemas/{schema}")}, "example": example}}
        },
        "responses": {
            "2XX": {"description": "Received; the response body is ignored. Respond like this to event types that you ignore, too."},
            "default": {"description": "Not received. The delivery is retried until no attempts are left."}
        }
    }})
}

fn envelope(event: Event, data: Value) -> Value {
    json!({
        "event_id": "019c13e2-6f00-7abc-8def-0123456789ab", "event_type": event.as_str(),
        "created_at": "2026-01-31T12:00:02.000Z", "data": data
    })
}

fn order(status: &str, sub_status: &str, delivered: i32) -> Value {
    let mut data = json!({
        "id": 42, "reference_code": "ORD-0000000042", "status": status, "sub_status": sub_status,
        "product_name": "Acme Gift Card", "denomination": "25.00", "quantity": 2, "amount": "48.75",
        "delivered_quantity": delivered, "delivered_on": null, "created_at": "2026-01-31T12:00:00.000Z"
    });
    if delivered > 0 {
        let voucher = |n: i32| json!({"voucher_reference_number": format!("VCH-{n}")});
        let vouchers: Vec<Value> = (1..=delivered).map(voucher).collect();
        data["order_items"] = json!([{"status": "DELIVERED", "delivered_on": "2026-01-31T12:00:02.000Z", "vouchers": vouchers}]);
    }
    if status == "DELIVERED" {
        data["delivered_on"] = json!("2026-01-31T12:00:02.000Z");
    }
    data
}

fn payout(status: &str) -> Value {
    let settled_at = (status != "PENDING").then_some("2026-01-31T12:00:02.000Z");
    json!({
        "id": 12, "beneficiary_id": 3, "wallet_id": 8, "amount": "250.00", "currency": "USD", "client_reference": "rent-2026-01",
        "status": status, "created_at": "2026-01-31T12:00:00.000Z", "settled_at": settled_at
    })
}

fn time(description: &str) -> Value {
    json!({"type": "string", "format": "date-time", "description": description})
}

fn money(description: &str) -> Value {
    json!({"type": "string", "pattern": r"^\d+\.\d{2}$", "description": description})
}

fn text(description: &str) -> Value {
    json!({"type": "string", "description": description})
}

fn integer(format: &str, description: &str) -> Value {
    json!({"type": "integer", "format": format, "description": description})
}

/// Returns the schema of an envelope with data of this schema. `events` are its types.
fn envelope_schema(events: impl IntoIterator<Item = Event>, data: &str, description: &str) -> Value {
    json!({
        "type": "object",
        "description": "Body of a webhook request. Its bytes are the same in every attempt.",
        "properties": {
            "event_id": {
                "type": "string", "format": "uuid", "description": "Unique identifier of the event. Use it to detect duplicates."
            },
            "event_type": {
                "type": "string", "enum": events.into_iter().map(Event::as_str).collect::<Vec<_>>(),
                "description": "Type of the event. New types may be added; ignore types that you do not know."
            },
            "created_at": time("Time of the event."),
            "data": {"$ref": format!("#/components/schemas/{data}"), "description": description}
        },
        "required": ["event_id", "event_type", "created_at", "data"]
    })
}

fn schemas() -> [(&'static str, Value); 2] {
    let order = json!({
        "type": "object",
        "description": "State of an order right after the event. New fields may be added; ignore unknown fields.",
        "properties": {
            "id": integer("int64", "Unique identifier of the order."),
            "reference_code": text("Reference code assigned by the service, for people to quote."),
            "status": {"$ref": "#/components/schemas/OrderStatus", "description": "Status of the order."},
            "sub_status": text("Detail of the status, or empty. New values may be added and are informational."),
            "product_name": text("Name of the product at the time of the order."),
            "denomination": money("Face value of one unit."),
            "quantity": integer("int32", "Number of units ordered."),
            "amount": money("Amount debited from the wallet."),
            "delivered_quantity": integer("int32", "Number of units delivered so far."),
            "delivered_on": {
                "type": ["string", "null"], "format": "date-time",
                "description": "Time at which the status became `DELIVERED`; null until then."
            },
            "created_at": time("Time at which the order was placed."),
            "order_items": {
                "type": "array", "items": {"$ref": "#/components/schemas/OrderItem"},
                "description": "Delivered items, without codes. Only in `order.delivered` and `order.partially_delivered`."
            }
        },
        "required": [
            "id", "reference_code", "status", "sub_status", "product_name", "denomination", "quantity", "amount",
            "delivered_quantity", "delivered_on", "created_at"
        ]
    });
    let of_orders = ORDERS.map(|(event, ..)| event);
    let envelope = envelope_schema(of_orders, "WebhookOrder", "State of the order right after the event.");
    [("WebhookOrder", order), ("WebhookEnvelope", envelope)]
}

/// Schemas of the events of payouts and wallets.
fn further_schemas() -> [(&'static str, Value); 4] {
    let currency = || text("Currency as an ISO 4217 code.");
    let payout = json!({
        "type": "object",
        "description": "State of a payout right after the event. New fields may be added; ignore unknown fields.",
        "properties": {
            "id": integer("int64", "Unique identifier of the payout."),
            "beneficiary_id": integer("int64", "Unique identifier of the beneficiary that receives the money."),
            "wallet_id": integer("int64", "Unique identifier of the wallet that was debited."),
            "amount": money("Amount debited from the wallet."),
            "currency": currency(),
            "client_reference": {
                "type": ["string", "null"], "description": "Your own reference for the payout, as sent when it was requested."
            },
            "status": {"$ref": "#/components/schemas/PayoutStatus", "description": "Status of the payout."},
            "created_at": time("Time at which the payout was requested."),
            "settled_at": {
                "type": ["string", "null"], "format": "date-time",
                "description": "Time at which the payout became `PAID`, `FAILED` or `CANCELLED`; null until then."
            }
        },
        "required": [
            "id", "beneficiary_id", "wallet_id", "amount", "currency", "client_reference", "status", "created_at", "settled_at"
        ]
    });
    let low_balance = json!({
        "type": "object",
        "description": "Fall of a wallet's balance. New fields may be added; ignore unknown fields.",
        "properties": {
            "wallet_id": integer("int64", "Unique identifier of the wallet."),
            "currency": currency(),
            "balance": money("Balance right after the movement that made it fall."),
            "below": money("Amount below which the balance fell."),
            "fell_at": time("Time of the movement.")
        },
        "required": ["wallet_id", "currency", "balance", "below", "fell_at"]
    });
    let of_payouts =
        envelope_schema(PAYOUTS.map(|(event, ..)| event), "WebhookPayout", "State of the payout right after the event.");
    let of_wallets = envelope_schema([Event::LowBalance], "WebhookLowBalance", "Fall of the balance.");
    [
        ("WebhookPayout", payout),
        ("WebhookPayoutEnvelope", of_payouts),
        ("WebhookLowBalance", low_balance),
        ("WebhookLowBalanceEnvelope", of_wallets),
    ]
}
