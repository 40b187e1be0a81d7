import datetime
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, TypeVar, Union, cast

from attrs import define as _attrs_define
from attrs import field as _attrs_field
from dateutil.parser import isoparse

from ..models.order_status import OrderStatus
from ..types import UNSET, Unset

if TYPE_CHECKING:
    from ..models.order_item import OrderItem


T = TypeVar("T", bound="WebhookOrder")


@_attrs_define
class WebhookOrder:
    """State of an order right after the event. New fields may be added; ignore unknown fields.

    Attributes:
        amount (str): Amount debited from the wallet.
        created_at (datetime.datetime): Time at which the order was placed.
        delivered_on (Union[None, datetime.datetime]): Time at which the status became `DELIVERED`; null until then.
        delivered_quantity (int): Number of units delivered so far.
        denomination (str): Face value of one unit.
        id (int): Unique identifier of the order.
        product_name (str): Name of the product at the time of the order.
        quantity (int): Number of units ordered.
        reference_code (str): Reference code assigned by the service, for people to quote.
        status (OrderStatus): Status of an order. `DELIVERED` and `CANCELLED` are final.

            - `PENDING`: placed and paid.
            - `DELAYED`: waiting for stock; no unit is delivered yet.
            - `PARTIALLY_DELIVERED`: some units are delivered, the others wait for stock.
            - `DELIVERED`: all units are delivered.
            - `CANCELLED`: cancelled by the client or an operator. Undelivered units are refunded.
        sub_status (str): Detail of the status, or empty. New values may be added and are informational.
        order_items (Union[Unset, list['OrderItem']]): Delivered items, without codes. Only in `order.delivered` and
            `order.partially_delivered`.
    """

    amount: str
    created_at: datetime.datetime
    delivered_on: Union[None, datetime.datetime]
    delivered_quantity: int
    denomination: str
    id: int
    product_name: str
    quantity: int
    reference_code: str
    status: OrderStatus
    sub_status: str
    order_items: Union[Unset, list["OrderItem"]] = UNSET
    additional_properties: dict[str, Any] = _attrs_field(init=False, factory=dict)

    def to_dict(self) -> dict[str, Any]:
        amount = self.amount

        created_at = self.created_at.isoformat()

        delivered_on: Union[None, str]
        if isinstance(self.delivered_on, datetime.datetime):
            delivered_on = self.delivered_on.isoformat()
        else:
            delivered_on = self.delivered_on

        delivered_quantity = self.delivered_quantity

        denomination = self.denomination

        id = self.id

        product_name = self.product_name

        quantity = self.quantity

        reference_code = self.reference_code

        status = self.status.value

        sub_status = self.sub_status

        order_items: Union[Unset, list[dict[str, Any]]] = UNSET
        if not isinstance(self.order_items, Unset):
            order_items = []
            for order_items_item_data in self.order_items:
                order_items_item = order_items_item_data.to_dict()
                order_items.append(order_items_item)

        field_dict: dict[str, Any] = {}
        field_dict.update(self.additional_properties)
        field_dict.update(
            {
                "amount": amount,
                "created_at": created_at,
                "delivered_on": delivered_on,
                "delivered_quantity": delivered_quantity,
                "denomination": denomination,
                "id": id,
                "product_name": product_name,
                "quantity": quantity,
                "reference_code": reference_code,
                "status": status,
                "sub_status": sub_status,
            }
        )
        if order_items is not UNSET:
            field_dict["order_items"] = order_items

        return field_dict

    @classmethod
    def from_dict(cls: type[T], src_dict: Mapping[str, Any]) -> T:
        from ..models.order_item import OrderItem

        d = dict(src_dict)
        amount = d.pop("amount")

        created_at = isoparse(d.pop("created_at"))

        def _parse_delivered_on(data: object) -> Union[None, datetime.datetime]:
            if data is None:
                return data
            try:
                if not isinstance(data, str):
                    raise TypeError()
                delivered_on_type_0 = isoparse(data)

                return delivered_on_type_0
            except:  # noqa: E722
                pass
            return cast(Union[None, datetime.datetime], data)

        delivered_on = _parse_delivered_on(d.pop("delivered_on"))

        delivered_quantity = d.pop("delivered_quantity")

        denomination = d.pop("denomination")

        id = d.pop("id")

        product_name = d.pop("product_name")

        quantity = d.pop("quantity")

        reference_code = d.pop("reference_code")

        status = OrderStatus(d.pop("status"))

        sub_status = d.pop("sub_status")

        order_items = []
        _order_items = d.pop("order_items", UNSET)
        for order_items_item_data in _order_items or []:
            order_items_item = OrderItem.from_dict(order_items_item_data)

            order_items.append(order_items_item)

        webhook_order = cls(
            amount=amount,
            created_at=created_at,
            delivered_on=delivered_on,
            delivered_quantity=delivered_quantity,
            denomination=denomination,
            id=id,
            product_name=product_name,
            quantity=quantity,
            reference_code=reference_code,
            status=status,
            sub_status=sub_status,
            order_items=order_items,
        )

        webhook_order.additional_properties = d
        return webhook_order

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
