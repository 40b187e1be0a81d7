from collections.abc import Mapping
from typing import Any, TypeVar

from attrs import define as _attrs_define
from attrs import field as _attrs_field

T = TypeVar("T", bound="DeliveryStatistics")


@_attrs_define
class DeliveryStatistics:
    """Delivery counts of an account.

    Attributes:
        delivered_count (int): Number of `delivered` deliveries.
        failed_count (int): Number of `failed` deliveries.
        last_24h_delivered (int): Number of deliveries created in the last 24 hours that are `delivered`.
        last_24h_failed (int): Number of deliveries created in the last 24 hours that are `failed`.
        last_24h_total (int): Number of deliveries created in the last 24 hours.
        pending_count (int): Number of `pending` deliveries.
        total_count (int): Number of all deliveries.
    """

    delivered_count: int
    failed_count: int
    last_24h_delivered: int
    last_24h_failed: int
    last_24h_total: int
    pending_count: int
    total_count: int
    additional_properties: dict[str, Any] = _attrs_field(init=False, factory=dict)

    def to_dict(self) -> dict[str, Any]:
        delivered_count = self.delivered_count

        failed_count = self.failed_count

        last_24h_delivered = self.last_24h_delivered

        last_24h_failed = self.last_24h_failed

        last_24h_total = self.last_24h_total

        pending_count = self.pending_count

        total_count = self.total_count

        field_dict: dict[str, Any] = {}
        field_dict.update(self.additional_properties)
        field_dict.update(
            {
                "delivered_count": delivered_count,
                "failed_count": failed_count,
                "last_24h_delivered": last_24h_delivered,
                "last_24h_failed": last_24h_failed,
                "last_24h_total": last_24h_total,
                "pending_count": pending_count,
                "total_count": total_count,
            }
        )

        return field_dict

    @classmethod
    def from_dict(cls: type[T], src_dict: Mapping[str, Any]) -> T:
        d = dict(src_dict)
        delivered_count = d.pop("delivered_count")

        failed_count = d.pop("failed_count")

        last_24h_delivered = d.pop("last_24h_delivered")

        last_24h_failed = d.pop("last_24h_failed")

        last_24h_total = d.pop("last_24h_total")

        pending_count = d.pop("pending_count")

        total_count = d.pop("total_count")

        delivery_statistics = cls(
            delivered_count=delivered_count,
            failed_count=failed_count,
            last_24h_delivered=last_24h_delivered,
            last_24h_failed=last_24h_failed,
            last_24h_total=last_24h_total,
            pending_count=pending_count,
            total_count=total_count,
        )

        delivery_statistics.additional_properties = d
        return delivery_statistics

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
