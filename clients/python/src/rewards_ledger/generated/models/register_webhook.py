from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, TypeVar, Union, cast

from attrs import define as _attrs_define

from ..models.webhook_event_type import WebhookEventType
from ..types import UNSET, Unset

if TYPE_CHECKING:
    from ..models.webhook_header import WebhookHeader


T = TypeVar("T", bound="RegisterWebhook")


@_attrs_define
class RegisterWebhook:
    """A webhook to register.

    Attributes:
        events (list[WebhookEventType]): Event types that the webhook is subscribed to.
        name (str): Name of the webhook, for people to recognize it.
        url (str): URL that receives the events. It must begin with `https://` and must not contain a user name or a
            password.
        credential_id (Union[None, Unset, int]): API credential to link: its signing secret becomes the token. Without
            it, the service generates a separate token.
            Linking requires the role owner, or a request made with that credential.
        headers (Union[None, Unset, list['WebhookHeader']]): Headers of your own that each delivery carries, such as
            `Authorization`. At most 10.
    """

    events: list[WebhookEventType]
    name: str
    url: str
    credential_id: Union[None, Unset, int] = UNSET
    headers: Union[None, Unset, list["WebhookHeader"]] = UNSET

    def to_dict(self) -> dict[str, Any]:
        events = []
        for events_item_data in self.events:
            events_item = events_item_data.value
            events.append(events_item)

        name = self.name

        url = self.url

        credential_id: Union[None, Unset, int]
        if isinstance(self.credential_id, Unset):
            credential_id = UNSET
        else:
            credential_id = self.credential_id

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

        field_dict: dict[str, Any] = {}

        field_dict.update(
            {
                "events": events,
                "name": name,
                "url": url,
            }
        )
        if credential_id is not UNSET:
            field_dict["credential_id"] = credential_id
        if headers is not UNSET:
            field_dict["headers"] = headers

        return field_dict

    @classmethod
    def from_dict(cls: type[T], src_dict: Mapping[str, Any]) -> T:
        from ..models.webhook_header import WebhookHeader

        d = dict(src_dict)
        events = []
        _events = d.pop("events")
        for events_item_data in _events:
            events_item = WebhookEventType(events_item_data)

            events.append(events_item)

        name = d.pop("name")

        url = d.pop("url")

        def _parse_credential_id(data: object) -> Union[None, Unset, int]:
            if data is None:
                return data
            if isinstance(data, Unset):
                return data
            return cast(Union[None, Unset, int], data)

        credential_id = _parse_credential_id(d.pop("credential_id", UNSET))

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

        register_webhook = cls(
            events=events,
            name=name,
            url=url,
            credential_id=credential_id,
            headers=headers,
        )

        return register_webhook
