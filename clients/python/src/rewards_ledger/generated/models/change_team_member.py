from collections.abc import Mapping
from typing import Any, TypeVar

from attrs import define as _attrs_define

from ..models.user_role import UserRole

T = TypeVar("T", bound="ChangeTeamMember")


@_attrs_define
class ChangeTeamMember:
    """A new role of a user.

    Attributes:
        role (UserRole): Role of a user. Each role includes the permissions of the roles before it.

            - `viewer`: reads everything except voucher codes.
            - `operator`: places and cancels orders, reads voucher codes, and manages webhooks.
            - `owner`: manages payouts, beneficiaries and API keys.
    """

    role: UserRole

    def to_dict(self) -> dict[str, Any]:
        role = self.role.value

        field_dict: dict[str, Any] = {}

        field_dict.update(
            {
                "role": role,
            }
        )

        return field_dict

    @classmethod
    def from_dict(cls: type[T], src_dict: Mapping[str, Any]) -> T:
        d = dict(src_dict)
        role = UserRole(d.pop("role"))

        change_team_member = cls(
            role=role,
        )

        return change_team_member
