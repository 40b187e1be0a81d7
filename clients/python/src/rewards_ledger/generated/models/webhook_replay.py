import datetime
from collections.abc import Mapping
from typing import Any, TypeVar

from attrs import define as _attrs_define
from attrs import field as _attrs_field
from dateutil.parser import isoparse

from ..models.replay_status import ReplayStatus

T = TypeVar("T", bound="WebhookReplay")


@_attrs_define
class WebhookReplay:
    """A replay of events to a webhook, and the outcome of its deliveries.

    Attributes:
        created_at (datetime.datetime): Time at which the replay was requested.
        delivered_count (int): Number of these deliveries that were answered with a 2xx status.
        deliveries (int): Number of deliveries created so far.
        failed_count (int): Number of these deliveries that failed and are not retried.
        id (int): Unique identifier of the replay.
        pending_count (int): Number of these deliveries that wait for an attempt.
        progress_percent (int): Share of the replay's part of the log that is examined so far, in percent, from 0 to
            100. A completed replay has 100.
        status (ReplayStatus): Status of a replay.

            - `RUNNING`: the replay is creating deliveries.
            - `COMPLETED`: the replay has created all its deliveries.
            - `CANCELLED`: the replay was cancelled. Deliveries that were still pending have failed.
            - `FAILED`: the webhook was deactivated or deleted before the replay completed.
        updated_at (datetime.datetime): Time of the replay's last progress.
        webhook_id (int): Webhook that receives the deliveries.
    """

    created_at: datetime.datetime
    delivered_count: int
    deliveries: int
    failed_count: int
    id: int
    pending_count: int
    progress_percent: int
    status: ReplayStatus
    updated_at: datetime.datetime
    webhook_id: int
    additional_properties: dict[str, Any] = _attrs_field(init=False, factory=dict)

    def to_dict(self) -> dict[str, Any]:
        created_at = self.created_at.isoformat()

        delivered_count = self.delivered_count

        deliveries = self.deliveries

        failed_count = self.failed_count

        id = self.id

        pending_count = self.pending_count

        progress_percent = self.progress_percent

        status = self.status.value

        updated_at = self.updated_at.isoformat()

        webhook_id = self.webhook_id

        field_dict: dict[str, Any] = {}
        field_dict.update(self.additional_properties)
        field_dict.update(
            {
                "created_at": created_at,
                "delivered_count": delivered_count,
                "deliveries": deliveries,
                "failed_count": failed_count,
                "id": id,
                "pending_count": pending_count,
                "progress_percent": progress_percent,
                "status": status,
                "updated_at": updated_at,
                "webhook_id": webhook_id,
            }
        )

        return field_dict

    @classmethod
    def from_dict(cls: type[T], src_dict: Mapping[str, Any]) -> T:
        d = dict(src_dict)
        created_at = isoparse(d.pop("created_at"))

        delivered_count = d.pop("delivered_count")

        deliveries = d.pop("deliveries")

        failed_count = d.pop("failed_count")

        id = d.pop("id")

        pending_count = d.pop("pending_count")

        progress_percent = d.pop("progress_percent")

        status = ReplayStatus(d.pop("status"))

        updated_at = isoparse(d.pop("updated_at"))

        webhook_id = d.pop("webhook_id")

        webhook_replay = cls(
            created_at=created_at,
            delivered_count=delivered_count,
            deliveries=deliveries,
            failed_count=failed_count,
            id=id,
            pending_count=pending_count,
            progress_percent=progress_percent,
            status=status,
            updated_at=updated_at,
            webhook_id=webhook_id,
        )

        webhook_replay.additional_properties = d
        return webhook_replay

    @property
    def additional_keys(self) -> list[str]:
        return list(self.additional_properties.keys())

    def __getitem__(self, key: str) -> Any:
        return self.additional_properties[key]

    def __setitem__(self, key: str, value: Any) -> None:
        self.additional_properties[key] = value

    def __delitem__(self, key: str) -> None:
        del self.additional_properties[key]

    def __contains__(self, key: str) -> bool:
        return key in self.additional_properties
