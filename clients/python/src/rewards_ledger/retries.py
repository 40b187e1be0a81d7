"""Retries by the rules of the API: which failed attempts to repeat, and after how long."""

import random
from dataclasses import dataclass
from typing import Optional

import httpx

from .api_error import ApiError, LedgerError
from .call import Call

#: The request was not sent, so it may always be sent again.
NOT_SENT = (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout)
#: The request may have arrived.
UNKNOWN = (httpx.NetworkError, httpx.TimeoutException, httpx.RemoteProtocolError)


@dataclass(frozen=True)
class Retries:
    """Number of attempts of a call, and the waits between them."""

    #: Maximum number of attempts; 1 for no retries.
    attempts: int = 5
    #: Wait after the first attempt, in seconds. It doubles with each further one.
    base: float = 1.0
    #: Longest wait, in seconds. If the service demands a longer one, the call fails, and the caller decides.
    longest: float = 60.0

    def delay(self, call: Call, failure: LedgerError, attempt: int) -> Optional[float]:
        """Returns the seconds to wait before the next attempt, or None if the call has failed.

        `attempt` counts the attempts so far, from 1.
        """
        if attempt >= self.attempts or not _is_worth_repeating(call, failure):
            return None
        wanted = failure.retry_after if isinstance(failure, ApiError) else None
        if wanted is None:
            backoff = min(self.base * 2.0 ** (attempt - 1), self.longest)
            return backoff * random.uniform(0.5, 1)
        # The jitter keeps clients apart that were told to wait equally long.
        return wanted + random.uniform(0, self.base) if wanted <= self.longest else None


def _is_worth_repeating(call: Call, failure: LedgerError) -> bool:
    if not isinstance(failure, ApiError):
        cause = failure.__cause__
        return isinstance(cause, NOT_SENT) or (call.is_repeatable and isinstance(cause, UNKNOWN))
    if failure.status in (429, 503) or failure.code == "E_IDEMPOTENCY_IN_PROGRESS":
        return True
    # 502 and a 504 without a code come from a proxy, which does not know the outcome either.
    return failure.status in (502, 504) and call.is_repeatable
