from collections.abc import Mapping
from typing import Any, TypeVar, Union, cast

from attrs import define as _attrs_define

from ..models.beneficiary_type import BeneficiaryType
from ..types import UNSET, Unset

T = TypeVar("T", bound="AddBeneficiary")


@_attrs_define
class AddBeneficiary:
    """A new beneficiary.

    Attributes:
        account_number (str): IBAN or account number without spaces, or a telephone number for a mobile wallet.
            Responses contain its last four
            characters only.
        country (str): Country of the account, as an ISO 3166-1 alpha-2 code.
        currency (str): Currency of the account, as an ISO 4217 code. Payouts are made from the wallet in this currency.
            It must have at
            most two decimals.
        name (str): Name of the person or company that receives the money.
        type_ (BeneficiaryType): Type of account that receives a payout.

            - `BANK`: a bank account.
            - `MOBILE_WALLET`: a mobile wallet, identified by a telephone number.
        bank_code (Union[None, Unset, str]): BIC, sort code or name of the mobile wallet's provider, where one is
            needed.
    """

    account_number: str
    country: str
    currency: str
    name: str
    type_: BeneficiaryType
    bank_code: Union[None, Unset, str] = UNSET

    def to_dict(self) -> dict[str, Any]:
        account_number = self.account_number

        country = self.country

        currency = self.currency

        name = self.name

        type_ = self.type_.value

        bank_code: Union[None, Unset, str]
        if isinstance(self.bank_code, Unset):
            bank_code = UNSET
        else:
            bank_code = self.bank_code

        field_dict: dict[str, Any] = {}

        field_dict.update(
            {
                "account_number": account_number,
                "country": country,
                "currency": currency,
                "name": name,
                "type": type_,
            }
        )
        if bank_code is not UNSET:
            field_dict["bank_code"] = bank_code

        return field_dict

    @classmethod
    def from_dict(cls: type[T], src_dict: Mapping[str, Any]) -> T:
        d = dict(src_dict)
        account_number = d.pop("account_number")

        country = d.pop("country")

        currency = d.pop("currency")

        name = d.pop("name")

        type_ = BeneficiaryType(d.pop("type"))

        def _parse_bank_code(data: object) -> Union[None, Unset, str]:
            if data is None:
                return data
            if isinstance(data, Unset):
                return data
            return cast(Union[None, Unset, str], data)

        bank_code = _parse_bank_code(d.pop("bank_code", UNSET))

        add_beneficiary = cls(
            account_number=account_number,
            country=country,
            currency=currency,
            name=name,
            type_=type_,
            bank_code=bank_code,
        )

        return add_beneficiary
