import datetime
from collections.abc import Mapping
from typing import Any, TypeVar, Union, cast

from attrs import define as _attrs_define
from attrs import field as _attrs_field
from dateutil.parser import isoparse

from ..models.beneficiary_type import BeneficiaryType

T = TypeVar("T", bound="Beneficiary")


@_attrs_define
class Beneficiary:
    """A recipient of payouts.

    Attributes:
        account_last4 (str): Last four characters of the account number.
        bank_code (Union[None, str]): BIC, sort code or name of the mobile wallet's provider.
        country (str): Country of the account, as an ISO 3166-1 alpha-2 code.
        created_at (datetime.datetime): Time at which the beneficiary was added.
        currency (str): Currency of the account, as an ISO 4217 code.
        id (int): Unique identifier of the beneficiary.
        name (str): Name of the person or company that receives the money.
        type_ (BeneficiaryType): Type of account that receives a payout.

            - `BANK`: a bank account.
            - `MOBILE_WALLET`: a mobile wallet, identified by a telephone number.
    """

    account_last4: str
    bank_code: Union[None, str]
    country: str
    created_at: datetime.datetime
    currency: str
    id: int
    name: str
    type_: BeneficiaryType
    additional_properties: dict[str, Any] = _attrs_field(init=False, factory=dict)

    def to_dict(self) -> dict[str, Any]:
        account_last4 = self.account_last4

        bank_code: Union[None, str]
        bank_code = self.bank_code

        country = self.country

        created_at = self.created_at.isoformat()

        currency = self.currency

        id = self.id

        name = self.name

        type_ = self.type_.value

        field_dict: dict[str, Any] = {}
        field_dict.update(self.additional_properties)
        field_dict.update(
            {
                "account_last4": account_last4,
                "bank_code": bank_code,
                "country": country,
                "created_at": created_at,
                "currency": currency,
                "id": id,
                "name": name,
                "type": type_,
            }
        )

        return field_dict

    @classmethod
    def from_dict(cls: type[T], src_dict: Mapping[str, Any]) -> T:
        d = dict(src_dict)
        account_last4 = d.pop("account_last4")

        def _parse_bank_code(data: object) -> Union[None, str]:
            if data is None:
                return data
            return cast(Union[None, str], data)

        bank_code = _parse_bank_code(d.pop("bank_code"))

        country = d.pop("country")

        created_at = isoparse(d.pop("created_at"))

        currency = d.pop("currency")

        id = d.pop("id")

        name = d.pop("name")

        type_ = BeneficiaryType(d.pop("type"))

        beneficiary = cls(
            account_last4=account_last4,
            bank_code=bank_code,
            country=country,
            created_at=created_at,
            currency=currency,
            id=id,
            name=name,
            type_=type_,
        )

        beneficiary.additional_properties = d
        return beneficiary

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
