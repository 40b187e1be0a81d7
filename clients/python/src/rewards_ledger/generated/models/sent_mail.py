import datetime
from collections.abc import Mapping
from typing import Any, TypeVar

from attrs import define as _attrs_define
from attrs import field as _attrs_field
from dateutil.parser import isoparse

T = TypeVar("T", bound="SentMail")


@_attrs_define
class SentMail:
    """A mail that the sandbox has sent.

    Attributes:
        sent_at (datetime.datetime): Time at which the mail was sent.
        subject (str): Subject of the mail.
        text (str): Plain text of the mail, with its link.
        to (str): Email address of the recipient.
    """

    sent_at: datetime.datetime
    subject: str
    text: str
    to: str
    additional_properties: dict[str, Any] = _attrs_field(init=False, factory=dict)

    def to_dict(self) -> dict[str, Any]:
        sent_at = self.sent_at.isoformat()

        subject = self.subject

        text = self.text

        to = self.to

        field_dict: dict[str, Any] = {}
        field_dict.update(self.additional_properties)
        field_dict.update(
            {
                "sent_at": sent_at,
                "subject": subject,
                "text": text,
                "to": to,
            }
        )

        return field_dict

    @classmethod
    def from_dict(cls: type[T], src_dict: Mapping[str, Any]) -> T:
        d = dict(src_dict)
        sent_at = isoparse(d.pop("sent_at"))

        subject = d.pop("subject")

        text = d.pop("text")

        to = d.pop("to")

        sent_mail = cls(
            sent_at=sent_at,
            subject=subject,
            text=text,
            to=to,
        )

        sent_mail.additional_properties = d
        return sent_mail

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
