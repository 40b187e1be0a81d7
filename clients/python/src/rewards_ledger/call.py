"""Calls of the API: the generated methods describe them, and the clients send them."""

from collections.abc import AsyncIterator, Awaitable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from enum import Enum
from typing import Any, Callable, Optional

import httpx


@dataclass(frozen=True)
class Call:
    """An operation with its arguments, before it becomes a request."""

    method: str
    path: str
    params: Mapping[str, Any] = field(default_factory=dict)
    #: JSON body. Hidden, because it may be a login.
    body: Any = field(default=None, repr=False)
    headers: Mapping[str, str] = field(default_factory=dict)
    #: Whether the operation accepts an `Idempotency-Key`.
    takes_key: bool = False
    idempotency_key: Optional[str] = None

    @property
    def is_repeatable(self) -> bool:
        """Whether the call may be sent again after an attempt with an unknown outcome."""
        return self.takes_key or self.method != "POST"

    def query(self) -> dict[str, str]:
        """Returns the query's pairs, without those that have no value."""
        return {name: _text(value) for name, value in self.params.items() if value is not None}


Send = Callable[[Call], httpx.Response]
AsyncSend = Callable[[Call], Awaitable[httpx.Response]]


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, Enum):
        return str(value.value)
    if isinstance(value, datetime):
        return value.isoformat()
    return str(value)


def _turned(call: Call, page: int) -> Call:
    return replace(call, params={**call.params, "page": page})


def pages(send: Send, call: Call) -> Iterator[httpx.Response]:
    """Yields the pages of a list, from the first to the last."""
    page, last = 0, 1
    while page < last:
        page += 1
        response = send(_turned(call, page))
        last = int(response.headers.get("X-Total-Pages", page))
        yield response


async def async_pages(send: AsyncSend, call: Call) -> AsyncIterator[httpx.Response]:
    """Yields the pages of a list, from the first to the last."""
    page, last = 0, 1
    while page < last:
        page += 1
        response = await send(_turned(call, page))
        last = int(response.headers.get("X-Total-Pages", page))
        yield response
