import datetime
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, TypeVar

from attrs import define as _attrs_define
from attrs import field as _attrs_field
from dateutil.parser import isoparse

if TYPE_CHECKING:
    from ..models.history_actor import HistoryActor


T = TypeVar("T", bound="HistoryRetry")


@_attrs_define
class HistoryRetry:
    """A request to retry a failed delivery.

    Attributes:
        actor (HistoryActor): Person or process that caused an event.
        requested_at (datetime.datetime): Time of the request.
    """

    actor: "HistoryActor"
    requested_at: datetime.datetime
    additional_properties: dict[str, Any] = _attrs_field(init=False, factory=dict)

    def to_dict(self) -> dict[str, Any]:
        actor = self.actor.to_dict()

        requested_at = self.requested_at.isoformat()

        field_dict: dict[str, Any] = {}
        field_dict.update(self.additional_properties)
        field_dict.update(
            {
                "actor": actor,
                "requested_at": requested_at,
            }
        )

        return field_dict

    @classmethod
    def from_dict(cls: type[T], src_dict: Mapping[str, Any]) -> T:
        from ..models.history_actor import HistoryActor

        d = dict(src_dict)
        actor = HistoryActor.from_dict(d.pop("actor"))

        requested_at = isoparse(d.pop("requested_at"))

        history_retry = cls(
            actor=actor,
            requested_at=requested_at,
        )

        history_retry.additional_properties = d
        return history_retry

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
