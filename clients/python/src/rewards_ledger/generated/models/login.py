from collections.abc import Mapping
from typing import Any, TypeVar, Union, cast

from attrs import define as _attrs_define
from attrs import field as _attrs_field

from ..types import UNSET, Unset

T = TypeVar("T", bound="Login")


@_attrs_define
class Login:
    """The credentials of a user.

    Attributes:
        email (str): Email address of the user. Case does not matter.
        password (str): Password of the user.
        otp (Union[None, Unset, str]): Code from the authenticator app, or a recovery code, for a user with two-factor
            authentication. Each works once.
    """

    email: str
    password: str = _attrs_field(repr=False)
    otp: Union[None, Unset, str] = _attrs_field(default=UNSET, repr=False)

    def to_dict(self) -> dict[str, Any]:
        email = self.email

        password = self.password

        otp: Union[None, Unset, str]
        if isinstance(self.otp, Unset):
            otp = UNSET
        else:
            otp = self.otp

        field_dict: dict[str, Any] = {}

        field_dict.update(
            {
                "email": email,
                "password": password,
            }
        )
        if otp is not UNSET:
            field_dict["otp"] = otp

        return field_dict

    @classmethod
    def from_dict(cls: type[T], src_dict: Mapping[str, Any]) -> T:
        d = dict(src_dict)
        email = d.pop("email")

        password = d.pop("password")

        def _parse_otp(data: object) -> Union[None, Unset, str]:
            if data is None:
                return data
            if isinstance(data, Unset):
                return data
            return cast(Union[None, Unset, str], data)

        otp = _parse_otp(d.pop("otp", UNSET))

        login = cls(
            email=email,
            password=password,
            otp=otp,
        )

        return login
