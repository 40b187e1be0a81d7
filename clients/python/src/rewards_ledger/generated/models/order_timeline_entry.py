import datetime
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, TypeVar, Union, cast

from attrs import define as _attrs_define
from attrs import field as _attrs_field
from dateutil.parser import isoparse

if TYPE_CHECKING:
    from ..models.history_actor import HistoryActor
    from ..models.history_delivery import HistoryDelivery
    from ..models.transaction import Transaction


T = TypeVar("T", bound="OrderTimelineEntry")


@_attrs_define
class OrderTimelineEntry:
    """An event of an order, with its effects.

    Attributes:
        actor (HistoryActor): Person or process that caused an event.
        deliveries (list['HistoryDelivery']): Webhook deliveries of the event, in their current state.
        description (str): Description of the event in plain English. Vouchers appear by reference only. Do not parse
            it.
        event_id (str): Unique identifier of the event. Webhook deliveries carry the same identifier.
        event_type (str): Type of the event in the log, such as `OrderPlaced`. New types may be added.
        reason (Union[None, str]): Reason given with a cancellation, if any.
        recorded_at (datetime.datetime): Time at which the event was recorded.
        request_id (str): `X-Request-ID` of the request that caused the event, or the name of the background process.
        transaction (Union['Transaction', None]): Wallet transaction that the event caused, if any.
    """

    actor: "HistoryActor"
    deliveries: list["HistoryDelivery"]
    description: str
    event_id: str
    event_type: str
    reason: Union[None, str]
    recorded_at: datetime.datetime
    request_id: str
    transaction: Union["Transaction", None]
    additional_properties: dict[str, Any] = _attrs_field(init=False, factory=dict)

    def to_dict(self) -> dict[str, Any]:
        from ..models.transaction import Transaction

        actor = self.actor.to_dict()

        deliveries = []
        for deliveries_item_data in self.deliveries:
            deliveries_item = deliveries_item_data.to_dict()
            deliveries.append(deliveries_item)

        description = self.description

        event_id = self.event_id

        event_type = self.event_type

        reason: Union[None, str]
        reason = self.reason

        recorded_at = self.recorded_at.isoformat()

        request_id = self.request_id

        transaction: Union[None, dict[str, Any]]
        if isinstance(self.transaction, Transaction):
            transaction = self.transaction.to_dict()
        else:
            transaction = self.transaction

        field_dict: dict[str, Any] = {}
        field_dict.update(self.additional_properties)
        field_dict.update(
            {
                "actor": actor,
                "deliveries": deliveries,
                "description": description,
                "event_id": event_id,
                "event_type": event_type,
                "reason": reason,
                "recorded_at": recorded_at,
                "request_id": request_id,
                "transaction": transaction,
            }
        )

        return field_dict

    @classmethod
    def from_dict(cls: type[T], src_dict: Mapping[str, Any]) -> T:
        from ..models.history_actor import HistoryActor
        from ..models.history_delivery import HistoryDelivery
        from ..models.transaction import Transaction

        d = dict(src_dict)
        actor = HistoryActor.from_dict(d.pop("actor"))

        deliveries = []
        _deliveries = d.pop("deliveries")
        for deliveries_item_data in _deliveries:
            deliveries_item = HistoryDelivery.from_dict(deliveries_item_data)

            deliveries.append(deliveries_item)

        description = d.pop("description")

        event_id = d.pop("event_id")

        event_type = d.pop("event_type")

        def _parse_reason(data: object) -> Union[None, str]:
            if data is None:
                return data
            return cast(Union[None, str], data)

        reason = _parse_reason(d.pop("reason"))

        recorded_at = isoparse(d.pop("recorded_at"))

        request_id = d.pop("request_id")

        def _parse_transaction(data: object) -> Union["Transaction", None]:
            if data is None:
                return data
            try:
                if not isinstance(data, dict):
                    raise TypeError()
                transaction_type_0 = Transaction.from_dict(data)

                return transaction_type_0
            except:  # noqa: E722
                pass
            return cast(Union["Transaction", None], data)

        transaction = _parse_transaction(d.pop("transaction"))

        order_timeline_entry = cls(
            actor=actor,
            deliveries=deliveries,
            description=description,
            event_id=event_id,
            event_type=event_type,
            reason=reason,
            recorded_at=recorded_at,
            request_id=request_id,
            transaction=transaction,
        )

        order_timeline_entry.additional_properties = d
        return order_timeline_entry

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
