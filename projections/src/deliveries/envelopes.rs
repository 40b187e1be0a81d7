//! Rows of `webhook_envelopes`: what webhooks receive of an event.

use chrono::{DateTime, Utc};
use ledger_events::account::AccountEvent;
use ledger_events::order::Order;
use ledger_events::payout::Payout;
use ledger_events::webhook::{WebhookEvent, WebhookEventType};
use ledger_events::{AccountId, Event, OrderId, Recorded};
use uuid::Uuid;

use crate::{ProjectionError, envelope};

/// An event and, if it belongs to an order or a payout, the state of it right after the event: the source of an envelope.
#[derive(Clone, Debug)]
pub struct Past {
    pub recorded: Recorded,
    pub order: Option<Order>,
    pub payout: Option<Payout>,
}

#[derive(Debug, Clone, PartialEq)]
pub(super) struct EnvelopeRow {
    pub event_id: Uuid,
    pub position: i64,
    pub account_id: AccountId,
    /// 0 if the event belongs to no order.
    pub order_id: OrderId,
    pub event_type: WebhookEventType,
    pub payload: String,
    pub created_at: DateTime<Utc>,
}

impl EnvelopeRow {
    /// Builds the envelope of an event that webhooks receive, or of a test. Returns `None` for any other event.
    pub fn of(past: &Past) -> Result<Option<EnvelopeRow>, ProjectionError> {
        let Past { recorded, order, payout } = past;
        let Some(account_id) = recorded.metadata.account_id else { return Ok(None) };
        if let Event::Webhook(WebhookEvent::WebhookTested(e)) = &recorded.event {
            let payload = envelope::test_payload(head(recorded, e.event_type), e.sample_version)?;
            return Ok(Some(EnvelopeRow::new(recorded, account_id, OrderId(0), e.event_type, payload)));
        }
        match WebhookEventType::announcing(&recorded.event) {
            Some(event_type) => EnvelopeRow::announcing(recorded, account_id, event_type, order.as_ref(), payout.as_ref()),
            None => Ok(None),
        }
    }

    /// Builds the envelope of an event that webhooks receive. Returns `None` if the state that it belongs to is missing.
    pub fn announcing(
        recorded: &Recorded,
        account_id: AccountId,
        event_type: WebhookEventType,
        order: Option<&Order>,
        payout: Option<&Payout>,
    ) -> Result<Option<EnvelopeRow>, ProjectionError> {
        let head = head(recorded, event_type);
        let (order_id, payload) = match (&recorded.event, order, payout) {
            (Event::Order(_), Some(order), _) => (order.id, envelope::payload(head, order)?),
            (Event::Payout(_), _, Some(payout)) => (OrderId(0), envelope::payout_payload(head, payout)?),
            (Event::Account(AccountEvent::LowBalanceReached(reached)), ..) => {
                (OrderId(0), envelope::low_balance_payload(head, reached)?)
            }
            _ => return Ok(None),
        };
        Ok(Some(EnvelopeRow::new(recorded, account_id, order_id, event_type, payload)))
    }

    fn new(
        recorded: &Recorded,
        account_id: AccountId,
        order_id: OrderId,
        event_type: WebhookEventType,
        payload: String,
    ) -> EnvelopeRow {
        let moment = &recorded.moment;
        EnvelopeRow {
            event_id: moment.event_id,
            position: moment.position,
            account_id,
            order_id,
            event_type,
            payload,
            created_at: moment.recorded_at,
        }
    }
}

fn head(recorded: &Recorded, event_type: WebhookEventType) -> envelope::Head {
    envelope::Head { event_id: recorded.moment.event_id, event_type, recorded_at: recorded.moment.recorded_at }
}

/// Builds the bytes that are sent for an event. They are the same at any time. Returns `None` for an event that
/// webhooks do not receive.
pub fn payload(past: &Past) -> Result<Option<String>, ProjectionError> {
    Ok(EnvelopeRow::of(past)?.map(|envelope| envelope.payload))
}
