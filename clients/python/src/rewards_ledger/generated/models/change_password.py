from collections.abc import Mapping
from typing import Any, TypeVar

from attrs import define as _attrs_define
from attrs import field as _attrs_field

T = TypeVar("T", bound="ChangePassword")


@_attrs_define
class ChangePassword:
    """The present and the new password of the signed-in user.

    Attributes:
        current_password (str): Present password.
        new_password (str): New password, 8 to 128 characters. Common passwords, and close variants of them, are
            refused.
    """

    current_password: str = _attrs_field(repr=False)
    new_password: str = _attrs_field(repr=False)

    def to_dict(self) -> dict[str, Any]:
        current_password = self.current_password

        new_password = self.new_password

        field_dict: dict[str, Any] = {}

        field_dict.update(
            {
                "current_password": current_password,
                "new_password": new_password,
            }
        )

        return field_dict

    @classmethod
    def from_dict(cls: type[T], src_dict: Mapping[str, Any]) -> T:
        d = dict(src_dict)
        current_password = d.pop("current_password")

        new_password = d.pop("new_password")

        change_password = cls(
            current_password=current_password,
            new_password=new_password,
        )

        return change_password
