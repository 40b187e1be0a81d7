"""Calls of the tag `events`."""

import datetime
from typing import Optional

from ...call import AsyncSend, Call, Send
from ..models.event_page_reply import EventPageReply


def _list_events(
    *,
    after: Optional[str] = None,
    since: Optional[datetime.datetime] = None,
    wait: Optional[int] = None,
    types: Optional[str] = None,
    limit: Optional[int] = None,
) -> Call:
    return Call(
        "GET",
        "/api/v1/events",
        params={
            "after": after,
            "since": since,
            "wait": wait,
            "types": types,
            "limit": limit,
        },
    )


class Events:
    """Calls of the tag `events`."""

    def __init__(self, send: Send) -> None:
        self._send = send

    def list_events(
        self,
        *,
        after: Optional[str] = None,
        since: Optional[datetime.datetime] = None,
        wait: Optional[int] = None,
        types: Optional[str] = None,
        limit: Optional[int] = None,
    ) -> EventPageReply:
        """List events.

        Returns the account's events in the order in which they happened, oldest first, with the same envelopes as webhooks.
        No webhook is needed. Begin without `after`, with `since` to begin at a time, or with `after=latest` to skip the past.
        Continue with the `cursor` of each response. A cursor survives restarts and upgrades of the service. Events are kept
        as long as the ledger exists.

        With `wait`, a request that finds no event waits for one. It is answered as soon as there is one, or with an empty
        list after that time. At most 10 requests of an account can wait at a time. Further ones fail with 503.

        If the request is signed, the service signs the page with the same secret, as it signs a webhook. Verify `X-Signature`
        and `X-Timestamp` over the raw body. See [Receiving webhooks](/docs/guides/webhooks)."""
        response = self._send(
            _list_events(
                after=after,
                since=since,
                wait=wait,
                types=types,
                limit=limit,
            )
        )
        return EventPageReply.from_dict(response.json())


class AsyncEvents:
    """Calls of the tag `events`."""

    def __init__(self, send: AsyncSend) -> None:
        self._send = send

    async def list_events(
        self,
        *,
        after: Optional[str] = None,
        since: Optional[datetime.datetime] = None,
        wait: Optional[int] = None,
        types: Optional[str] = None,
        limit: Optional[int] = None,
    ) -> EventPageReply:
        """List events.

        Returns the account's events in the order in which they happened, oldest first, with the same envelopes as webhooks.
        No webhook is needed. Begin without `after`, with `since` to begin at a time, or with `after=latest` to skip the past.
        Continue with the `cursor` of each response. A cursor survives restarts and upgrades of the service. Events are kept
        as long as the ledger exists.

        With `wait`, a request that finds no event waits for one. It is answered as soon as there is one, or with an empty
        list after that time. At most 10 requests of an account can wait at a time. Further ones fail with 503.

        If the request is signed, the service signs the page with the same secret, as it signs a webhook. Verify `X-Signature`
        and `X-Timestamp` over the raw body. See [Receiving webhooks](/docs/guides/webhooks)."""
        response = await self._send(
            _list_events(
                after=after,
                since=since,
                wait=wait,
                types=types,
                limit=limit,
            )
        )
        return EventPageReply.from_dict(response.json())
