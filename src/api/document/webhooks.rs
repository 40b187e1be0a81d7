//! The webhooks of the document: what is sent to clients, with its headers and its envelope.

use serde_json::{Value, json};

use crate::api::webhooks::Event;

/// The headers of a delivery, with their schemas' types and what they say.
const HEADERS: [(&str, &str, &str); 8] = [
    ("User-Agent", "string", "`<service-name>-Webhooks/1`."),
    ("X-Webhook-ID", "integer", "The webhook's id."),
    ("X-Event-ID", "string", "The same as `event_id`: the same in every attempt and replay. Deduplicate on it."),
    ("X-Event-Type", "string", "The same as `event_type`. Answer 200 to types that you do not know."),
    ("X-Timestamp", "integer", "When the attempt was sent, in Unix seconds. Refuse what is more than 5 minutes away."),
    (
        "X-Signature",
        "string",
        "Lowercase hex HMAC-SHA256 over `X-Timestamp`, a dot and the raw body, keyed with the webhook's token. \
         See [Receiving webhooks](/docs/guides/webhooks).",
    ),
    ("X-Request-ID", "string", "The id of this attempt alone."),
    (
        "X-SERVICE-WEBHOOK-TOKEN",
        "string",
        "The webhook's token, for a quick check. SERVICE stands for the name that the service is configured with.",
    ),
];

/// Adds the webhooks, and the schemas of what they carry, to the client's document.
pub fn describe_webhooks(document: &mut Value) {
    for (name, schema) in schemas() {
        document["components"]["schemas"][name] = schema;
    }
    for (event, status, sub_status, delivered, text) in EVENTS {
        document["webhooks"][event.as_str()] = webhook(event, text, &envelope(event, status, sub_status, delivered));
    }
}

/// Each event with an order's status and sub-status, the units delivered of two, and its meaning.
const EVENTS: [(Event, &str, &str, i32, &str); 5] = [
    (Event::Created, "PENDING", "", 0, "An order was placed, and debited from the wallet."),
    (Event::Pending, "PENDING", "", 0, "Fulfilment has taken the order up."),
    (Event::Delivered, "DELIVERED", "", 2, "Every unit is delivered."),
    (Event::PartiallyDelivered, "PARTIALLY_DELIVERED", "AWAITING_REMAINDER", 1, "Some units are delivered, the rest waits."),
    (Event::Cancelled, "CANCELLED", "CANCELLED_BY_CLIENT", 0, "The order was cancelled, and the wallet refunded."),
];

fn webhook(event: Event, text: &str, example: &Value) -> Value {
    let parameter = |(name, kind, description): (&str, &str, &str)| json!({"name": name, "in": "header", "required": true, "description": description, "schema": {"type": kind}});
    json!({"post": {
        "summary": text,
        "description": "Sent to every active webhook that is subscribed to it; at least once, in no promised order. \
            Anything but a 2xx within 30 seconds is tried again, up to five attempts in all, after 1, 2, 4 and 8 minutes.",
        "operationId": format!("receive_{}", event.as_str().replace('.', "_")),
        "tags": ["Webhooks"],
        "security": [],
        "parameters": HEADERS.map(parameter),
        "requestBody": {
            "required": true,
            "content": {"application/json": {"schema": {"$ref": "#/components/schemas/WebhookEnvelope"}, "example": example}}
        },
        "responses": {
            "2XX": {"description": "Received; the body is not looked at. Answer so to types that you do not act on, too."},
            "default": {"description": "Not received; it is tried again as long as there are attempts left."}
        }
    }})
}

fn envelope(event: Event, status: &str, sub_status: &str, delivered: i32) -> Value {
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
    json!({
        "event_id": "019c13e2-6f00-7abc-8def-0123456789ab", "event_type": event.as_str(),
        "created_at": "2026-01-31T12:00:02.000Z", "data": data
    })
}

fn schemas() -> [(&'static str, Value); 2] {
    let time = |description: &str| json!({"type": "string", "format": "date-time", "description": description});
    let money = |description: &str| json!({"type": "string", "pattern": r"^\d+\.\d{2}$", "description": description});
    let text = |description: &str| json!({"type": "string", "description": description});
    let integer = |format: &str, description: &str| json!({"type": "integer", "format": format, "description": description});
    let order = json!({
        "type": "object",
        "description": "An order as it was right after the event. New fields may be added; ignore those that you do not know.",
        "properties": {
            "id": integer("int64", "Its id."),
            "reference_code": text("For people; made by the service."),
            "status": {"$ref": "#/components/schemas/OrderStatus", "description": "Where it stands."},
            "sub_status": text("Empty when there is none. New values are informational."),
            "product_name": text("The product's name when it was ordered."),
            "denomination": money("The face value of one unit."),
            "quantity": integer("int32", "Units that were ordered."),
            "amount": money("What was debited from the wallet."),
            "delivered_quantity": integer("int32", "Units that were delivered so far."),
            "delivered_on": {"type": ["string", "null"], "format": "date-time", "description": "Null until DELIVERED."},
            "created_at": time("When the order was placed."),
            "order_items": {
                "type": "array", "items": {"$ref": "#/components/schemas/OrderItem"},
                "description": "What was delivered, without codes; with `order.delivered` and `order.partially_delivered` only."
            }
        },
        "required": [
            "id", "reference_code", "status", "sub_status", "product_name", "denomination", "quantity", "amount",
            "delivered_quantity", "delivered_on", "created_at"
        ]
    });
    let envelope = json!({
        "type": "object",
        "description": "What a webhook is told. Its bytes are the same in every attempt.",
        "properties": {
            "event_id": {"type": "string", "format": "uuid", "description": "The event's id. Deduplicate on it."},
            "event_type": {
                "$ref": "#/components/schemas/WebhookEventType",
                "description": "What happened. New types may be added; ignore those that you do not know."
            },
            "created_at": time("When it happened."),
            "data": {"$ref": "#/components/schemas/WebhookOrder", "description": "The order."}
        },
        "required": ["event_id", "event_type", "created_at", "data"]
    });
    [("WebhookOrder", order), ("WebhookEnvelope", envelope)]
}
