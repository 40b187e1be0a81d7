import datetime
from collections.abc import Mapping
from typing import Any, TypeVar, Union, cast

from attrs import define as _attrs_define
from attrs import field as _attrs_field
from dateutil.parser import isoparse

T = TypeVar("T", bound="Attempt")


@_attrs_define
class Attempt:
    """One attempt to send a delivery, with the response.

    Attributes:
        attempt (int): Number of the attempt, starting at 1. An attempt whose outcome is unknown is repeated under the
            same number.
        error (Union[None, str]): Reason why the attempt failed, or a note that its outcome is unknown. Null if it
            succeeded or is in flight.
        request_id (str): Value of the header `X-Request-ID` that the attempt was sent with.
        response_body (Union[None, str]): First 64 KiB of the body of your endpoint's response. Null if there was none,
            or if retention has removed it.
        response_status (Union[None, int]): HTTP status that your endpoint returned; null if it returned none.
        response_time_ms (Union[None, int]): Duration of the attempt, in milliseconds; null while it is in flight or if
            its outcome is unknown.
        started_at (datetime.datetime): Time at which the attempt was sent.
    """

    attempt: int
    error: Union[None, str]
    request_id: str
    response_body: Union[None, str]
    response_status: Union[None, int]
    response_time_ms: Union[None, int]
    started_at: datetime.datetime
    additional_properties: dict[str, Any] = _attrs_field(init=False, factory=dict)

    def to_dict(self) -> dict[str, Any]:
        attempt = self.attempt

        error: Union[None, str]
        error = self.error

        request_id = self.request_id

        response_body: Union[None, str]
        response_body = self.response_body

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
                "request_id": request_id,
                "response_body": response_body,
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

        request_id = d.pop("request_id")

        def _parse_response_body(data: object) -> Union[None, str]:
            if data is None:
                return data
            return cast(Union[None, str], data)

        response_body = _parse_response_body(d.pop("response_body"))

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

        attempt = cls(
            attempt=attempt,
            error=error,
            request_id=request_id,
            response_body=response_body,
            response_status=response_status,
            response_time_ms=response_time_ms,
            started_at=started_at,
        )

        attempt.additional_properties = d
        return attempt

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
