"""Retries, against a real HTTP server."""

import asyncio
from typing import Any, Callable

import pytest

from conftest import Answer, Service
from rewards_ledger import AsyncRewardsLedger, NoResponse, Retries, RewardsLedger, errors, models
from rewards_ledger.api_error import ApiError
from rewards_ledger.call import Call

AT_ONCE = Retries(base=0)
WALLETS = {"success": True, "data": {"wallets": []}}
ORDER: dict[str, Any] = {
    "amount": "48.75", "cancel_reason": None, "cancelled_on": None, "client_reference": None,
    "created_at": "2026-01-31T12:00:00.000Z", "currency": "EUR", "delivered_on": None, "delivered_quantity": 0,
    "denomination": "25.00", "discount": "2.50", "discount_amount": "1.25", "face_value": "50.00", "id": 42,
    "metadata": {"basket": 9}, "order_items": [], "product_id": 1, "product_name": "Acme Gift Card", "quantity": 2,
    "reference_code": "ORD-0000000042", "refunded_amount": "0.00", "status": "PENDING", "sub_status": "",
    "transaction_id": 17, "updated_at": "2026-01-31T12:00:02.000Z",
}  # fmt: skip
PLACED = Answer(201, {"success": True, "data": ORDER})

Run = Callable[[Callable[[Any], Any]], Any]


@pytest.fixture(params=[RewardsLedger, AsyncRewardsLedger])
def run(request: pytest.FixtureRequest, service: Service) -> Run:
    """Runs an action with a client of either kind."""
    arguments: dict[str, Any] = {"api_key": "key", "api_secret": "secret", "retries": AT_ONCE}

    def blocking(action: Callable[[Any], Any]) -> Any:
        with RewardsLedger(service.url, **arguments) as ledger:
            return action(ledger)

    async def waiting(action: Callable[[Any], Any]) -> Any:
        async with AsyncRewardsLedger(service.url, **arguments) as ledger:
            return await action(ledger)

    return blocking if request.param is RewardsLedger else lambda action: asyncio.run(waiting(action))


def wallets(ledger: Any) -> Any:
    return ledger.wallets.list_wallets()


def place(ledger: Any) -> Any:
    return ledger.orders.place_order(models.PlaceOrder(product_id=1, denomination=25, quantity=2))


UNAVAILABLE = Answer.error(503, "E_UNAVAILABLE", Retry_After="0")
LIMITED = Answer(429, {"error": "rate_limit_exceeded", "message": "Too many.", "retry_after": 0}, Retry_After="0")
IN_PROGRESS = Answer.error(409, "E_IDEMPOTENCY_IN_PROGRESS", Retry_After="0")
UNKNOWN = Answer.error(504, "E_OUTCOME_UNKNOWN")
CUT_OFF = Answer(None)


@pytest.mark.parametrize("failure", [UNAVAILABLE, LIMITED, IN_PROGRESS, UNKNOWN, CUT_OFF])
def test_an_order_is_placed_again_under_the_same_key(run: Run, service: Service, failure: Answer) -> None:
    service.answers = [failure, failure, PLACED]
    assert run(place).data.id == 42
    keys = {request.headers["idempotency-key"] for request in service.requests}
    assert len(service.requests) == 3 and len(keys) == 1
    assert len({request.body for request in service.requests}) == 1


def test_each_call_has_a_key_of_its_own(run: Run, service: Service) -> None:
    service.answers = [PLACED, PLACED]
    run(place)
    run(place)
    first, second = (request.headers["idempotency-key"] for request in service.requests)
    assert first != second


def test_a_key_of_the_caller_is_sent(run: Run, service: Service) -> None:
    service.answers = [UNKNOWN, PLACED]
    body = models.PlaceOrder(product_id=1, denomination=25, quantity=2)
    run(lambda ledger: ledger.orders.place_order(body, idempotency_key="basket-9"))
    assert [request.headers["idempotency-key"] for request in service.requests] == ["basket-9", "basket-9"]


@pytest.mark.parametrize("failure", [UNAVAILABLE, LIMITED, UNKNOWN, CUT_OFF])
def test_a_read_is_repeated_without_a_key(run: Run, service: Service, failure: Answer) -> None:
    service.answers = [failure, Answer(200, WALLETS)]
    assert run(wallets).data.wallets == []
    assert all("idempotency-key" not in request.headers for request in service.requests)


