from collections.abc import Mapping
from typing import Any, TypeVar, Union, cast

from attrs import define as _attrs_define

from ..types import UNSET, Unset

T = TypeVar("T", bound="PlaceOrder")


@_attrs_define
class PlaceOrder:
    """An order to place. The service prices it and debits the wallet in the product's currency.

    Attributes:
        denomination (float): Face value of one unit, as a number with at most two decimals. It is read exactly, without
            floating-point
            rounding.
        product_id (int): Product to order, from `GET /api/v1/products`.
        quantity (int): Number of units, from 1 to the product's `max_quantity`.
        client_reference (Union[None, Unset, str]): Your own reference for the order, unique within the account forever.
            Repeating the same request returns the existing
            order with status 200. A different request with the same reference fails with 409 `E_DUPLICATE_REFERENCE`.
        metadata (Union[Unset, Any]): Additional data of your own to store with the order, as a JSON object of at most 4
            KiB. The order returns it.
    """

    denomination: float
    product_id: int
    quantity: int
    client_reference: Union[None, Unset, str] = UNSET
    metadata: Union[Unset, Any] = UNSET

    def to_dict(self) -> dict[str, Any]:
        denomination = self.denomination

        product_id = self.product_id

        quantity = self.quantity

        client_reference: Union[None, Unset, str]
        if isinstance(self.client_reference, Unset):
            client_reference = UNSET
        else:
            client_reference = self.client_reference

        metadata = self.metadata

        field_dict: dict[str, Any] = {}

        field_dict.update(
            {
                "denomination": denomination,
                "product_id": product_id,
                "quantity": quantity,
            }
        )
        if client_reference is not UNSET:
            field_dict["client_reference"] = client_reference
        if metadata is not UNSET:
            field_dict["metadata"] = metadata

        return field_dict

    @classmethod
    def from_dict(cls: type[T], src_dict: Mapping[str, Any]) -> T:
        d = dict(src_dict)
        denomination = d.pop("denomination")

        product_id = d.pop("product_id")

        quantity = d.pop("quantity")

        def _parse_client_reference(data: object) -> Union[None, Unset, str]:
            if data is None:
                return data
            if isinstance(data, Unset):
                return data
            return cast(Union[None, Unset, str], data)

        client_reference = _parse_client_reference(d.pop("client_reference", UNSET))

        metadata = d.pop("metadata", UNSET)

        place_order = cls(
            denomination=denomination,
            product_id=product_id,
            quantity=quantity,
            client_reference=client_reference,
            metadata=metadata,
        )

        return place_order
