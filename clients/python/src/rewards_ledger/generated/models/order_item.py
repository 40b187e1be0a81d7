import datetime
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, TypeVar

from attrs import define as _attrs_define
from attrs import field as _attrs_field
from dateutil.parser import isoparse

if TYPE_CHECKING:
    from ..models.voucher_reference import VoucherReference


T = TypeVar("T", bound="OrderItem")


@_attrs_define
class OrderItem:
    """Units of an order that were delivered together.

    Attributes:
        delivered_on (datetime.datetime): Time at which the units were delivered.
        status (str): Status of the item, always `DELIVERED`.
        vouchers (list['VoucherReference']): The vouchers, one per unit.
    """

    delivered_on: datetime.datetime
    status: str
    vouchers: list["VoucherReference"]
    additional_properties: dict[str, Any] = _attrs_field(init=False, factory=dict)

    def to_dict(self) -> dict[str, Any]:
        delivered_on = self.delivered_on.isoformat()

        status = self.status

        vouchers = []
        for vouchers_item_data in self.vouchers:
            vouchers_item = vouchers_item_data.to_dict()
            vouchers.append(vouchers_item)

        field_dict: dict[str, Any] = {}
        field_dict.update(self.additional_properties)
        field_dict.update(
            {
                "delivered_on": delivered_on,
                "status": status,
                "vouchers": vouchers,
            }
        )

        return field_dict

    @classmethod
    def from_dict(cls: type[T], src_dict: Mapping[str, Any]) -> T:
        from ..models.voucher_reference import VoucherReference

        d = dict(src_dict)
        delivered_on = isoparse(d.pop("delivered_on"))

        status = d.pop("status")

        vouchers = []
        _vouchers = d.pop("vouchers")
        for vouchers_item_data in _vouchers:
            vouchers_item = VoucherReference.from_dict(vouchers_item_data)

            vouchers.append(vouchers_item)

        order_item = cls(
            delivered_on=delivered_on,
            status=status,
            vouchers=vouchers,
        )

        order_item.additional_properties = d
        return order_item

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
