from collections.abc import Mapping
from typing import Any, TypeVar, cast

from attrs import define as _attrs_define
from attrs import field as _attrs_field

T = TypeVar("T", bound="EventPage")


@_attrs_define
class EventPage:
    """Part of the account's events, oldest first.

    Attributes:
        cursor (str): Cursor to send as `after` in the next request. Store it after you have processed the events. It
            never expires.
        events (list[Any]): Event envelopes: the same JSON, byte for byte, that webhooks receive. A test delivery is not
            among them.
        has_more (bool): Whether the log goes on after the cursor. If it does, request the next part at once, even if
            `events` is empty.
        sequences (list[int]): Sequence of each event in `events`, in the same order. Order events by it: it grows with
            every event of the account,
            and is not consecutive. The header `X-Event-Sequence` of a webhook has the same value.
    """

    cursor: str
    events: list[Any]
    has_more: bool
    sequences: list[int]
    additional_properties: dict[str, Any] = _attrs_field(init=False, factory=dict)

    def to_dict(self) -> dict[str, Any]:
        cursor = self.cursor

        events = self.events

        has_more = self.has_more

        sequences = self.sequences

        field_dict: dict[str, Any] = {}
        field_dict.update(self.additional_properties)
        field_dict.update(
            {
                "cursor": cursor,
                "events": events,
                "has_more": has_more,
                "sequences": sequences,
            }
        )

        return field_dict

    @classmethod
    def from_dict(cls: type[T], src_dict: Mapping[str, Any]) -> T:
        d = dict(src_dict)
        cursor = d.pop("cursor")

        events = cast(list[Any], d.pop("events"))

        has_more = d.pop("has_more")

        sequences = cast(list[int], d.pop("sequences"))

        event_page = cls(
            cursor=cursor,
            events=events,
            has_more=has_more,
            sequences=sequences,
        )

        event_page.additional_properties = d
        return event_page

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
