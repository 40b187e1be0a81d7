import datetime
from collections.abc import Mapping
from typing import Any, TypeVar

from attrs import define as _attrs_define
from attrs import field as _attrs_field
from dateutil.parser import isoparse

from ..models.webhook_event_type import WebhookEventType

T = TypeVar("T", bound="RegisteredWebhook")


@_attrs_define
class RegisteredWebhook:
    """A newly registered webhook. The token is shown only in this response.

    Attributes:
        created_at (datetime.datetime): Time at which the webhook was registered.
        events (list[WebhookEventType]): Event types that the webhook is subscribed to.
        id (int): Unique identifier of the webhook. Each delivery has it in the header `X-Webhook-ID`.
        is_active (bool): Whether the webhook is active. An inactive webhook receives no events.
        name (str): Name of the webhook, for people to recognize it.
        token (str): Secret that signs the deliveries. Store it safely: it is not shown again.
        url (str): URL that receives the events.
    """

    created_at: datetime.datetime
    events: list[WebhookEventType]
    id: int
    is_active: bool
    name: str
    token: str = _attrs_field(repr=False)
    url: str
    additional_properties: dict[str, Any] = _attrs_field(init=False, factory=dict)

    def to_dict(self) -> dict[str, Any]:
        created_at = self.created_at.isoformat()

        events = []
        for events_item_data in self.events:
            events_item = events_item_data.value
            events.append(events_item)

        id = self.id

        is_active = self.is_active

        name = self.name

        token = self.token

        url = self.url

        field_dict: dict[str, Any] = {}
        field_dict.update(self.additional_properties)
        field_dict.update(
            {
                "created_at": created_at,
                "events": events,
                "id": id,
                "is_active": is_active,
                "name": name,
                "token": token,
                "url": url,
            }
        )

        return field_dict

    @classmethod
    def from_dict(cls: type[T], src_dict: Mapping[str, Any]) -> T:
        d = dict(src_dict)
        created_at = isoparse(d.pop("created_at"))

        events = []
        _events = d.pop("events")
        for events_item_data in _events:
            events_item = WebhookEventType(events_item_data)

            events.append(events_item)

        id = d.pop("id")

        is_active = d.pop("is_active")

        name = d.pop("name")

        token = d.pop("token")

        url = d.pop("url")

        registered_webhook = cls(
            created_at=created_at,
            events=events,
            id=id,
            is_active=is_active,
            name=name,
            token=token,
            url=url,
        )

        registered_webhook.additional_properties = d
        return registered_webhook

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
