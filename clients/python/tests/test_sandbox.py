"""The library against a live sandbox, which `clients/test` starts."""

import asyncio
import os
import queue
import threading
import uuid
from collections.abc import Iterator
from typing import Any

import pytest
from flask import Flask
from werkzeug.serving import make_server

from rewards_ledger import AsyncRewardsLedger, Event, RewardsLedger, errors, models
from rewards_ledger.webhooks.flask import webhook

pytestmark = pytest.mark.skipif("LEDGER_URL" not in os.environ, reason="clients/test starts the sandbox")
#: Longest wait for something that the sandbox does by itself.
PATIENCE = 60


def connect() -> RewardsLedger:
    environment = os.environ
    return RewardsLedger(
        environment["LEDGER_URL"], api_key=environment["LEDGER_API_KEY"], api_secret=environment["LEDGER_API_SECRET"]
    )


def signed_arguments(signing_secret: str) -> dict[str, Any]:
    environment = os.environ
    key, secret = environment["LEDGER_SIGNED_API_KEY"], environment["LEDGER_SIGNED_API_SECRET"]
    return {"api_key": key, "api_secret": secret, "signing_secret": signing_secret}


@pytest.fixture
def ledger() -> Iterator[RewardsLedger]:
    with connect() as ledger:
        yield ledger


def product(ledger: RewardsLedger, name: str) -> models.Product:
    return next(each for each in ledger.products.iter_products() if each.name == name)


def coffee(ledger: RewardsLedger, **more: str) -> models.PlaceOrder:
    return models.PlaceOrder(product_id=product(ledger, "Coffee Card").id, denomination=25, quantity=1, **more)


def test_an_order_is_placed_paid_and_delivered(ledger: RewardsLedger) -> None:
    body = coffee(ledger)
    body.metadata = {"basket": 9, "name": "Grüße"}
    placed = ledger.orders.place_order(body).data
    assert (placed.status, placed.amount, placed.metadata) == (models.OrderStatus.PENDING, "25.00", body.metadata)
    for batch in ledger.follow_events(types=["order.delivered"]):
        if placed.id in [event.data["id"] for event in batch.events]:
            break
    assert ledger.orders.get_order(placed.id).data.status is models.OrderStatus.DELIVERED
    [voucher] = ledger.orders.get_order_vouchers(placed.id).data.vouchers
    assert voucher.card_number and voucher.card_number not in repr(voucher)


def test_the_same_key_places_one_order(ledger: RewardsLedger) -> None:
    key = str(uuid.uuid4())
    first, second = (ledger.orders.place_order(coffee(ledger), idempotency_key=key).data for _ in range(2))
    assert first.id == second.id
    with pytest.raises(errors.IdempotencyKeyReused):
        ledger.orders.place_order(coffee(ledger, client_reference=key), idempotency_key=key)
    assert ledger.orders.place_order(coffee(ledger)).data.id != first.id


def test_refusals_are_typed(ledger: RewardsLedger) -> None:
    with pytest.raises(errors.NotFound):
        ledger.orders.get_order(2**62)
    with pytest.raises(errors.ValidationFailure) as raised:
        ledger.orders.place_order(models.PlaceOrder(product_id=1, denomination=25, quantity=0))
    assert "quantity" in raised.value.messages and raised.value.request_id
    with RewardsLedger(os.environ["LEDGER_URL"], api_key="wrong", api_secret="wrong") as stranger:
        with pytest.raises(errors.Unauthorized):
            stranger.wallets.list_wallets()


def test_a_cancelled_order_is_refunded(ledger: RewardsLedger) -> None:
    never = product(ledger, "Travel Card")
    order = ledger.orders.place_order(models.PlaceOrder(product_id=never.id, denomination=100, quantity=1)).data
    cancelled = ledger.orders.cancel_order(order.id, models.CancelOrder(reason="changed my mind")).data
    assert (cancelled.status, cancelled.refunded_amount) == (models.OrderStatus.CANCELLED, "100.00")
    with pytest.raises(errors.OrderNotCancellable):
        ledger.orders.cancel_order(order.id)


