from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, TypeVar, Union, cast

from attrs import define as _attrs_define

from ..models.webhook_event_type import WebhookEventType
from ..types import UNSET, Unset

if TYPE_CHECKING:
    from ..models.webhook_header import WebhookHeader


T = TypeVar("T", bound="ChangeWebhook")


@_attrs_define
class ChangeWebhook:
    """Changes to a webhook. At least one field is required. Fields that are left out keep their values.

    Attributes:
        credential_id (Union[None, Unset, int]): API credential to link: its signing secret becomes the token, from the
            next delivery on. Linking requires the role
            owner, or a request made with that credential.
        events (Union[None, Unset, list[WebhookEventType]]): Event types that the webhook is subscribed to.
        headers (Union[None, Unset, list['WebhookHeader']]): Headers of your own that each delivery carries from the
            next one on. They replace all earlier ones; an empty list
            removes them.
        is_active (Union[None, Unset, bool]): Whether the webhook is active. An inactive webhook receives no events, and
            its pending deliveries fail.
        name (Union[None, Unset, str]): Name of the webhook, for people to recognize it.
        url (Union[None, Unset, str]): URL that receives the events. It must begin with `https://` and must not contain
            a user name or a password.
    """

    credential_id: Union[None, Unset, int] = UNSET
    events: Union[None, Unset, list[WebhookEventType]] = UNSET
    headers: Union[None, Unset, list["WebhookHeader"]] = UNSET
    is_active: Union[None, Unset, bool] = UNSET
    name: Union[None, Unset, str] = UNSET
    url: Union[None, Unset, str] = UNSET

    def to_dict(self) -> dict[str, Any]:
        credential_id: Union[None, Unset, int]
        if isinstance(self.credential_id, Unset):
            credential_id = UNSET
        else:
            credential_id = self.credential_id

        events: Union[None, Unset, list[str]]
        if isinstance(self.events, Unset):
            events = UNSET
        elif isinstance(self.events, list):
            events = []
            for events_type_0_item_data in self.events:
                events_type_0_item = events_type_0_item_data.value
                events.append(events_type_0_item)

        else:
            events = self.events

        headers: Union[None, Unset, list[dict[str, Any]]]
        if isinstance(self.headers, Unset):
            headers = UNSET
        elif isinstance(self.headers, list):
            headers = []
            for headers_type_0_item_data in self.headers:
                headers_type_0_item = headers_type_0_item_data.to_dict()
                headers.append(headers_type_0_item)

        else:
            headers = self.headers

        is_active: Union[None, Unset, bool]
        if isinstance(self.is_active, Unset):
            is_active = UNSET
        else:
            is_active = self.is_active

        name: Union[None, Unset, str]
        if isinstance(self.name, Unset):
            name = UNSET
        else:
            name = self.name

        url: Union[None, Unset, str]
        if isinstance(self.url, Unset):
            url = UNSET
        else:
            url = self.url

        field_dict: dict[str, Any] = {}

        field_dict.update({})
        if credential_id is not UNSET:
            field_dict["credential_id"] = credential_id
        if events is not UNSET:
            field_dict["events"] = events
        if headers is not UNSET:
            field_dict["headers"] = headers
        if is_active is not UNSET:
            field_dict["is_active"] = is_active
        if name is not UNSET:
            field_dict["name"] = name
        if url is not UNSET:
            field_dict["url"] = url

        return field_dict

    @classmethod
    def from_dict(cls: type[T], src_dict: Mapping[str, Any]) -> T:
        from ..models.webhook_header import WebhookHeader

        d = dict(src_dict)

        def _parse_credential_id(data: object) -> Union[None, Unset, int]:
            if data is None:
                return data
            if isinstance(data, Unset):
                return data
            return cast(Union[None, Unset, int], data)

        credential_id = _parse_credential_id(d.pop("credential_id", UNSET))

        def _parse_events(data: object) -> Union[None, Unset, list[WebhookEventType]]:
            if data is None:
                return data
            if isinstance(data, Unset):
                return data
            try:
                if not isinstance(data, list):
                    raise TypeError()
                events_type_0 = []
                _events_type_0 = data
                for events_type_0_item_data in _events_type_0:
                    events_type_0_item = WebhookEventType(events_type_0_item_data)

                    events_type_0.append(events_type_0_item)

                return events_type_0
            except:  # noqa: E722
                pass
            return cast(Union[None, Unset, list[WebhookEventType]], data)

        events = _parse_events(d.pop("events", UNSET))

        def _parse_headers(data: object) -> Union[None, Unset, list["WebhookHeader"]]:
            if data is None:
                return data
            if isinstance(data, Unset):
                return data
            try:
                if not isinstance(data, list):
                    raise TypeError()
                headers_type_0 = []
                _headers_type_0 = data
                for headers_type_0_item_data in _headers_type_0:
                    headers_type_0_item = WebhookHeader.from_dict(headers_type_0_item_data)

                    headers_type_0.append(headers_type_0_item)

                return headers_type_0
            except:  # noqa: E722
                pass
            return cast(Union[None, Unset, list["WebhookHeader"]], data)

        headers = _parse_headers(d.pop("headers", UNSET))

        def _parse_is_active(data: object) -> Union[None, Unset, bool]:
            if data is None:
                return data
            if isinstance(data, Unset):
                return data
            return cast(Union[None, Unset, bool], data)

        is_active = _parse_is_active(d.pop("is_active", UNSET))

        def _parse_name(data: object) -> Union[None, Unset, str]:
            if data is None:
                return data
            if isinstance(data, Unset):
                return data
            return cast(Union[None, Unset, str], data)

        name = _parse_name(d.pop("name", UNSET))

        def _parse_url(data: object) -> Union[None, Unset, str]:
            if data is None:
                return data
            if isinstance(data, Unset):
                return data
            return cast(Union[None, Unset, str], data)

        url = _parse_url(d.pop("url", UNSET))

        change_webhook = cls(
            credential_id=credential_id,
            events=events,
            headers=headers,
            is_active=is_active,
            name=name,
            url=url,
        )

        return change_webhook
