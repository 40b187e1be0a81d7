from collections.abc import Mapping
from typing import Any, TypeVar, Union, cast

from attrs import define as _attrs_define
from attrs import field as _attrs_field

T = TypeVar("T", bound="HistoryActor")


@_attrs_define
class HistoryActor:
    """Person or process that caused an event.

    Attributes:
        actor_id (Union[None, int]): Unique identifier of the actor within its kind; null for a process, such as
            `fulfilment`.
        kind (str): Kind of actor: `credential`, `user`, `operator`, `fulfilment`, `replay`, `sandbox` or `service`.
        name (Union[None, str]): Name of the credential or operator, or the user's email address, if known.
    """

    actor_id: Union[None, int]
    kind: str
    name: Union[None, str]
    additional_properties: dict[str, Any] = _attrs_field(init=False, factory=dict)

    def to_dict(self) -> dict[str, Any]:
        actor_id: Union[None, int]
        actor_id = self.actor_id

        kind = self.kind

        name: Union[None, str]
        name = self.name

        field_dict: dict[str, Any] = {}
        field_dict.update(self.additional_properties)
        field_dict.update(
            {
                "actor_id": actor_id,
                "kind": kind,
                "name": name,
            }
        )

        return field_dict

    @classmethod
    def from_dict(cls: type[T], src_dict: Mapping[str, Any]) -> T:
        d = dict(src_dict)

        def _parse_actor_id(data: object) -> Union[None, int]:
            if data is None:
                return data
            return cast(Union[None, int], data)

        actor_id = _parse_actor_id(d.pop("actor_id"))

        kind = d.pop("kind")

        def _parse_name(data: object) -> Union[None, str]:
            if data is None:
                return data
            return cast(Union[None, str], data)

        name = _parse_name(d.pop("name"))

        history_actor = cls(
            actor_id=actor_id,
            kind=kind,
            name=name,
        )

        history_actor.additional_properties = d
        return history_actor

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
