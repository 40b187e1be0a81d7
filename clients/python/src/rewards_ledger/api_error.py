"""Base classes of the errors that calls raise."""

from collections.abc import Mapping
from typing import Optional


class LedgerError(Exception):
    """A call that failed for good: its retries, if any, are used up.

    `idempotency_key` is the key of the failed call, if it had one. The same call with the same key continues it.
    """

    idempotency_key: Optional[str] = None


class NoResponse(LedgerError):
    """No response arrived. A call that changes something may have happened."""


class ApiError(LedgerError):
    """An error response of the service.

    Each error code has a class of its own in `rewards_ledger.errors`. A code that this version does not know raises
    `ClientError` or `ServerError`.
    """

    def __init__(
        self,
        status: int,
        code: Optional[str],
        message: str,
        *,
        messages: Optional[Mapping[str, list[str]]] = None,
        request_id: Optional[str] = None,
        retry_after: Optional[float] = None,
    ) -> None:
        super().__init__(status, code, message)
        #: HTTP status.
        self.status = status
        #: Stable code to branch on; None if the response did not come from the service.
        self.code = code
        #: Explanation for people.
        self.message = message
        #: Problems of each field or parameter.
        self.messages: Mapping[str, list[str]] = messages or {}
        #: `X-Request-ID` of the response, for support.
        self.request_id = request_id
        #: Seconds after which the service wants to be asked again.
        self.retry_after = retry_after

    def __str__(self) -> str:
        fields = "".join(f"; {name}: {', '.join(problems)}" for name, problems in self.messages.items())
        request = f" (request {self.request_id})" if self.request_id else ""
        return f"{self.status} {self.code or 'without a code'}: {self.message}{fields}{request}"


class ClientError(ApiError):
    """A 4xx response whose code this version does not know."""


class ServerError(ApiError):
    """A 5xx response whose code this version does not know."""


class RateLimited(ApiError):
    """A 429 response: the rate limit is exceeded until `retry_after` seconds have passed."""
