"""Requests of a client: its address, its credentials, and the headers that they make."""

import json
import time
import uuid
from typing import Any, Optional, Union

import httpx

from . import errors
from .api_error import LedgerError, NoResponse
from .call import Call
from .retries import Retries
from .signing import x_signature
from .version import VERSION

USER_AGENT = f"rewards-ledger-python/{VERSION}"


class Session:
    """Builder of requests and judge of responses. It sends nothing."""

    def __init__(
        self,
        url: str,
        *,
        api_key: Optional[str],
        api_secret: Optional[str],
        signing_secret: Optional[str],
        access_token: Optional[str],
        timeout: float,
        retries: Retries,
    ) -> None:
        if (api_key is None) != (api_secret is None):
            raise ValueError("api_key and api_secret belong together")
        self.url = url.rstrip("/")
        # Without a user name and a password.
        parsed = httpx.URL(self.url)
        self.origin = f"{parsed.scheme}://{parsed.netloc.decode('ascii')}"
        self.retries = retries
        self._timeout = timeout
        self._signing_secret = signing_secret
        self._headers = {"User-Agent": USER_AGENT, "Accept": "application/json"}
        if api_key is not None and api_secret is not None:
            self._headers.update({"X-API-Key": api_key, "X-API-Secret": api_secret})
        if access_token is not None:
            self._headers["Authorization"] = f"Bearer {access_token}"

    def keyed(self, call: Call) -> Optional[str]:
        """Returns the idempotency key of all attempts of a call, if its operation takes one."""
        return (call.idempotency_key or str(uuid.uuid4())) if call.takes_key else None

    def request(self, client: Union[httpx.Client, httpx.AsyncClient], call: Call, key: Optional[str]) -> httpx.Request:
        """Builds the request of one attempt. Each attempt is signed anew, because a signature expires."""
        headers = {**self._headers, **call.headers}
        body = b""
        if call.body is not None:
            body = json.dumps(call.body, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode()
            headers["Content-Type"] = "application/json"
        if key is not None:
            headers["Idempotency-Key"] = key
        query = call.query()
        # The service holds a long-poll request back for up to `wait` seconds.
        timeout = self._timeout + float(query.get("wait", 0))
        request = client.build_request(
            call.method, self.url + call.path, params=query, content=body, headers=headers, timeout=timeout
        )
        if self._signing_secret is not None:
            path, _, sent_query = request.url.raw_path.decode("ascii").partition("?")
            timestamp = int(time.time())
            signature = x_signature(self._signing_secret, call.method, path, sent_query, body, timestamp)
            request.headers["X-Signature"] = signature
        return request

    def failure(self, outcome: Union[httpx.Response, httpx.RequestError], key: Optional[str]) -> Optional[LedgerError]:
        """Returns the error of an attempt, or None if it succeeded."""
        failure: LedgerError
        if isinstance(outcome, httpx.Response):
            if outcome.is_success:
                return None
            failure = errors.from_response(outcome)
        else:
            failure = NoResponse(f"no response from {self.origin}: {outcome or type(outcome).__name__}")
            failure.__cause__ = outcome
        failure.idempotency_key = key
        return failure

    def described(self, client: Any) -> str:
        """Returns the client's `repr`, which shows no secret."""
        return f"<{type(client).__name__} {self.origin}>"
