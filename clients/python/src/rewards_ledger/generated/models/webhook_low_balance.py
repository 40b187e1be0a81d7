import datetime
from collections.abc import Mapping
from typing import Any, TypeVar

from attrs import define as _attrs_define
from attrs import field as _attrs_field
from dateutil.parser import isoparse

T = TypeVar("T", bound="WebhookLowBalance")


@_attrs_define
class WebhookLowBalance:
    """Fall of a wallet's balance. New fields may be added; ignore unknown fields.

    Attributes:
        balance (str): Balance right after the movement that made it fall.
        below (str): Amount below which the balance fell.
        currency (str): Currency as an ISO 4217 code.
        fell_at (datetime.datetime): Time of the movement.
        wallet_id (int): Unique identifier of the wallet.
    """

    balance: str
    below: str
    currency: str
    fell_at: datetime.datetime
    wallet_id: int
    additional_properties: dict[str, Any] = _attrs_field(init=False, factory=dict)

    def to_dict(self) -> dict[str, Any]:
        balance = self.balance

        below = self.below

        currency = self.currency

        fell_at = self.fell_at.isoformat()

        wallet_id = self.wallet_id

        field_dict: dict[str, Any] = {}
        field_dict.update(self.additional_properties)
        field_dict.update(
            {
                "balance": balance,
                "below": below,
                "currency": currency,
                "fell_at": fell_at,
                "wallet_id": wallet_id,
            }
        )

        return field_dict

    @classmethod
    def from_dict(cls: type[T], src_dict: Mapping[str, Any]) -> T:
        d = dict(src_dict)
        balance = d.pop("balance")

        below = d.pop("below")

        currency = d.pop("currency")

        fell_at = isoparse(d.pop("fell_at"))

        wallet_id = d.pop("wallet_id")

        webhook_low_balance = cls(
            balance=balance,
            below=below,
            currency=currency,
            fell_at=fell_at,
            wallet_id=wallet_id,
        )

        webhook_low_balance.additional_properties = d
        return webhook_low_balance

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
