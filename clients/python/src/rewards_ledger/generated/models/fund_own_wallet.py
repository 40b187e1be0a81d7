from collections.abc import Mapping
from typing import Any, TypeVar, Union, cast

from attrs import define as _attrs_define

T = TypeVar("T", bound="FundOwnWallet")


@_attrs_define
class FundOwnWallet:
    """Test money to add to a wallet.

    Attributes:
        amount (Union[float, str]): Amount to add, greater than `0.00`.
    """

    amount: Union[float, str]

    def to_dict(self) -> dict[str, Any]:
        amount: Union[float, str]
        amount = self.amount

        field_dict: dict[str, Any] = {}

        field_dict.update(
            {
                "amount": amount,
            }
        )

        return field_dict

    @classmethod
    def from_dict(cls: type[T], src_dict: Mapping[str, Any]) -> T:
        d = dict(src_dict)

        def _parse_amount(data: object) -> Union[float, str]:
            return cast(Union[float, str], data)

        amount = _parse_amount(d.pop("amount"))

        fund_own_wallet = cls(
            amount=amount,
        )

        return fund_own_wallet
