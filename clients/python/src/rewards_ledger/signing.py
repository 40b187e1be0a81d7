"""Signatures of requests."""

import hashlib
import hmac


def canonical_string(method: str, path: str, query: str, body: bytes, timestamp: int) -> str:
    """Returns the text that a request's signature covers. `path` and `query` are as sent."""
    pairs = [pair.partition("=") for pair in query.split("&") if pair]
    # The sort is stable: pairs with the same key keep their order.
    pairs.sort(key=lambda pair: pair[0].encode())
    canonical_query = "&".join(f"{key}={value}" for key, _, value in pairs)
    digest = hashlib.sha256(body).hexdigest()
    return "\n".join([method.upper(), path.rstrip("/") or "/", canonical_query, digest, str(timestamp)])


def x_signature(secret: str, method: str, path: str, query: str, body: bytes, timestamp: int) -> str:
    """Returns the value of the header `X-Signature`."""
    canonical = canonical_string(method, path, query, body, timestamp)
    signature = hmac.new(secret.encode(), canonical.encode(), hashlib.sha256).hexdigest()
    return f"t={timestamp},v1={signature}"
