from collections.abc import Mapping
from typing import Any, TypeVar

from attrs import define as _attrs_define
from attrs import field as _attrs_field

from ..models.order_status import OrderStatus

T = TypeVar("T", bound="OrdersInStatus")


@_attrs_define
class OrdersInStatus:
    """Number of orders in a status.

    Attributes:
        orders (int): Number of the account's orders that are in this status now, whenever they were placed.
        status (OrderStatus): Status of an order. `DELIVERED` and `CANCELLED` are final.

            - `PENDING`: placed and paid.
            - `DELAYED`: waiting for stock; no unit is delivered yet.
            - `PARTIALLY_DELIVERED`: some units are delivered, the others wait for stock.
            - `DELIVERED`: all units are delivered.
            - `CANCELLED`: cancelled by the client or an operator. Undelivered units are refunded.
    """

    orders: int
    status: OrderStatus
    additional_properties: dict[str, Any] = _attrs_field(init=False, factory=dict)

    def to_dict(self) -> dict[str, Any]:
        orders = self.orders

        status = self.status.value

        field_dict: dict[str, Any] = {}
        field_dict.update(self.additional_properties)
        field_dict.update(
            {
                "orders": orders,
                "status": status,
            }
        )

        return field_dict

    @classmethod
    def from_dict(cls: type[T], src_dict: Mapping[str, Any]) -> T:
        d = dict(src_dict)
        orders = d.pop("orders")

        status = OrderStatus(d.pop("status"))

        orders_in_status = cls(
            orders=orders,
            status=status,
        )

        orders_in_status.additional_properties = d
        return orders_in_status

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
