import datetime
from collections.abc import Mapping
from typing import Any, TypeVar, Union, cast

from attrs import define as _attrs_define
from attrs import field as _attrs_field
from dateutil.parser import isoparse

T = TypeVar("T", bound="Session")


@_attrs_define
class Session:
    """A session of the signed-in user.

    Attributes:
        id (int): Unique identifier of the session.
        is_current (bool): Whether this request belongs to the session.
        last_used_at (datetime.datetime): Time of the login or of the latest token refresh.
        network (Union[None, str]): IP address of the login; for IPv6 the first address of its /64.
        started_at (Union[None, datetime.datetime]): Time of the login. Null for a session from before an upgrade.
        user_agent (Union[None, str]): `User-Agent` of the login, up to 256 characters.
    """

    id: int
    is_current: bool
    last_used_at: datetime.datetime
    network: Union[None, str]
    started_at: Union[None, datetime.datetime]
    user_agent: Union[None, str]
    additional_properties: dict[str, Any] = _attrs_field(init=False, factory=dict)

    def to_dict(self) -> dict[str, Any]:
        id = self.id

        is_current = self.is_current

        last_used_at = self.last_used_at.isoformat()

        network: Union[None, str]
        network = self.network

        started_at: Union[None, str]
        if isinstance(self.started_at, datetime.datetime):
            started_at = self.started_at.isoformat()
        else:
            started_at = self.started_at

        user_agent: Union[None, str]
        user_agent = self.user_agent

        field_dict: dict[str, Any] = {}
        field_dict.update(self.additional_properties)
        field_dict.update(
            {
                "id": id,
                "is_current": is_current,
                "last_used_at": last_used_at,
                "network": network,
                "started_at": started_at,
                "user_agent": user_agent,
            }
        )

        return field_dict

    @classmethod
    def from_dict(cls: type[T], src_dict: Mapping[str, Any]) -> T:
        d = dict(src_dict)
        id = d.pop("id")

        is_current = d.pop("is_current")

        last_used_at = isoparse(d.pop("last_used_at"))

        def _parse_network(data: object) -> Union[None, str]:
            if data is None:
                return data
            return cast(Union[None, str], data)

        network = _parse_network(d.pop("network"))

        def _parse_started_at(data: object) -> Union[None, datetime.datetime]:
            if data is None:
                return data
            try:
                if not isinstance(data, str):
                    raise TypeError()
                started_at_type_0 = isoparse(data)

                return started_at_type_0
            except:  # noqa: E722
                pass
            return cast(Union[None, datetime.datetime], data)

        started_at = _parse_started_at(d.pop("started_at"))

        def _parse_user_agent(data: object) -> Union[None, str]:
            if data is None:
                return data
            return cast(Union[None, str], data)

        user_agent = _parse_user_agent(d.pop("user_agent"))

        session = cls(
            id=id,
            is_current=is_current,
            last_used_at=last_used_at,
            network=network,
            started_at=started_at,
            user_agent=user_agent,
        )

        session.additional_properties = d
        return session

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
