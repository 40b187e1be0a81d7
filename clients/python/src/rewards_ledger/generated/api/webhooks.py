"""Calls of the tag `webhooks`."""

import datetime
from collections.abc import AsyncIterator, Iterator
from typing import Optional
from urllib.parse import quote

from ...call import AsyncSend, Call, Send, async_pages, pages
from ..models.attempt_outcome import AttemptOutcome
from ..models.attempts_by_webhook_reply import AttemptsByWebhookReply
from ..models.change_webhook import ChangeWebhook
from ..models.deleted_webhook_reply import DeletedWebhookReply
from ..models.register_webhook import RegisterWebhook
from ..models.registered_webhook import RegisteredWebhook
from ..models.replay_events import ReplayEvents
from ..models.replay_requested_reply import ReplayRequestedReply
from ..models.rotate_token import RotateToken
from ..models.rotated_token_reply import RotatedTokenReply
from ..models.test_webhook import TestWebhook
from ..models.webhook import Webhook
from ..models.webhook_attempts_reply import WebhookAttemptsReply
from ..models.webhook_explanation_reply import WebhookExplanationReply
from ..models.webhook_list import WebhookList
from ..models.webhook_replay import WebhookReplay
from ..models.webhook_replay_list import WebhookReplayList
from ..models.webhook_reply import WebhookReply
from ..models.webhook_statistics_reply import WebhookStatisticsReply
from ..models.webhook_test_reply import WebhookTestReply


def _list_webhooks(
    *,
    page: Optional[int] = None,
    limit: Optional[int] = None,
) -> Call:
    return Call(
        "GET",
        "/api/v1/webhooks",
        params={
            "page": page,
            "limit": limit,
        },
    )


def _register_webhook(
    body: RegisterWebhook,
    *,
    idempotency_key: Optional[str] = None,
) -> Call:
    return Call(
        "POST",
        "/api/v1/webhooks",
        body=body.to_dict(),
        takes_key=True,
        idempotency_key=idempotency_key,
    )


def _count_attempts_by_webhook(
    *,
    days: Optional[int] = None,
) -> Call:
    return Call(
        "GET",
        "/api/v1/webhooks/stats",
        params={
            "days": days,
        },
    )


def _get_webhook(
    id: int,
) -> Call:
    return Call(
        "GET",
        f"/api/v1/webhooks/{quote(str(id), safe='')}",
    )


def _change_webhook(
    id: int,
    body: Optional[ChangeWebhook] = None,
) -> Call:
    return Call(
        "PUT",
        f"/api/v1/webhooks/{quote(str(id), safe='')}",
        body=body.to_dict() if body else {},
    )


def _delete_webhook(
    id: int,
) -> Call:
    return Call(
        "DELETE",
        f"/api/v1/webhooks/{quote(str(id), safe='')}",
    )


def _list_webhook_attempts(
    id: int,
    *,
    outcome: Optional[AttemptOutcome] = None,
    since: Optional[datetime.datetime] = None,
    until: Optional[datetime.datetime] = None,
    before: Optional[str] = None,
    limit: Optional[int] = None,
) -> Call:
    return Call(
        "GET",
        f"/api/v1/webhooks/{quote(str(id), safe='')}/attempts",
        params={
            "outcome": outcome,
            "since": since,
            "until": until,
            "before": before,
            "limit": limit,
        },
    )


def _explain_webhook(
    id: int,
    *,
    order_id: int,
) -> Call:
    return Call(
        "GET",
        f"/api/v1/webhooks/{quote(str(id), safe='')}/explanation",
        params={
            "order_id": order_id,
        },
    )


def _list_webhook_replays(
    id: int,
    *,
    page: Optional[int] = None,
    limit: Optional[int] = None,
) -> Call:
    return Call(
        "GET",
        f"/api/v1/webhooks/{quote(str(id), safe='')}/replays",
        params={
            "page": page,
            "limit": limit,
        },
    )


def _replay_events(
    id: int,
    body: ReplayEvents,
    *,
    idempotency_key: Optional[str] = None,
) -> Call:
    return Call(
        "POST",
        f"/api/v1/webhooks/{quote(str(id), safe='')}/replays",
        body=body.to_dict(),
        takes_key=True,
        idempotency_key=idempotency_key,
    )


