"""Verification of webhooks.

`verify` works with every web framework. `webhooks.flask`, `webhooks.starlette` (also for FastAPI) and `webhooks.django` save
the lines around it.
"""

import hashlib
import hmac
import time
from collections.abc import Mapping, Sequence
from typing import Optional, Union

from ..event import Event

#: Maximum difference between a delivery's time and the receiver's clock, in seconds.
TOLERANCE = 300


class InvalidWebhook(Exception):
    """A request that is no genuine delivery: do not act on it, and answer with a 4xx status."""


def verify(
    tokens: Union[str, Sequence[str]],
    headers: Mapping[str, str],
    body: bytes,
    *,
    now: Optional[float] = None,
) -> Event:
    """Verifies a delivery and returns its event.

    `tokens` is the webhook's token, or several while it is rotated. `headers` are those of the request, in any case. `body`
    is the raw body: JSON that was parsed and written again has other bytes. `now` is the receiver's clock in Unix seconds.

    Raises InvalidWebhook if the signature does not match, if the delivery is more than 5 minutes off, or if the body is no
    event.
    """
    found = {name.lower(): value for name, value in headers.items()}
    timestamp, signature = found.get("x-timestamp"), found.get("x-signature")
    # After a rotation, the service can sign with the replaced token, too.
    previous = found.get("x-signature-previous")
    if timestamp is None or signature is None:
        raise InvalidWebhook("the headers X-Timestamp and X-Signature are required")
    moment = time.time() if now is None else now
    # Anybody can sign with an empty token, such as that of an unset variable.
    candidates = [token for token in ([tokens] if isinstance(tokens, str) else tokens) if token]
    signatures = [signature] if previous is None else [signature, previous]
    if not any([is_genuine(token, timestamp, body, each, moment) for token in candidates for each in signatures]):
        raise InvalidWebhook("the signature does not match, or the delivery is more than 5 minutes off")
    try:
        return Event.from_json(body)
    except ValueError as error:
        raise InvalidWebhook("the body is not an event") from error


def is_genuine(token: str, timestamp: str, body: bytes, signature: str, now: float) -> bool:
    """Returns whether a delivery is signed with the token, and not more than 5 minutes off."""
    is_number = timestamp.isascii() and timestamp.isdigit() and len(timestamp) < 19
    if not is_number or abs(now - int(timestamp)) > TOLERANCE:
        return False
    expected = hmac.new(token.encode(), timestamp.encode() + b"." + body, hashlib.sha256).hexdigest()
    return hmac.compare_digest(expected.encode(), signature.encode("utf-8", "surrogateescape"))