def test_every_page_is_read(ledger: RewardsLedger) -> None:
    reference = str(uuid.uuid4())
    for number in range(5):
        ledger.orders.place_order(coffee(ledger, client_reference=f"{reference}-{number}"))
    first = ledger.orders.list_orders(limit=2).data.orders
    assert len(first) == 2
    found = [each.client_reference or "" for each in ledger.orders.iter_orders(limit=2)]
    assert sum(each.startswith(reference) for each in found) == 5
    assert len(found) >= 5


def test_a_statement_comes_as_csv(ledger: RewardsLedger) -> None:
    [wallet] = ledger.wallets.list_wallets().data.wallets
    path = f"/api/v1/wallets/{wallet.id}/statement"
    window = {"from": "2026-01-01T00:00:00Z", "to": "2027-01-01T00:00:00Z"}
    response = ledger.request("GET", path, params=window, headers={"Accept": "text/csv"})
    assert response.headers["Content-Type"].startswith("text/csv")


def test_signed_requests_are_admitted() -> None:
    with RewardsLedger(os.environ["LEDGER_URL"], **signed_arguments(os.environ["LEDGER_SIGNING_SECRET"])) as ledger:
        assert ledger.orders.place_order(coffee(ledger, client_reference=f"ä&={uuid.uuid4()}")).data.id
        assert ledger.orders.list_orders(client_reference="a b&c=d/ü", limit=3).data.orders == []
    with RewardsLedger(os.environ["LEDGER_URL"], **signed_arguments("wrong")) as ledger:
        with pytest.raises(errors.HmacSignatureInvalid):
            ledger.wallets.list_wallets()


def test_the_asynchronous_client_does_the_same() -> None:
    async def order() -> tuple[int, list[str]]:
        async with AsyncRewardsLedger(
            os.environ["LEDGER_URL"], **signed_arguments(os.environ["LEDGER_SIGNING_SECRET"])
        ) as ledger:
            products = [each async for each in ledger.products.iter_products(limit=1)]
            [card] = [each for each in products if each.name == "Coffee Card"]
            body = models.PlaceOrder(product_id=card.id, denomination=25, quantity=1)
            placed = (await ledger.orders.place_order(body)).data
            async for batch in ledger.follow_events(types=["order.created"]):
                if placed.id in [event.data["id"] for event in batch.events]:
                    return placed.id, [event.event_type for event in batch.events]
        raise AssertionError("the feed never ends")

    identifier, types = asyncio.run(order())
    assert identifier and set(types) == {"order.created"}


def test_events_wait_for_what_happens_next(ledger: RewardsLedger) -> None:
    latest = ledger.events.list_events(after="latest").data.cursor
    arrived: queue.Queue[Event] = queue.Queue()

    def follow() -> None:
        with connect() as other:
            for batch in other.follow_events(latest, types=["order.created"], wait=10):
                for event in batch.events:
                    arrived.put(event)
                if batch.events:
                    return

    follower = threading.Thread(target=follow)
    follower.start()
    placed = ledger.orders.place_order(coffee(ledger)).data
    event = arrived.get(timeout=PATIENCE)
    follower.join()
    assert event.order is not None and event.order.id == placed.id
    batches = list(ledger.follow_events(since=event.created_at, types=["order.created"], wait=0))
    since = [each for batch in batches for each in batch.events]
    assert event.event_id in [each.event_id for each in since]
    assert min(each.created_at for each in since) >= event.created_at


def test_a_webhook_arrives_verified(ledger: RewardsLedger) -> None:
    tokens: list[str] = []
    arrived: queue.Queue[Event] = queue.Queue()
    app = Flask(__name__)

    @app.post("/hook")
    @webhook(tokens)
    def receive(event: Event) -> str:
        arrived.put(event)
        return ""

    certificate = (os.environ["LEDGER_WEBHOOK_CERTIFICATE"], os.environ["LEDGER_WEBHOOK_KEY"])
    server = make_server("127.0.0.1", 0, app, threaded=True, ssl_context=certificate)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        registered = ledger.webhooks.register_webhook(
            models.RegisterWebhook(
                name="Test", url=f"https://localhost:{server.port}/hook", events=[models.WebhookEventType.ORDER_CREATED]
            )
        )
        tokens.append(registered.token)
        placed = ledger.orders.place_order(coffee(ledger)).data
        event = arrived.get(timeout=PATIENCE)
        ledger.webhooks.delete_webhook(registered.id)
    finally:
        server.shutdown()
        thread.join()
    assert event.order is not None and event.order.id == placed.id
