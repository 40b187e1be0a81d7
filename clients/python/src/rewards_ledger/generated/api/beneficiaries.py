"""Calls of the tag `beneficiaries`."""

from collections.abc import AsyncIterator, Iterator
from typing import Optional
from urllib.parse import quote

from ...call import AsyncSend, Call, Send, async_pages, pages
from ..models.add_beneficiary import AddBeneficiary
from ..models.beneficiary import Beneficiary
from ..models.beneficiary_list import BeneficiaryList
from ..models.beneficiary_reply import BeneficiaryReply
from ..models.deleted_beneficiary_reply import DeletedBeneficiaryReply


def _list_beneficiaries(
    *,
    page: Optional[int] = None,
    limit: Optional[int] = None,
) -> Call:
    return Call(
        "GET",
        "/api/v1/beneficiaries",
        params={
            "page": page,
            "limit": limit,
        },
    )


def _add_beneficiary(
    body: AddBeneficiary,
    *,
    idempotency_key: Optional[str] = None,
) -> Call:
    return Call(
        "POST",
        "/api/v1/beneficiaries",
        body=body.to_dict(),
        takes_key=True,
        idempotency_key=idempotency_key,
    )


def _get_beneficiary(
    id: int,
) -> Call:
    return Call(
        "GET",
        f"/api/v1/beneficiaries/{quote(str(id), safe='')}",
    )


def _delete_beneficiary(
    id: int,
) -> Call:
    return Call(
        "DELETE",
        f"/api/v1/beneficiaries/{quote(str(id), safe='')}",
    )


class Beneficiaries:
    """Calls of the tag `beneficiaries`."""

    def __init__(self, send: Send) -> None:
        self._send = send

    def list_beneficiaries(
        self,
        *,
        page: Optional[int] = None,
        limit: Optional[int] = None,
    ) -> BeneficiaryList:
        """List beneficiaries.

        Returns the account's beneficiaries, newest first."""
        response = self._send(
            _list_beneficiaries(
                page=page,
                limit=limit,
            )
        )
        return BeneficiaryList.from_dict(response.json())

    def iter_beneficiaries(
        self,
        *,
        limit: Optional[int] = None,
    ) -> Iterator[Beneficiary]:
        """List beneficiaries, page after page.

        Returns the account's beneficiaries, newest first."""
        for response in pages(
            self._send,
            _list_beneficiaries(
                limit=limit,
            ),
        ):
            for each in BeneficiaryList.from_dict(response.json()).data.beneficiaries:
                yield each

    def add_beneficiary(
        self,
        body: AddBeneficiary,
        *,
        idempotency_key: Optional[str] = None,
    ) -> BeneficiaryReply:
        """Add a beneficiary.

        Adds an account that payouts can be sent to. The account number is stored encrypted. Responses contain its last
        four characters only."""
        response = self._send(
            _add_beneficiary(
                body,
                idempotency_key=idempotency_key,
            )
        )
        return BeneficiaryReply.from_dict(response.json())

    def get_beneficiary(
        self,
        id: int,
    ) -> BeneficiaryReply:
        """Retrieve a beneficiary.

        Returns 404 after the beneficiary is deleted or the person's data is erased."""
        response = self._send(
            _get_beneficiary(
                id,
            )
        )
        return BeneficiaryReply.from_dict(response.json())

    def delete_beneficiary(
        self,
        id: int,
    ) -> DeletedBeneficiaryReply:
        """Delete a beneficiary.

        No new payout can be made to a deleted beneficiary. Existing payouts, pending ones included, are not affected."""
        response = self._send(
            _delete_beneficiary(
                id,
            )
        )
        return DeletedBeneficiaryReply.from_dict(response.json())


class AsyncBeneficiaries:
    """Calls of the tag `beneficiaries`."""

    def __init__(self, send: AsyncSend) -> None:
        self._send = send

    async def list_beneficiaries(
        self,
        *,
        page: Optional[int] = None,
        limit: Optional[int] = None,
    ) -> BeneficiaryList:
        """List beneficiaries.

        Returns the account's beneficiaries, newest first."""
        response = await self._send(
            _list_beneficiaries(
                page=page,
                limit=limit,
            )
        )
        return BeneficiaryList.from_dict(response.json())

    async def iter_beneficiaries(
        self,
        *,
        limit: Optional[int] = None,
    ) -> AsyncIterator[Beneficiary]:
        """List beneficiaries, page after page.

        Returns the account's beneficiaries, newest first."""
        async for response in async_pages(
            self._send,
            _list_beneficiaries(
                limit=limit,
            ),
        ):
            for each in BeneficiaryList.from_dict(response.json()).data.beneficiaries:
                yield each

    async def add_beneficiary(
        self,
        body: AddBeneficiary,
        *,
        idempotency_key: Optional[str] = None,
    ) -> BeneficiaryReply:
        """Add a beneficiary.

        Adds an account that payouts can be sent to. The account number is stored encrypted. Responses contain its last
        four characters only."""
        response = await self._send(
            _add_beneficiary(
                body,
                idempotency_key=idempotency_key,
            )
        )
        return BeneficiaryReply.from_dict(response.json())

    async def get_beneficiary(
        self,
        id: int,
    ) -> BeneficiaryReply:
        """Retrieve a beneficiary.

        Returns 404 after the beneficiary is deleted or the person's data is erased."""
        response = await self._send(
            _get_beneficiary(
                id,
            )
        )
        return BeneficiaryReply.from_dict(response.json())

    async def delete_beneficiary(
        self,
        id: int,
    ) -> DeletedBeneficiaryReply:
        """Delete a beneficiary.

        No new payout can be made to a deleted beneficiary. Existing payouts, pending ones included, are not affected."""
        response = await self._send(
            _delete_beneficiary(
                id,
            )
        )
        return DeletedBeneficiaryReply.from_dict(response.json())
