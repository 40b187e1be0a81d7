"""Calls of the tag `payouts`."""

import datetime
from collections.abc import AsyncIterator, Iterator
from typing import Optional
from urllib.parse import quote

from ...call import AsyncSend, Call, Send, async_pages, pages
from ..models.payout import Payout
from ..models.payout_list import PayoutList
from ..models.payout_reply import PayoutReply
from ..models.payout_status import PayoutStatus
from ..models.request_payout import RequestPayout


def _list_payouts(
    *,
    page: Optional[int] = None,
    limit: Optional[int] = None,
    status: Optional[PayoutStatus] = None,
    beneficiary_id: Optional[int] = None,
    wallet_id: Optional[int] = None,
    client_reference: Optional[str] = None,
    created_from: Optional[datetime.datetime] = None,
    created_to: Optional[datetime.datetime] = None,
) -> Call:
    return Call(
        "GET",
        "/api/v1/payouts",
        params={
            "page": page,
            "limit": limit,
            "status": status,
            "beneficiary_id": beneficiary_id,
            "wallet_id": wallet_id,
            "client_reference": client_reference,
            "created_from": created_from,
            "created_to": created_to,
        },
    )


def _request_payout(
    body: RequestPayout,
    *,
    idempotency_key: Optional[str] = None,
) -> Call:
    return Call(
        "POST",
        "/api/v1/payouts",
        body=body.to_dict(),
        takes_key=True,
        idempotency_key=idempotency_key,
    )


def _get_payout(
    id: int,
) -> Call:
    return Call(
        "GET",
        f"/api/v1/payouts/{quote(str(id), safe='')}",
    )


def _cancel_payout(
    id: int,
    *,
    idempotency_key: Optional[str] = None,
) -> Call:
    return Call(
        "POST",
        f"/api/v1/payouts/{quote(str(id), safe='')}/cancel",
        takes_key=True,
        idempotency_key=idempotency_key,
    )


class Payouts:
    """Calls of the tag `payouts`."""

    def __init__(self, send: Send) -> None:
        self._send = send

    def list_payouts(
        self,
        *,
        page: Optional[int] = None,
        limit: Optional[int] = None,
        status: Optional[PayoutStatus] = None,
        beneficiary_id: Optional[int] = None,
        wallet_id: Optional[int] = None,
        client_reference: Optional[str] = None,
        created_from: Optional[datetime.datetime] = None,
        created_to: Optional[datetime.datetime] = None,
    ) -> PayoutList:
        """List payouts.

        Returns the account's payouts, newest first."""
        response = self._send(
            _list_payouts(
                page=page,
                limit=limit,
                status=status,
                beneficiary_id=beneficiary_id,
                wallet_id=wallet_id,
                client_reference=client_reference,
                created_from=created_from,
                created_to=created_to,
            )
        )
        return PayoutList.from_dict(response.json())

    def iter_payouts(
        self,
        *,
        limit: Optional[int] = None,
        status: Optional[PayoutStatus] = None,
        beneficiary_id: Optional[int] = None,
        wallet_id: Optional[int] = None,
        client_reference: Optional[str] = None,
        created_from: Optional[datetime.datetime] = None,
        created_to: Optional[datetime.datetime] = None,
    ) -> Iterator[Payout]:
        """List payouts, page after page.

        Returns the account's payouts, newest first."""
        for response in pages(
            self._send,
            _list_payouts(
                limit=limit,
                status=status,
                beneficiary_id=beneficiary_id,
                wallet_id=wallet_id,
                client_reference=client_reference,
                created_from=created_from,
                created_to=created_to,
            ),
        ):
            for each in PayoutList.from_dict(response.json()).data.payouts:
                yield each

    def request_payout(
        self,
        body: RequestPayout,
        *,
        idempotency_key: Optional[str] = None,
    ) -> PayoutReply:
        """Request a payout.

        Debits the wallet and records the payout in one step. If either fails, nothing happens. Returns 201 with the new
        payout, which is `PENDING` until an operator settles it. Returns 200 with the existing payout if the same request
        was sent with the same `client_reference` before."""
        response = self._send(
            _request_payout(
                body,
                idempotency_key=idempotency_key,
            )
        )
        return PayoutReply.from_dict(response.json())

    def get_payout(
        self,
        id: int,
    ) -> PayoutReply:
        """Retrieve a payout.

        Returns the payout as it is now."""
        response = self._send(
            _get_payout(
                id,
            )
        )
        return PayoutReply.from_dict(response.json())

    def cancel_payout(
        self,
        id: int,
        *,
        idempotency_key: Optional[str] = None,
    ) -> PayoutReply:
        """Cancel a payout.

        Cancels a `PENDING` payout and returns its amount to the wallet. Fails with 409 `E_PAYOUT_NOT_CANCELLABLE` if the
        payout has any other status."""
        response = self._send(
            _cancel_payout(
                id,
                idempotency_key=idempotency_key,
            )
        )
        return PayoutReply.from_dict(response.json())


