import datetime
from collections.abc import Mapping
from typing import Any, TypeVar, Union, cast

from attrs import define as _attrs_define
from dateutil.parser import isoparse

from ..models.key_scope import KeyScope
from ..types import UNSET, Unset

T = TypeVar("T", bound="IssueCredential")


@_attrs_define
class IssueCredential:
    """A new API credential.

    Attributes:
        name (str): Name of the credential, for people to recognize it.
        allowed_networks (Union[None, Unset, list[str]]): Networks that requests with the key may come from, such as
            `203.0.113.0/24`, or single addresses. Default: any.
        expires_at (Union[None, Unset, datetime.datetime]): Time from which on requests with the key are refused.
            Default: never.
        scopes (Union[None, Unset, list[KeyScope]]): Operations that the key may use. Default: all.
    """

    name: str
    allowed_networks: Union[None, Unset, list[str]] = UNSET
    expires_at: Union[None, Unset, datetime.datetime] = UNSET
    scopes: Union[None, Unset, list[KeyScope]] = UNSET

    def to_dict(self) -> dict[str, Any]:
        name = self.name

        allowed_networks: Union[None, Unset, list[str]]
        if isinstance(self.allowed_networks, Unset):
            allowed_networks = UNSET
        elif isinstance(self.allowed_networks, list):
            allowed_networks = self.allowed_networks

        else:
            allowed_networks = self.allowed_networks

        expires_at: Union[None, Unset, str]
        if isinstance(self.expires_at, Unset):
            expires_at = UNSET
        elif isinstance(self.expires_at, datetime.datetime):
            expires_at = self.expires_at.isoformat()
        else:
            expires_at = self.expires_at

        scopes: Union[None, Unset, list[str]]
        if isinstance(self.scopes, Unset):
            scopes = UNSET
        elif isinstance(self.scopes, list):
            scopes = []
            for scopes_type_0_item_data in self.scopes:
                scopes_type_0_item = scopes_type_0_item_data.value
                scopes.append(scopes_type_0_item)

        else:
            scopes = self.scopes

        field_dict: dict[str, Any] = {}

        field_dict.update(
            {
                "name": name,
            }
        )
        if allowed_networks is not UNSET:
            field_dict["allowed_networks"] = allowed_networks
        if expires_at is not UNSET:
            field_dict["expires_at"] = expires_at
        if scopes is not UNSET:
            field_dict["scopes"] = scopes

        return field_dict

    @classmethod
    def from_dict(cls: type[T], src_dict: Mapping[str, Any]) -> T:
        d = dict(src_dict)
        name = d.pop("name")

        def _parse_allowed_networks(data: object) -> Union[None, Unset, list[str]]:
            if data is None:
                return data
            if isinstance(data, Unset):
                return data
            try:
                if not isinstance(data, list):
                    raise TypeError()
                allowed_networks_type_0 = cast(list[str], data)

                return allowed_networks_type_0
            except:  # noqa: E722
                pass
            return cast(Union[None, Unset, list[str]], data)

        allowed_networks = _parse_allowed_networks(d.pop("allowed_networks", UNSET))

        def _parse_expires_at(data: object) -> Union[None, Unset, datetime.datetime]:
            if data is None:
                return data
            if isinstance(data, Unset):
                return data
            try:
                if not isinstance(data, str):
                    raise TypeError()
                expires_at_type_0 = isoparse(data)

                return expires_at_type_0
            except:  # noqa: E722
                pass
            return cast(Union[None, Unset, datetime.datetime], data)

        expires_at = _parse_expires_at(d.pop("expires_at", UNSET))

        def _parse_scopes(data: object) -> Union[None, Unset, list[KeyScope]]:
            if data is None:
                return data
            if isinstance(data, Unset):
                return data
            try:
                if not isinstance(data, list):
                    raise TypeError()
                scopes_type_0 = []
                _scopes_type_0 = data
                for scopes_type_0_item_data in _scopes_type_0:
                    scopes_type_0_item = KeyScope(scopes_type_0_item_data)

                    scopes_type_0.append(scopes_type_0_item)

                return scopes_type_0
            except:  # noqa: E722
                pass
            return cast(Union[None, Unset, list[KeyScope]], data)

        scopes = _parse_scopes(d.pop("scopes", UNSET))

        issue_credential = cls(
            name=name,
            allowed_networks=allowed_networks,
            expires_at=expires_at,
            scopes=scopes,
        )

        return issue_credential
