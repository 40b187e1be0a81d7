"""Calls of the tag `deliveries`."""

import datetime
from collections.abc import AsyncIterator, Iterator
from typing import Optional
from urllib.parse import quote

from ...call import AsyncSend, Call, Send, async_pages, pages
from ..models.delivery import Delivery
from ..models.delivery_detail_reply import DeliveryDetailReply
from ..models.delivery_list import DeliveryList
from ..models.delivery_retry_reply import DeliveryRetryReply
from ..models.delivery_statistics_reply import DeliveryStatisticsReply
from ..models.delivery_status import DeliveryStatus
from ..models.webhook_event_type import WebhookEventType


def _list_deliveries(
    *,
    page: Optional[int] = None,
    limit: Optional[int] = None,
    status: Optional[DeliveryStatus] = None,
    event_type: Optional[WebhookEventType] = None,
    order_id: Optional[int] = None,
    webhook_url_id: Optional[int] = None,
    replay_id: Optional[int] = None,
    created_from: Optional[datetime.datetime] = None,
    created_to: Optional[datetime.datetime] = None,
) -> Call:
    return Call(
        "GET",
        "/api/v1/webhooks/deliveries",
        params={
            "page": page,
            "limit": limit,
            "status": status,
            "event_type": event_type,
            "order_id": order_id,
            "webhook_url_id": webhook_url_id,
            "replay_id": replay_id,
            "created_from": created_from,
            "created_to": created_to,
        },
    )


def _count_deliveries() -> Call:
    return Call(
        "GET",
        "/api/v1/webhooks/deliveries/stats",
    )


def _get_delivery(
    id: int,
) -> Call:
    return Call(
        "GET",
        f"/api/v1/webhooks/deliveries/{quote(str(id), safe='')}",
    )


def _retry_delivery(
    id: int,
    *,
    idempotency_key: Optional[str] = None,
) -> Call:
    return Call(
        "POST",
        f"/api/v1/webhooks/deliveries/{quote(str(id), safe='')}/retry",
        takes_key=True,
        idempotency_key=idempotency_key,
    )


class Deliveries:
    """Calls of the tag `deliveries`."""

    def __init__(self, send: Send) -> None:
        self._send = send

    def list_deliveries(
        self,
        *,
        page: Optional[int] = None,
        limit: Optional[int] = None,
        status: Optional[DeliveryStatus] = None,
        event_type: Optional[WebhookEventType] = None,
        order_id: Optional[int] = None,
        webhook_url_id: Optional[int] = None,
        replay_id: Optional[int] = None,
        created_from: Optional[datetime.datetime] = None,
        created_to: Optional[datetime.datetime] = None,
    ) -> DeliveryList:
        """List deliveries.

        Returns the deliveries of all webhooks of the account, newest first."""
        response = self._send(
            _list_deliveries(
                page=page,
                limit=limit,
                status=status,
                event_type=event_type,
                order_id=order_id,
                webhook_url_id=webhook_url_id,
                replay_id=replay_id,
                created_from=created_from,
                created_to=created_to,
            )
        )
        return DeliveryList.from_dict(response.json())

    def iter_deliveries(
        self,
        *,
        limit: Optional[int] = None,
        status: Optional[DeliveryStatus] = None,
        event_type: Optional[WebhookEventType] = None,
        order_id: Optional[int] = None,
        webhook_url_id: Optional[int] = None,
        replay_id: Optional[int] = None,
        created_from: Optional[datetime.datetime] = None,
        created_to: Optional[datetime.datetime] = None,
    ) -> Iterator[Delivery]:
        """List deliveries, page after page.

        Returns the deliveries of all webhooks of the account, newest first."""
        for response in pages(
            self._send,
            _list_deliveries(
                limit=limit,
                status=status,
                event_type=event_type,
                order_id=order_id,
                webhook_url_id=webhook_url_id,
                replay_id=replay_id,
                created_from=created_from,
                created_to=created_to,
            ),
        ):
            for each in DeliveryList.from_dict(response.json()).data.deliveries:
                yield each

    def count_deliveries(
        self,
    ) -> DeliveryStatisticsReply:
        """Count deliveries.

        Returns the account's delivery counts by status, in total and for the last 24 hours."""
        response = self._send(_count_deliveries())
        return DeliveryStatisticsReply.from_dict(response.json())

    def get_delivery(
        self,
        id: int,
    ) -> DeliveryDetailReply:
        """Retrieve a delivery.

        Returns the delivery with its complete payload, your endpoint's latest response, and its attempts with their responses."""
        response = self._send(
            _get_delivery(
                id,
            )
        )
        return DeliveryDetailReply.from_dict(response.json())

    def retry_delivery(
        self,
        id: int,
        *,
        idempotency_key: Optional[str] = None,
    ) -> DeliveryRetryReply:
        """Retry a delivery.

        Makes a `failed` delivery `pending` again if it has attempts left, for example because its webhook was deactivated.
        The attempts already used still count, and the webhook must be active. The retry is sent within a minute."""
        response = self._send(
            _retry_delivery(
                id,
                idempotency_key=idempotency_key,
            )
        )
        return DeliveryRetryReply.from_dict(response.json())


