from collections.abc import Mapping
from typing import Any, TypeVar

from attrs import define as _attrs_define

from ..models.user_role import UserRole

T = TypeVar("T", bound="InvitePerson")


@_attrs_define
class InvitePerson:
    """A person to invite.

    Attributes:
        email (str): Email address to send the invitation to, and to log in with afterwards.
        role (UserRole): Role of a user. Each role includes the permissions of the roles before it.

            - `viewer`: reads everything except voucher codes.
            - `operator`: places and cancels orders, reads voucher codes, and manages webhooks.
            - `owner`: manages payouts, beneficiaries and API keys.
    """

    email: str
    role: UserRole

    def to_dict(self) -> dict[str, Any]:
        email = self.email

        role = self.role.value

        field_dict: dict[str, Any] = {}

        field_dict.update(
            {
                "email": email,
                "role": role,
            }
        )

        return field_dict

    @classmethod
    def from_dict(cls: type[T], src_dict: Mapping[str, Any]) -> T:
        d = dict(src_dict)
        email = d.pop("email")

        role = UserRole(d.pop("role"))

        invite_person = cls(
            email=email,
            role=role,
        )

        return invite_person
