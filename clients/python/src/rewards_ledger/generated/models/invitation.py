import datetime
from collections.abc import Mapping
from typing import Any, TypeVar

from attrs import define as _attrs_define
from attrs import field as _attrs_field
from dateutil.parser import isoparse

from ..models.user_role import UserRole

T = TypeVar("T", bound="Invitation")


@_attrs_define
class Invitation:
    """An invitation that nobody has accepted.

    Attributes:
        created_at (datetime.datetime): Time of the invitation.
        email (str): Email address that the invitation was sent to.
        expires_at (datetime.datetime): Time at which the invitation expires, 7 days later.
        id (int): Unique identifier of the invitation.
        invited_by (int): Unique identifier of the user who sent the invitation.
        role (UserRole): Role of a user. Each role includes the permissions of the roles before it.

            - `viewer`: reads everything except voucher codes.
            - `operator`: places and cancels orders, reads voucher codes, and manages webhooks.
            - `owner`: manages payouts, beneficiaries and API keys.
    """

    created_at: datetime.datetime
    email: str
    expires_at: datetime.datetime
    id: int
    invited_by: int
    role: UserRole
    additional_properties: dict[str, Any] = _attrs_field(init=False, factory=dict)

    def to_dict(self) -> dict[str, Any]:
        created_at = self.created_at.isoformat()

        email = self.email

        expires_at = self.expires_at.isoformat()

        id = self.id

        invited_by = self.invited_by

        role = self.role.value

        field_dict: dict[str, Any] = {}
        field_dict.update(self.additional_properties)
        field_dict.update(
            {
                "created_at": created_at,
                "email": email,
                "expires_at": expires_at,
                "id": id,
                "invited_by": invited_by,
                "role": role,
            }
        )

        return field_dict

    @classmethod
    def from_dict(cls: type[T], src_dict: Mapping[str, Any]) -> T:
        d = dict(src_dict)
        created_at = isoparse(d.pop("created_at"))

        email = d.pop("email")

        expires_at = isoparse(d.pop("expires_at"))

        id = d.pop("id")

        invited_by = d.pop("invited_by")

        role = UserRole(d.pop("role"))

        invitation = cls(
            created_at=created_at,
            email=email,
            expires_at=expires_at,
            id=id,
            invited_by=invited_by,
            role=role,
        )

        invitation.additional_properties = d
        return invitation

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
