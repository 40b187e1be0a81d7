from collections.abc import Mapping
from typing import Any, TypeVar, Union, cast

from attrs import define as _attrs_define

from ..types import UNSET, Unset

T = TypeVar("T", bound="RequestPayout")


@_attrs_define
class RequestPayout:
    """A payout to request. The wallet is debited at once; an operator sends the money.

    Attributes:
        amount (Union[float, str]): Amount to pay, greater than `0.00`.
        beneficiary_id (int): Beneficiary that receives the money.
        wallet_id (int): Wallet to pay from. It must be in the beneficiary's currency.
        client_reference (Union[None, Unset, str]): Your own reference for the payout, unique within the account
            forever. Repeating the same request returns the
            existing payout with status 200. A different request with the same reference fails with 409
            `E_DUPLICATE_REFERENCE`.
    """

    amount: Union[float, str]
    beneficiary_id: int
    wallet_id: int
    client_reference: Union[None, Unset, str] = UNSET

    def to_dict(self) -> dict[str, Any]:
        amount: Union[float, str]
        amount = self.amount

        beneficiary_id = self.beneficiary_id

        wallet_id = self.wallet_id

        client_reference: Union[None, Unset, str]
        if isinstance(self.client_reference, Unset):
            client_reference = UNSET
        else:
            client_reference = self.client_reference

        field_dict: dict[str, Any] = {}

        field_dict.update(
            {
                "amount": amount,
                "beneficiary_id": beneficiary_id,
                "wallet_id": wallet_id,
            }
        )
        if client_reference is not UNSET:
            field_dict["client_reference"] = client_reference

        return field_dict

    @classmethod
    def from_dict(cls: type[T], src_dict: Mapping[str, Any]) -> T:
        d = dict(src_dict)

        def _parse_amount(data: object) -> Union[float, str]:
            return cast(Union[float, str], data)

        amount = _parse_amount(d.pop("amount"))

        beneficiary_id = d.pop("beneficiary_id")

        wallet_id = d.pop("wallet_id")

        def _parse_client_reference(data: object) -> Union[None, Unset, str]:
            if data is None:
                return data
            if isinstance(data, Unset):
                return data
            return cast(Union[None, Unset, str], data)

        client_reference = _parse_client_reference(d.pop("client_reference", UNSET))

        request_payout = cls(
            amount=amount,
            beneficiary_id=beneficiary_id,
            wallet_id=wallet_id,
            client_reference=client_reference,
        )

        return request_payout
