from collections.abc import Mapping
from typing import Any, TypeVar

from attrs import define as _attrs_define
from attrs import field as _attrs_field

T = TypeVar("T", bound="IssuedCredential")


@_attrs_define
class IssuedCredential:
    """A newly issued credential. Key and secret are shown only in this response.

    Attributes:
        api_key (str): API key to send in the `X-API-Key` header. Logs and reports identify it by its first 8
            characters.
        api_secret (str): API secret to send in the `X-API-Secret` header.
        id (int): Unique identifier of the credential.
    """

    api_key: str
    api_secret: str = _attrs_field(repr=False)
    id: int
    additional_properties: dict[str, Any] = _attrs_field(init=False, factory=dict)

    def to_dict(self) -> dict[str, Any]:
        api_key = self.api_key

        api_secret = self.api_secret

        id = self.id

        field_dict: dict[str, Any] = {}
        field_dict.update(self.additional_properties)
        field_dict.update(
            {
                "api_key": api_key,
                "api_secret": api_secret,
                "id": id,
            }
        )

        return field_dict

    @classmethod
    def from_dict(cls: type[T], src_dict: Mapping[str, Any]) -> T:
        d = dict(src_dict)
        api_key = d.pop("api_key")

        api_secret = d.pop("api_secret")

        id = d.pop("id")

        issued_credential = cls(
            api_key=api_key,
            api_secret=api_secret,
            id=id,
        )

        issued_credential.additional_properties = d
        return issued_credential

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
