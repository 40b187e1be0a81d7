import datetime
from collections.abc import Mapping
from typing import Any, TypeVar

from attrs import define as _attrs_define
from attrs import field as _attrs_field
from dateutil.parser import isoparse

T = TypeVar("T", bound="Wallet")


@_attrs_define
class Wallet:
    """A wallet. An account has at most one per currency.

    Attributes:
        balance (str): Current balance, never negative.
        currency (str): Currency of the wallet, as an ISO 4217 code.
        id (int): Unique identifier of the wallet.
        updated_at (datetime.datetime): Time of the latest change of the balance.
    """

    balance: str
    currency: str
    id: int
    updated_at: datetime.datetime
    additional_properties: dict[str, Any] = _attrs_field(init=False, factory=dict)

    def to_dict(self) -> dict[str, Any]:
        balance = self.balance

        currency = self.currency

        id = self.id

        updated_at = self.updated_at.isoformat()

        field_dict: dict[str, Any] = {}
        field_dict.update(self.additional_properties)
        field_dict.update(
            {
                "balance": balance,
                "currency": currency,
                "id": id,
                "updated_at": updated_at,
            }
        )

        return field_dict

    @classmethod
    def from_dict(cls: type[T], src_dict: Mapping[str, Any]) -> T:
        d = dict(src_dict)
        balance = d.pop("balance")

        currency = d.pop("currency")

        id = d.pop("id")

        updated_at = isoparse(d.pop("updated_at"))

        wallet = cls(
            balance=balance,
            currency=currency,
            id=id,
            updated_at=updated_at,
        )

        wallet.additional_properties = d
        return wallet

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
