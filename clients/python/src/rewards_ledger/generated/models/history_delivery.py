import datetime
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, TypeVar, Union, cast

from attrs import define as _attrs_define
from attrs import field as _attrs_field
from dateutil.parser import isoparse

if TYPE_CHECKING:
    from ..models.history_attempt import HistoryAttempt
    from ..models.history_retry import HistoryRetry


T = TypeVar("T", bound="HistoryDelivery")


@_attrs_define
class HistoryDelivery:
    """A delivery to a webhook.

    Attributes:
        attempt_count (int): Number of attempts with a known outcome.
        attempts (list['HistoryAttempt']): Attempts that are still stored, oldest first.
        created_at (datetime.datetime): Time at which the delivery was created.
        delivery_id (int): Unique identifier of the delivery.
        event_type (str): Event type that the webhook receives.
        next_attempt_at (Union[None, datetime.datetime]): Time at which the next attempt is due; null if none is
            planned.
        replay_id (Union[None, int]): Replay that created the delivery; null if the event itself created it.
        retries (list['HistoryRetry']): Retries that were requested for the delivery.
        status (str): Status of the delivery: `pending`, `delivered` or `failed`.
        webhook_id (int): Unique identifier of the webhook.
        webhook_name (Union[None, str]): Name of the webhook; null after it is erased.
    """

    attempt_count: int
    attempts: list["HistoryAttempt"]
    created_at: datetime.datetime
    delivery_id: int
    event_type: str
    next_attempt_at: Union[None, datetime.datetime]
    replay_id: Union[None, int]
    retries: list["HistoryRetry"]
    status: str
    webhook_id: int
    webhook_name: Union[None, str]
    additional_properties: dict[str, Any] = _attrs_field(init=False, factory=dict)

    def to_dict(self) -> dict[str, Any]:
        attempt_count = self.attempt_count

        attempts = []
        for attempts_item_data in self.attempts:
            attempts_item = attempts_item_data.to_dict()
            attempts.append(attempts_item)

        created_at = self.created_at.isoformat()

        delivery_id = self.delivery_id

        event_type = self.event_type

        next_attempt_at: Union[None, str]
        if isinstance(self.next_attempt_at, datetime.datetime):
            next_attempt_at = self.next_attempt_at.isoformat()
        else:
            next_attempt_at = self.next_attempt_at

        replay_id: Union[None, int]
        replay_id = self.replay_id

        retries = []
        for retries_item_data in self.retries:
            retries_item = retries_item_data.to_dict()
            retries.append(retries_item)

        status = self.status

        webhook_id = self.webhook_id

        webhook_name: Union[None, str]
        webhook_name = self.webhook_name

        field_dict: dict[str, Any] = {}
        field_dict.update(self.additional_properties)
        field_dict.update(
            {
                "attempt_count": attempt_count,
                "attempts": attempts,
                "created_at": created_at,
                "delivery_id": delivery_id,
                "event_type": event_type,
                "next_attempt_at": next_attempt_at,
                "replay_id": replay_id,
                "retries": retries,
                "status": status,
                "webhook_id": webhook_id,
                "webhook_name": webhook_name,
            }
        )

        return field_dict

    @classmethod
    def from_dict(cls: type[T], src_dict: Mapping[str, Any]) -> T:
        from ..models.history_attempt import HistoryAttempt
        from ..models.history_retry import HistoryRetry

        d = dict(src_dict)
        attempt_count = d.pop("attempt_count")

        attempts = []
        _attempts = d.pop("attempts")
        for attempts_item_data in _attempts:
            attempts_item = HistoryAttempt.from_dict(attempts_item_data)

            attempts.append(attempts_item)

        created_at = isoparse(d.pop("created_at"))

        delivery_id = d.pop("delivery_id")

        event_type = d.pop("event_type")

        def _parse_next_attempt_at(data: object) -> Union[None, datetime.datetime]:
            if data is None:
                return data
            try:
                if not isinstance(data, str):
                    raise TypeError()
                next_attempt_at_type_0 = isoparse(data)

                return next_attempt_at_type_0
            except:  # noqa: E722
                pass
            return cast(Union[None, datetime.datetime], data)

        next_attempt_at = _parse_next_attempt_at(d.pop("next_attempt_at"))

        def _parse_replay_id(data: object) -> Union[None, int]:
            if data is None:
                return data
            return cast(Union[None, int], data)

        replay_id = _parse_replay_id(d.pop("replay_id"))

        retries = []
        _retries = d.pop("retries")
        for retries_item_data in _retries:
            retries_item = HistoryRetry.from_dict(retries_item_data)

            retries.append(retries_item)

        status = d.pop("status")

        webhook_id = d.pop("webhook_id")

        def _parse_webhook_name(data: object) -> Union[None, str]:
            if data is None:
                return data
            return cast(Union[None, str], data)

        webhook_name = _parse_webhook_name(d.pop("webhook_name"))

        history_delivery = cls(
            attempt_count=attempt_count,
            attempts=attempts,
            created_at=created_at,
            delivery_id=delivery_id,
            event_type=event_type,
            next_attempt_at=next_attempt_at,
            replay_id=replay_id,
            retries=retries,
            status=status,
            webhook_id=webhook_id,
            webhook_name=webhook_name,
        )

        history_delivery.additional_properties = d
        return history_delivery

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