@pytest.mark.parametrize(
    ("answer", "kind"),
    [
        (Answer.error(400, "E_VALIDATION_FAILURE"), errors.ValidationFailure),
        (Answer.error(401, "E_UNAUTHORIZED"), errors.Unauthorized),
        (Answer.error(402, "E_INSUFFICIENT_BALANCE"), errors.InsufficientBalance),
        (Answer.error(409, "E_DUPLICATE_REFERENCE"), errors.DuplicateReference),
        (Answer.error(500, "E_INTERNAL"), errors.Internal),
        (Answer.error(418, "E_OF_THE_FUTURE"), errors.ClientError),
        (Answer.error(599, "E_OF_THE_FUTURE"), errors.ServerError),
        (Answer(403, b"<html>a proxy"), errors.ClientError),
    ],
)
def test_other_errors_are_raised_at_once(run: Run, service: Service, answer: Answer, kind: type[ApiError]) -> None:
    service.answers = [answer]
    with pytest.raises(ApiError) as raised:
        run(place)
    assert type(raised.value) is kind
    assert raised.value.status == answer.status
    assert raised.value.idempotency_key == service.requests[0].headers["idempotency-key"]


def test_attempts_are_bounded(run: Run, service: Service) -> None:
    service.answers = [UNAVAILABLE] * AT_ONCE.attempts
    with pytest.raises(errors.Unavailable):
        run(place)


def test_a_connection_that_always_breaks_is_reported(run: Run, service: Service) -> None:
    service.answers = [CUT_OFF] * AT_ONCE.attempts
    with pytest.raises(NoResponse) as raised:
        run(place)
    assert raised.value.idempotency_key == service.requests[-1].headers["idempotency-key"]


@pytest.mark.parametrize("failure", [UNKNOWN, CUT_OFF])
def test_a_post_without_a_key_is_not_repeated_after_an_unknown_outcome(run: Run, service: Service, failure: Answer) -> None:
    service.answers = [failure]
    with pytest.raises((errors.OutcomeUnknown, NoResponse)):
        run(lambda ledger: ledger.api_keys.rotate_signing_secret(7))
    assert "idempotency-key" not in service.requests[0].headers


def test_a_post_without_a_key_is_repeated_if_nothing_happened(run: Run, service: Service) -> None:
    tokens = {"access_token": "a", "account_id": 1, "expires_in": 900, "refresh_token": "r", "token_type": "Bearer"}
    tokens["refresh_expires_at"] = "2026-01-31T12:00:00.000Z"
    service.answers = [UNAVAILABLE, Answer(200, {"success": True, "data": tokens})]
    assert run(lambda ledger: ledger.sessions.refresh_tokens(models.Refresh("r"))).data.access_token == "a"


def test_an_unreachable_service_is_asked_several_times() -> None:
    service = Service()
    service.close()
    with pytest.raises(NoResponse, match="no response from http://127.0.0.1"):
        RewardsLedger(service.url, retries=AT_ONCE).orders.get_order(1)


GET = Call("GET", "/")


def failed(status: int, code: str, retry_after: Any = None) -> ApiError:
    return ApiError(status, code, "why", retry_after=retry_after)


def test_the_wait_doubles_with_jitter() -> None:
    failure = failed(503, "E_UNAVAILABLE")
    for attempt, longest in enumerate([1, 2, 4, 8], start=1):
        delays = [Retries().delay(GET, failure, attempt) for _ in range(200)]
        assert all(delay is not None and longest / 2 <= delay <= longest for delay in delays)
        assert len(set(delays)) > 100
    assert Retries().delay(GET, failure, 5) is None


def test_the_wait_is_what_the_service_demands() -> None:
    delay = Retries().delay(GET, failed(429, "rate_limit_exceeded", 42), 1)
    assert delay is not None and 42 <= delay <= 43


def test_a_wait_that_is_too_long_is_left_to_the_caller() -> None:
    assert Retries().delay(GET, failed(429, "rate_limit_exceeded", 3600), 1) is None
    assert Retries(longest=3600).delay(GET, failed(429, "rate_limit_exceeded", 3600), 1) is not None