class AsyncDeliveries:
    """Calls of the tag `deliveries`."""

    def __init__(self, send: AsyncSend) -> None:
        self._send = send

    async def list_deliveries(
        self,
        *,
        page: Optional[int] = None,
        limit: Optional[int] = None,
        status: Optional[DeliveryStatus] = None,
        event_type: Optional[WebhookEventType] = None,
        order_id: Optional[int] = None,
        webhook_url_id: Optional[int] = None,
        replay_id: Optional[int] = None,
        created_from: Optional[datetime.datetime] = None,
        created_to: Optional[datetime.datetime] = None,
    ) -> DeliveryList:
        """List deliveries.

        Returns the deliveries of all webhooks of the account, newest first."""
        response = await self._send(
            _list_deliveries(
                page=page,
                limit=limit,
                status=status,
                event_type=event_type,
                order_id=order_id,
                webhook_url_id=webhook_url_id,
                replay_id=replay_id,
                created_from=created_from,
                created_to=created_to,
            )
        )
        return DeliveryList.from_dict(response.json())

    async def iter_deliveries(
        self,
        *,
        limit: Optional[int] = None,
        status: Optional[DeliveryStatus] = None,
        event_type: Optional[WebhookEventType] = None,
        order_id: Optional[int] = None,
        webhook_url_id: Optional[int] = None,
        replay_id: Optional[int] = None,
        created_from: Optional[datetime.datetime] = None,
        created_to: Optional[datetime.datetime] = None,
    ) -> AsyncIterator[Delivery]:
        """List deliveries, page after page.

        Returns the deliveries of all webhooks of the account, newest first."""
        async for response in async_pages(
            self._send,
            _list_deliveries(
                limit=limit,
                status=status,
                event_type=event_type,
                order_id=order_id,
                webhook_url_id=webhook_url_id,
                replay_id=replay_id,
                created_from=created_from,
                created_to=created_to,
            ),
        ):
            for each in DeliveryList.from_dict(response.json()).data.deliveries:
                yield each

    async def count_deliveries(
        self,
    ) -> DeliveryStatisticsReply:
        """Count deliveries.

        Returns the account's delivery counts by status, in total and for the last 24 hours."""
        response = await self._send(_count_deliveries())
        return DeliveryStatisticsReply.from_dict(response.json())

    async def get_delivery(
        self,
        id: int,
    ) -> DeliveryDetailReply:
        """Retrieve a delivery.

        Returns the delivery with its complete payload, your endpoint's latest response, and its attempts with their responses."""
        response = await self._send(
            _get_delivery(
                id,
            )
        )
        return DeliveryDetailReply.from_dict(response.json())

    async def retry_delivery(
        self,
        id: int,
        *,
        idempotency_key: Optional[str] = None,
    ) -> DeliveryRetryReply:
        """Retry a delivery.

        Makes a `failed` delivery `pending` again if it has attempts left, for example because its webhook was deactivated.
        The attempts already used still count, and the webhook must be active. The retry is sent within a minute."""
        response = await self._send(
            _retry_delivery(
                id,
                idempotency_key=idempotency_key,
            )
        )
        return DeliveryRetryReply.from_dict(response.json())
