import datetime
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, TypeVar

from attrs import define as _attrs_define
from attrs import field as _attrs_field
from dateutil.parser import isoparse

from ..models.event_outcome import EventOutcome
from ..models.webhook_event_type import WebhookEventType
from ..models.webhook_state import WebhookState

if TYPE_CHECKING:
    from ..models.event_delivery import EventDelivery


T = TypeVar("T", bound="EventExplanation")


@_attrs_define
class EventExplanation:
    """An event of the order, with what became of it at the webhook.

    Attributes:
        created_at (datetime.datetime): Time of the event.
        deliveries (list['EventDelivery']): Deliveries of the event to the webhook, oldest first.
        event_id (str): ID of the event. The envelope's `event_id` and the header `X-Event-ID` have the same value.
        event_type (WebhookEventType): Type of an event that a webhook can subscribe to. New types may be added.

            - `order.created`: an order was placed and debited from the wallet.
            - `order.pending`: fulfilment has started to process the order.
            - `order.partially_delivered`: some units of the order are delivered.
            - `order.delivered`: all units of the order are delivered.
            - `order.cancelled`: the order was cancelled, and its undelivered units are refunded.
            - `payout.requested`: a payout was requested and debited from the wallet.
            - `payout.paid`: the money of the payout was sent.
            - `payout.failed`: the money could not be sent, and was returned to the wallet.
            - `payout.cancelled`: the payout was cancelled, and the money was returned to the wallet.
            - `wallet.low_balance`: the balance of a wallet fell below the amount that is set for notices about it.
        explanation (str): Explanation in plain English. Its wording may change.
        outcome (EventOutcome): Outcome of an event at the webhook.

            - `delivered`: a delivery of the event succeeded.
            - `pending`: a delivery is due or in flight.
            - `failed`: every delivery of the event failed or was stopped.
            - `not_sent`: the event was never sent to the webhook.
        webhook_state (WebhookState): State of the webhook when the event happened.

            - `subscribed`: the webhook was active and subscribed to the event type.
            - `not_subscribed`: the webhook was active, but not subscribed to the event type.
            - `inactive`: the webhook was deactivated.
            - `created_later`: the webhook did not exist yet.
            - `deleted`: the webhook was already deleted.
    """

    created_at: datetime.datetime
    deliveries: list["EventDelivery"]
    event_id: str
    event_type: WebhookEventType
    explanation: str
    outcome: EventOutcome
    webhook_state: WebhookState
    additional_properties: dict[str, Any] = _attrs_field(init=False, factory=dict)

    def to_dict(self) -> dict[str, Any]:
        created_at = self.created_at.isoformat()

        deliveries = []
        for deliveries_item_data in self.deliveries:
            deliveries_item = deliveries_item_data.to_dict()
            deliveries.append(deliveries_item)

        event_id = self.event_id

        event_type = self.event_type.value

        explanation = self.explanation

        outcome = self.outcome.value

        webhook_state = self.webhook_state.value

        field_dict: dict[str, Any] = {}
        field_dict.update(self.additional_properties)
        field_dict.update(
            {
                "created_at": created_at,
                "deliveries": deliveries,
                "event_id": event_id,
                "event_type": event_type,
                "explanation": explanation,
                "outcome": outcome,
                "webhook_state": webhook_state,
            }
        )

        return field_dict

    @classmethod
    def from_dict(cls: type[T], src_dict: Mapping[str, Any]) -> T:
        from ..models.event_delivery import EventDelivery

        d = dict(src_dict)
        created_at = isoparse(d.pop("created_at"))

        deliveries = []
        _deliveries = d.pop("deliveries")
        for deliveries_item_data in _deliveries:
            deliveries_item = EventDelivery.from_dict(deliveries_item_data)

            deliveries.append(deliveries_item)

        event_id = d.pop("event_id")

        event_type = WebhookEventType(d.pop("event_type"))

        explanation = d.pop("explanation")

        outcome = EventOutcome(d.pop("outcome"))

        webhook_state = WebhookState(d.pop("webhook_state"))

        event_explanation = cls(
            created_at=created_at,
            deliveries=deliveries,
            event_id=event_id,
            event_type=event_type,
            explanation=explanation,
            outcome=outcome,
            webhook_state=webhook_state,
        )

        event_explanation.additional_properties = d
        return event_explanation

    @property
    def additional_keys(self) -> list[str]:
        return list(self.additional_properties.keys())

    def __getitem__(self, key: str) -> Any:
        return self.additional_properties[key]

    def __setitem__(self, key: str, value: Any) -> None:
        self.additional_properties[key] = value

    def __delitem__(self, key: str) -> None:
        del self.additional_properties[key]

    def __contains__(self, key: str) -> bool:
        return key in self.additional_properties
