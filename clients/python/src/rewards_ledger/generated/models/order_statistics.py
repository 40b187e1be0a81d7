from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, TypeVar

from attrs import define as _attrs_define
from attrs import field as _attrs_field

if TYPE_CHECKING:
    from ..models.order_day import OrderDay
    from ..models.orders_in_status import OrdersInStatus


T = TypeVar("T", bound="OrderStatistics")


@_attrs_define
class OrderStatistics:
    """Orders and spend by day.

    Attributes:
        days (list['OrderDay']): The days, oldest first, up to today. Days without orders are included.
        statuses (list['OrdersInStatus']): All orders of the account by their present status. Each status is listed.
    """

    days: list["OrderDay"]
    statuses: list["OrdersInStatus"]
    additional_properties: dict[str, Any] = _attrs_field(init=False, factory=dict)

    def to_dict(self) -> dict[str, Any]:
        days = []
        for days_item_data in self.days:
            days_item = days_item_data.to_dict()
            days.append(days_item)

        statuses = []
        for statuses_item_data in self.statuses:
            statuses_item = statuses_item_data.to_dict()
            statuses.append(statuses_item)

        field_dict: dict[str, Any] = {}
        field_dict.update(self.additional_properties)
        field_dict.update(
            {
                "days": days,
                "statuses": statuses,
            }
        )

        return field_dict

    @classmethod
    def from_dict(cls: type[T], src_dict: Mapping[str, Any]) -> T:
        from ..models.order_day import OrderDay
        from ..models.orders_in_status import OrdersInStatus

        d = dict(src_dict)
        days = []
        _days = d.pop("days")
        for days_item_data in _days:
            days_item = OrderDay.from_dict(days_item_data)

            days.append(days_item)

        statuses = []
        _statuses = d.pop("statuses")
        for statuses_item_data in _statuses:
            statuses_item = OrdersInStatus.from_dict(statuses_item_data)

            statuses.append(statuses_item)

        order_statistics = cls(
            days=days,
            statuses=statuses,
        )

        order_statistics.additional_properties = d
        return order_statistics

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
