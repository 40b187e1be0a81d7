import datetime
from collections.abc import Mapping
from typing import Any, TypeVar, Union, cast

from attrs import define as _attrs_define
from attrs import field as _attrs_field
from dateutil.parser import isoparse

from ..models.deactivation_reason import DeactivationReason

T = TypeVar("T", bound="WebhookDeactivation")


@_attrs_define
class WebhookDeactivation:
    """A deactivation of a webhook by the service.

    Attributes:
        deactivated_at (datetime.datetime): Time of the deactivation.
        failing_since (Union[None, datetime.datetime]): Time since which all attempts have failed. Null for other
            reasons.
        reason (DeactivationReason): Reason why the service has deactivated a webhook. New values may be added.
    """

    deactivated_at: datetime.datetime
    failing_since: Union[None, datetime.datetime]
    reason: DeactivationReason
    additional_properties: dict[str, Any] = _attrs_field(init=False, factory=dict)

    def to_dict(self) -> dict[str, Any]:
        deactivated_at = self.deactivated_at.isoformat()

        failing_since: Union[None, str]
        if isinstance(self.failing_since, datetime.datetime):
            failing_since = self.failing_since.isoformat()
        else:
            failing_since = self.failing_since

        reason = self.reason.value

        field_dict: dict[str, Any] = {}
        field_dict.update(self.additional_properties)
        field_dict.update(
            {
                "deactivated_at": deactivated_at,
                "failing_since": failing_since,
                "reason": reason,
            }
        )

        return field_dict

    @classmethod
    def from_dict(cls: type[T], src_dict: Mapping[str, Any]) -> T:
        d = dict(src_dict)
        deactivated_at = isoparse(d.pop("deactivated_at"))

        def _parse_failing_since(data: object) -> Union[None, datetime.datetime]:
            if data is None:
                return data
            try:
                if not isinstance(data, str):
                    raise TypeError()
                failing_since_type_0 = isoparse(data)

                return failing_since_type_0
            except:  # noqa: E722
                pass
            return cast(Union[None, datetime.datetime], data)

        failing_since = _parse_failing_since(d.pop("failing_since"))

        reason = DeactivationReason(d.pop("reason"))

        webhook_deactivation = cls(
            deactivated_at=deactivated_at,
            failing_since=failing_since,
            reason=reason,
        )

        webhook_deactivation.additional_properties = d
        return webhook_deactivation

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
