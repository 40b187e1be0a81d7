from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, TypeVar

from attrs import define as _attrs_define
from attrs import field as _attrs_field

if TYPE_CHECKING:
    from ..models.order_timeline_entry import OrderTimelineEntry


T = TypeVar("T", bound="OrderTimeline")


@_attrs_define
class OrderTimeline:
    """Everything that happened to an order.

    Attributes:
        entries (list['OrderTimelineEntry']): Events of the order, oldest first.
        entries_left_out (int): Number of code readings that `entries` omits. After 1,000 entries, only the last 100
            readings are included.
        order_id (int): Unique identifier of the order.
        reference_code (str): Human-readable reference of the order, assigned by the service.
        status (str): Current status of the order.
    """

    entries: list["OrderTimelineEntry"]
    entries_left_out: int
    order_id: int
    reference_code: str
    status: str
    additional_properties: dict[str, Any] = _attrs_field(init=False, factory=dict)

    def to_dict(self) -> dict[str, Any]:
        entries = []
        for entries_item_data in self.entries:
            entries_item = entries_item_data.to_dict()
            entries.append(entries_item)

        entries_left_out = self.entries_left_out

        order_id = self.order_id

        reference_code = self.reference_code

        status = self.status

        field_dict: dict[str, Any] = {}
        field_dict.update(self.additional_properties)
        field_dict.update(
            {
                "entries": entries,
                "entries_left_out": entries_left_out,
                "order_id": order_id,
                "reference_code": reference_code,
                "status": status,
            }
        )

        return field_dict

    @classmethod
    def from_dict(cls: type[T], src_dict: Mapping[str, Any]) -> T:
        from ..models.order_timeline_entry import OrderTimelineEntry

        d = dict(src_dict)
        entries = []
        _entries = d.pop("entries")
        for entries_item_data in _entries:
            entries_item = OrderTimelineEntry.from_dict(entries_item_data)

            entries.append(entries_item)

        entries_left_out = d.pop("entries_left_out")

        order_id = d.pop("order_id")

        reference_code = d.pop("reference_code")

        status = d.pop("status")

        order_timeline = cls(
            entries=entries,
            entries_left_out=entries_left_out,
            order_id=order_id,
            reference_code=reference_code,
            status=status,
        )

        order_timeline.additional_properties = d
        return order_timeline

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
