from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, TypeVar, Union, cast

from attrs import define as _attrs_define
from attrs import field as _attrs_field

if TYPE_CHECKING:
    from ..models.webhook_replay import WebhookReplay


T = TypeVar("T", bound="ReplayRequested")


@_attrs_define
class ReplayRequested:
    """A started replay, or the result of a dry run.

    Attributes:
        found (Union[None, int]): Number of events found. Null unless this was a dry run.
        is_complete (Union[None, bool]): Whether the dry run has counted all events. If not, there may be more. Null
            unless this was a dry run.
        next_position (Union[None, int]): Position of the log at which the next dry run continues the count. Null if the
            count is complete.
        replay (Union['WebhookReplay', None]): The started replay; null after a dry run.
        until_position (Union[None, int]): Position of the log at which the count will be complete. Null unless this was
            a dry run.
    """

    found: Union[None, int]
    is_complete: Union[None, bool]
    next_position: Union[None, int]
    replay: Union["WebhookReplay", None]
    until_position: Union[None, int]
    additional_properties: dict[str, Any] = _attrs_field(init=False, factory=dict)

    def to_dict(self) -> dict[str, Any]:
        from ..models.webhook_replay import WebhookReplay

        found: Union[None, int]
        found = self.found

        is_complete: Union[None, bool]
        is_complete = self.is_complete

        next_position: Union[None, int]
        next_position = self.next_position

        replay: Union[None, dict[str, Any]]
        if isinstance(self.replay, WebhookReplay):
            replay = self.replay.to_dict()
        else:
            replay = self.replay

        until_position: Union[None, int]
        until_position = self.until_position

        field_dict: dict[str, Any] = {}
        field_dict.update(self.additional_properties)
        field_dict.update(
            {
                "found": found,
                "is_complete": is_complete,
                "next_position": next_position,
                "replay": replay,
                "until_position": until_position,
            }
        )

        return field_dict

    @classmethod
    def from_dict(cls: type[T], src_dict: Mapping[str, Any]) -> T:
        from ..models.webhook_replay import WebhookReplay

        d = dict(src_dict)

        def _parse_found(data: object) -> Union[None, int]:
            if data is None:
                return data
            return cast(Union[None, int], data)

        found = _parse_found(d.pop("found"))

        def _parse_is_complete(data: object) -> Union[None, bool]:
            if data is None:
                return data
            return cast(Union[None, bool], data)

        is_complete = _parse_is_complete(d.pop("is_complete"))

        def _parse_next_position(data: object) -> Union[None, int]:
            if data is None:
                return data
            return cast(Union[None, int], data)

        next_position = _parse_next_position(d.pop("next_position"))

        def _parse_replay(data: object) -> Union["WebhookReplay", None]:
            if data is None:
                return data
            try:
                if not isinstance(data, dict):
                    raise TypeError()
                replay_type_0 = WebhookReplay.from_dict(data)

                return replay_type_0
            except:  # noqa: E722
                pass
            return cast(Union["WebhookReplay", None], data)

        replay = _parse_replay(d.pop("replay"))

        def _parse_until_position(data: object) -> Union[None, int]:
            if data is None:
                return data
            return cast(Union[None, int], data)

        until_position = _parse_until_position(d.pop("until_position"))

        replay_requested = cls(
            found=found,
            is_complete=is_complete,
            next_position=next_position,
            replay=replay,
            until_position=until_position,
        )

        replay_requested.additional_properties = d
        return replay_requested

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
