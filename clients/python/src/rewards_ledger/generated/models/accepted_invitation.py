from collections.abc import Mapping
from typing import Any, TypeVar

from attrs import define as _attrs_define
from attrs import field as _attrs_field

from ..models.user_role import UserRole

T = TypeVar("T", bound="AcceptedInvitation")


@_attrs_define
class AcceptedInvitation:
    """The user that an invitation has become.

    Attributes:
        account_id (int): Unique identifier of the user's account.
        email (str): Email address to log in with.
        id (int): Unique identifier of the new user.
        role (UserRole): Role of a user. Each role includes the permissions of the roles before it.

            - `viewer`: reads everything except voucher codes.
            - `operator`: places and cancels orders, reads voucher codes, and manages webhooks.
            - `owner`: manages payouts, beneficiaries and API keys.
    """

    account_id: int
    email: str
    id: int
    role: UserRole
    additional_properties: dict[str, Any] = _attrs_field(init=False, factory=dict)

    def to_dict(self) -> dict[str, Any]:
        account_id = self.account_id

        email = self.email

        id = self.id

        role = self.role.value

        field_dict: dict[str, Any] = {}
        field_dict.update(self.additional_properties)
        field_dict.update(
            {
                "account_id": account_id,
                "email": email,
                "id": id,
                "role": role,
            }
        )

        return field_dict

    @classmethod
    def from_dict(cls: type[T], src_dict: Mapping[str, Any]) -> T:
        d = dict(src_dict)
        account_id = d.pop("account_id")

        email = d.pop("email")

        id = d.pop("id")

        role = UserRole(d.pop("role"))

        accepted_invitation = cls(
            account_id=account_id,
            email=email,
            id=id,
            role=role,
        )

        accepted_invitation.additional_properties = d
        return accepted_invitation

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
