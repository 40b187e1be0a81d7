"""Calls of the tag `orders`."""

import datetime
from collections.abc import AsyncIterator, Iterator
from typing import Optional
from urllib.parse import quote

from ...call import AsyncSend, Call, Send, async_pages, pages
from ..models.cancel_order import CancelOrder
from ..models.charge_reply import ChargeReply
from ..models.order import Order
from ..models.order_list import OrderList
from ..models.order_reply import OrderReply
from ..models.order_statistics_reply import OrderStatisticsReply
from ..models.order_status import OrderStatus
from ..models.order_timeline_reply import OrderTimelineReply
from ..models.place_order import PlaceOrder
from ..models.quote_charge import QuoteCharge
from ..models.vouchers_reply import VouchersReply


def _quote_charge(
    body: QuoteCharge,
    *,
    idempotency_key: Optional[str] = None,
) -> Call:
    return Call(
        "POST",
        "/api/v1/charges",
        body=body.to_dict(),
        takes_key=True,
        idempotency_key=idempotency_key,
    )


def _list_orders(
    *,
    page: Optional[int] = None,
    limit: Optional[int] = None,
    status: Optional[OrderStatus] = None,
    product_id: Optional[int] = None,
    reference_code: Optional[str] = None,
    client_reference: Optional[str] = None,
    created_from: Optional[datetime.datetime] = None,
    created_to: Optional[datetime.datetime] = None,
) -> Call:
    return Call(
        "GET",
        "/api/v1/orders",
        params={
            "page": page,
            "limit": limit,
            "status": status,
            "product_id": product_id,
            "reference_code": reference_code,
            "client_reference": client_reference,
            "created_from": created_from,
            "created_to": created_to,
        },
    )


def _place_order(
    body: PlaceOrder,
    *,
    idempotency_key: Optional[str] = None,
) -> Call:
    return Call(
        "POST",
        "/api/v1/orders",
        body=body.to_dict(),
        takes_key=True,
        idempotency_key=idempotency_key,
    )


def _count_orders(
    *,
    days: Optional[int] = None,
) -> Call:
    return Call(
        "GET",
        "/api/v1/orders/stats",
        params={
            "days": days,
        },
    )


def _get_order(
    id: int,
) -> Call:
    return Call(
        "GET",
        f"/api/v1/orders/{quote(str(id), safe='')}",
    )


def _cancel_order(
    id: int,
    body: Optional[CancelOrder] = None,
    *,
    idempotency_key: Optional[str] = None,
) -> Call:
    return Call(
        "POST",
        f"/api/v1/orders/{quote(str(id), safe='')}/cancel",
        body=body.to_dict() if body else {},
        takes_key=True,
        idempotency_key=idempotency_key,
    )


def _get_own_order_history(
    id: int,
) -> Call:
    return Call(
        "GET",
        f"/api/v1/orders/{quote(str(id), safe='')}/history",
    )


def _get_order_vouchers(
    id: int,
) -> Call:
    return Call(
        "GET",
        f"/api/v1/orders/{quote(str(id), safe='')}/vouchers",
    )


