from collections.abc import Mapping
from typing import Any, TypeVar

from attrs import define as _attrs_define
from attrs import field as _attrs_field

T = TypeVar("T", bound="Refresh")


@_attrs_define
class Refresh:
    """A refresh token to exchange for new tokens.

    Attributes:
        refresh_token (str): Refresh token from the latest login or refresh. This request uses it up.
    """

    refresh_token: str = _attrs_field(repr=False)

    def to_dict(self) -> dict[str, Any]:
        refresh_token = self.refresh_token

        field_dict: dict[str, Any] = {}

        field_dict.update(
            {
                "refresh_token": refresh_token,
            }
        )

        return field_dict

    @classmethod
    def from_dict(cls: type[T], src_dict: Mapping[str, Any]) -> T:
        d = dict(src_dict)
        refresh_token = d.pop("refresh_token")

        refresh = cls(
            refresh_token=refresh_token,
        )

        return refresh
