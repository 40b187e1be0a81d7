from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, TypeVar

from attrs import define as _attrs_define
from attrs import field as _attrs_field

if TYPE_CHECKING:
    from ..models.voucher import Voucher


T = TypeVar("T", bound="Vouchers")


@_attrs_define
class Vouchers:
    """The delivered vouchers of an order, with their codes.

    Attributes:
        vouchers (list['Voucher']): The vouchers, one per delivered unit.
    """

    vouchers: list["Voucher"]
    additional_properties: dict[str, Any] = _attrs_field(init=False, factory=dict)

    def to_dict(self) -> dict[str, Any]:
        vouchers = []
        for vouchers_item_data in self.vouchers:
            vouchers_item = vouchers_item_data.to_dict()
            vouchers.append(vouchers_item)

        field_dict: dict[str, Any] = {}
        field_dict.update(self.additional_properties)
        field_dict.update(
            {
                "vouchers": vouchers,
            }
        )

        return field_dict

    @classmethod
    def from_dict(cls: type[T], src_dict: Mapping[str, Any]) -> T:
        from ..models.voucher import Voucher

        d = dict(src_dict)
        vouchers = []
        _vouchers = d.pop("vouchers")
        for vouchers_item_data in _vouchers:
            vouchers_item = Voucher.from_dict(vouchers_item_data)

            vouchers.append(vouchers_item)

        vouchers = cls(
            vouchers=vouchers,
        )

        vouchers.additional_properties = d
        return vouchers

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
