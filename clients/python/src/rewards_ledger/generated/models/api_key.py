import datetime
from collections.abc import Mapping
from typing import Any, TypeVar, Union, cast

from attrs import define as _attrs_define
from attrs import field as _attrs_field
from dateutil.parser import isoparse

from ..models.key_scope import KeyScope

T = TypeVar("T", bound="ApiKey")


@_attrs_define
class ApiKey:
    """An API key of the account, without its secret.

    Attributes:
        allowed_networks (Union[None, list[str]]): Networks that requests with the API key may come from; null means
            any.
        created_at (datetime.datetime): Time at which the API key was created.
        expires_at (Union[None, datetime.datetime]): Time from which on requests with the API key are refused; null
            means never.
        hmac_required (bool): Whether requests with this API key must have a valid `X-Signature`.
        id (int): Unique identifier of the API key. Webhooks refer to it as `credential_id`.
        is_revoked (bool): Whether the API key is revoked. Requests with a revoked key are refused.
        key_prefix (str): First 8 characters of the API key.
        last_used_at (Union[None, datetime.datetime]): Time of the last request with the API key, exact to about a
            minute; null if there was none yet.
        name (str): Name of the API key, for people to recognize it.
        scopes (Union[None, list[KeyScope]]): Operations that the API key may use; null means all.
    """

    allowed_networks: Union[None, list[str]]
    created_at: datetime.datetime
    expires_at: Union[None, datetime.datetime]
    hmac_required: bool
    id: int
    is_revoked: bool
    key_prefix: str
    last_used_at: Union[None, datetime.datetime]
    name: str
    scopes: Union[None, list[KeyScope]]
    additional_properties: dict[str, Any] = _attrs_field(init=False, factory=dict)

    def to_dict(self) -> dict[str, Any]:
        allowed_networks: Union[None, list[str]]
        if isinstance(self.allowed_networks, list):
            allowed_networks = self.allowed_networks

        else:
            allowed_networks = self.allowed_networks

        created_at = self.created_at.isoformat()

        expires_at: Union[None, str]
        if isinstance(self.expires_at, datetime.datetime):
            expires_at = self.expires_at.isoformat()
        else:
            expires_at = self.expires_at

        hmac_required = self.hmac_required

        id = self.id

        is_revoked = self.is_revoked

        key_prefix = self.key_prefix

        last_used_at: Union[None, str]
        if isinstance(self.last_used_at, datetime.datetime):
            last_used_at = self.last_used_at.isoformat()
        else:
            last_used_at = self.last_used_at

        name = self.name

        scopes: Union[None, list[str]]
        if isinstance(self.scopes, list):
            scopes = []
            for scopes_type_0_item_data in self.scopes:
                scopes_type_0_item = scopes_type_0_item_data.value
                scopes.append(scopes_type_0_item)

        else:
            scopes = self.scopes

        field_dict: dict[str, Any] = {}
        field_dict.update(self.additional_properties)
        field_dict.update(
            {
                "allowed_networks": allowed_networks,
                "created_at": created_at,
                "expires_at": expires_at,
                "hmac_required": hmac_required,
                "id": id,
                "is_revoked": is_revoked,
                "key_prefix": key_prefix,
                "last_used_at": last_used_at,
                "name": name,
                "scopes": scopes,
            }
        )

        return field_dict

    @classmethod
    def from_dict(cls: type[T], src_dict: Mapping[str, Any]) -> T:
        d = dict(src_dict)

        def _parse_allowed_networks(data: object) -> Union[None, list[str]]:
            if data is None:
                return data
            try:
                if not isinstance(data, list):
                    raise TypeError()
                allowed_networks_type_0 = cast(list[str], data)

                return allowed_networks_type_0
            except:  # noqa: E722
                pass
            return cast(Union[None, list[str]], data)

        allowed_networks = _parse_allowed_networks(d.pop("allowed_networks"))

        created_at = isoparse(d.pop("created_at"))

        def _parse_expires_at(data: object) -> Union[None, datetime.datetime]:
            if data is None:
                return data
            try:
                if not isinstance(data, str):
                    raise TypeError()
                expires_at_type_0 = isoparse(data)

                return expires_at_type_0
            except:  # noqa: E722
                pass
            return cast(Union[None, datetime.datetime], data)

        expires_at = _parse_expires_at(d.pop("expires_at"))

        hmac_required = d.pop("hmac_required")

        id = d.pop("id")

        is_revoked = d.pop("is_revoked")

        key_prefix = d.pop("key_prefix")

        def _parse_last_used_at(data: object) -> Union[None, datetime.datetime]:
            if data is None:
                return data
            try:
                if not isinstance(data, str):
                    raise TypeError()
                last_used_at_type_0 = isoparse(data)

                return last_used_at_type_0
            except:  # noqa: E722
                pass
            return cast(Union[None, datetime.datetime], data)

        last_used_at = _parse_last_used_at(d.pop("last_used_at"))

        name = d.pop("name")

        def _parse_scopes(data: object) -> Union[None, list[KeyScope]]:
            if data is None:
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
            return cast(Union[None, list[KeyScope]], data)

        scopes = _parse_scopes(d.pop("scopes"))

        api_key = cls(
            allowed_networks=allowed_networks,
            created_at=created_at,
            expires_at=expires_at,
            hmac_required=hmac_required,
            id=id,
            is_revoked=is_revoked,
            key_prefix=key_prefix,
            last_used_at=last_used_at,
            name=name,
            scopes=scopes,
        )

        api_key.additional_properties = d
        return api_key

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
