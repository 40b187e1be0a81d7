from collections.abc import Mapping
from typing import Any, TypeVar

from attrs import define as _attrs_define
from attrs import field as _attrs_field

T = TypeVar("T", bound="VoucherReference")


@_attrs_define
class VoucherReference:
    """A reference to a delivered voucher, without its codes.

    Attributes:
        voucher_reference_number (str): Reference number of the voucher. It does not reveal the code.
    """

    voucher_reference_number: str
    additional_properties: dict[str, Any] = _attrs_field(init=False, factory=dict)

    def to_dict(self) -> dict[str, Any]:
        voucher_reference_number = self.voucher_reference_number

        field_dict: dict[str, Any] = {}
        field_dict.update(self.additional_properties)
        field_dict.update(
            {
                "voucher_reference_number": voucher_reference_number,
            }
        )

        return field_dict

    @classmethod
    def from_dict(cls: type[T], src_dict: Mapping[str, Any]) -> T:
        d = dict(src_dict)
        voucher_reference_number = d.pop("voucher_reference_number")

        voucher_reference = cls(
            voucher_reference_number=voucher_reference_number,
        )

        voucher_reference.additional_properties = d
        return voucher_reference

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