def _rotate_webhook_token(
    id: int,
    body: Optional[RotateToken] = None,
    *,
    idempotency_key: Optional[str] = None,
) -> Call:
    return Call(
        "POST",
        f"/api/v1/webhooks/{quote(str(id), safe='')}/rotate-token",
        body=body.to_dict() if body else {},
        takes_key=True,
        idempotency_key=idempotency_key,
    )


def _count_attempts(
    id: int,
    *,
    days: Optional[int] = None,
) -> Call:
    return Call(
        "GET",
        f"/api/v1/webhooks/{quote(str(id), safe='')}/stats",
        params={
            "days": days,
        },
    )


def _test_webhook(
    id: int,
    body: Optional[TestWebhook] = None,
    *,
    idempotency_key: Optional[str] = None,
) -> Call:
    return Call(
        "POST",
        f"/api/v1/webhooks/{quote(str(id), safe='')}/test",
        body=body.to_dict() if body else {},
        takes_key=True,
        idempotency_key=idempotency_key,
    )


class Webhooks:
    """Calls of the tag `webhooks`."""

    def __init__(self, send: Send) -> None:
        self._send = send

    def list_webhooks(
        self,
        *,
        page: Optional[int] = None,
        limit: Optional[int] = None,
    ) -> WebhookList:
        """List webhooks.

        Returns the account's webhooks, newest first."""
        response = self._send(
            _list_webhooks(
                page=page,
                limit=limit,
            )
        )
        return WebhookList.from_dict(response.json())

    def iter_webhooks(
        self,
        *,
        limit: Optional[int] = None,
    ) -> Iterator[Webhook]:
        """List webhooks, page after page.

        Returns the account's webhooks, newest first."""
        for response in pages(
            self._send,
            _list_webhooks(
                limit=limit,
            ),
        ):
            for each in WebhookList.from_dict(response.json()).data.webhooks:
                yield each

    def register_webhook(
        self,
        body: RegisterWebhook,
        *,
        idempotency_key: Optional[str] = None,
    ) -> RegisteredWebhook:
        """Register a webhook.

        Creates a webhook. Its token is shown only in this response, which has no `success` and `data` wrapper. An account
        can have at most 20 webhooks. To verify deliveries, see [Receiving webhooks](/docs/guides/webhooks)."""
        response = self._send(
            _register_webhook(
                body,
                idempotency_key=idempotency_key,
            )
        )
        return RegisteredWebhook.from_dict(response.json())

    def count_attempts_by_webhook(
        self,
        *,
        days: Optional[int] = None,
    ) -> AttemptsByWebhookReply:
        """Count the attempts of all webhooks by day.

        Returns the number of delivery attempts of each day (UTC) up to today, and how long they took, for each webhook of the
        account. Deleted webhooks are left out."""
        response = self._send(
            _count_attempts_by_webhook(
                days=days,
            )
        )
        return AttemptsByWebhookReply.from_dict(response.json())

    def get_webhook(
        self,
        id: int,
    ) -> WebhookReply:
        """Retrieve a webhook.

        Returns the webhook without its token."""
        response = self._send(
            _get_webhook(
                id,
            )
        )
        return WebhookReply.from_dict(response.json())

    def change_webhook(
        self,
        id: int,
        body: Optional[ChangeWebhook] = None,
    ) -> WebhookReply:
        """Change a webhook.

        Changes the given fields. With `credential_id`, the credential's signing secret becomes the token. A linked webhook
        cannot be unlinked. Linking a webhook, or changing the `url` of a linked one, requires the role owner or a request
        made with that credential. The reason is that the URL receives the secret."""
        response = self._send(
            _change_webhook(
                id,
                body,
            )
        )
        return WebhookReply.from_dict(response.json())

    def delete_webhook(
        self,
        id: int,
    ) -> DeletedWebhookReply:
        """Delete a webhook.

        Deletes the webhook. Its pending deliveries fail. The history of its deliveries is kept."""
        response = self._send(
            _delete_webhook(
                id,
            )
        )
        return DeletedWebhookReply.from_dict(response.json())

    def list_webhook_attempts(
        self,
        id: int,
        *,
        outcome: Optional[AttemptOutcome] = None,
        since: Optional[datetime.datetime] = None,
        until: Optional[datetime.datetime] = None,
        before: Optional[str] = None,
        limit: Optional[int] = None,
    ) -> WebhookAttemptsReply:
        """List a webhook's attempts.

        Returns the attempts to deliver events to the webhook, the latest first. A period has the attempts that ended in it, as in
        the counts by day of `GET /api/v1/webhooks/{id}/stats`, or that began in it if they have no recorded outcome. A page ends
        after a bounded scan, so continue until `next_before` is null. Old attempts are removed, and attempts from before the
        release that added this operation are left out."""
        response = self._send(
            _list_webhook_attempts(
                id,
                outcome=outcome,
                since=since,
                until=until,
                before=before,
                limit=limit,
            )
        )
        return WebhookAttemptsReply.from_dict(response.json())

    def explain_webhook(
        self,
        id: int,
        *,
        order_id: int,
    ) -> WebhookExplanationReply:
        """Explain a webhook's deliveries of an order.

        Returns each event of an order, whether the webhook received it, and why or why not. The state of the webhook when
        the event happened decides that, as recorded in the log. Also works for a webhook that is deleted."""
        response = self._send(
            _explain_webhook(
                id,
                order_id=order_id,
            )
        )
        return WebhookExplanationReply.from_dict(response.json())

    def list_webhook_replays(
        self,
        id: int,
        *,
        page: Optional[int] = None,
        limit: Optional[int] = None,
    ) -> WebhookReplayList:
        """List a webhook's replays.

        Returns the replays of a webhook, newest first. Operators of the service can start and cancel replays, too."""
        response = self._send(
            _list_webhook_replays(
                id,
                page=page,
                limit=limit,
            )
        )
        return WebhookReplayList.from_dict(response.json())

    def iter_webhook_replays(
        self,
        id: int,
        *,
        limit: Optional[int] = None,
    ) -> Iterator[WebhookReplay]:
        """List a webhook's replays, page after page.

        Returns the replays of a webhook, newest first. Operators of the service can start and cancel replays, too."""
        for response in pages(
            self._send,
            _list_webhook_replays(
                id,
                limit=limit,
            ),
        ):
            for each in WebhookReplayList.from_dict(response.json()).data.replays:
                yield each

    def replay_events(
        self,
        id: int,
        body: ReplayEvents,
        *,
        idempotency_key: Optional[str] = None,
    ) -> ReplayRequestedReply:
        """Replay events to a webhook.

        Delivers events again that never reached the webhook and have no pending delivery, as far as it is subscribed to their
        types. Creates at most 50 deliveries per second. Each has five attempts of its own, with the same `event_id` and the
        same bytes as before. A webhook can have one running replay at a time.

        With `dry_run`, the events are only counted, and the status is 200. One dry run covers at most 500,000 positions of
        the log. To count a longer range, start the next dry run at `next_position` of the previous one."""
        response = self._send(
            _replay_events(
                id,
                body,
                idempotency_key=idempotency_key,
            )
        )
        return ReplayRequestedReply.from_dict(response.json())

    def rotate_webhook_token(
        self,
        id: int,
        body: Optional[RotateToken] = None,
        *,
        idempotency_key: Optional[str] = None,
    ) -> RotatedTokenReply:
        """Rotate a webhook's token.

        Replaces the webhook's token. Deliveries are signed with the new token from now on. The token is shown only in this
        response. Fails with 409 if the webhook is linked to a credential: rotate the credential's signing secret instead.

        With `previous_valid_hours`, deliveries carry a second signature for that time, made with the replaced token, in the
        header `X-Signature-Previous`. See [Receiving webhooks](/docs/guides/webhooks)."""
        response = self._send(
            _rotate_webhook_token(
                id,
                body,
                idempotency_key=idempotency_key,
            )
        )
        return RotatedTokenReply.from_dict(response.json())

    def count_attempts(
        self,
        id: int,
        *,
        days: Optional[int] = None,
    ) -> WebhookStatisticsReply:
        """Count a webhook's attempts by day.

        Returns the number of delivery attempts of each day (UTC) up to today, and how long they took. Attempts are counted
        since the release that added this operation."""
        response = self._send(
            _count_attempts(
                id,
                days=days,
            )
        )
        return WebhookStatisticsReply.from_dict(response.json())

    def test_webhook(
        self,
        id: int,
        body: Optional[TestWebhook] = None,
        *,
        idempotency_key: Optional[str] = None,
    ) -> WebhookTestReply:
        """Test a webhook.

        Creates a real delivery with sample data: of the given `event_type`, or of the first event type that the webhook is
        subscribed to. Its `order_id` and `data.id` are 0, and `data.reference_code` is `TEST`. It is signed, retried and
        listed like any other delivery."""
        response = self._send(
            _test_webhook(
                id,
                body,
                idempotency_key=idempotency_key,
            )
        )
        return WebhookTestReply.from_dict(response.json())


