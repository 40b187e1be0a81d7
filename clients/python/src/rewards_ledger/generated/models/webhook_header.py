from collections.abc import Mapping
from typing import Any, TypeVar

from attrs import define as _attrs_define

T = TypeVar("T", bound="WebhookHeader")


@_attrs_define
class WebhookHeader:
    """A header of your own that each delivery of a webhook carries.

    Attributes:
        name (str): Name of the header: letters, digits, hyphens and underscores. Upper and lower case are the same.
            Headers of HTTP, of
            proxies, of cloud metadata and of the service itself are refused.
        value (str): Value of the header: printable ASCII characters. It is never shown again.
    """

    name: str
    value: str

    def to_dict(self) -> dict[str, Any]:
        name = self.name

        value = self.value

        field_dict: dict[str, Any] = {}

        field_dict.update(
            {
                "name": name,
                "value": value,
            }
        )

        return field_dict

    @classmethod
    def from_dict(cls: type[T], src_dict: Mapping[str, Any]) -> T:
        d = dict(src_dict)
        name = d.pop("name")

        value = d.pop("value")

        webhook_header = cls(
            name=name,
            value=value,
        )

        return webhook_header
