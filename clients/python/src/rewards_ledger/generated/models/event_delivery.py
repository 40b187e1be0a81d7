import datetime
from collections.abc import Mapping
from typing import Any, TypeVar, Union, cast

from attrs import define as _attrs_define
from attrs import field as _attrs_field
from dateutil.parser import isoparse

from ..models.event_outcome import EventOutcome

T = TypeVar("T", bound="EventDelivery")


@_attrs_define
class EventDelivery:
    """A delivery of the event to the webhook.

    Attributes:
        attempt_count (int): Number of attempts made so far.
        created_at (datetime.datetime): Time at which the delivery was created.
        delivery_id (int): Unique identifier of the delivery.
        is_replay (bool): Whether a replay made the delivery, yours or an operator's, instead of the event itself.
        outcome (EventOutcome): Outcome of an event at the webhook.

            - `delivered`: a delivery of the event succeeded.
            - `pending`: a delivery is due or in flight.
            - `failed`: every delivery of the event failed or was stopped.
            - `not_sent`: the event was never sent to the webhook.
        response_status (Union[None, int]): HTTP status that your endpoint returned to the latest attempt; null if it
            returned none.
    """

    attempt_count: int
    created_at: datetime.datetime
    delivery_id: int
    is_replay: bool
    outcome: EventOutcome
    response_status: Union[None, int]
    additional_properties: dict[str, Any] = _attrs_field(init=False, factory=dict)

    def to_dict(self) -> dict[str, Any]:
        attempt_count = self.attempt_count

        created_at = self.created_at.isoformat()

        delivery_id = self.delivery_id

        is_replay = self.is_replay

        outcome = self.outcome.value

        response_status: Union[None, int]
        response_status = self.response_status

        field_dict: dict[str, Any] = {}
        field_dict.update(self.additional_properties)
        field_dict.update(
            {
                "attempt_count": attempt_count,
                "created_at": created_at,
                "delivery_id": delivery_id,
                "is_replay": is_replay,
                "outcome": outcome,
                "response_status": response_status,
            }
        )

        return field_dict

    @classmethod
    def from_dict(cls: type[T], src_dict: Mapping[str, Any]) -> T:
        d = dict(src_dict)
        attempt_count = d.pop("attempt_count")

        created_at = isoparse(d.pop("created_at"))

        delivery_id = d.pop("delivery_id")

        is_replay = d.pop("is_replay")

        outcome = EventOutcome(d.pop("outcome"))

        def _parse_response_status(data: object) -> Union[None, int]:
            if data is None:
                return data
            return cast(Union[None, int], data)

        response_status = _parse_response_status(d.pop("response_status"))

        event_delivery = cls(
            attempt_count=attempt_count,
            created_at=created_at,
            delivery_id=delivery_id,
            is_replay=is_replay,
            outcome=outcome,
            response_status=response_status,
        )

        event_delivery.additional_properties = d
        return event_delivery

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
