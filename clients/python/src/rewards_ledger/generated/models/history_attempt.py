import datetime
from collections.abc import Mapping
from typing import Any, TypeVar, Union, cast

from attrs import define as _attrs_define
from attrs import field as _attrs_field
from dateutil.parser import isoparse

T = TypeVar("T", bound="HistoryAttempt")


@_attrs_define
class HistoryAttempt:
    """An attempt to send a delivery.

    Attributes:
        attempt (int): Number of the attempt, from 1. An attempt with an unknown outcome is repeated under the same
            number.
        error (Union[None, str]): Reason for the failure, if the attempt failed.
        outcome (str): Outcome: `delivered`, `failed`, `in_flight`, or `unknown` if the attempt was interrupted before
            its outcome was
            recorded.
        request_id (str): `X-Request-ID` that the attempt was sent with.
        response_status (Union[None, int]): HTTP status of the receiver's response, if there was one.
        response_time_ms (Union[None, int]): Response time of the receiver, in milliseconds.
        started_at (datetime.datetime): Time at which the attempt started.
    """

    attempt: int
    error: Union[None, str]
    outcome: str
    request_id: str
    response_status: Union[None, int]
    response_time_ms: Union[None, int]
    started_at: datetime.datetime
    additional_properties: dict[str, Any] = _attrs_field(init=False, factory=dict)

    def to_dict(self) -> dict[str, Any]:
        attempt = self.attempt

        error: Union[None, str]
        error = self.error

        outcome = self.outcome

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
                "error": error,
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

        def _parse_error(data: object) -> Union[None, str]:
            if data is None:
                return data
            return cast(Union[None, str], data)

        error = _parse_error(d.pop("error"))

        outcome = d.pop("outcome")

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

        history_attempt = cls(
            attempt=attempt,
            error=error,
            outcome=outcome,
            request_id=request_id,
            response_status=response_status,
            response_time_ms=response_time_ms,
            started_at=started_at,
        )

        history_attempt.additional_properties = d
        return history_attempt

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
