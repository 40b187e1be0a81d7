import datetime
from collections.abc import Mapping
from typing import Any, TypeVar, Union, cast

from attrs import define as _attrs_define
from attrs import field as _attrs_field
from dateutil.parser import isoparse

from ..models.attempt_outcome import AttemptOutcome

T = TypeVar("T", bound="ListedAttempt")


@_attrs_define
class ListedAttempt:
    """An attempt with the delivery that it belongs to.

    Attributes:
        attempt (int): Number of the attempt, starting at 1. An attempt whose outcome is unknown is repeated under the
            same number.
        delivery_id (int): Unique identifier of the delivery.
        error (Union[None, str]): Reason why the attempt failed, or a note that its outcome is unknown. Null if it
            succeeded or is in flight.
        event_id (str): ID of the event.
        event_type (str): Type of the event.
        finished_at (Union[None, datetime.datetime]): Time at which the attempt ended; null without a recorded outcome.
        order_id (int): Unique identifier of the order that the event is about; 0 for a test delivery, and for events of
            payouts and wallets.
        outcome (AttemptOutcome): Outcome of an attempt.

            - `delivered`: the endpoint answered with a 2xx status.
            - `failed`: it answered with another status, or not in time.
            - `in_flight`: the outcome may still arrive.
            - `unknown`: the node that made the attempt has not recorded its outcome, because it ended or lost the database.
        request_id (str): Value of the header `X-Request-ID` that the attempt was sent with.
        response_status (Union[None, int]): HTTP status that your endpoint returned; null if it returned none.
        response_time_ms (Union[None, int]): Duration of the attempt, in milliseconds; null while it is in flight or if
            its outcome is unknown.
        started_at (datetime.datetime): Time at which the attempt was sent.
    """

    attempt: int
    delivery_id: int
    error: Union[None, str]
    event_id: str
    event_type: str
    finished_at: Union[None, datetime.datetime]
    order_id: int
    outcome: AttemptOutcome
    request_id: str
    response_status: Union[None, int]
    response_time_ms: Union[None, int]
    started_at: datetime.datetime
    additional_properties: dict[str, Any] = _attrs_field(init=False, factory=dict)

    def to_dict(self) -> dict[str, Any]:
        attempt = self.attempt

        delivery_id = self.delivery_id

        error: Union[None, str]
        error = self.error

        event_id = self.event_id

        event_type = self.event_type

        finished_at: Union[None, str]
        if isinstance(self.finished_at, datetime.datetime):
            finished_at = self.finished_at.isoformat()
        else:
            finished_at = self.finished_at

        order_id = self.order_id

        outcome = self.outcome.value

        request_id = self.request_id

        response_status: Union[None, int]
        response_status = self.response_status

        response_time_ms: Union[None, int]
        response_time_ms = self.response_time_ms

        started_at = self.started_at.isoformat()

        field_dict: dict[str, Any] = {}
        field_dict.update(self.additional_properties)
        field_dict.update(
            {
                "attempt": attempt,
                "delivery_id": delivery_id,
                "error": error,
                "event_id": event_id,
                "event_type": event_type,
                "finished_at": finished_at,
                "order_id": order_id,
                "outcome": outcome,
                "request_id": request_id,
                "response_status": response_status,
                "response_time_ms": response_time_ms,
                "started_at": started_at,
            }
        )

        return field_dict

    @classmethod
    def from_dict(cls: type[T], src_dict: Mapping[str, Any]) -> T:
        d = dict(src_dict)
        attempt = d.pop("attempt")

        delivery_id = d.pop("delivery_id")

        def _parse_error(data: object) -> Union[None, str]:
            if data is None:
                return data
            return cast(Union[None, str], data)

        error = _parse_error(d.pop("error"))

        event_id = d.pop("event_id")

        event_type = d.pop("event_type")

        def _parse_finished_at(data: object) -> Union[None, datetime.datetime]:
            if data is None:
                return data
            try:
                if not isinstance(data, str):
                    raise TypeError()
                finished_at_type_0 = isoparse(data)

                return finished_at_type_0
            except:  # noqa: E722
                pass
            return cast(Union[None, datetime.datetime], data)

        finished_at = _parse_finished_at(d.pop("finished_at"))

        order_id = d.pop("order_id")

        outcome = AttemptOutcome(d.pop("outcome"))

        request_id = d.pop("request_id")

        def _parse_response_status(data: object) -> Union[None, int]:
            if data is None:
                return data
            return cast(Union[None, int], data)

        response_status = _parse_response_status(d.pop("response_status"))

        def _parse_response_time_ms(data: object) -> Union[None, int]:
            if data is None:
                return data
            return cast(Union[None, int], data)

        response_time_ms = _parse_response_time_ms(d.pop("response_time_ms"))

        started_at = isoparse(d.pop("started_at"))

        listed_attempt = cls(
            attempt=attempt,
            delivery_id=delivery_id,
            error=error,
            event_id=event_id,
            event_type=event_type,
            finished_at=finished_at,
            order_id=order_id,
            outcome=outcome,
            request_id=request_id,
            response_status=response_status,
            response_time_ms=response_time_ms,
            started_at=started_at,
        )

        listed_attempt.additional_properties = d
        return listed_attempt

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
