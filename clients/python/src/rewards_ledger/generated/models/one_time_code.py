from collections.abc import Mapping
from typing import Any, TypeVar

from attrs import define as _attrs_define
from attrs import field as _attrs_field

T = TypeVar("T", bound="OneTimeCode")


@_attrs_define
class OneTimeCode:
    """A code of the second factor.

    Attributes:
        otp (str): Six digits from the authenticator app. To disable two-factor authentication, a recovery code is
            accepted too.
    """

    otp: str = _attrs_field(repr=False)

    def to_dict(self) -> dict[str, Any]:
        otp = self.otp

        field_dict: dict[str, Any] = {}

        field_dict.update(
            {
                "otp": otp,
            }
        )

        return field_dict

    @classmethod
    def from_dict(cls: type[T], src_dict: Mapping[str, Any]) -> T:
        d = dict(src_dict)
        otp = d.pop("otp")

        one_time_code = cls(
            otp=otp,
        )

        return one_time_code
