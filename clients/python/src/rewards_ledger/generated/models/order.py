import datetime
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, TypeVar, Union, cast

from attrs import define as _attrs_define
from attrs import field as _attrs_field
from dateutil.parser import isoparse

from ..models.order_status import OrderStatus

if TYPE_CHECKING:
    from ..models.order_item import OrderItem


T = TypeVar("T", bound="Order")


@_attrs_define
class Order:
    """An order for units of one product, priced and debited from a wallet when it is placed.

    Attributes:
        amount (str): Amount debited from the wallet.
        cancel_reason (Union[None, str]): Reason given with the cancellation. Null if there was none or the data is
            erased.
        cancelled_on (Union[None, datetime.datetime]): Time of the cancellation; null unless the status is `CANCELLED`.
        client_reference (Union[None, str]): Your own reference for the order, as sent when it was placed.
        created_at (datetime.datetime): Time at which the order was placed.
        currency (str): Currency of all amounts of the order, as an ISO 4217 code.
        delivered_on (Union[None, datetime.datetime]): Time at which the last unit was delivered; null unless the status
            is `DELIVERED`.
        delivered_quantity (int): Number of units delivered so far.
        denomination (str): Face value of one unit.
        discount (str): Discount at the time of the order, in percent.
        discount_amount (str): Amount saved by the discount: `face_value` − `amount`.
        face_value (str): Total face value: `denomination` × `quantity`.
        id (int): Unique identifier of the order.
        metadata (Any): Metadata sent with the order. Null if there was none or the data is erased.
        order_items (list['OrderItem']): Delivered units, grouped into one item per delivery.
        product_id (int): Unique identifier of the product.
        product_name (str): Name of the product at the time of the order.
        quantity (int): Number of units ordered.
        reference_code (str): Human-readable reference of the order, assigned by the service.
        refunded_amount (str): Amount that the cancellation returned to the wallet; `0.00` if the order is not
            cancelled.
        status (OrderStatus): Status of an order. `DELIVERED` and `CANCELLED` are final.

            - `PENDING`: placed and paid.
            - `DELAYED`: waiting for stock; no unit is delivered yet.
            - `PARTIALLY_DELIVERED`: some units are delivered, the others wait for stock.
            - `DELIVERED`: all units are delivered.
            - `CANCELLED`: cancelled by the client or an operator. Undelivered units are refunded.
        sub_status (str): Detail of the status: empty, `OUT_OF_STOCK`, `AWAITING_REMAINDER`, `CANCELLED_BY_CLIENT`,
            `CANCELLED_BY_OPERATOR` or
            `REMAINDER_CANCELLED`. New values may be added; treat an unknown one as information only.
        transaction_id (int): Unique identifier of the wallet transaction that debited the amount.
        updated_at (datetime.datetime): Time of the order's latest change.
    """

    amount: str
    cancel_reason: Union[None, str]
    cancelled_on: Union[None, datetime.datetime]
    client_reference: Union[None, str]
    created_at: datetime.datetime
    currency: str
    delivered_on: Union[None, datetime.datetime]
    delivered_quantity: int
    denomination: str
    discount: str
    discount_amount: str
    face_value: str
    id: int
    metadata: Any
    order_items: list["OrderItem"]
    product_id: int
    product_name: str
    quantity: int
    reference_code: str
    refunded_amount: str
    status: OrderStatus
    sub_status: str
    transaction_id: int
    updated_at: datetime.datetime
    additional_properties: dict[str, Any] = _attrs_field(init=False, factory=dict)

    def to_dict(self) -> dict[str, Any]:
        amount = self.amount

        cancel_reason: Union[None, str]
        cancel_reason = self.cancel_reason

        cancelled_on: Union[None, str]
        if isinstance(self.cancelled_on, datetime.datetime):
            cancelled_on = self.cancelled_on.isoformat()
        else:
            cancelled_on = self.cancelled_on

        client_reference: Union[None, str]
        client_reference = self.client_reference

        created_at = self.created_at.isoformat()

        currency = self.currency

        delivered_on: Union[None, str]
        if isinstance(self.delivered_on, datetime.datetime):
            delivered_on = self.delivered_on.isoformat()
        else:
            delivered_on = self.delivered_on

        delivered_quantity = self.delivered_quantity

        denomination = self.denomination

        discount = self.discount

        discount_amount = self.discount_amount

        face_value = self.face_value

        id = self.id

        metadata = self.metadata

        order_items = []
        for order_items_item_data in self.order_items:
            order_items_item = order_items_item_data.to_dict()
            order_items.append(order_items_item)

        product_id = self.product_id

        product_name = self.product_name

        quantity = self.quantity

        reference_code = self.reference_code

        refunded_amount = self.refunded_amount

        status = self.status.value

        sub_status = self.sub_status

        transaction_id = self.transaction_id

        updated_at = self.updated_at.isoformat()

        field_dict: dict[str, Any] = {}
        field_dict.update(self.additional_properties)
        field_dict.update(
            {
                "amount": amount,
                "cancel_reason": cancel_reason,
                "cancelled_on": cancelled_on,
                "client_reference": client_reference,
                "created_at": created_at,
                "currency": currency,
                "delivered_on": delivered_on,
                "delivered_quantity": delivered_quantity,
                "denomination": denomination,
                "discount": discount,
                "discount_amount": discount_amount,
                "face_value": face_value,
                "id": id,
                "metadata": metadata,
                "order_items": order_items,
                "product_id": product_id,
                "product_name": product_name,
                "quantity": quantity,
                "reference_code": reference_code,
                "refunded_amount": refunded_amount,
                "status": status,
                "sub_status": sub_status,
                "transaction_id": transaction_id,
                "updated_at": updated_at,
            }
        )

        return field_dict

    @classmethod
    def from_dict(cls: type[T], src_dict: Mapping[str, Any]) -> T:
        from ..models.order_item import OrderItem

        d = dict(src_dict)
        amount = d.pop("amount")

        def _parse_cancel_reason(data: object) -> Union[None, str]:
            if data is None:
                return data
            return cast(Union[None, str], data)

        cancel_reason = _parse_cancel_reason(d.pop("cancel_reason"))

        def _parse_cancelled_on(data: object) -> Union[None, datetime.datetime]:
            if data is None:
                return data
            try:
                if not isinstance(data, str):
                    raise TypeError()
                cancelled_on_type_0 = isoparse(data)

                return cancelled_on_type_0
            except:  # noqa: E722
                pass
            return cast(Union[None, datetime.datetime], data)

        cancelled_on = _parse_cancelled_on(d.pop("cancelled_on"))

        def _parse_client_reference(data: object) -> Union[None, str]:
            if data is None:
                return data
            return cast(Union[None, str], data)

        client_reference = _parse_client_reference(d.pop("client_reference"))

        created_at = isoparse(d.pop("created_at"))

        currency = d.pop("currency")

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

        discount = d.pop("discount")

        discount_amount = d.pop("discount_amount")

        face_value = d.pop("face_value")

        id = d.pop("id")

        metadata = d.pop("metadata")

        order_items = []
        _order_items = d.pop("order_items")
        for order_items_item_data in _order_items:
            order_items_item = OrderItem.from_dict(order_items_item_data)

            order_items.append(order_items_item)

        product_id = d.pop("product_id")

        product_name = d.pop("product_name")

        quantity = d.pop("quantity")

        reference_code = d.pop("reference_code")

        refunded_amount = d.pop("refunded_amount")

        status = OrderStatus(d.pop("status"))

        sub_status = d.pop("sub_status")

        transaction_id = d.pop("transaction_id")

        updated_at = isoparse(d.pop("updated_at"))

        order = cls(
            amount=amount,
            cancel_reason=cancel_reason,
            cancelled_on=cancelled_on,
            client_reference=client_reference,
            created_at=created_at,
            currency=currency,
            delivered_on=delivered_on,
            delivered_quantity=delivered_quantity,
            denomination=denomination,
            discount=discount,
            discount_amount=discount_amount,
            face_value=face_value,
            id=id,
            metadata=metadata,
            order_items=order_items,
            product_id=product_id,
            product_name=product_name,
            quantity=quantity,
            reference_code=reference_code,
            refunded_amount=refunded_amount,
            status=status,
            sub_status=sub_status,
            transaction_id=transaction_id,
            updated_at=updated_at,
        )

        order.additional_properties = d
        return order

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
