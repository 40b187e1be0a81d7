from collections.abc import Mapping
from typing import Any, TypeVar, Union

from attrs import define as _attrs_define

from ..types import UNSET, Unset

T = TypeVar("T", bound="QuoteCharge")


@_attrs_define
class QuoteCharge:
    """An order to price.

    Attributes:
        denomination (float): Face value of one unit, as a number with at most two decimals. It is read exactly, without
            floating-point
            rounding.
        product_id (int): Product to price, from `GET /api/v1/products`.
        quantity (int): Number of units, from 1 to the product's `max_quantity`.
        metadata (Union[Unset, Any]): Metadata as in an order, at most 4 KiB of JSON. It does not affect the price and
            is not stored.
    """

    denomination: float
    product_id: int
    quantity: int
    metadata: Union[Unset, Any] = UNSET

    def to_dict(self) -> dict[str, Any]:
        denomination = self.denomination

        product_id = self.product_id

        quantity = self.quantity

        metadata = self.metadata

        field_dict: dict[str, Any] = {}

        field_dict.update(
            {
                "denomination": denomination,
                "product_id": product_id,
                "quantity": quantity,
            }
        )
        if metadata is not UNSET:
            field_dict["metadata"] = metadata

        return field_dict

    @classmethod
    def from_dict(cls: type[T], src_dict: Mapping[str, Any]) -> T:
        d = dict(src_dict)
        denomination = d.pop("denomination")

        product_id = d.pop("product_id")

        quantity = d.pop("quantity")

        metadata = d.pop("metadata", UNSET)

        quote_charge = cls(
            denomination=denomination,
            product_id=product_id,
            quantity=quantity,
            metadata=metadata,
        )

        return quote_charge
