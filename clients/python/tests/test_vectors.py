"""The published vectors of both signatures."""

import base64
import json
import pathlib
from typing import Any

import pytest

from rewards_ledger.signing import canonical_string, x_signature
from rewards_ledger.webhooks import is_genuine

VECTORS = pathlib.Path(__file__).resolve().parents[3] / "docs" / "vectors"
REQUESTS = json.loads((VECTORS / "request-signing.json").read_text(encoding="utf-8"))
WEBHOOKS = json.loads((VECTORS / "webhook-signing.json").read_text(encoding="utf-8"))


def named(vectors: list[dict[str, Any]]) -> pytest.MarkDecorator:
    assert vectors
    return pytest.mark.parametrize("vector", vectors, ids=[vector["name"] for vector in vectors])


@named(REQUESTS["sign"])
def test_a_request_is_signed_as_published(vector: dict[str, Any]) -> None:
    body = base64.b64decode(vector["body_base64"])
    parts = (vector["method"], vector["path"], vector["query"], body, vector["timestamp"])
    assert canonical_string(*parts) == vector["canonical"]
    assert x_signature(vector["secret"], *parts) == vector["header"]


@named(WEBHOOKS["sign"])
def test_a_signed_webhook_is_genuine(vector: dict[str, Any]) -> None:
    body = base64.b64decode(vector["body_base64"])
    now = int(vector["timestamp"])
    assert is_genuine(vector["token"], vector["timestamp"], body, vector["signature"], now)


@named(WEBHOOKS["verify"])
def test_a_webhook_is_judged_as_published(vector: dict[str, Any]) -> None:
    body = base64.b64decode(vector["body_base64"])
    verdict = is_genuine(vector["token"], vector["timestamp"], body, vector["signature"], vector["now"])
    assert verdict == vector["genuine"]
