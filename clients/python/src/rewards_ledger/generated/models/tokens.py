import datetime
from collections.abc import Mapping
from typing import Any, TypeVar

from attrs import define as _attrs_define
from attrs import field as _attrs_field
from dateutil.parser import isoparse

T = TypeVar("T", bound="Tokens")


@_attrs_define
class Tokens:
    """The tokens of a session. They are shown only in this response.

    Attributes:
        access_token (str): JWT to send as `Authorization: Bearer`.
        account_id (int): Unique identifier of the user's account.
        expires_in (int): Seconds until the access token expires.
        refresh_expires_at (datetime.datetime): Time at which the refresh token expires.
        refresh_token (str): Token for one call of `POST /auth/refresh`.
        token_type (str): Type of the access token, always `Bearer`.
    """

    access_token: str = _attrs_field(repr=False)
    account_id: int
    expires_in: int
    refresh_expires_at: datetime.datetime
    refresh_token: str = _attrs_field(repr=False)
    token_type: str
    additional_properties: dict[str, Any] = _attrs_field(init=False, factory=dict)

    def to_dict(self) -> dict[str, Any]:
        access_token = self.access_token

        account_id = self.account_id

        expires_in = self.expires_in

        refresh_expires_at = self.refresh_expires_at.isoformat()

        refresh_token = self.refresh_token

        token_type = self.token_type

        field_dict: dict[str, Any] = {}
        field_dict.update(self.additional_properties)
        field_dict.update(
            {
                "access_token": access_token,
                "account_id": account_id,
                "expires_in": expires_in,
                "refresh_expires_at": refresh_expires_at,
                "refresh_token": refresh_token,
                "token_type": token_type,
            }
        )

        return field_dict

    @classmethod
    def from_dict(cls: type[T], src_dict: Mapping[str, Any]) -> T:
        d = dict(src_dict)
        access_token = d.pop("access_token")

        account_id = d.pop("account_id")

        expires_in = d.pop("expires_in")

        refresh_expires_at = isoparse(d.pop("refresh_expires_at"))

        refresh_token = d.pop("refresh_token")

        token_type = d.pop("token_type")

        tokens = cls(
            access_token=access_token,
            account_id=account_id,
            expires_in=expires_in,
            refresh_expires_at=refresh_expires_at,
            refresh_token=refresh_token,
            token_type=token_type,
        )

        tokens.additional_properties = d
        return tokens

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
