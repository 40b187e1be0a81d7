from collections.abc import Mapping
from typing import Any, TypeVar, Union, cast

from attrs import define as _attrs_define

from ..models.webhook_event_type import WebhookEventType
from ..types import UNSET, Unset

T = TypeVar("T", bound="TestWebhook")


@_attrs_define
class TestWebhook:
    """A test of a webhook.

    Attributes:
        event_type (Union[None, Unset, WebhookEventType]): Event type of the sample data, to which the webhook must be
            subscribed. Default: the first one of its list.
    """

    event_type: Union[None, Unset, WebhookEventType] = UNSET

    def to_dict(self) -> dict[str, Any]:
        event_type: Union[None, Unset, str]
        if isinstance(self.event_type, Unset):
            event_type = UNSET
        elif isinstance(self.event_type, WebhookEventType):
            event_type = self.event_type.value
        else:
            event_type = self.event_type

        field_dict: dict[str, Any] = {}

        field_dict.update({})
        if event_type is not UNSET:
            field_dict["event_type"] = event_type

        return field_dict

    @classmethod
    def from_dict(cls: type[T], src_dict: Mapping[str, Any]) -> T:
        d = dict(src_dict)

        def _parse_event_type(data: object) -> Union[None, Unset, WebhookEventType]:
            if data is None:
                return data
            if isinstance(data, Unset):
                return data
            try:
                if not isinstance(data, str):
                    raise TypeError()
                event_type_type_0 = WebhookEventType(data)

                return event_type_type_0
            except:  # noqa: E722
                pass
            return cast(Union[None, Unset, WebhookEventType], data)

        event_type = _parse_event_type(d.pop("event_type", UNSET))

        test_webhook = cls(
            event_type=event_type,
        )

        return test_webhook
