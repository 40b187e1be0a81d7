"""Requests, pages, the event feed, and what stays hidden."""

import asyncio
import datetime
import itertools
import time
from typing import Any

import httpx
import pytest

from conftest import Answer, Service
from rewards_ledger import AsyncRewardsLedger, Retries, RewardsLedger, errors, models
from rewards_ledger.generated.types import UNSET
from rewards_ledger.signing import x_signature

SECRETS: dict[str, Any] = {"api_key": "the-key", "api_secret": "the-secret", "signing_secret": "the-signing-secret"}


def wallet(identifier: int) -> dict[str, Any]:
    return {"id": identifier, "currency": "EUR", "balance": "1.00", "updated_at": "2026-01-31T12:00:00.000Z"}


def page(number: int, *identifiers: int) -> Answer:
    body = {"success": True, "data": {"wallets": [wallet(each) for each in identifiers]}}
    return Answer(200, body, X_Page=str(number), X_Total_Pages="3", X_Total_Count="5")


def envelope(number: int) -> dict[str, Any]:
    return {"event_id": f"e{number}", "event_type": "order.created", "created_at": "2026-01-31T12:00:00.000Z", "data": {"id": number}}


def feed(cursor: str, has_more: bool, *numbers: int) -> Answer:
    page = {"events": [envelope(n) for n in numbers], "sequences": list(numbers), "cursor": cursor, "has_more": has_more}
    return Answer(200, {"success": True, "data": page})


def test_every_attempt_is_signed(service: Service) -> None:
    service.answers = [Answer.error(503, "E_UNAVAILABLE"), Answer(200, {"success": True, "data": {"orders": []}})]
    with RewardsLedger(service.url, **SECRETS, retries=Retries(base=0)) as ledger:
        ledger.orders.list_orders(client_reference="a b&c=ü/", status=models.OrderStatus.PENDING, page=2)
    for request in service.requests:
        timestamp = int(request.headers["x-signature"].split(",")[0][2:])
        signature = x_signature("the-signing-secret", "GET", request.path, request.query, b"", timestamp)
        assert request.headers["x-signature"] == signature
        assert abs(time.time() - timestamp) < 300
        assert request.headers["x-api-key"] == "the-key"
        assert request.headers["x-api-secret"] == "the-secret"


def test_parameters_are_written_as_the_service_reads_them(service: Service) -> None:
    service.answers = [Answer(200, {"success": True, "data": {"orders": []}})]
    with RewardsLedger(service.url) as ledger:
        since = datetime.datetime(2026, 1, 31, 12, tzinfo=datetime.timezone.utc)
        ledger.orders.list_orders(created_from=since, status=models.OrderStatus.PENDING)
    assert service.requests[0].query == "status=PENDING&created_from=2026-01-31T12%3A00%3A00%2B00%3A00"


def test_a_list_is_read_to_its_last_page(service: Service) -> None:
    service.answers = [page(1, 1, 2), page(2, 3, 4), page(3, 5)]
    with RewardsLedger(service.url) as ledger:
        assert [each.id for each in ledger.wallets.iter_wallets(limit=2)] == [1, 2, 3, 4, 5]
    assert [request.query for request in service.requests] == ["page=1&limit=2", "page=2&limit=2", "page=3&limit=2"]


def test_an_asynchronous_list_is_read_to_its_last_page(service: Service) -> None:
    service.answers = [page(1, 1, 2), page(2, 3, 4), page(3, 5)]

    async def read() -> list[int]:
        async with AsyncRewardsLedger(service.url) as ledger:
            return [each.id async for each in ledger.wallets.iter_wallets()]

    assert asyncio.run(read()) == [1, 2, 3, 4, 5]


def test_pages_that_nobody_reads_are_not_requested(service: Service) -> None:
    service.answers = [page(1, 1, 2)]
    with RewardsLedger(service.url) as ledger:
        assert next(ledger.wallets.iter_wallets()).id == 1


def test_events_are_followed_by_their_cursor(service: Service) -> None:
    service.answers = [feed("c1", True, 1, 2), feed("c2", False), feed("c3", False, 3)]
    with RewardsLedger(service.url) as ledger:
        batches = ledger.follow_events("c0", types=["order.created", "order.delivered"])
        seen = [([event.event_id for event in batch.events], batch.sequences) for batch in itertools.islice(batches, 3)]
    assert seen == [(["e1", "e2"], [1, 2]), ([], []), (["e3"], [3])]
    types = "types=order.created%2Corder.delivered"
    assert [request.query for request in service.requests] == [
        f"after=c0&{types}", f"after=c1&{types}", f"after=c2&wait=30&{types}",
    ]  # fmt: skip


