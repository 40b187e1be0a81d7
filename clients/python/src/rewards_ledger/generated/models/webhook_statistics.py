from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, TypeVar

from attrs import define as _attrs_define
from attrs import field as _attrs_field

if TYPE_CHECKING:
    from ..models.webhook_day import WebhookDay


T = TypeVar("T", bound="WebhookStatistics")


@_attrs_define
class WebhookStatistics:
    """Delivery attempts of a webhook by day.

    Attributes:
        days (list['WebhookDay']): The days, oldest first, up to today. Days without attempts are included.
        webhook_id (int): Unique identifier of the webhook.
    """

    days: list["WebhookDay"]
    webhook_id: int
    additional_properties: dict[str, Any] = _attrs_field(init=False, factory=dict)

    def to_dict(self) -> dict[str, Any]:
        days = []
        for days_item_data in self.days:
            days_item = days_item_data.to_dict()
            days.append(days_item)

        webhook_id = self.webhook_id

        field_dict: dict[str, Any] = {}
        field_dict.update(self.additional_properties)
        field_dict.update(
            {
                "days": days,
                "webhook_id": webhook_id,
            }
        )

        return field_dict

    @classmethod
    def from_dict(cls: type[T], src_dict: Mapping[str, Any]) -> T:
        from ..models.webhook_day import WebhookDay

        d = dict(src_dict)
        days = []
        _days = d.pop("days")
        for days_item_data in _days:
            days_item = WebhookDay.from_dict(days_item_data)

            days.append(days_item)

        webhook_id = d.pop("webhook_id")

        webhook_statistics = cls(
            days=days,
            webhook_id=webhook_id,
        )

        webhook_statistics.additional_properties = d
        return webhook_statistics

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
