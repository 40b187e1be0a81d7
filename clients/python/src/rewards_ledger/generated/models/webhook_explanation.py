from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, TypeVar

from attrs import define as _attrs_define
from attrs import field as _attrs_field

if TYPE_CHECKING:
    from ..models.event_explanation import EventExplanation


T = TypeVar("T", bound="WebhookExplanation")


@_attrs_define
class WebhookExplanation:
    """Explanation of which events of an order a webhook received.

    Attributes:
        events (list['EventExplanation']): Events of the order, oldest first.
        order_id (int): Unique identifier of the order.
        webhook_id (int): Unique identifier of the webhook.
    """

    events: list["EventExplanation"]
    order_id: int
    webhook_id: int
    additional_properties: dict[str, Any] = _attrs_field(init=False, factory=dict)

    def to_dict(self) -> dict[str, Any]:
        events = []
        for events_item_data in self.events:
            events_item = events_item_data.to_dict()
            events.append(events_item)

        order_id = self.order_id

        webhook_id = self.webhook_id

        field_dict: dict[str, Any] = {}
        field_dict.update(self.additional_properties)
        field_dict.update(
            {
                "events": events,
                "order_id": order_id,
                "webhook_id": webhook_id,
            }
        )

        return field_dict

    @classmethod
    def from_dict(cls: type[T], src_dict: Mapping[str, Any]) -> T:
        from ..models.event_explanation import EventExplanation

        d = dict(src_dict)
        events = []
        _events = d.pop("events")
        for events_item_data in _events:
            events_item = EventExplanation.from_dict(events_item_data)

            events.append(events_item)

        order_id = d.pop("order_id")

        webhook_id = d.pop("webhook_id")

        webhook_explanation = cls(
            events=events,
            order_id=order_id,
            webhook_id=webhook_id,
        )

        webhook_explanation.additional_properties = d
        return webhook_explanation

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