class AsyncPayouts:
    """Calls of the tag `payouts`."""

    def __init__(self, send: AsyncSend) -> None:
        self._send = send

    async def list_payouts(
        self,
        *,
        page: Optional[int] = None,
        limit: Optional[int] = None,
        status: Optional[PayoutStatus] = None,
        beneficiary_id: Optional[int] = None,
        wallet_id: Optional[int] = None,
        client_reference: Optional[str] = None,
        created_from: Optional[datetime.datetime] = None,
        created_to: Optional[datetime.datetime] = None,
    ) -> PayoutList:
        """List payouts.

        Returns the account's payouts, newest first."""
        response = await self._send(
            _list_payouts(
                page=page,
                limit=limit,
                status=status,
                beneficiary_id=beneficiary_id,
                wallet_id=wallet_id,
                client_reference=client_reference,
                created_from=created_from,
                created_to=created_to,
            )
        )
        return PayoutList.from_dict(response.json())

    async def iter_payouts(
        self,
        *,
        limit: Optional[int] = None,
        status: Optional[PayoutStatus] = None,
        beneficiary_id: Optional[int] = None,
        wallet_id: Optional[int] = None,
        client_reference: Optional[str] = None,
        created_from: Optional[datetime.datetime] = None,
        created_to: Optional[datetime.datetime] = None,
    ) -> AsyncIterator[Payout]:
        """List payouts, page after page.

        Returns the account's payouts, newest first."""
        async for response in async_pages(
            self._send,
            _list_payouts(
                limit=limit,
                status=status,
                beneficiary_id=beneficiary_id,
                wallet_id=wallet_id,
                client_reference=client_reference,
                created_from=created_from,
                created_to=created_to,
            ),
        ):
            for each in PayoutList.from_dict(response.json()).data.payouts:
                yield each

    async def request_payout(
        self,
        body: RequestPayout,
        *,
        idempotency_key: Optional[str] = None,
    ) -> PayoutReply:
        """Request a payout.

        Debits the wallet and records the payout in one step. If either fails, nothing happens. Returns 201 with the new
        payout, which is `PENDING` until an operator settles it. Returns 200 with the existing payout if the same request
        was sent with the same `client_reference` before."""
        response = await self._send(
            _request_payout(
                body,
                idempotency_key=idempotency_key,
            )
        )
        return PayoutReply.from_dict(response.json())

    async def get_payout(
        self,
        id: int,
    ) -> PayoutReply:
        """Retrieve a payout.

        Returns the payout as it is now."""
        response = await self._send(
            _get_payout(
                id,
            )
        )
        return PayoutReply.from_dict(response.json())

    async def cancel_payout(
        self,
        id: int,
        *,
        idempotency_key: Optional[str] = None,
    ) -> PayoutReply:
        """Cancel a payout.

        Cancels a `PENDING` payout and returns its amount to the wallet. Fails with 409 `E_PAYOUT_NOT_CANCELLABLE` if the
        payout has any other status."""
        response = await self._send(
            _cancel_payout(
                id,
                idempotency_key=idempotency_key,
            )
        )
        return PayoutReply.from_dict(response.json())