class AsyncWebhooks:
    """Calls of the tag `webhooks`."""

    def __init__(self, send: AsyncSend) -> None:
        self._send = send

    async def list_webhooks(
        self,
        *,
        page: Optional[int] = None,
        limit: Optional[int] = None,
    ) -> WebhookList:
        """List webhooks.

        Returns the account's webhooks, newest first."""
        response = await self._send(
            _list_webhooks(
                page=page,
                limit=limit,
            )
        )
        return WebhookList.from_dict(response.json())

    async def iter_webhooks(
        self,
        *,
        limit: Optional[int] = None,
    ) -> AsyncIterator[Webhook]:
        """List webhooks, page after page.

        Returns the account's webhooks, newest first."""
        async for response in async_pages(
            self._send,
            _list_webhooks(
                limit=limit,
            ),
        ):
            for each in WebhookList.from_dict(response.json()).data.webhooks:
                yield each

    async def register_webhook(
        self,
        body: RegisterWebhook,
        *,
        idempotency_key: Optional[str] = None,
    ) -> RegisteredWebhook:
        """Register a webhook.

        Creates a webhook. Its token is shown only in this response, which has no `success` and `data` wrapper. An account
        can have at most 20 webhooks. To verify deliveries, see [Receiving webhooks](/docs/guides/webhooks)."""
        response = await self._send(
            _register_webhook(
                body,
                idempotency_key=idempotency_key,
            )
        )
        return RegisteredWebhook.from_dict(response.json())

    async def count_attempts_by_webhook(
        self,
        *,
        days: Optional[int] = None,
    ) -> AttemptsByWebhookReply:
        """Count the attempts of all webhooks by day.

        Returns the number of delivery attempts of each day (UTC) up to today, and how long they took, for each webhook of the
        account. Deleted webhooks are left out."""
        response = await self._send(
            _count_attempts_by_webhook(
                days=days,
            )
        )
        return AttemptsByWebhookReply.from_dict(response.json())

    async def get_webhook(
        self,
        id: int,
    ) -> WebhookReply:
        """Retrieve a webhook.

        Returns the webhook without its token."""
        response = await self._send(
            _get_webhook(
                id,
            )
        )
        return WebhookReply.from_dict(response.json())

    async def change_webhook(
        self,
        id: int,
        body: Optional[ChangeWebhook] = None,
    ) -> WebhookReply:
        """Change a webhook.

        Changes the given fields. With `credential_id`, the credential's signing secret becomes the token. A linked webhook
        cannot be unlinked. Linking a webhook, or changing the `url` of a linked one, requires the role owner or a request
        made with that credential. The reason is that the URL receives the secret."""
        response = await self._send(
            _change_webhook(
                id,
                body,
            )
        )
        return WebhookReply.from_dict(response.json())

    async def delete_webhook(
        self,
        id: int,
    ) -> DeletedWebhookReply:
        """Delete a webhook.

        Deletes the webhook. Its pending deliveries fail. The history of its deliveries is kept."""
        response = await self._send(
            _delete_webhook(
                id,
            )
        )
        return DeletedWebhookReply.from_dict(response.json())

    async def list_webhook_attempts(
        self,
        id: int,
        *,
        outcome: Optional[AttemptOutcome] = None,
        since: Optional[datetime.datetime] = None,
        until: Optional[datetime.datetime] = None,
        before: Optional[str] = None,
        limit: Optional[int] = None,
    ) -> WebhookAttemptsReply:
        """List a webhook's attempts.

        Returns the attempts to deliver events to the webhook, the latest first. A period has the attempts that ended in it, as in
        the counts by day of `GET /api/v1/webhooks/{id}/stats`, or that began in it if they have no recorded outcome. A page ends
        after a bounded scan, so continue until `next_before` is null. Old attempts are removed, and attempts from before the
        release that added this operation are left out."""
        response = await self._send(
            _list_webhook_attempts(
                id,
                outcome=outcome,
                since=since,
                until=until,
                before=before,
                limit=limit,
            )
        )
        return WebhookAttemptsReply.from_dict(response.json())

    async def explain_webhook(
        self,
        id: int,
        *,
        order_id: int,
    ) -> WebhookExplanationReply:
        """Explain a webhook's deliveries of an order.

        Returns each event of an order, whether the webhook received it, and why or why not. The state of the webhook when
        the event happened decides that, as recorded in the log. Also works for a webhook that is deleted."""
        response = await self._send(
            _explain_webhook(
                id,
                order_id=order_id,
            )
        )
        return WebhookExplanationReply.from_dict(response.json())

    async def list_webhook_replays(
        self,
        id: int,
        *,
        page: Optional[int] = None,
        limit: Optional[int] = None,
    ) -> WebhookReplayList:
        """List a webhook's replays.

        Returns the replays of a webhook, newest first. Operators of the service can start and cancel replays, too."""
        response = await self._send(
            _list_webhook_replays(
                id,
                page=page,
                limit=limit,
            )
        )
        return WebhookReplayList.from_dict(response.json())

    async def iter_webhook_replays(
        self,
        id: int,
        *,
        limit: Optional[int] = None,
    ) -> AsyncIterator[WebhookReplay]:
        """List a webhook's replays, page after page.

        Returns the replays of a webhook, newest first. Operators of the service can start and cancel replays, too."""
        async for response in async_pages(
            self._send,
            _list_webhook_replays(
                id,
                limit=limit,
            ),
        ):
            for each in WebhookReplayList.from_dict(response.json()).data.replays:
                yield each

    async def replay_events(
        self,
        id: int,
        body: ReplayEvents,
        *,
        idempotency_key: Optional[str] = None,
    ) -> ReplayRequestedReply:
        """Replay events to a webhook.

        Delivers events again that never reached the webhook and have no pending delivery, as far as it is subscribed to their
        types. Creates at most 50 deliveries per second. Each has five attempts of its own, with the same `event_id` and the
        same bytes as before. A webhook can have one running replay at a time.

        With `dry_run`, the events are only counted, and the status is 200. One dry run covers at most 500,000 positions of
        the log. To count a longer range, start the next dry run at `next_position` of the previous one."""
        response = await self._send(
            _replay_events(
                id,
                body,
                idempotency_key=idempotency_key,
            )
        )
        return ReplayRequestedReply.from_dict(response.json())

    async def rotate_webhook_token(
        self,
        id: int,
        body: Optional[RotateToken] = None,
        *,
        idempotency_key: Optional[str] = None,
    ) -> RotatedTokenReply:
        """Rotate a webhook's token.

        Replaces the webhook's token. Deliveries are signed with the new token from now on. The token is shown only in this
        response. Fails with 409 if the webhook is linked to a credential: rotate the credential's signing secret instead.

        With `previous_valid_hours`, deliveries carry a second signature for that time, made with the replaced token, in the
        header `X-Signature-Previous`. See [Receiving webhooks](/docs/guides/webhooks)."""
        response = await self._send(
            _rotate_webhook_token(
                id,
                body,
                idempotency_key=idempotency_key,
            )
        )
        return RotatedTokenReply.from_dict(response.json())

    async def count_attempts(
        self,
        id: int,
        *,
        days: Optional[int] = None,
    ) -> WebhookStatisticsReply:
        """Count a webhook's attempts by day.

        Returns the number of delivery attempts of each day (UTC) up to today, and how long they took. Attempts are counted
        since the release that added this operation."""
        response = await self._send(
            _count_attempts(
                id,
                days=days,
            )
        )
        return WebhookStatisticsReply.from_dict(response.json())

    async def test_webhook(
        self,
        id: int,
        body: Optional[TestWebhook] = None,
        *,
        idempotency_key: Optional[str] = None,
    ) -> WebhookTestReply:
        """Test a webhook.

        Creates a real delivery with sample data: of the given `event_type`, or of the first event type that the webhook is
        subscribed to. Its `order_id` and `data.id` are 0, and `data.reference_code` is `TEST`. It is signed, retried and
        listed like any other delivery."""
        response = await self._send(
            _test_webhook(
                id,
                body,
                idempotency_key=idempotency_key,
            )
        )
        return WebhookTestReply.from_dict(response.json())