class Orders:
    """Calls of the tag `orders`."""

    def __init__(self, send: Send) -> None:
        self._send = send

    def quote_charge(
        self,
        body: QuoteCharge,
        *,
        idempotency_key: Optional[str] = None,
    ) -> ChargeReply:
        """Price an order.

        Prices the order as if it were placed now, and fails for the same reasons. The only exception is a low balance,
        which `sufficient_balance` reports instead. Nothing is recorded, so a suspended account can also price orders."""
        response = self._send(
            _quote_charge(
                body,
                idempotency_key=idempotency_key,
            )
        )
        return ChargeReply.from_dict(response.json())

    def list_orders(
        self,
        *,
        page: Optional[int] = None,
        limit: Optional[int] = None,
        status: Optional[OrderStatus] = None,
        product_id: Optional[int] = None,
        reference_code: Optional[str] = None,
        client_reference: Optional[str] = None,
        created_from: Optional[datetime.datetime] = None,
        created_to: Optional[datetime.datetime] = None,
    ) -> OrderList:
        """List orders.

        Returns the account's orders, newest first."""
        response = self._send(
            _list_orders(
                page=page,
                limit=limit,
                status=status,
                product_id=product_id,
                reference_code=reference_code,
                client_reference=client_reference,
                created_from=created_from,
                created_to=created_to,
            )
        )
        return OrderList.from_dict(response.json())

    def iter_orders(
        self,
        *,
        limit: Optional[int] = None,
        status: Optional[OrderStatus] = None,
        product_id: Optional[int] = None,
        reference_code: Optional[str] = None,
        client_reference: Optional[str] = None,
        created_from: Optional[datetime.datetime] = None,
        created_to: Optional[datetime.datetime] = None,
    ) -> Iterator[Order]:
        """List orders, page after page.

        Returns the account's orders, newest first."""
        for response in pages(
            self._send,
            _list_orders(
                limit=limit,
                status=status,
                product_id=product_id,
                reference_code=reference_code,
                client_reference=client_reference,
                created_from=created_from,
                created_to=created_to,
            ),
        ):
            for each in OrderList.from_dict(response.json()).data.orders:
                yield each

    def place_order(
        self,
        body: PlaceOrder,
        *,
        idempotency_key: Optional[str] = None,
    ) -> OrderReply:
        """Place an order.

        Prices the order, debits the wallet in the product's currency and records both in one step. If any part fails,
        nothing happens. Returns 201 with the new order, whose status is always `PENDING`. Returns 200 with the existing
        order if the same request was sent with the same `client_reference` before."""
        response = self._send(
            _place_order(
                body,
                idempotency_key=idempotency_key,
            )
        )
        return OrderReply.from_dict(response.json())

    def count_orders(
        self,
        *,
        days: Optional[int] = None,
    ) -> OrderStatisticsReply:
        """Count orders by day.

        Returns the number of orders and the spend of each day (UTC), up to today, and the number of all orders in each status."""
        response = self._send(
            _count_orders(
                days=days,
            )
        )
        return OrderStatisticsReply.from_dict(response.json())

    def get_order(
        self,
        id: int,
    ) -> OrderReply:
        """Retrieve an order.

        Returns the order as it is now. To learn of changes, prefer a webhook. If you poll, wait at least 10 seconds between
        requests, or 60 seconds while the order is `DELAYED`."""
        response = self._send(
            _get_order(
                id,
            )
        )
        return OrderReply.from_dict(response.json())

    def cancel_order(
        self,
        id: int,
        body: Optional[CancelOrder] = None,
        *,
        idempotency_key: Optional[str] = None,
    ) -> OrderReply:
        """Cancel an order.

        Cancels the undelivered units and refunds them to the wallet. Vouchers that are already delivered stay valid. Fails
        with 409 `E_ORDER_NOT_CANCELLABLE` if the order is `DELIVERED` or `CANCELLED`."""
        response = self._send(
            _cancel_order(
                id,
                body,
                idempotency_key=idempotency_key,
            )
        )
        return OrderReply.from_dict(response.json())

    def get_own_order_history(
        self,
        id: int,
    ) -> OrderTimelineReply:
        """Retrieve the history of an order.

        Returns every event of the order with its actor, time and wallet transaction. Webhook deliveries are included with
        all attempts and retries.

        If codes were read very often, not every reading is listed: `entries_left_out` is the number omitted."""
        response = self._send(
            _get_own_order_history(
                id,
            )
        )
        return OrderTimelineReply.from_dict(response.json())

    def get_order_vouchers(
        self,
        id: int,
    ) -> VouchersReply:
        """Retrieve voucher codes.

        Returns the codes of all vouchers of the order that are delivered so far. Every read is recorded. Requires an API
        key, or a user with the role operator or owner. Returns 404 once the codes are erased; the order itself still exists.

        With `Accept: text/csv`, the vouchers are returned as CSV."""
        response = self._send(
            _get_order_vouchers(
                id,
            )
        )
        return VouchersReply.from_dict(response.json())


