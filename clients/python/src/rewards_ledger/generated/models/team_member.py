import datetime
from collections.abc import Mapping
from typing import Any, TypeVar

from attrs import define as _attrs_define
from attrs import field as _attrs_field
from dateutil.parser import isoparse

from ..models.user_role import UserRole

T = TypeVar("T", bound="TeamMember")


@_attrs_define
class TeamMember:
    """A user of the own account.

    Attributes:
        created_at (datetime.datetime): Time at which the user was created.
        email (str): Email address to log in with. Empty after it is erased.
        has_two_factor (bool): Whether each login of the user takes a code.
        id (int): Unique identifier of the user.
        role (UserRole): Role of a user. Each role includes the permissions of the roles before it.

            - `viewer`: reads everything except voucher codes.
            - `operator`: places and cancels orders, reads voucher codes, and manages webhooks.
            - `owner`: manages payouts, beneficiaries and API keys.
    """

    created_at: datetime.datetime
    email: str
    has_two_factor: bool
    id: int
    role: UserRole
    additional_properties: dict[str, Any] = _attrs_field(init=False, factory=dict)

    def to_dict(self) -> dict[str, Any]:
        created_at = self.created_at.isoformat()

        email = self.email

        has_two_factor = self.has_two_factor

        id = self.id

        role = self.role.value

        field_dict: dict[str, Any] = {}
        field_dict.update(self.additional_properties)
        field_dict.update(
            {
                "created_at": created_at,
                "email": email,
                "has_two_factor": has_two_factor,
                "id": id,
                "role": role,
            }
        )

        return field_dict

    @classmethod
    def from_dict(cls: type[T], src_dict: Mapping[str, Any]) -> T:
        d = dict(src_dict)
        created_at = isoparse(d.pop("created_at"))

        email = d.pop("email")

        has_two_factor = d.pop("has_two_factor")

        id = d.pop("id")

        role = UserRole(d.pop("role"))

        team_member = cls(
            created_at=created_at,
            email=email,
            has_two_factor=has_two_factor,
            id=id,
            role=role,
        )

        team_member.additional_properties = d
        return team_member

    @property
    def additional_keys(self) -> list[str]:
        return list(self.additional_properties.keys())

    def __getitem__(self, key: str) -> Any:
        return self.additional_properties[key]

    def __setitem__(self, key: str, value: Any) -> None:
        self.additional_properties[key] = value

    def __delitem__(self, key: str) -> None:
        del self.additional_properties[key]

    def __contains__(self, key: str) -> bool:
        return key in self.additional_properties
