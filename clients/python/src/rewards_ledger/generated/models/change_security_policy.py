from collections.abc import Mapping
from typing import Any, TypeVar

from attrs import define as _attrs_define

T = TypeVar("T", bound="ChangeSecurityPolicy")


@_attrs_define
class ChangeSecurityPolicy:
    """New rules for logins.

    Attributes:
        owners_need_two_factor (bool): Whether owners need two-factor authentication. An owner without it may only
            enrol.
    """

    owners_need_two_factor: bool

    def to_dict(self) -> dict[str, Any]:
        owners_need_two_factor = self.owners_need_two_factor

        field_dict: dict[str, Any] = {}

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

        change_security_policy = cls(
            owners_need_two_factor=owners_need_two_factor,
        )

        return change_security_policy
