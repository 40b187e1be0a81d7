"""Calls of the tag `transactions`."""

import datetime
from collections.abc import AsyncIterator, Iterator
from typing import Optional
from urllib.parse import quote

from ...call import AsyncSend, Call, Send, async_pages, pages
from ..models.recorded_transaction_reply import RecordedTransactionReply
from ..models.transaction import Transaction
from ..models.transaction_category import TransactionCategory
from ..models.transaction_list import TransactionList
from ..models.transaction_type import TransactionType


def _list_transactions(
    *,
    page: Optional[int] = None,
    limit: Optional[int] = None,
    wallet_id: Optional[int] = None,
    type_: Optional[TransactionType] = None,
    category: Optional[TransactionCategory] = None,
    amount: Optional[str] = None,
    balance_after: Optional[str] = None,
    currency: Optional[str] = None,
    order_id: Optional[int] = None,
    reference: Optional[str] = None,
    created_from: Optional[datetime.datetime] = None,
    created_to: Optional[datetime.datetime] = None,
) -> Call:
    return Call(
        "GET",
        "/api/v1/transactions",
        params={
            "page": page,
            "limit": limit,
            "wallet_id": wallet_id,
            "type": type_,
            "category": category,
            "amount": amount,
            "balance_after": balance_after,
            "currency": currency,
            "order_id": order_id,
            "reference": reference,
            "created_from": created_from,
            "created_to": created_to,
        },
    )


def _get_transaction(
    id: int,
) -> Call:
    return Call(
        "GET",
        f"/api/v1/transactions/{quote(str(id), safe='')}",
    )


class Transactions:
    """Calls of the tag `transactions`."""

    def __init__(self, send: Send) -> None:
        self._send = send

    def list_transactions(
        self,
        *,
        page: Optional[int] = None,
        limit: Optional[int] = None,
        wallet_id: Optional[int] = None,
        type_: Optional[TransactionType] = None,
        category: Optional[TransactionCategory] = None,
        amount: Optional[str] = None,
        balance_after: Optional[str] = None,
        currency: Optional[str] = None,
        order_id: Optional[int] = None,
        reference: Optional[str] = None,
        created_from: Optional[datetime.datetime] = None,
        created_to: Optional[datetime.datetime] = None,
    ) -> TransactionList:
        """List transactions.

        Returns the transactions of all wallets of the account, newest first."""
        response = self._send(
            _list_transactions(
                page=page,
                limit=limit,
                wallet_id=wallet_id,
                type_=type_,
                category=category,
                amount=amount,
                balance_after=balance_after,
                currency=currency,
                order_id=order_id,
                reference=reference,
                created_from=created_from,
                created_to=created_to,
            )
        )
        return TransactionList.from_dict(response.json())

    def iter_transactions(
        self,
        *,
        limit: Optional[int] = None,
        wallet_id: Optional[int] = None,
        type_: Optional[TransactionType] = None,
        category: Optional[TransactionCategory] = None,
        amount: Optional[str] = None,
        balance_after: Optional[str] = None,
        currency: Optional[str] = None,
        order_id: Optional[int] = None,
        reference: Optional[str] = None,
        created_from: Optional[datetime.datetime] = None,
        created_to: Optional[datetime.datetime] = None,
    ) -> Iterator[Transaction]:
        """List transactions, page after page.

        Returns the transactions of all wallets of the account, newest first."""
        for response in pages(
            self._send,
            _list_transactions(
                limit=limit,
                wallet_id=wallet_id,
                type_=type_,
                category=category,
                amount=amount,
                balance_after=balance_after,
                currency=currency,
                order_id=order_id,
                reference=reference,
                created_from=created_from,
                created_to=created_to,
            ),
        ):
            for each in TransactionList.from_dict(response.json()).data.transactions:
                yield each

    def get_transaction(
        self,
        id: int,
    ) -> RecordedTransactionReply:
        """Retrieve a transaction.

        Returns one transaction of a wallet of the account, with the event that recorded it."""
        response = self._send(
            _get_transaction(
                id,
            )
        )
        return RecordedTransactionReply.from_dict(response.json())


class AsyncTransactions:
    """Calls of the tag `transactions`."""

    def __init__(self, send: AsyncSend) -> None:
        self._send = send

    async def list_transactions(
        self,
        *,
        page: Optional[int] = None,
        limit: Optional[int] = None,
        wallet_id: Optional[int] = None,
        type_: Optional[TransactionType] = None,
        category: Optional[TransactionCategory] = None,
        amount: Optional[str] = None,
        balance_after: Optional[str] = None,
        currency: Optional[str] = None,
        order_id: Optional[int] = None,
        reference: Optional[str] = None,
        created_from: Optional[datetime.datetime] = None,
        created_to: Optional[datetime.datetime] = None,
    ) -> TransactionList:
        """List transactions.

        Returns the transactions of all wallets of the account, newest first."""
        response = await self._send(
            _list_transactions(
                page=page,
                limit=limit,
                wallet_id=wallet_id,
                type_=type_,
                category=category,
                amount=amount,
                balance_after=balance_after,
                currency=currency,
                order_id=order_id,
                reference=reference,
                created_from=created_from,
                created_to=created_to,
            )
        )
        return TransactionList.from_dict(response.json())

    async def iter_transactions(
        self,
        *,
        limit: Optional[int] = None,
        wallet_id: Optional[int] = None,
        type_: Optional[TransactionType] = None,
        category: Optional[TransactionCategory] = None,
        amount: Optional[str] = None,
        balance_after: Optional[str] = None,
        currency: Optional[str] = None,
        order_id: Optional[int] = None,
        reference: Optional[str] = None,
        created_from: Optional[datetime.datetime] = None,
        created_to: Optional[datetime.datetime] = None,
    ) -> AsyncIterator[Transaction]:
        """List transactions, page after page.

        Returns the transactions of all wallets of the account, newest first."""
        async for response in async_pages(
            self._send,
            _list_transactions(
                limit=limit,
                wallet_id=wallet_id,
                type_=type_,
                category=category,
                amount=amount,
                balance_after=balance_after,
                currency=currency,
                order_id=order_id,
                reference=reference,
                created_from=created_from,
                created_to=created_to,
            ),
        ):
            for each in TransactionList.from_dict(response.json()).data.transactions:
                yield each

    async def get_transaction(
        self,
        id: int,
    ) -> RecordedTransactionReply:
        """Retrieve a transaction.

        Returns one transaction of a wallet of the account, with the event that recorded it."""
        response = await self._send(
            _get_transaction(
                id,
            )
        )
        return RecordedTransactionReply.from_dict(response.json())
