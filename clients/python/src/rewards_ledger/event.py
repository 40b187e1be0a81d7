"""Events, as webhooks and the event feed deliver them."""

import json
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Optional

from dateutil.parser import isoparse

from .generated.models.event_page import EventPage
from .generated.models.webhook_order import WebhookOrder


@dataclass(frozen=True)
class Event:
    """An event of the account. It can arrive more than once: deduplicate on `event_id`."""

    event_id: str
    #: For example `order.delivered`. New types may be added: ignore those that you do not know.
    event_type: str
    created_at: datetime
    #: Payload, with all fields that the service sent.
    data: dict[str, Any]

    @property
    def order(self) -> Optional[WebhookOrder]:
        """The order right after the event, or None if the event is about something else."""
        return WebhookOrder.from_dict(self.data) if self.event_type.startswith("order.") else None

    @classmethod
    def from_dict(cls, envelope: Any) -> "Event":
        """Reads an envelope.

        Raises ValueError if it is none.
        """
        try:
            event_id, event_type, data = envelope["event_id"], envelope["event_type"], envelope["data"]
            created_at = isoparse(envelope["created_at"])
        except (KeyError, TypeError) as error:
            raise ValueError("not an event envelope") from error
        if not (isinstance(event_id, str) and isinstance(event_type, str) and isinstance(data, dict)):
            raise ValueError("not an event envelope")
        return cls(event_id, event_type, created_at, data)

    @classmethod
    def from_json(cls, body: bytes) -> "Event":
        """Reads an envelope from the body of a webhook request.

        Raises ValueError if it is none.
        """
        return cls.from_dict(json.loads(body))


@dataclass(frozen=True)
class EventBatch:
    """Consecutive events, and the cursor behind them."""

    events: list[Event]
    #: Place of each event in the order of all events, as the header `X-Event-Sequence` of a webhook says it.
    sequences: list[int]
    #: Cursor to store after the events are processed: the next run continues behind it.
    cursor: str
    #: Whether the log goes on behind the cursor.
    has_more: bool

    @classmethod
    def from_page(cls, page: EventPage) -> "EventBatch":
        """Reads a part of the event feed."""
        return cls([Event.from_dict(envelope) for envelope in page.events], page.sequences, page.cursor, page.has_more)
