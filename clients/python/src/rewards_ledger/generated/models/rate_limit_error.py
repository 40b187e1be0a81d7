from collections.abc import Mapping
from typing import Any, TypeVar

from attrs import define as _attrs_define
from attrs import field as _attrs_field

T = TypeVar("T", bound="RateLimitError")


@_attrs_define
class RateLimitError:
    """The response to a request that exceeds a rate limit.

    Attributes:
        error (str): Always `rate_limit_exceeded`.
        message (str): Human-readable explanation. Do not parse it.
        retry_after (int): Seconds until the rate limit's window ends. Equals the header `Retry-After`.
    """

    error: str
    message: str
    retry_after: int
    additional_properties: dict[str, Any] = _attrs_field(init=False, factory=dict)

    def to_dict(self) -> dict[str, Any]:
        error = self.error

        message = self.message

        retry_after = self.retry_after

        field_dict: dict[str, Any] = {}
        field_dict.update(self.additional_properties)
        field_dict.update(
            {
                "error": error,
                "message": message,
                "retry_after": retry_after,
            }
        )

        return field_dict

    @classmethod
    def from_dict(cls: type[T], src_dict: Mapping[str, Any]) -> T:
        d = dict(src_dict)
        error = d.pop("error")

        message = d.pop("message")

        retry_after = d.pop("retry_after")

        rate_limit_error = cls(
            error=error,
            message=message,
            retry_after=retry_after,
        )

        rate_limit_error.additional_properties = d
        return rate_limit_error

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
