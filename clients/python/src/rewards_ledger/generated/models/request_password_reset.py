from collections.abc import Mapping
from typing import Any, TypeVar

from attrs import define as _attrs_define

T = TypeVar("T", bound="RequestPasswordReset")


@_attrs_define
class RequestPasswordReset:
    """The email address of a user who forgot the password.

    Attributes:
        email (str): Email address of the user. Case does not matter.
    """

    email: str

    def to_dict(self) -> dict[str, Any]:
        email = self.email

        field_dict: dict[str, Any] = {}

        field_dict.update(
            {
                "email": email,
            }
        )

        return field_dict

    @classmethod
    def from_dict(cls: type[T], src_dict: Mapping[str, Any]) -> T:
        d = dict(src_dict)
        email = d.pop("email")

        request_password_reset = cls(
            email=email,
        )

        return request_password_reset
