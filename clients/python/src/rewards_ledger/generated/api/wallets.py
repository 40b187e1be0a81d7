"""Calls of the tag `wallets`."""

import datetime
from collections.abc import AsyncIterator, Iterator
from typing import Optional
from urllib.parse import quote

from ...call import AsyncSend, Call, Send, async_pages, pages
from ..models.low_balance_notice_list import LowBalanceNoticeList
from ..models.low_balance_notice_reply import LowBalanceNoticeReply
from ..models.set_notice import SetNotice
from ..models.statement_reply import StatementReply
from ..models.wallet import Wallet
from ..models.wallet_list import WalletList


def _list_wallets(
    *,
    page: Optional[int] = None,
    limit: Optional[int] = None,
) -> Call:
    return Call(
        "GET",
        "/api/v1/wallets",
        params={
            "page": page,
            "limit": limit,
        },
    )


def _get_statement(
    id: int,
    *,
    from_: Optional[datetime.datetime] = None,
    to: Optional[datetime.datetime] = None,
    totals_only: Optional[bool] = None,
) -> Call:
    return Call(
        "GET",
        f"/api/v1/wallets/{quote(str(id), safe='')}/statement",
        params={
            "from": from_,
            "to": to,
            "totals_only": totals_only,
        },
    )


def _list_low_balance_notices() -> Call:
    return Call(
        "GET",
        "/client/api/wallets/notices",
    )


def _get_low_balance_notice(
    id: int,
) -> Call:
    return Call(
        "GET",
        f"/client/api/wallets/{quote(str(id), safe='')}/notice",
    )


def _set_low_balance_notice(
    id: int,
    body: Optional[SetNotice] = None,
) -> Call:
    return Call(
        "PUT",
        f"/client/api/wallets/{quote(str(id), safe='')}/notice",
        body=body.to_dict() if body else {},
    )


class Wallets:
    """Calls of the tag `wallets`."""

    def __init__(self, send: Send) -> None:
        self._send = send

    def list_wallets(
        self,
        *,
        page: Optional[int] = None,
        limit: Optional[int] = None,
    ) -> WalletList:
        """List wallets.

        Returns the account's wallets, newest first."""
        response = self._send(
            _list_wallets(
                page=page,
                limit=limit,
            )
        )
        return WalletList.from_dict(response.json())

    def iter_wallets(
        self,
        *,
        limit: Optional[int] = None,
    ) -> Iterator[Wallet]:
        """List wallets, page after page.

        Returns the account's wallets, newest first."""
        for response in pages(
            self._send,
            _list_wallets(
                limit=limit,
            ),
        ):
            for each in WalletList.from_dict(response.json()).data.wallets:
                yield each

    def get_statement(
        self,
        id: int,
        *,
        from_: Optional[datetime.datetime] = None,
        to: Optional[datetime.datetime] = None,
        totals_only: Optional[bool] = None,
    ) -> StatementReply:
        """Retrieve a statement.

        Returns the balances at the start and the end of a period, and every transaction in between, oldest first. The
        response is JSON, or CSV with `Accept: text/csv`. Transactions recorded while the statement is being sent are not
        included."""
        response = self._send(
            _get_statement(
                id,
                from_=from_,
                to=to,
                totals_only=totals_only,
            )
        )
        return StatementReply.from_dict(response.json())

    def list_low_balance_notices(
        self,
    ) -> LowBalanceNoticeList:
        """List low-balance notices.

        Returns the notices of all wallets of the account that have an amount, by the ID of the wallet. A change shows within
        seconds."""
        response = self._send(_list_low_balance_notices())
        return LowBalanceNoticeList.from_dict(response.json())

    def get_low_balance_notice(
        self,
        id: int,
    ) -> LowBalanceNoticeReply:
        """Retrieve the low-balance notice of a wallet.

        Returns the amount below which the account's owners are told about the balance. A change shows within seconds."""
        response = self._send(
            _get_low_balance_notice(
                id,
            )
        )
        return LowBalanceNoticeReply.from_dict(response.json())

    def set_low_balance_notice(
        self,
        id: int,
        body: Optional[SetNotice] = None,
    ) -> LowBalanceNoticeReply:
        """Set the low-balance notice of a wallet.

        A movement that takes the balance below the amount makes one notice to the account's owners. There is no further one
        until the balance has been at least the amount again. Requires the role operator."""
        response = self._send(
            _set_low_balance_notice(
                id,
                body,
            )
        )
        return LowBalanceNoticeReply.from_dict(response.json())


class AsyncWallets:
    """Calls of the tag `wallets`."""

    def __init__(self, send: AsyncSend) -> None:
        self._send = send

    async def list_wallets(
        self,
        *,
        page: Optional[int] = None,
        limit: Optional[int] = None,
    ) -> WalletList:
        """List wallets.

        Returns the account's wallets, newest first."""
        response = await self._send(
            _list_wallets(
                page=page,
                limit=limit,
            )
        )
        return WalletList.from_dict(response.json())

    async def iter_wallets(
        self,
        *,
        limit: Optional[int] = None,
    ) -> AsyncIterator[Wallet]:
        """List wallets, page after page.

        Returns the account's wallets, newest first."""
        async for response in async_pages(
            self._send,
            _list_wallets(
                limit=limit,
            ),
        ):
            for each in WalletList.from_dict(response.json()).data.wallets:
                yield each

    async def get_statement(
        self,
        id: int,
        *,
        from_: Optional[datetime.datetime] = None,
        to: Optional[datetime.datetime] = None,
        totals_only: Optional[bool] = None,
    ) -> StatementReply:
        """Retrieve a statement.

        Returns the balances at the start and the end of a period, and every transaction in between, oldest first. The
        response is JSON, or CSV with `Accept: text/csv`. Transactions recorded while the statement is being sent are not
        included."""
        response = await self._send(
            _get_statement(
                id,
                from_=from_,
                to=to,
                totals_only=totals_only,
            )
        )
        return StatementReply.from_dict(response.json())

    async def list_low_balance_notices(
        self,
    ) -> LowBalanceNoticeList:
        """List low-balance notices.

        Returns the notices of all wallets of the account that have an amount, by the ID of the wallet. A change shows within
        seconds."""
        response = await self._send(_list_low_balance_notices())
        return LowBalanceNoticeList.from_dict(response.json())

    async def get_low_balance_notice(
        self,
        id: int,
    ) -> LowBalanceNoticeReply:
        """Retrieve the low-balance notice of a wallet.

        Returns the amount below which the account's owners are told about the balance. A change shows within seconds."""
        response = await self._send(
            _get_low_balance_notice(
                id,
            )
        )
        return LowBalanceNoticeReply.from_dict(response.json())

    async def set_low_balance_notice(
        self,
        id: int,
        body: Optional[SetNotice] = None,
    ) -> LowBalanceNoticeReply:
        """Set the low-balance notice of a wallet.

        A movement that takes the balance below the amount makes one notice to the account's owners. There is no further one
        until the balance has been at least the amount again. Requires the role operator."""
        response = await self._send(
            _set_low_balance_notice(
                id,
                body,
            )
        )
        return LowBalanceNoticeReply.from_dict(response.json())
