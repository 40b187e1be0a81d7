"""Verification of webhooks, alone and in each web framework."""

import hashlib
import hmac
import json
import sys
import time
from typing import Annotated, Any, Callable, Optional

import django
import pytest
from django.conf import settings
from django.http import HttpRequest, HttpResponse
from django.test import Client as DjangoClient
from django.urls import path
from fastapi import Depends, FastAPI
from fastapi.testclient import TestClient
from flask import Flask
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.routing import Route

from rewards_ledger import Event, models, webhooks
from rewards_ledger.webhooks import InvalidWebhook
from rewards_ledger.webhooks import django as for_django
from rewards_ledger.webhooks import flask as for_flask
from rewards_ledger.webhooks.starlette import Webhook

TOKEN = "the-token"
ORDER = {
    "amount": "48.75", "created_at": "2026-01-31T12:00:00.000Z", "delivered_on": None, "delivered_quantity": 0,
    "denomination": "25.00", "id": 42, "product_name": "Grüße 😀", "quantity": 2, "reference_code": "ORD-0000000042",
    "status": "PENDING", "sub_status": "",
}  # fmt: skip
ENVELOPE = {"event_id": "e1", "event_type": "order.created", "created_at": "2026-01-31T12:00:02.000Z", "data": ORDER}
BODY = json.dumps(ENVELOPE, ensure_ascii=False).encode()


def signed(body: bytes, token: str = TOKEN, now: Optional[float] = None) -> dict[str, str]:
    timestamp = str(int(time.time() if now is None else now))
    signature = hmac.new(token.encode(), timestamp.encode() + b"." + body, hashlib.sha256).hexdigest()
    return {"X-Timestamp": timestamp, "X-Signature": signature, "Content-Type": "application/json"}


def test_a_genuine_delivery_returns_its_event() -> None:
    event = webhooks.verify(TOKEN, signed(BODY), BODY)
    assert (event.event_id, event.event_type, event.data["id"]) == ("e1", "order.created", 42)
    assert event.created_at.isoformat() == "2026-01-31T12:00:02+00:00"
    assert event.order is not None and event.order.status is models.OrderStatus.PENDING


def test_header_names_come_in_any_case() -> None:
    headers = {name.lower(): value for name, value in signed(BODY).items()}
    assert webhooks.verify(TOKEN, headers, BODY).event_id == "e1"


def test_after_a_rotation_the_token_before_it_still_verifies() -> None:
    sent = {**signed(BODY, "the-new-token"), "X-Signature-Previous": signed(BODY)["X-Signature"]}
    for token in (TOKEN, "the-new-token"):
        assert webhooks.verify(token, sent, BODY).event_id == "e1"
    for token, body in (("another", BODY), (TOKEN, BODY + b" ")):
        with pytest.raises(InvalidWebhook):
            webhooks.verify(token, sent, body)


def test_one_of_several_tokens_suffices() -> None:
    assert webhooks.verify(["the-old-token", TOKEN], signed(BODY), BODY).event_id == "e1"
    with pytest.raises(InvalidWebhook):
        webhooks.verify(["the-old-token"], signed(BODY), BODY)


@pytest.mark.parametrize("tokens", ["", ["", TOKEN]])
def test_an_empty_token_verifies_nothing(tokens: Any) -> None:
    with pytest.raises(InvalidWebhook):
        webhooks.verify(tokens, signed(BODY, ""), BODY)


@pytest.mark.parametrize(
    ("headers", "body"),
    [
        (signed(BODY), BODY + b" "),
        (signed(BODY, "another-token"), BODY),
        (signed(BODY, now=1), BODY),
        ({**signed(BODY), "X-Signature": "ü"}, BODY),
        ({"X-Timestamp": "1"}, BODY),
        ({}, BODY),
        (signed(b"no JSON"), b"no JSON"),
        (signed(b"[]"), b"[]"),
        (signed(b'{"event_id": 1, "event_type": 2, "created_at": "now", "data": 3}'), b'{"event_id": 1}'),
    ],
)
def test_everything_else_is_refused(headers: dict[str, str], body: bytes) -> None:
    with pytest.raises(InvalidWebhook) as raised:
        webhooks.verify(TOKEN, headers, body)
    assert TOKEN not in str(raised.value)


def test_an_event_of_an_unknown_type_is_no_error() -> None:
    body = json.dumps({**ENVELOPE, "event_type": "payout.paid", "data": {"id": 1}}).encode()
    event = webhooks.verify(TOKEN, signed(body), body)
    assert event.order is None and event.data == {"id": 1}


def flask_app(seen: list[Event]) -> Callable[[bytes, dict[str, str]], int]:
    app = Flask(__name__)

    @app.post("/hook")
    @for_flask.webhook(TOKEN)
    def receive(event: Event) -> str:
        seen.append(event)
        return ""

    return lambda body, headers: app.test_client().post("/hook", data=body, headers=headers).status_code


def fastapi_app(seen: list[Event]) -> Callable[[bytes, dict[str, str]], int]:
    app = FastAPI()

    @app.post("/hook")
    async def receive(event: Annotated[Event, Depends(Webhook(TOKEN))]) -> None:
        seen.append(event)

    return lambda body, headers: TestClient(app).post("/hook", content=body, headers=headers).status_code


def starlette_app(seen: list[Event]) -> Callable[[bytes, dict[str, str]], int]:
    verified = Webhook(TOKEN)

    async def receive(request: Request) -> PlainTextResponse:
        seen.append(await verified(request))
        return PlainTextResponse("")

    app = Starlette(routes=[Route("/hook", receive, methods=["POST"])])
    return lambda body, headers: TestClient(app).post("/hook", content=body, headers=headers).status_code


DJANGO_SEEN: list[Event] = []


@for_django.webhook([TOKEN])
def django_view(_: HttpRequest, event: Event) -> HttpResponse:
    DJANGO_SEEN.append(event)
    return HttpResponse()


urlpatterns = [path("hook", django_view)]


def django_app(seen: list[Event]) -> Callable[[bytes, dict[str, str]], int]:
    if not settings.configured:
        settings.configure(ROOT_URLCONF=sys.modules[__name__], ALLOWED_HOSTS=["testserver"])
        django.setup()
    DJANGO_SEEN.clear()
    # The client checks the token against forged requests, as Django does in production.
    client = DjangoClient(enforce_csrf_checks=True)

    def post(body: bytes, headers: dict[str, str]) -> int:
        response: Any = client.post("/hook", body, content_type="application/json", headers=headers)
        seen[:] = DJANGO_SEEN
        return int(response.status_code)

    return post


APPS = [flask_app, fastapi_app, starlette_app, django_app]


@pytest.mark.parametrize("app", APPS)
def test_a_framework_hands_over_the_event(app: Any) -> None:
    seen: list[Event] = []
    assert app(seen)(BODY, signed(BODY)) == 200
    assert [event.data for event in seen] == [ORDER]


@pytest.mark.parametrize("app", APPS)
def test_a_framework_refuses_what_is_not_genuine(app: Any) -> None:
    seen: list[Event] = []
    post = app(seen)
    assert post(BODY + b" ", signed(BODY)) == 401
    assert post(BODY, {}) == 401
    assert seen == []
