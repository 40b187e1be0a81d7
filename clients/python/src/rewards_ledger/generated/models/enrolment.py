from collections.abc import Mapping
from typing import Any, TypeVar

from attrs import define as _attrs_define
from attrs import field as _attrs_field

T = TypeVar("T", bound="Enrolment")


@_attrs_define
class Enrolment:
    """An enrolment in two-factor authentication that is not confirmed. It is shown only in this response.

    Attributes:
        otpauth_url (str): URL to show to an authenticator app as a QR code. It contains the secret.
        secret (str): Secret to type into an authenticator app, in base32.
    """

    otpauth_url: str = _attrs_field(repr=False)
    secret: str = _attrs_field(repr=False)
    additional_properties: dict[str, Any] = _attrs_field(init=False, factory=dict)

    def to_dict(self) -> dict[str, Any]:
        otpauth_url = self.otpauth_url

        secret = self.secret

        field_dict: dict[str, Any] = {}
        field_dict.update(self.additional_properties)
        field_dict.update(
            {
                "otpauth_url": otpauth_url,
                "secret": secret,
            }
        )

        return field_dict

    @classmethod
    def from_dict(cls: type[T], src_dict: Mapping[str, Any]) -> T:
        d = dict(src_dict)
        otpauth_url = d.pop("otpauth_url")

        secret = d.pop("secret")

        enrolment = cls(
            otpauth_url=otpauth_url,
            secret=secret,
        )

        enrolment.additional_properties = d
        return enrolment

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
