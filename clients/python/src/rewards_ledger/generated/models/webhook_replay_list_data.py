from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, TypeVar

from attrs import define as _attrs_define
from attrs import field as _attrs_field

if TYPE_CHECKING:
    from ..models.webhook_replay import WebhookReplay


T = TypeVar("T", bound="WebhookReplayListData")


@_attrs_define
class WebhookReplayListData:
    """One page of the list.

    Attributes:
        replays (list['WebhookReplay']):
    """

    replays: list["WebhookReplay"]
    additional_properties: dict[str, Any] = _attrs_field(init=False, factory=dict)

    def to_dict(self) -> dict[str, Any]:
        replays = []
        for replays_item_data in self.replays:
            replays_item = replays_item_data.to_dict()
            replays.append(replays_item)

        field_dict: dict[str, Any] = {}
        field_dict.update(self.additional_properties)
        field_dict.update(
            {
                "replays": replays,
            }
        )

        return field_dict

    @classmethod
    def from_dict(cls: type[T], src_dict: Mapping[str, Any]) -> T:
        from ..models.webhook_replay import WebhookReplay

        d = dict(src_dict)
        replays = []
        _replays = d.pop("replays")
        for replays_item_data in _replays:
            replays_item = WebhookReplay.from_dict(replays_item_data)

            replays.append(replays_item)

        webhook_replay_list_data = cls(
            replays=replays,
        )

        webhook_replay_list_data.additional_properties = d
        return webhook_replay_list_data

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
