from collections.abc import Mapping
from typing import Any, TypeVar, Union, cast

from attrs import define as _attrs_define

from ..types import UNSET, Unset

T = TypeVar("T", bound="RotateToken")


@_attrs_define
class RotateToken:
    """Details of a rotation.

    Attributes:
        previous_valid_hours (Union[None, Unset, int]): Hours for which deliveries are signed with the replaced secret,
            too, in the header `X-Signature-Previous`. Without it,
            they are signed with the new one alone.
    """

    previous_valid_hours: Union[None, Unset, int] = UNSET

    def to_dict(self) -> dict[str, Any]:
        previous_valid_hours: Union[None, Unset, int]
        if isinstance(self.previous_valid_hours, Unset):
            previous_valid_hours = UNSET
        else:
            previous_valid_hours = self.previous_valid_hours

        field_dict: dict[str, Any] = {}

        field_dict.update({})
        if previous_valid_hours is not UNSET:
            field_dict["previous_valid_hours"] = previous_valid_hours

        return field_dict

    @classmethod
    def from_dict(cls: type[T], src_dict: Mapping[str, Any]) -> T:
        d = dict(src_dict)

        def _parse_previous_valid_hours(data: object) -> Union[None, Unset, int]:
            if data is None:
                return data
            if isinstance(data, Unset):
                return data
            return cast(Union[None, Unset, int], data)

        previous_valid_hours = _parse_previous_valid_hours(d.pop("previous_valid_hours", UNSET))

        rotate_token = cls(
            previous_valid_hours=previous_valid_hours,
        )

        return rotate_token
