import datetime
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, TypeVar, Union, cast

from attrs import define as _attrs_define
from attrs import field as _attrs_field
from dateutil.parser import isoparse

from ..models.delivery_status import DeliveryStatus
from ..models.webhook_event_type import WebhookEventType

if TYPE_CHECKING:
    from ..models.attempt import Attempt


T = TypeVar("T", bound="DeliveryDetail")


@_attrs_define
class DeliveryDetail:
    """A delivery with its latest response, and its attempts with their responses.

    Attributes:
        attempt_count (int): Number of attempts made so far.
        attempts (list['Attempt']): The attempts, oldest first. Retention removes old ones.
        created_at (datetime.datetime): Time at which the delivery was created.
        delivered_at (Union[None, datetime.datetime]): Time of the successful attempt; null unless the status is
            `delivered`.
        event_id (str): ID of the event. The envelope's `event_id` and the header `X-Event-ID` have the same value.
        event_type (WebhookEventType): Type of an event that a webhook can subscribe to. New types may be added.

            - `order.created`: an order was placed and debited from the wallet.
            - `order.pending`: fulfilment has started to process the order.
            - `order.partially_delivered`: some units of the order are delivered.
            - `order.delivered`: all units of the order are delivered.
            - `order.cancelled`: the order was cancelled, and its undelivered units are refunded.
            - `payout.requested`: a payout was requested and debited from the wallet.
            - `payout.paid`: the money of the payout was sent.
            - `payout.failed`: the money could not be sent, and was returned to the wallet.
            - `payout.cancelled`: the payout was cancelled, and the money was returned to the wallet.
            - `wallet.low_balance`: the balance of a wallet fell below the amount that is set for notices about it.
        id (int): Unique identifier of the delivery.
        max_attempts (int): Maximum number of attempts. When the last one fails, the delivery is `failed` for good.
        next_attempt_at (Union[None, datetime.datetime]): Time at which the next attempt is due; null unless the status
            is `pending`.
        order_id (int): Unique identifier of the order that the event is about; 0 for a test delivery, and for events of
            payouts and wallets.
        payload (Any): Webhook envelope: the JSON body that each attempt sends.
        response_body (Union[None, str]): First 64 KiB of the body of your endpoint's latest response. Null if there was
            none, or if retention has removed it.
        response_status (Union[None, int]): HTTP status that your endpoint returned to the latest attempt; null if it
            returned none.
        response_time_ms (Union[None, int]): Duration of the latest attempt, in milliseconds; null if no attempt has
            ended or its outcome is unknown.
        sequence (int): Order of the event: it grows with every event of the same order, payout or wallet, and is not
            consecutive. The header
            `X-Event-Sequence` has the same value.
        status (DeliveryStatus): Status of a delivery.

            - `pending`: an attempt is due or in flight.
            - `delivered`: your endpoint answered an attempt with a 2xx status.
            - `failed`: all attempts are used, or the delivery was stopped, for example because its webhook was deactivated.
        webhook_url_id (int): Unique identifier of the webhook that receives the event.
    """

    attempt_count: int
    attempts: list["Attempt"]
    created_at: datetime.datetime
    delivered_at: Union[None, datetime.datetime]
    event_id: str
    event_type: WebhookEventType
    id: int
    max_attempts: int
    next_attempt_at: Union[None, datetime.datetime]
    order_id: int
    payload: Any
    response_body: Union[None, str]
    response_status: Union[None, int]
    response_time_ms: Union[None, int]
    sequence: int
    status: DeliveryStatus
    webhook_url_id: int
    additional_properties: dict[str, Any] = _attrs_field(init=False, factory=dict)

    def to_dict(self) -> dict[str, Any]:
        attempt_count = self.attempt_count

        attempts = []
        for attempts_item_data in self.attempts:
            attempts_item = attempts_item_data.to_dict()
            attempts.append(attempts_item)

        created_at = self.created_at.isoformat()

        delivered_at: Union[None, str]
        if isinstance(self.delivered_at, datetime.datetime):
            delivered_at = self.delivered_at.isoformat()
        else:
            delivered_at = self.delivered_at

        event_id = self.event_id

        event_type = self.event_type.value

        id = self.id

        max_attempts = self.max_attempts

        next_attempt_at: Union[None, str]
        if isinstance(self.next_attempt_at, datetime.datetime):
            next_attempt_at = self.next_attempt_at.isoformat()
        else:
            next_attempt_at = self.next_attempt_at

        order_id = self.order_id

        payload = self.payload

        response_body: Union[None, str]
        response_body = self.response_body

        response_status: Union[None, int]
        response_status = self.response_status

        response_time_ms: Union[None, int]
        response_time_ms = self.response_time_ms

        sequence = self.sequence

        status = self.status.value

        webhook_url_id = self.webhook_url_id

        field_dict: dict[str, Any] = {}
        field_dict.update(self.additional_properties)
        field_dict.update(
            {
                "attempt_count": attempt_count,
                "attempts": attempts,
                "created_at": created_at,
                "delivered_at": delivered_at,
                "event_id": event_id,
                "event_type": event_type,
                "id": id,
                "max_attempts": max_attempts,
                "next_attempt_at": next_attempt_at,
                "order_id": order_id,
                "payload": payload,
                "response_body": response_body,
                "response_status": response_status,
                "response_time_ms": response_time_ms,
                "sequence": sequence,
                "status": status,
                "webhook_url_id": webhook_url_id,
            }
        )

        return field_dict

    @classmethod
    def from_dict(cls: type[T], src_dict: Mapping[str, Any]) -> T:
        from ..models.attempt import Attempt

        d = dict(src_dict)
        attempt_count = d.pop("attempt_count")

        attempts = []
        _attempts = d.pop("attempts")
        for attempts_item_data in _attempts:
            attempts_item = Attempt.from_dict(attempts_item_data)

            attempts.append(attempts_item)

        created_at = isoparse(d.pop("created_at"))

        def _parse_delivered_at(data: object) -> Union[None, datetime.datetime]:
            if data is None:
                return data
            try:
                if not isinstance(data, str):
                    raise TypeError()
                delivered_at_type_0 = isoparse(data)

                return delivered_at_type_0
            except:  # noqa: E722
                pass
            return cast(Union[None, datetime.datetime], data)

        delivered_at = _parse_delivered_at(d.pop("delivered_at"))

        event_id = d.pop("event_id")

        event_type = WebhookEventType(d.pop("event_type"))

        id = d.pop("id")

        max_attempts = d.pop("max_attempts")

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

        order_id = d.pop("order_id")

        payload = d.pop("payload")

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

        sequence = d.pop("sequence")

        status = DeliveryStatus(d.pop("status"))

        webhook_url_id = d.pop("webhook_url_id")

        delivery_detail = cls(
            attempt_count=attempt_count,
            attempts=attempts,
            created_at=created_at,
            delivered_at=delivered_at,
            event_id=event_id,
            event_type=event_type,
            id=id,
            max_attempts=max_attempts,
            next_attempt_at=next_attempt_at,
            order_id=order_id,
            payload=payload,
            response_body=response_body,
            response_status=response_status,
            response_time_ms=response_time_ms,
            sequence=sequence,
            status=status,
            webhook_url_id=webhook_url_id,
        )

        delivery_detail.additional_properties = d
        return delivery_detail

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
