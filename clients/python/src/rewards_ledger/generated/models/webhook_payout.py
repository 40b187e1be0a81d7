import datetime
from collections.abc import Mapping
from typing import Any, TypeVar, Union, cast

from attrs import define as _attrs_define
from attrs import field as _attrs_field
from dateutil.parser import isoparse

from ..models.payout_status import PayoutStatus

T = TypeVar("T", bound="WebhookPayout")


@_attrs_define
class WebhookPayout:
    """State of a payout right after the event. New fields may be added; ignore unknown fields.

    Attributes:
        amount (str): Amount debited from the wallet.
        beneficiary_id (int): Unique identifier of the beneficiary that receives the money.
        client_reference (Union[None, str]): Your own reference for the payout, as sent when it was requested.
        created_at (datetime.datetime): Time at which the payout was requested.
        currency (str): Currency as an ISO 4217 code.
        id (int): Unique identifier of the payout.
        settled_at (Union[None, datetime.datetime]): Time at which the payout became `PAID`, `FAILED` or `CANCELLED`;
            null until then.
        status (PayoutStatus): Status of a payout. `PAID`, `FAILED` and `CANCELLED` are final.

            - `PENDING`: debited from the wallet and waiting for an operator to settle it.
            - `PAID`: the money was sent.
            - `FAILED`: the money could not be sent and was returned to the wallet.
            - `CANCELLED`: cancelled by the client, and the money was returned to the wallet.
        wallet_id (int): Unique identifier of the wallet that was debited.
    """

    amount: str
    beneficiary_id: int
    client_reference: Union[None, str]
    created_at: datetime.datetime
    currency: str
    id: int
    settled_at: Union[None, datetime.datetime]
    status: PayoutStatus
    wallet_id: int
    additional_properties: dict[str, Any] = _attrs_field(init=False, factory=dict)

    def to_dict(self) -> dict[str, Any]:
        amount = self.amount

        beneficiary_id = self.beneficiary_id

        client_reference: Union[None, str]
        client_reference = self.client_reference

        created_at = self.created_at.isoformat()

        currency = self.currency

        id = self.id

        settled_at: Union[None, str]
        if isinstance(self.settled_at, datetime.datetime):
            settled_at = self.settled_at.isoformat()
        else:
            settled_at = self.settled_at

        status = self.status.value

        wallet_id = self.wallet_id

        field_dict: dict[str, Any] = {}
        field_dict.update(self.additional_properties)
        field_dict.update(
            {
                "amount": amount,
                "beneficiary_id": beneficiary_id,
                "client_reference": client_reference,
                "created_at": created_at,
                "currency": currency,
                "id": id,
                "settled_at": settled_at,
                "status": status,
                "wallet_id": wallet_id,
            }
        )

        return field_dict

    @classmethod
    def from_dict(cls: type[T], src_dict: Mapping[str, Any]) -> T:
        d = dict(src_dict)
        amount = d.pop("amount")

        beneficiary_id = d.pop("beneficiary_id")

        def _parse_client_reference(data: object) -> Union[None, str]:
            if data is None:
                return data
            return cast(Union[None, str], data)

        client_reference = _parse_client_reference(d.pop("client_reference"))

        created_at = isoparse(d.pop("created_at"))

        currency = d.pop("currency")

        id = d.pop("id")

        def _parse_settled_at(data: object) -> Union[None, datetime.datetime]:
            if data is None:
                return data
            try:
                if not isinstance(data, str):
                    raise TypeError()
                settled_at_type_0 = isoparse(data)

                return settled_at_type_0
            except:  # noqa: E722
                pass
            return cast(Union[None, datetime.datetime], data)

        settled_at = _parse_settled_at(d.pop("settled_at"))

        status = PayoutStatus(d.pop("status"))

        wallet_id = d.pop("wallet_id")

        webhook_payout = cls(
            amount=amount,
            beneficiary_id=beneficiary_id,
            client_reference=client_reference,
            created_at=created_at,
            currency=currency,
            id=id,
            settled_at=settled_at,
            status=status,
            wallet_id=wallet_id,
        )

        webhook_payout.additional_properties = d
        return webhook_payout

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
