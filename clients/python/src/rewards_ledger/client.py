"""Clients of the API: one that blocks, and one for asyncio."""

import asyncio
import time
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping
from datetime import datetime
from types import TracebackType
from typing import Any, Optional

import httpx

from .call import Call
from .event import EventBatch
from .generated.api import AsyncOperations, Operations
from .retries import Retries
from .session import Session

TIMEOUT = 30.0
DEFAULT_RETRIES = Retries()


class RewardsLedger(Operations):
    """A client that blocks. It pools connections, and may be shared between threads.

    `url` is the address of the service. `api_key` and `api_secret` belong to an API key; `signing_secret` too, if the key
    requires signed requests. A person's `access_token`, from `sessions.log_in`, takes their place. `timeout` is that of one
    attempt, in seconds.
    """

    def __init__(
        self,
        url: str,
        *,
        api_key: Optional[str] = None,
        api_secret: Optional[str] = None,
        signing_secret: Optional[str] = None,
        access_token: Optional[str] = None,
        timeout: float = TIMEOUT,
        retries: Retries = DEFAULT_RETRIES,
        http: Optional[httpx.Client] = None,
    ) -> None:
        super().__init__(self.send)
        self._session = Session(
            url,
            api_key=api_key,
            api_secret=api_secret,
            signing_secret=signing_secret,
            access_token=access_token,
            timeout=timeout,
            retries=retries,
        )
        self._http = http or httpx.Client()

    def send(self, call: Call) -> httpx.Response:
        """Sends a call, and repeats it where that is safe and may help.

        Raises `ApiError` for an error response, and `NoResponse` if none arrived.
        """
        key = self._session.keyed(call)
        attempt = 0
        while True:
            attempt += 1
            try:
                response = self._http.send(self._session.request(self._http, call, key))
                failure = self._session.failure(response, key)
            except httpx.RequestError as error:
                failure = self._session.failure(error, key)
            if failure is None:
                return response
            delay = self._session.retries.delay(call, failure, attempt)
            if delay is None:
                raise failure
            time.sleep(delay)

    def request(
        self,
        method: str,
        path: str,
        *,
        params: Optional[Mapping[str, Any]] = None,
        body: Any = None,
        headers: Optional[Mapping[str, str]] = None,
        idempotency_key: Optional[str] = None,
    ) -> httpx.Response:
        """Sends a request that no method stands for, such as one for a statement as CSV.

        A POST gets an idempotency key: all operations under `/api/v1` accept one.
        """
        return self.send(_request(method, path, params, body, headers, idempotency_key))

    def follow_events(
        self,
        after: Optional[str] = None,
        *,
        since: Optional[datetime] = None,
        types: Optional[Iterable[str]] = None,
        limit: Optional[int] = None,
        wait: int = 30,
    ) -> Iterator[EventBatch]:
        """Yields the account's events, oldest first, and then waits for new ones: it never ends.

        `after` is the stored cursor of an earlier run, or `latest` to skip the past; None starts with the first event, or
        with those recorded at or after `since`. A batch can be empty. `wait` is the longest time that the service holds
        back a request, in seconds; with 0, the iterator ends where the log ends.
        """
        has_more = True
        while has_more or wait:
            reply = self.events.list_events(
                after=after,
                since=since if after is None else None,
                types=_listed(types),
                limit=limit,
                wait=None if has_more else wait,
            )
            batch = EventBatch.from_page(reply.data)
            after, has_more = batch.cursor, batch.has_more
            yield batch

    def close(self) -> None:
        """Closes the pooled connections."""
        self._http.close()

    def __enter__(self) -> "RewardsLedger":
        return self

    def __exit__(
        self, kind: Optional[type[BaseException]], error: Optional[BaseException], traceback: Optional[TracebackType]
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return self._session.described(self)


class AsyncRewardsLedger(AsyncOperations):
    """A client for asyncio. It pools connections, and belongs to one event loop.

    Its arguments are those of `RewardsLedger`.
    """

    def __init__(
        self,
        url: str,
        *,
        api_key: Optional[str] = None,
        api_secret: Optional[str] = None,
        signing_secret: Optional[str] = None,
        access_token: Optional[str] = None,
        timeout: float = TIMEOUT,
        retries: Retries = DEFAULT_RETRIES,
        http: Optional[httpx.AsyncClient] = None,
    ) -> None:
        super().__init__(self.send)
        self._session = Session(
            url,
            api_key=api_key,
            api_secret=api_secret,
            signing_secret=signing_secret,
            access_token=access_token,
            timeout=timeout,
            retries=retries,
        )
        self._http = http or httpx.AsyncClient()

    async def send(self, call: Call) -> httpx.Response:
        """Sends a call, and repeats it where that is safe and may help.

        Raises `ApiError` for an error response, and `NoResponse` if none arrived.
        """
        key = self._session.keyed(call)
        attempt = 0
        while True:
            attempt += 1
            try:
                response = await self._http.send(self._session.request(self._http, call, key))
                failure = self._session.failure(response, key)
            except httpx.RequestError as error:
                failure = self._session.failure(error, key)
            if failure is None:
                return response
            delay = self._session.retries.delay(call, failure, attempt)
            if delay is None:
                raise failure
            await asyncio.sleep(delay)

    async def request(
        self,
        method: str,
        path: str,
        *,
        params: Optional[Mapping[str, Any]] = None,
        body: Any = None,
        headers: Optional[Mapping[str, str]] = None,
        idempotency_key: Optional[str] = None,
    ) -> httpx.Response:
        """Sends a request that no method stands for, such as one for a statement as CSV.

        A POST gets an idempotency key: all operations under `/api/v1` accept one.
        """
        return await self.send(_request(method, path, params, body, headers, idempotency_key))

    async def follow_events(
        self,
        after: Optional[str] = None,
        *,
        since: Optional[datetime] = None,
        types: Optional[Iterable[str]] = None,
        limit: Optional[int] = None,
        wait: int = 30,
    ) -> AsyncIterator[EventBatch]:
        """Yields the account's events, oldest first, and then waits for new ones: it never ends.

        `after` is the stored cursor of an earlier run, or `latest` to skip the past; None starts with the first event, or
        with those recorded at or after `since`. A batch can be empty. `wait` is the longest time that the service holds
        back a request, in seconds; with 0, the iterator ends where the log ends.
        """
        has_more = True
        while has_more or wait:
            reply = await self.events.list_events(
                after=after,
                since=since if after is None else None,
                types=_listed(types),
                limit=limit,
                wait=None if has_more else wait,
            )
            batch = EventBatch.from_page(reply.data)
            after, has_more = batch.cursor, batch.has_more
            yield batch

    async def close(self) -> None:
        """Closes the pooled connections."""
        await self._http.aclose()

    async def __aenter__(self) -> "AsyncRewardsLedger":
        return self

    async def __aexit__(
        self, kind: Optional[type[BaseException]], error: Optional[BaseException], traceback: Optional[TracebackType]
    ) -> None:
        await self.close()

    def __repr__(self) -> str:
        return self._session.described(self)


def _request(
    method: str,
    path: str,
    params: Optional[Mapping[str, Any]],
    body: Any,
    headers: Optional[Mapping[str, str]],
    idempotency_key: Optional[str],
) -> Call:
    takes_key = method == "POST" and path.startswith("/api/v1/")
    return Call(method, path, params or {}, body, headers or {}, takes_key=takes_key, idempotency_key=idempotency_key)


def _listed(types: Optional[Iterable[str]]) -> Optional[str]:
    return ",".join(types) if types is not None else None
