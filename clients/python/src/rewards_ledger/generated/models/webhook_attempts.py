from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, TypeVar, Union, cast

from attrs import define as _attrs_define
from attrs import field as _attrs_field

if TYPE_CHECKING:
    from ..models.listed_attempt import ListedAttempt


T = TypeVar("T", bound="WebhookAttempts")


@_attrs_define
class WebhookAttempts:
    """A page of a webhook's attempts, the latest first.

    Attributes:
        attempts (list['ListedAttempt']): Attempts of this page. It can be empty although older attempts follow.
        next_before (Union[None, str]): Value of `before` for the next page. Null at the end.
    """

    attempts: list["ListedAttempt"]
    next_before: Union[None, str]
    additional_properties: dict[str, Any] = _attrs_field(init=False, factory=dict)

    def to_dict(self) -> dict[str, Any]:
        attempts = []
        for attempts_item_data in self.attempts:
            attempts_item = attempts_item_data.to_dict()
            attempts.append(attempts_item)

        next_before: Union[None, str]
        next_before = self.next_before

        field_dict: dict[str, Any] = {}
        field_dict.update(self.additional_properties)
        field_dict.update(
            {
                "attempts": attempts,
                "next_before": next_before,
            }
        )

        return field_dict

    @classmethod
    def from_dict(cls: type[T], src_dict: Mapping[str, Any]) -> T:
        from ..models.listed_attempt import ListedAttempt

        d = dict(src_dict)
        attempts = []
        _attempts = d.pop("attempts")
        for attempts_item_data in _attempts:
            attempts_item = ListedAttempt.from_dict(attempts_item_data)

            attempts.append(attempts_item)

        def _parse_next_before(data: object) -> Union[None, str]:
            if data is None:
                return data
            return cast(Union[None, str], data)

        next_before = _parse_next_before(d.pop("next_before"))

        webhook_attempts = cls(
            attempts=attempts,
            next_before=next_before,
        )

        webhook_attempts.additional_properties = d
        return webhook_attempts

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