def test_events_end_where_the_log_ends_if_nobody_waits(service: Service) -> None:
    service.answers = [feed("c1", True, 1), feed("c2", False, 2)] * 2

    async def follow() -> list[str]:
        async with AsyncRewardsLedger(service.url) as ledger:
            return [batch.cursor async for batch in ledger.follow_events(wait=0)]

    with RewardsLedger(service.url) as ledger:
        assert [batch.cursor for batch in ledger.follow_events(wait=0)] == ["c1", "c2"]
    assert asyncio.run(follow()) == ["c1", "c2"]


def test_events_begin_at_a_time_until_there_is_a_cursor(service: Service) -> None:
    service.answers = [feed("c1", True, 1), feed("c2", False, 2), feed("c3", False)] * 2
    since = datetime.datetime(2026, 1, 31, 12, tzinfo=datetime.timezone.utc)

    async def follow() -> None:
        async with AsyncRewardsLedger(service.url) as ledger:
            for after in (None, "c2"):
                async for _ in ledger.follow_events(after, since=since, wait=0):
                    pass

    with RewardsLedger(service.url) as ledger:
        for after in (None, "c2"):
            list(ledger.follow_events(after, since=since, wait=0))
    asyncio.run(follow())
    queries = ["since=2026-01-31T12%3A00%3A00%2B00%3A00", "after=c1", "after=c2"] * 2
    assert [request.query for request in service.requests] == queries


def test_a_long_poll_may_take_longer_than_other_requests() -> None:
    timeouts: list[float] = []

    def answer(request: httpx.Request) -> httpx.Response:
        timeouts.append(request.extensions["timeout"]["read"])
        return httpx.Response(200, json={"success": True, "data": {"events": [], "sequences": [], "cursor": "c", "has_more": False}})

    http = httpx.Client(transport=httpx.MockTransport(answer))
    with RewardsLedger("http://localhost", http=http, timeout=7) as ledger:
        ledger.events.list_events()
        ledger.events.list_events(wait=30)
    assert timeouts == [7, 37]


def test_an_error_carries_what_the_service_said(service: Service) -> None:
    detail = {"name": "ValidationError", "code": "E_VALIDATION_FAILURE", "message": "invalid", "messages": {"quantity": ["too many"]}}
    service.answers = [Answer(400, {"error": detail}, X_Request_ID="r-1")]
    with RewardsLedger(service.url, **SECRETS) as ledger, pytest.raises(errors.ValidationFailure) as raised:
        ledger.orders.place_order(models.PlaceOrder(product_id=1, denomination=25, quantity=99))
    assert raised.value.messages == {"quantity": ["too many"]}
    assert str(raised.value) == "400 E_VALIDATION_FAILURE: invalid; quantity: too many (request r-1)"


def test_secrets_are_shown_nowhere(service: Service) -> None:
    service.answers = [Answer(None)]
    ledger = RewardsLedger(service.url, **SECRETS, retries=Retries(attempts=1))
    with pytest.raises(errors.NoResponse) as raised:
        ledger.sessions.log_in(models.Login(email="jo@example.com", password="the-password"))
    shown = [repr(ledger), str(raised.value), repr(raised.value), repr(raised.value.__cause__)]
    shown.append(repr(models.Login(email="jo@example.com", password="the-password", otp="the-otp")))
    voucher = {"card_number": "the-card", "claim_url": "the-url", "pin": "the-pin"}
    shown.append(repr(models.Voucher(**voucher, expires_on=None, voucher_reference_number="VCH-1")))
    assert not [text for text in shown for secret in [*SECRETS.values(), "the-"] if secret in text]
    assert "VCH-1" in shown[-1]


def test_what_a_later_version_adds_does_no_harm(service: Service) -> None:
    webhook = {**wallet(1), "status": "NEW"}
    service.answers = [Answer(200, {"success": True, "data": {"wallets": [webhook]}, "more": 1})]
    with RewardsLedger(service.url) as ledger:
        [read] = ledger.wallets.list_wallets().data.wallets
    assert read.additional_properties == {"status": "NEW"}
    assert models.OrderStatus("NEW") == "NEW"


def test_fields_that_are_left_out_are_not_sent() -> None:
    order = models.PlaceOrder(product_id=1, denomination=25, quantity=2)
    assert order.client_reference is UNSET
    assert order.to_dict() == {"product_id": 1, "denomination": 25, "quantity": 2}


def test_half_a_key_is_refused() -> None:
    with pytest.raises(ValueError, match="belong together"):
        RewardsLedger("http://localhost", api_key="key")
