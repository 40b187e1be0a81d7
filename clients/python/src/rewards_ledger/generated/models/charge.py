import datetime
from collections.abc import Mapping
from typing import Any, TypeVar

from attrs import define as _attrs_define
from attrs import field as _attrs_field
from dateutil.parser import isoparse

T = TypeVar("T", bound="Charge")


@_attrs_define
class Charge:
    """Current price of an order. A charge is an estimate and reserves nothing.

    Attributes:
        amount (str): Amount that the order would cost.
        currency (str): Currency of the product and of the wallet that would pay, as an ISO 4217 code.
        denomination (str): Face value of one unit.
        discount (str): The account's discount, in percent.
        discount_amount (str): Amount saved by the discount: `face_value` − `amount`.
        face_value (str): Total face value: `denomination` × `quantity`.
        product_id (int): Unique identifier of the product.
        quantity (int): Number of units.
        quoted_at (datetime.datetime): Time at which the order was priced.
        sufficient_balance (bool): Whether the wallet's balance covers the amount.
        wallet_balance (str): Current balance of the wallet that would pay.
    """

    amount: str
    currency: str
    denomination: str
    discount: str
    discount_amount: str
    face_value: str
    product_id: int
    quantity: int
    quoted_at: datetime.datetime
    sufficient_balance: bool
    wallet_balance: str
    additional_properties: dict[str, Any] = _attrs_field(init=False, factory=dict)

    def to_dict(self) -> dict[str, Any]:
        amount = self.amount

        currency = self.currency

        denomination = self.denomination

        discount = self.discount

        discount_amount = self.discount_amount

        face_value = self.face_value

        product_id = self.product_id

        quantity = self.quantity

        quoted_at = self.quoted_at.isoformat()

        sufficient_balance = self.sufficient_balance

        wallet_balance = self.wallet_balance

        field_dict: dict[str, Any] = {}
        field_dict.update(self.additional_properties)
        field_dict.update(
            {
                "amount": amount,
                "currency": currency,
                "denomination": denomination,
                "discount": discount,
                "discount_amount": discount_amount,
                "face_value": face_value,
                "product_id": product_id,
                "quantity": quantity,
                "quoted_at": quoted_at,
                "sufficient_balance": sufficient_balance,
                "wallet_balance": wallet_balance,
            }
        )

        return field_dict

    @classmethod
    def from_dict(cls: type[T], src_dict: Mapping[str, Any]) -> T:
        d = dict(src_dict)
        amount = d.pop("amount")

        currency = d.pop("currency")

        denomination = d.pop("denomination")

        discount = d.pop("discount")

        discount_amount = d.pop("discount_amount")

        face_value = d.pop("face_value")

        product_id = d.pop("product_id")

        quantity = d.pop("quantity")

        quoted_at = isoparse(d.pop("quoted_at"))

        sufficient_balance = d.pop("sufficient_balance")

        wallet_balance = d.pop("wallet_balance")

        charge = cls(
            amount=amount,
            currency=currency,
            denomination=denomination,
            discount=discount,
            discount_amount=discount_amount,
            face_value=face_value,
            product_id=product_id,
            quantity=quantity,
            quoted_at=quoted_at,
            sufficient_balance=sufficient_balance,
            wallet_balance=wallet_balance,
        )

        charge.additional_properties = d
        return charge

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
