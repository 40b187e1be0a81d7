from collections.abc import Mapping
from typing import Any, TypeVar, Union, cast

from attrs import define as _attrs_define
from attrs import field as _attrs_field

T = TypeVar("T", bound="WebhookDay")


@_attrs_define
class WebhookDay:
    """Delivery attempts of a webhook on one day (UTC).

    Attributes:
        attempts (int): Number of attempts that ended on the day.
        average_ms (Union[None, int]): Average duration of an attempt, in milliseconds; null without attempts.
        day (str): The day, as `YYYY-MM-DD`.
        delivered (int): Number of attempts that your endpoint answered with a 2xx status.
        failed (int): Number of attempts that failed.
        longest_ms (Union[None, int]): Duration of the longest attempt, in milliseconds; null without attempts.
    """

    attempts: int
    average_ms: Union[None, int]
    day: str
    delivered: int
    failed: int
    longest_ms: Union[None, int]
    additional_properties: dict[str, Any] = _attrs_field(init=False, factory=dict)

    def to_dict(self) -> dict[str, Any]:
        attempts = self.attempts

        average_ms: Union[None, int]
        average_ms = self.average_ms

        day = self.day

        delivered = self.delivered

        failed = self.failed

        longest_ms: Union[None, int]
        longest_ms = self.longest_ms

        field_dict: dict[str, Any] = {}
        field_dict.update(self.additional_properties)
        field_dict.update(
            {
                "attempts": attempts,
                "average_ms": average_ms,
                "day": day,
                "delivered": delivered,
                "failed": failed,
                "longest_ms": longest_ms,
            }
        )

        return field_dict

    @classmethod
    def from_dict(cls: type[T], src_dict: Mapping[str, Any]) -> T:
        d = dict(src_dict)
        attempts = d.pop("attempts")

        def _parse_average_ms(data: object) -> Union[None, int]:
            if data is None:
                return data
            return cast(Union[None, int], data)

        average_ms = _parse_average_ms(d.pop("average_ms"))

        day = d.pop("day")

        delivered = d.pop("delivered")

        failed = d.pop("failed")

        def _parse_longest_ms(data: object) -> Union[None, int]:
            if data is None:
                return data
            return cast(Union[None, int], data)

        longest_ms = _parse_longest_ms(d.pop("longest_ms"))

        webhook_day = cls(
            attempts=attempts,
            average_ms=average_ms,
            day=day,
            delivered=delivered,
            failed=failed,
            longest_ms=longest_ms,
        )

        webhook_day.additional_properties = d
        return webhook_day

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
