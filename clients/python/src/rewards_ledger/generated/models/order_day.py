from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, TypeVar

from attrs import define as _attrs_define
from attrs import field as _attrs_field

if TYPE_CHECKING:
    from ..models.spend import Spend


T = TypeVar("T", bound="OrderDay")


@_attrs_define
class OrderDay:
    """Orders and spend of one day (UTC).

    Attributes:
        day (str): The day, as `YYYY-MM-DD`.
        orders (int): Number of orders placed on the day.
        spend (list['Spend']): Spend of the day, by currency. Empty if nothing was spent or refunded.
    """

    day: str
    orders: int
    spend: list["Spend"]
    additional_properties: dict[str, Any] = _attrs_field(init=False, factory=dict)

    def to_dict(self) -> dict[str, Any]:
        day = self.day

        orders = self.orders

        spend = []
        for spend_item_data in self.spend:
            spend_item = spend_item_data.to_dict()
            spend.append(spend_item)

        field_dict: dict[str, Any] = {}
        field_dict.update(self.additional_properties)
        field_dict.update(
            {
                "day": day,
                "orders": orders,
                "spend": spend,
            }
        )

        return field_dict

    @classmethod
    def from_dict(cls: type[T], src_dict: Mapping[str, Any]) -> T:
        from ..models.spend import Spend

        d = dict(src_dict)
        day = d.pop("day")

        orders = d.pop("orders")

        spend = []
        _spend = d.pop("spend")
        for spend_item_data in _spend:
            spend_item = Spend.from_dict(spend_item_data)

            spend.append(spend_item)

        order_day = cls(
            day=day,
            orders=orders,
            spend=spend,
        )

        order_day.additional_properties = d
        return order_day

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
