"""Errors that calls raise: one class for each error code, such as `InsufficientBalance`."""

from typing import Any, Optional

import httpx

from .api_error import ApiError, ClientError, LedgerError, NoResponse, RateLimited, ServerError
from .generated.errors import *  # noqa: F403
from .generated.errors import BY_CODE


def from_response(response: httpx.Response) -> ApiError:
    """Returns the error of a response that is no success."""
    status = response.status_code
    try:
        body: Any = response.json()
    except ValueError:
        body = None
    found = body.get("error") if isinstance(body, dict) else None
    detail: dict[str, Any] = found if isinstance(found, dict) else {}
    # The response to an exceeded rate limit has a flat shape of its own.
    code = found if isinstance(found, str) else detail.get("code")
    kind: type[ApiError] = ServerError if status >= 500 else ClientError
    kind = RateLimited if status == 429 else BY_CODE.get(code or "", kind)
    message = body.get("message", "") if isinstance(found, str) else detail.get("message")
    return kind(
        status,
        code,
        message or f"HTTP {status}",
        messages=detail.get("messages"),
        request_id=response.headers.get("X-Request-ID"),
        retry_after=_seconds(response.headers.get("Retry-After")),
    )


def _seconds(text: Optional[str]) -> Optional[float]:
    return float(text) if text and text.isascii() and text.isdigit() else None


__all__ = ["ApiError", "ClientError", "LedgerError", "NoResponse", "RateLimited", "ServerError", "from_response"]
__all__ += [kind.__name__ for kind in BY_CODE.values()]
