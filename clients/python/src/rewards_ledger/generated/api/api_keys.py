"""Calls of the tag `api_keys`."""

from collections.abc import AsyncIterator, Iterator
from typing import Optional
from urllib.parse import quote

from ...call import AsyncSend, Call, Send, async_pages, pages
from ..models.api_key import ApiKey
from ..models.api_key_list import ApiKeyList
from ..models.api_key_reply import ApiKeyReply
from ..models.issue_credential import IssueCredential
from ..models.issued_credential_reply import IssuedCredentialReply
from ..models.rotate_secret import RotateSecret
from ..models.rotated_secret_reply import RotatedSecretReply


def _list_api_keys(
    *,
    page: Optional[int] = None,
    limit: Optional[int] = None,
) -> Call:
    return Call(
        "GET",
        "/client/api/api-keys",
        params={
            "page": page,
            "limit": limit,
        },
    )


def _create_api_key(
    body: IssueCredential,
    *,
    idempotency_key: Optional[str] = None,
) -> Call:
    return Call(
        "POST",
        "/client/api/api-keys",
        body=body.to_dict(),
        takes_key=True,
        idempotency_key=idempotency_key,
    )


def _get_api_key(
    id: int,
) -> Call:
    return Call(
        "GET",
        f"/client/api/api-keys/{quote(str(id), safe='')}",
    )


def _revoke_api_key(
    id: int,
) -> Call:
    return Call(
        "DELETE",
        f"/client/api/api-keys/{quote(str(id), safe='')}",
    )


def _rotate_signing_secret(
    id: int,
    body: Optional[RotateSecret] = None,
) -> Call:
    return Call(
        "POST",
        f"/client/api/api-keys/{quote(str(id), safe='')}/rotate-signing-secret",
        body=body.to_dict() if body else {},
    )


class ApiKeys:
    """Calls of the tag `api_keys`."""

    def __init__(self, send: Send) -> None:
        self._send = send

    def list_api_keys(
        self,
        *,
        page: Optional[int] = None,
        limit: Optional[int] = None,
    ) -> ApiKeyList:
        """List API keys.

        Returns the account's API keys, newest first, revoked ones included."""
        response = self._send(
            _list_api_keys(
                page=page,
                limit=limit,
            )
        )
        return ApiKeyList.from_dict(response.json())

    def iter_api_keys(
        self,
        *,
        limit: Optional[int] = None,
    ) -> Iterator[ApiKey]:
        """List API keys, page after page.

        Returns the account's API keys, newest first, revoked ones included."""
        for response in pages(
            self._send,
            _list_api_keys(
                limit=limit,
            ),
        ):
            for each in ApiKeyList.from_dict(response.json()).data.api_keys:
                yield each

    def create_api_key(
        self,
        body: IssueCredential,
        *,
        idempotency_key: Optional[str] = None,
    ) -> IssuedCredentialReply:
        """Create an API key.

        Creates an API key for the account. Key and secret are shown only in this response. `scopes`, `expires_at` and
        `allowed_networks` restrict the key; they cannot be changed later. Returns 409 `E_ALREADY_CREATED` for a repeated
        request with the same `Idempotency-Key`. Requires the role owner."""
        response = self._send(
            _create_api_key(
                body,
                idempotency_key=idempotency_key,
            )
        )
        return IssuedCredentialReply.from_dict(response.json())

    def get_api_key(
        self,
        id: int,
    ) -> ApiKeyReply:
        """Retrieve an API key.

        Returns an API key of the account, revoked or not, without its secret."""
        response = self._send(
            _get_api_key(
                id,
            )
        )
        return ApiKeyReply.from_dict(response.json())

    def revoke_api_key(
        self,
        id: int,
    ) -> ApiKeyReply:
        """Revoke an API key.

        Takes effect on the next request with the key. Webhooks linked to the key keep working. Requires the role owner."""
        response = self._send(
            _revoke_api_key(
                id,
            )
        )
        return ApiKeyReply.from_dict(response.json())

    def rotate_signing_secret(
        self,
        id: int,
        body: Optional[RotateSecret] = None,
    ) -> RotatedSecretReply:
        """Rotate a signing secret.

        Replaces the signing secret of an API key. Requests with the key, and deliveries of webhooks linked to it, are signed
        with the new secret from now on. The secret is shown only in this response. Requires the role owner.

        With `previous_valid_hours`, deliveries carry a second signature for that time, made with the replaced secret, in the
        header `X-Signature-Previous`. Requests need the new secret at once."""
        response = self._send(
            _rotate_signing_secret(
                id,
                body,
            )
        )
        return RotatedSecretReply.from_dict(response.json())


class AsyncApiKeys:
    """Calls of the tag `api_keys`."""

    def __init__(self, send: AsyncSend) -> None:
        self._send = send

    async def list_api_keys(
        self,
        *,
        page: Optional[int] = None,
        limit: Optional[int] = None,
    ) -> ApiKeyList:
        """List API keys.

        Returns the account's API keys, newest first, revoked ones included."""
        response = await self._send(
            _list_api_keys(
                page=page,
                limit=limit,
            )
        )
        return ApiKeyList.from_dict(response.json())

    async def iter_api_keys(
        self,
        *,
        limit: Optional[int] = None,
    ) -> AsyncIterator[ApiKey]:
        """List API keys, page after page.

        Returns the account's API keys, newest first, revoked ones included."""
        async for response in async_pages(
            self._send,
            _list_api_keys(
                limit=limit,
            ),
        ):
            for each in ApiKeyList.from_dict(response.json()).data.api_keys:
                yield each

    async def create_api_key(
        self,
        body: IssueCredential,
        *,
        idempotency_key: Optional[str] = None,
    ) -> IssuedCredentialReply:
        """Create an API key.

        Creates an API key for the account. Key and secret are shown only in this response. `scopes`, `expires_at` and
        `allowed_networks` restrict the key; they cannot be changed later. Returns 409 `E_ALREADY_CREATED` for a repeated
        request with the same `Idempotency-Key`. Requires the role owner."""
        response = await self._send(
            _create_api_key(
                body,
                idempotency_key=idempotency_key,
            )
        )
        return IssuedCredentialReply.from_dict(response.json())

    async def get_api_key(
        self,
        id: int,
    ) -> ApiKeyReply:
        """Retrieve an API key.

        Returns an API key of the account, revoked or not, without its secret."""
        response = await self._send(
            _get_api_key(
                id,
            )
        )
        return ApiKeyReply.from_dict(response.json())

    async def revoke_api_key(
        self,
        id: int,
    ) -> ApiKeyReply:
        """Revoke an API key.

        Takes effect on the next request with the key. Webhooks linked to the key keep working. Requires the role owner."""
        response = await self._send(
            _revoke_api_key(
                id,
            )
        )
        return ApiKeyReply.from_dict(response.json())

    async def rotate_signing_secret(
        self,
        id: int,
        body: Optional[RotateSecret] = None,
    ) -> RotatedSecretReply:
        """Rotate a signing secret.

        Replaces the signing secret of an API key. Requests with the key, and deliveries of webhooks linked to it, are signed
        with the new secret from now on. The secret is shown only in this response. Requires the role owner.

        With `previous_valid_hours`, deliveries carry a second signature for that time, made with the replaced secret, in the
        header `X-Signature-Previous`. Requests need the new secret at once."""
        response = await self._send(
            _rotate_signing_secret(
                id,
                body,
            )
        )
        return RotatedSecretReply.from_dict(response.json())