class AsyncOrders:
    """Calls of the tag `orders`."""

    def __init__(self, send: AsyncSend) -> None:
        self._send = send

    async def quote_charge(
        self,
        body: QuoteCharge,
        *,
        idempotency_key: Optional[str] = None,
    ) -> ChargeReply:
        """Price an order.

        Prices the order as if it were placed now, and fails for the same reasons. The only exception is a low balance,
        which `sufficient_balance` reports instead. Nothing is recorded, so a suspended account can also price orders."""
        response = await self._send(
            _quote_charge(
                body,
                idempotency_key=idempotency_key,
            )
        )
        return ChargeReply.from_dict(response.json())

    async def list_orders(
        self,
        *,
        page: Optional[int] = None,
        limit: Optional[int] = None,
        status: Optional[OrderStatus] = None,
        product_id: Optional[int] = None,
        reference_code: Optional[str] = None,
        client_reference: Optional[str] = None,
        created_from: Optional[datetime.datetime] = None,
        created_to: Optional[datetime.datetime] = None,
    ) -> OrderList:
        """List orders.

        Returns the account's orders, newest first."""
        response = await self._send(
            _list_orders(
                page=page,
                limit=limit,
                status=status,
                product_id=product_id,
                reference_code=reference_code,
                client_reference=client_reference,
                created_from=created_from,
                created_to=created_to,
            )
        )
        return OrderList.from_dict(response.json())

    async def iter_orders(
        self,
        *,
        limit: Optional[int] = None,
        status: Optional[OrderStatus] = None,
        product_id: Optional[int] = None,
        reference_code: Optional[str] = None,
        client_reference: Optional[str] = None,
        created_from: Optional[datetime.datetime] = None,
        created_to: Optional[datetime.datetime] = None,
    ) -> AsyncIterator[Order]:
        """List orders, page after page.

        Returns the account's orders, newest first."""
        async for response in async_pages(
            self._send,
            _list_orders(
                limit=limit,
                status=status,
                product_id=product_id,
                reference_code=reference_code,
                client_reference=client_reference,
                created_from=created_from,
                created_to=created_to,
            ),
        ):
            for each in OrderList.from_dict(response.json()).data.orders:
                yield each

    async def place_order(
        self,
        body: PlaceOrder,
        *,
        idempotency_key: Optional[str] = None,
    ) -> OrderReply:
        """Place an order.

        Prices the order, debits the wallet in the product's currency and records both in one step. If any part fails,
        nothing happens. Returns 201 with the new order, whose status is always `PENDING`. Returns 200 with the existing
        order if the same request was sent with the same `client_reference` before."""
        response = await self._send(
            _place_order(
                body,
                idempotency_key=idempotency_key,
            )
        )
        return OrderReply.from_dict(response.json())

    async def count_orders(
        self,
        *,
        days: Optional[int] = None,
    ) -> OrderStatisticsReply:
        """Count orders by day.

        Returns the number of orders and the spend of each day (UTC), up to today, and the number of all orders in each status."""
        response = await self._send(
            _count_orders(
                days=days,
            )
        )
        return OrderStatisticsReply.from_dict(response.json())

    async def get_order(
        self,
        id: int,
    ) -> OrderReply:
        """Retrieve an order.

        Returns the order as it is now. To learn of changes, prefer a webhook. If you poll, wait at least 10 seconds between
        requests, or 60 seconds while the order is `DELAYED`."""
        response = await self._send(
            _get_order(
                id,
            )
        )
        return OrderReply.from_dict(response.json())

    async def cancel_order(
        self,
        id: int,
        body: Optional[CancelOrder] = None,
        *,
        idempotency_key: Optional[str] = None,
    ) -> OrderReply:
        """Cancel an order.

        Cancels the undelivered units and refunds them to the wallet. Vouchers that are already delivered stay valid. Fails
        with 409 `E_ORDER_NOT_CANCELLABLE` if the order is `DELIVERED` or `CANCELLED`."""
        response = await self._send(
            _cancel_order(
                id,
                body,
                idempotency_key=idempotency_key,
            )
        )
        return OrderReply.from_dict(response.json())

    async def get_own_order_history(
        self,
        id: int,
    ) -> OrderTimelineReply:
        """Retrieve the history of an order.

        Returns every event of the order with its actor, time and wallet transaction. Webhook deliveries are included with
        all attempts and retries.

        If codes were read very often, not every reading is listed: `entries_left_out` is the number omitted."""
        response = await self._send(
            _get_own_order_history(
                id,
            )
        )
        return OrderTimelineReply.from_dict(response.json())

    async def get_order_vouchers(
        self,
        id: int,
    ) -> VouchersReply:
        """Retrieve voucher codes.

        Returns the codes of all vouchers of the order that are delivered so far. Every read is recorded. Requires an API
        key, or a user with the role operator or owner. Returns 404 once the codes are erased; the order itself still exists.

        With `Accept: text/csv`, the vouchers are returned as CSV."""
        response = await self._send(
            _get_order_vouchers(
                id,
            )
        )
        return VouchersReply.from_dict(response.json())
