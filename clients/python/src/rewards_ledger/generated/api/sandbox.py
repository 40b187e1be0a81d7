"""Calls of the tag `sandbox`."""

from typing import Optional
from urllib.parse import quote

from ...call import AsyncSend, Call, Send
from ..models.fund_own_wallet import FundOwnWallet
from ..models.sent_mail_list import SentMailList
from ..models.transaction_reply import TransactionReply


def _fund_own_wallet(
    id: int,
    body: FundOwnWallet,
    *,
    idempotency_key: Optional[str] = None,
) -> Call:
    return Call(
        "POST",
        f"/api/v1/sandbox/wallets/{quote(str(id), safe='')}/fund",
        body=body.to_dict(),
        takes_key=True,
        idempotency_key=idempotency_key,
    )


def _list_sent_mails() -> Call:
    return Call(
        "GET",
        "/client/api/outbox",
    )


class Sandbox:
    """Calls of the tag `sandbox`."""

    def __init__(self, send: Send) -> None:
        self._send = send

    def fund_own_wallet(
        self,
        id: int,
        body: FundOwnWallet,
        *,
        idempotency_key: Optional[str] = None,
    ) -> TransactionReply:
        """Fund your own wallet.

        Adds test money to one of your wallets. It is available at once and has no real value. This operation exists in the
        sandbox only; elsewhere it returns 404."""
        response = self._send(
            _fund_own_wallet(
                id,
                body,
                idempotency_key=idempotency_key,
            )
        )
        return TransactionReply.from_dict(response.json())

    def list_sent_mails(
        self,
    ) -> SentMailList:
        """List sent mails.

        Returns up to 100 mails that the sandbox has sent to the account's users and to the people they invited, newest first.
        A mail is listed until its link expires, and at most a week. This operation exists in a sandbox and in the demo only;
        elsewhere it returns 404. Requires the role owner."""
        response = self._send(_list_sent_mails())
        return SentMailList.from_dict(response.json())


class AsyncSandbox:
    """Calls of the tag `sandbox`."""

    def __init__(self, send: AsyncSend) -> None:
        self._send = send

    async def fund_own_wallet(
        self,
        id: int,
        body: FundOwnWallet,
        *,
        idempotency_key: Optional[str] = None,
    ) -> TransactionReply:
        """Fund your own wallet.

        Adds test money to one of your wallets. It is available at once and has no real value. This operation exists in the
        sandbox only; elsewhere it returns 404."""
        response = await self._send(
            _fund_own_wallet(
                id,
                body,
                idempotency_key=idempotency_key,
            )
        )
        return TransactionReply.from_dict(response.json())

    async def list_sent_mails(
        self,
    ) -> SentMailList:
        """List sent mails.

        Returns up to 100 mails that the sandbox has sent to the account's users and to the people they invited, newest first.
        A mail is listed until its link expires, and at most a week. This operation exists in a sandbox and in the demo only;
        elsewhere it returns 404. Requires the role owner."""
        response = await self._send(_list_sent_mails())
        return SentMailList.from_dict(response.json())
