import datetime
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, TypeVar
from uuid import UUID

from attrs import define as _attrs_define
from attrs import field as _attrs_field
from dateutil.parser import isoparse

from ..models.webhook_payout_envelope_event_type import WebhookPayoutEnvelopeEventType

if TYPE_CHECKING:
    from ..models.webhook_payout import WebhookPayout


T = TypeVar("T", bound="WebhookPayoutEnvelope")


@_attrs_define
class WebhookPayoutEnvelope:
    """Body of a webhook request. Its bytes are the same in every attempt.

    Attributes:
        created_at (datetime.datetime): Time of the event.
        data (WebhookPayout): State of a payout right after the event. New fields may be added; ignore unknown fields.
        event_id (UUID): Unique identifier of the event. Use it to detect duplicates.
        event_type (WebhookPayoutEnvelopeEventType): Type of the event. New types may be added; ignore types that you do
            not know.
    """

    created_at: datetime.datetime
    data: "WebhookPayout"
    event_id: UUID
    event_type: WebhookPayoutEnvelopeEventType
    additional_properties: dict[str, Any] = _attrs_field(init=False, factory=dict)

    def to_dict(self) -> dict[str, Any]:
        created_at = self.created_at.isoformat()

        data = self.data.to_dict()

        event_id = str(self.event_id)

        event_type = self.event_type.value

        field_dict: dict[str, Any] = {}
        field_dict.update(self.additional_properties)
        field_dict.update(
            {
                "created_at": created_at,
                "data": data,
                "event_id": event_id,
                "event_type": event_type,
            }
        )

        return field_dict

    @classmethod
    def from_dict(cls: type[T], src_dict: Mapping[str, Any]) -> T:
        from ..models.webhook_payout import WebhookPayout

        d = dict(src_dict)
        created_at = isoparse(d.pop("created_at"))

        data = WebhookPayout.from_dict(d.pop("data"))

        event_id = UUID(d.pop("event_id"))

        event_type = WebhookPayoutEnvelopeEventType(d.pop("event_type"))

        webhook_payout_envelope = cls(
            created_at=created_at,
            data=data,
            event_id=event_id,
            event_type=event_type,
        )

        webhook_payout_envelope.additional_properties = d
        return webhook_payout_envelope

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
