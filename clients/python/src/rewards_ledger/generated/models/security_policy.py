from collections.abc import Mapping
from typing import Any, TypeVar

from attrs import define as _attrs_define
from attrs import field as _attrs_field

T = TypeVar("T", bound="SecurityPolicy")


@_attrs_define
class SecurityPolicy:
    """The account's rules for logins.

    Attributes:
        owners_need_two_factor (bool): Whether owners need two-factor authentication. An owner without it may only
            enrol.
    """

    owners_need_two_factor: bool
    additional_properties: dict[str, Any] = _attrs_field(init=False, factory=dict)

    def to_dict(self) -> dict[str, Any]:
        owners_need_two_factor = self.owners_need_two_factor

        field_dict: dict[str, Any] = {}
        field_dict.update(self.additional_properties)
        field_dict.update(
            {
                "owners_need_two_factor": owners_need_two_factor,
            }
        )

        return field_dict

    @classmethod
    def from_dict(cls: type[T], src_dict: Mapping[str, Any]) -> T:
        d = dict(src_dict)
        owners_need_two_factor = d.pop("owners_need_two_factor")

        security_policy = cls(
            owners_need_two_factor=owners_need_two_factor,
        )

        security_policy.additional_properties = d
        return security_policy

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
