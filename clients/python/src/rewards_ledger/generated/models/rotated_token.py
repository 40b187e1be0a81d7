import datetime
from collections.abc import Mapping
from typing import Any, TypeVar, Union, cast

from attrs import define as _attrs_define
from attrs import field as _attrs_field
from dateutil.parser import isoparse

T = TypeVar("T", bound="RotatedToken")


@_attrs_define
class RotatedToken:
    """The new token of a webhook. It is shown only in this response.

    Attributes:
        previous_valid_until (Union[None, datetime.datetime]): Time up to which deliveries are signed with the replaced
            token, too. Null if it stopped at once.
        rotated_at (datetime.datetime): Time of the rotation.
        token (str): Secret that signs the deliveries from now on. Store it safely: it is not shown again.
        webhook_id (int): Unique identifier of the webhook.
    """

    previous_valid_until: Union[None, datetime.datetime]
    rotated_at: datetime.datetime
    token: str = _attrs_field(repr=False)
    webhook_id: int
    additional_properties: dict[str, Any] = _attrs_field(init=False, factory=dict)

    def to_dict(self) -> dict[str, Any]:
        previous_valid_until: Union[None, str]
        if isinstance(self.previous_valid_until, datetime.datetime):
            previous_valid_until = self.previous_valid_until.isoformat()
        else:
            previous_valid_until = self.previous_valid_until

        rotated_at = self.rotated_at.isoformat()

        token = self.token

        webhook_id = self.webhook_id

        field_dict: dict[str, Any] = {}
        field_dict.update(self.additional_properties)
        field_dict.update(
            {
                "previous_valid_until": previous_valid_until,
                "rotated_at": rotated_at,
                "token": token,
                "webhook_id": webhook_id,
            }
        )

        return field_dict

    @classmethod
    def from_dict(cls: type[T], src_dict: Mapping[str, Any]) -> T:
        d = dict(src_dict)

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

        token = d.pop("token")

        webhook_id = d.pop("webhook_id")

        rotated_token = cls(
            previous_valid_until=previous_valid_until,
            rotated_at=rotated_at,
            token=token,
            webhook_id=webhook_id,
        )

        rotated_token.additional_properties = d
        return rotated_token

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
