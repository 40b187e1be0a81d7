import datetime
from collections.abc import Mapping
from typing import Any, TypeVar, Union, cast

from attrs import define as _attrs_define
from attrs import field as _attrs_field
from dateutil.parser import isoparse

T = TypeVar("T", bound="RotatedSecret")


@_attrs_define
class RotatedSecret:
    """A rotated signing secret. It is shown only in this response.

    Attributes:
        credential_id (int): Unique identifier of the API key.
        previous_valid_until (Union[None, datetime.datetime]): Time up to which deliveries are signed with the replaced
            secret, too. Null if it stopped at once.
        rotated_at (datetime.datetime): Time of the rotation.
        signing_secret (str): The new signing secret. Requests with the API key, and deliveries of webhooks linked to
            it, are signed with it from
            now on.
    """

    credential_id: int
    previous_valid_until: Union[None, datetime.datetime]
    rotated_at: datetime.datetime
    signing_secret: str = _attrs_field(repr=False)
    additional_properties: dict[str, Any] = _attrs_field(init=False, factory=dict)

    def to_dict(self) -> dict[str, Any]:
        credential_id = self.credential_id

        previous_valid_until: Union[None, str]
        if isinstance(self.previous_valid_until, datetime.datetime):
            previous_valid_until = self.previous_valid_until.isoformat()
        else:
            previous_valid_until = self.previous_valid_until

        rotated_at = self.rotated_at.isoformat()

        signing_secret = self.signing_secret

        field_dict: dict[str, Any] = {}
        field_dict.update(self.additional_properties)
        field_dict.update(
            {
                "credential_id": credential_id,
                "previous_valid_until": previous_valid_until,
                "rotated_at": rotated_at,
                "signing_secret": signing_secret,
            }
        )

        return field_dict

    @classmethod
    def from_dict(cls: type[T], src_dict: Mapping[str, Any]) -> T:
        d = dict(src_dict)
        credential_id = d.pop("credential_id")

        def _parse_previous_valid_until(data: object) -> Union[None, datetime.datetime]:
            if data is None:
                return data
            try:
                if not isinstance(data, str):
                    raise TypeError()
                previous_valid_until_type_0 = isoparse(data)

                return previous_valid_until_type_0
            except:  # noqa: E722
                pass
            return cast(Union[None, datetime.datetime], data)

        previous_valid_until = _parse_previous_valid_until(d.pop("previous_valid_until"))

        rotated_at = isoparse(d.pop("rotated_at"))

        signing_secret = d.pop("signing_secret")

        rotated_secret = cls(
            credential_id=credential_id,
            previous_valid_until=previous_valid_until,
            rotated_at=rotated_at,
            signing_secret=signing_secret,
        )

        rotated_secret.additional_properties = d
        return rotated_secret

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
