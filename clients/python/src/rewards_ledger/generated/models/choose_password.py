from collections.abc import Mapping
from typing import Any, TypeVar

from attrs import define as _attrs_define
from attrs import field as _attrs_field

T = TypeVar("T", bound="ChoosePassword")


@_attrs_define
class ChoosePassword:
    """A token from a mail, and the password to log in with from now on.

    Attributes:
        password (str): New password, 8 to 128 characters. Common passwords, and close variants of them, are refused.
        token (str): Token from the mail. A successful request uses it up.
    """

    password: str = _attrs_field(repr=False)
    token: str = _attrs_field(repr=False)

    def to_dict(self) -> dict[str, Any]:
        password = self.password

        token = self.token

        field_dict: dict[str, Any] = {}

        field_dict.update(
            {
                "password": password,
                "token": token,
            }
        )

        return field_dict

    @classmethod
    def from_dict(cls: type[T], src_dict: Mapping[str, Any]) -> T:
        d = dict(src_dict)
        password = d.pop("password")

        token = d.pop("token")

        choose_password = cls(
            password=password,
            token=token,
        )

        return choose_password
