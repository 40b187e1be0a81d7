import datetime
from collections.abc import Mapping
from typing import Any, TypeVar, Union, cast

from attrs import define as _attrs_define
from attrs import field as _attrs_field
from dateutil.parser import isoparse

from ..models.transaction_type import TransactionType

T = TypeVar("T", bound="RecordedTransaction")


@_attrs_define
class RecordedTransaction:
    """A transaction with the event that recorded it.

    Attributes:
        amount (str): Amount moved, always positive. `type` gives the direction.
        balance_after (str): Balance of the wallet right after the transaction.
        category (str): Reason for the transaction: `FUNDING`, `ORDER`, `ORDER_REFUND`, `ADJUSTMENT`, `PAYOUT` or
            `PAYOUT_REFUND`.
        created_at (datetime.datetime): Time at which the money moved.
        currency (str): Currency of the wallet, as an ISO 4217 code.
        description (str): Description in plain English. Do not parse it.
        event_id (str): Unique identifier of the event in the log that moved the money. Support finds the event by it.
            Webhooks about the order or
            the payout have an `event_id` of their own.
        id (int): Unique identifier of the transaction.
        order_id (Union[None, int]): Unique identifier of the order that was paid or refunded; null for other
            categories.
        reference (Union[None, str]): The `reference_code` of the order, the reference of the funding, or `PAY-`
            followed by the payout's ID; null if none.
        type_ (TransactionType): Direction of a transaction.

            - `CREDIT`: the amount was added to the wallet.
            - `DEBIT`: the amount was taken from the wallet.
        wallet_id (int): Unique identifier of the wallet.
    """

    amount: str
    balance_after: str
    category: str
    created_at: datetime.datetime
    currency: str
    description: str
    event_id: str
    id: int
    order_id: Union[None, int]
    reference: Union[None, str]
    type_: TransactionType
    wallet_id: int
    additional_properties: dict[str, Any] = _attrs_field(init=False, factory=dict)

    def to_dict(self) -> dict[str, Any]:
        amount = self.amount

        balance_after = self.balance_after

        category = self.category

        created_at = self.created_at.isoformat()

        currency = self.currency

        description = self.description

        event_id = self.event_id

        id = self.id

        order_id: Union[None, int]
        order_id = self.order_id

        reference: Union[None, str]
        reference = self.reference

        type_ = self.type_.value

        wallet_id = self.wallet_id

        field_dict: dict[str, Any] = {}
        field_dict.update(self.additional_properties)
        field_dict.update(
            {
                "amount": amount,
                "balance_after": balance_after,
                "category": category,
                "created_at": created_at,
                "currency": currency,
                "description": description,
                "event_id": event_id,
                "id": id,
                "order_id": order_id,
                "reference": reference,
                "type": type_,
                "wallet_id": wallet_id,
            }
        )

        return field_dict

    @classmethod
    def from_dict(cls: type[T], src_dict: Mapping[str, Any]) -> T:
        d = dict(src_dict)
        amount = d.pop("amount")

        balance_after = d.pop("balance_after")

        category = d.pop("category")

        created_at = isoparse(d.pop("created_at"))

        currency = d.pop("currency")

        description = d.pop("description")

        event_id = d.pop("event_id")

        id = d.pop("id")

        def _parse_order_id(data: object) -> Union[None, int]:
            if data is None:
                return data
            return cast(Union[None, int], data)

        order_id = _parse_order_id(d.pop("order_id"))

        def _parse_reference(data: object) -> Union[None, str]:
            if data is None:
                return data
            return cast(Union[None, str], data)

        reference = _parse_reference(d.pop("reference"))

        type_ = TransactionType(d.pop("type"))

        wallet_id = d.pop("wallet_id")

        recorded_transaction = cls(
            amount=amount,
            balance_after=balance_after,
            category=category,
            created_at=created_at,
            currency=currency,
            description=description,
            event_id=event_id,
            id=id,
            order_id=order_id,
            reference=reference,
            type_=type_,
            wallet_id=wallet_id,
        )

        recorded_transaction.additional_properties = d
        return recorded_transaction

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
