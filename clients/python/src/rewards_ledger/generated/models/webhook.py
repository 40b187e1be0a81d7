import datetime
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, TypeVar, Union, cast

from attrs import define as _attrs_define
from attrs import field as _attrs_field
from dateutil.parser import isoparse

from ..models.webhook_event_type import WebhookEventType

if TYPE_CHECKING:
    from ..models.webhook_deactivation import WebhookDeactivation


T = TypeVar("T", bound="Webhook")


@_attrs_define
class Webhook:
    """An endpoint of yours that receives events by HTTP POST.

    Attributes:
        created_at (datetime.datetime): Time at which the webhook was registered.
        credential_id (Union[None, int]): Linked API credential, whose signing secret is the token. Null if the webhook
            has a separate token.
        deactivation (Union['WebhookDeactivation', None]): Deactivation by the service. Null if the webhook is active,
            or if a request switched it off. To activate the webhook again,
            change `is_active` to true.
        events (list[WebhookEventType]): Event types that the webhook is subscribed to.
        header_names (list[str]): Names of the headers of your own that each delivery carries, in lower case. Their
            values are never shown.
        id (int): Unique identifier of the webhook. Each delivery has it in the header `X-Webhook-ID`.
        is_active (bool): Whether the webhook is active. An inactive webhook receives no events.
        name (str): Name of the webhook, for people to recognize it.
        updated_at (datetime.datetime): Time of the webhook's latest change.
        url (str): URL that receives the events.
    """

    created_at: datetime.datetime
    credential_id: Union[None, int]
    deactivation: Union["WebhookDeactivation", None]
    events: list[WebhookEventType]
    header_names: list[str]
    id: int
    is_active: bool
    name: str
    updated_at: datetime.datetime
    url: str
    additional_properties: dict[str, Any] = _attrs_field(init=False, factory=dict)

    def to_dict(self) -> dict[str, Any]:
        from ..models.webhook_deactivation import WebhookDeactivation

        created_at = self.created_at.isoformat()

        credential_id: Union[None, int]
        credential_id = self.credential_id

        deactivation: Union[None, dict[str, Any]]
        if isinstance(self.deactivation, WebhookDeactivation):
            deactivation = self.deactivation.to_dict()
        else:
            deactivation = self.deactivation

        events = []
        for events_item_data in self.events:
            events_item = events_item_data.value
            events.append(events_item)

        header_names = self.header_names

        id = self.id

        is_active = self.is_active

        name = self.name

        updated_at = self.updated_at.isoformat()

        url = self.url

        field_dict: dict[str, Any] = {}
        field_dict.update(self.additional_properties)
        field_dict.update(
            {
                "created_at": created_at,
                "credential_id": credential_id,
                "deactivation": deactivation,
                "events": events,
                "header_names": header_names,
                "id": id,
                "is_active": is_active,
                "name": name,
                "updated_at": updated_at,
                "url": url,
            }
        )

        return field_dict

    @classmethod
    def from_dict(cls: type[T], src_dict: Mapping[str, Any]) -> T:
        from ..models.webhook_deactivation import WebhookDeactivation

        d = dict(src_dict)
        created_at = isoparse(d.pop("created_at"))

        def _parse_credential_id(data: object) -> Union[None, int]:
            if data is None:
                return data
            return cast(Union[None, int], data)

        credential_id = _parse_credential_id(d.pop("credential_id"))

        def _parse_deactivation(data: object) -> Union["WebhookDeactivation", None]:
            if data is None:
                return data
            try:
                if not isinstance(data, dict):
                    raise TypeError()
                deactivation_type_0 = WebhookDeactivation.from_dict(data)

                return deactivation_type_0
            except:  # noqa: E722
                pass
            return cast(Union["WebhookDeactivation", None], data)

        deactivation = _parse_deactivation(d.pop("deactivation"))

        events = []
        _events = d.pop("events")
        for events_item_data in _events:
            events_item = WebhookEventType(events_item_data)

            events.append(events_item)

        header_names = cast(list[str], d.pop("header_names"))

        id = d.pop("id")

        is_active = d.pop("is_active")

        name = d.pop("name")

        updated_at = isoparse(d.pop("updated_at"))

        url = d.pop("url")

        webhook = cls(
            created_at=created_at,
            credential_id=credential_id,
            deactivation=deactivation,
            events=events,
            header_names=header_names,
            id=id,
            is_active=is_active,
            name=name,
            updated_at=updated_at,
            url=url,
        )

        webhook.additional_properties = d
        return webhook

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
