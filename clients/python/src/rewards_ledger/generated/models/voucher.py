from collections.abc import Mapping
from typing import Any, TypeVar, Union, cast

from attrs import define as _attrs_define
from attrs import field as _attrs_field

T = TypeVar("T", bound="Voucher")


@_attrs_define
class Voucher:
    """A voucher with its codes.

    Attributes:
        card_number (str): Code of the voucher.
        claim_url (Union[None, str]): URL at which the end user can claim the voucher; null if there is none.
        expires_on (Union[None, str]): Last day on which the voucher is valid, as `YYYY-MM-DD`; null if it has no expiry
            date.
        pin (Union[None, str]): PIN that belongs to the card number; null if there is none.
        voucher_reference_number (str): Reference number of the voucher. It does not reveal the code.
    """

    card_number: str = _attrs_field(repr=False)
    claim_url: Union[None, str] = _attrs_field(repr=False)
    expires_on: Union[None, str]
    pin: Union[None, str] = _attrs_field(repr=False)
    voucher_reference_number: str
    additional_properties: dict[str, Any] = _attrs_field(init=False, factory=dict)

    def to_dict(self) -> dict[str, Any]:
        card_number = self.card_number

        claim_url: Union[None, str]
        claim_url = self.claim_url

        expires_on: Union[None, str]
        expires_on = self.expires_on

        pin: Union[None, str]
        pin = self.pin

        voucher_reference_number = self.voucher_reference_number

        field_dict: dict[str, Any] = {}
        field_dict.update(self.additional_properties)
        field_dict.update(
            {
                "card_number": card_number,
                "claim_url": claim_url,
                "expires_on": expires_on,
                "pin": pin,
                "voucher_reference_number": voucher_reference_number,
            }
        )

        return field_dict

    @classmethod
    def from_dict(cls: type[T], src_dict: Mapping[str, Any]) -> T:
        d = dict(src_dict)
        card_number = d.pop("card_number")

        def _parse_claim_url(data: object) -> Union[None, str]:
            if data is None:
                return data
            return cast(Union[None, str], data)

        claim_url = _parse_claim_url(d.pop("claim_url"))

        def _parse_expires_on(data: object) -> Union[None, str]:
            if data is None:
                return data
            return cast(Union[None, str], data)

        expires_on = _parse_expires_on(d.pop("expires_on"))

        def _parse_pin(data: object) -> Union[None, str]:
            if data is None:
                return data
            return cast(Union[None, str], data)

        pin = _parse_pin(d.pop("pin"))

        voucher_reference_number = d.pop("voucher_reference_number")

        voucher = cls(
            card_number=card_number,
            claim_url=claim_url,
            expires_on=expires_on,
            pin=pin,
            voucher_reference_number=voucher_reference_number,
        )

        voucher.additional_properties = d
        return voucher

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
