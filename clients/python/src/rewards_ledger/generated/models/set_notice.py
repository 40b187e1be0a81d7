from collections.abc import Mapping
from typing import Any, TypeVar, Union, cast

from attrs import define as _attrs_define

from ..types import UNSET, Unset

T = TypeVar("T", bound="SetNotice")


@_attrs_define
class SetNotice:
    """Amount below which the account wants to be told about a wallet's balance.

    Attributes:
        below (Union[None, Unset, float, str]): Amount, greater than 0.00; null for no notices.
    """

    below: Union[None, Unset, float, str] = UNSET

    def to_dict(self) -> dict[str, Any]:
        below: Union[None, Unset, float, str]
        if isinstance(self.below, Unset):
            below = UNSET
        else:
            below = self.below

        field_dict: dict[str, Any] = {}

        field_dict.update({})
        if below is not UNSET:
            field_dict["below"] = below

        return field_dict

    @classmethod
    def from_dict(cls: type[T], src_dict: Mapping[str, Any]) -> T:
        d = dict(src_dict)

        def _parse_below(data: object) -> Union[None, Unset, float, str]:
            if data is None:
                return data
            if isinstance(data, Unset):
                return data
            return cast(Union[None, Unset, float, str], data)

        below = _parse_below(d.pop("below", UNSET))

        set_notice = cls(
            below=below,
        )

        return set_notice
