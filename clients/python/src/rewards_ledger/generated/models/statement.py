import datetime
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, TypeVar, Union, cast

from attrs import define as _attrs_define
from attrs import field as _attrs_field
from dateutil.parser import isoparse

if TYPE_CHECKING:
    from ..models.transaction import Transaction


T = TypeVar("T", bound="Statement")


@_attrs_define
class Statement:
    """Statement of a wallet for a period. `opening_balance` + `total_credits` + `total_refunds` − `total_debits` =
    `closing_balance`.

        Attributes:
            closing_balance (str): Balance at the end of the period.
            currency (str): Currency of the wallet, as an ISO 4217 code.
            from_ (Union[None, datetime.datetime]): Start of the period; null for the opening of the wallet.
            opening_balance (str): Balance at the start of the period.
            to (Union[None, datetime.datetime]): End of the period; null for the latest transaction.
            total_credits (str): Sum of credits in the period, excluding refunds.
            total_debits (str): Sum of debits in the period.
            total_refunds (str): Sum of refunds in the period, for orders and payouts.
            transactions (list['Transaction']): Transactions of the period, oldest first.
            wallet_id (int): Unique identifier of the wallet.
    """

    closing_balance: str
    currency: str
    from_: Union[None, datetime.datetime]
    opening_balance: str
    to: Union[None, datetime.datetime]
    total_credits: str
    total_debits: str
    total_refunds: str
    transactions: list["Transaction"]
    wallet_id: int
    additional_properties: dict[str, Any] = _attrs_field(init=False, factory=dict)

    def to_dict(self) -> dict[str, Any]:
        closing_balance = self.closing_balance

        currency = self.currency

        from_: Union[None, str]
        if isinstance(self.from_, datetime.datetime):
            from_ = self.from_.isoformat()
        else:
            from_ = self.from_

        opening_balance = self.opening_balance

        to: Union[None, str]
        if isinstance(self.to, datetime.datetime):
            to = self.to.isoformat()
        else:
            to = self.to

        total_credits = self.total_credits

        total_debits = self.total_debits

        total_refunds = self.total_refunds

        transactions = []
        for transactions_item_data in self.transactions:
            transactions_item = transactions_item_data.to_dict()
            transactions.append(transactions_item)

        wallet_id = self.wallet_id

        field_dict: dict[str, Any] = {}
        field_dict.update(self.additional_properties)
        field_dict.update(
            {
                "closing_balance": closing_balance,
                "currency": currency,
                "from": from_,
                "opening_balance": opening_balance,
                "to": to,
                "total_credits": total_credits,
                "total_debits": total_debits,
                "total_refunds": total_refunds,
                "transactions": transactions,
                "wallet_id": wallet_id,
            }
        )

        return field_dict

    @classmethod
    def from_dict(cls: type[T], src_dict: Mapping[str, Any]) -> T:
        from ..models.transaction import Transaction

        d = dict(src_dict)
        closing_balance = d.pop("closing_balance")

        currency = d.pop("currency")

        def _parse_from_(data: object) -> Union[None, datetime.datetime]:
            if data is None:
                return data
            try:
                if not isinstance(data, str):
                    raise TypeError()
                from_type_0 = isoparse(data)

                return from_type_0
            except:  # noqa: E722
                pass
            return cast(Union[None, datetime.datetime], data)

        from_ = _parse_from_(d.pop("from"))

        opening_balance = d.pop("opening_balance")

        def _parse_to(data: object) -> Union[None, datetime.datetime]:
            if data is None:
                return data
            try:
                if not isinstance(data, str):
                    raise TypeError()
                to_type_0 = isoparse(data)

                return to_type_0
            except:  # noqa: E722
                pass
            return cast(Union[None, datetime.datetime], data)

        to = _parse_to(d.pop("to"))

        total_credits = d.pop("total_credits")

        total_debits = d.pop("total_debits")

        total_refunds = d.pop("total_refunds")

        transactions = []
        _transactions = d.pop("transactions")
        for transactions_item_data in _transactions:
            transactions_item = Transaction.from_dict(transactions_item_data)

            transactions.append(transactions_item)

        wallet_id = d.pop("wallet_id")

        statement = cls(
            closing_balance=closing_balance,
            currency=currency,
            from_=from_,
            opening_balance=opening_balance,
            to=to,
            total_credits=total_credits,
            total_debits=total_debits,
            total_refunds=total_refunds,
            transactions=transactions,
            wallet_id=wallet_id,
        )

        statement.additional_properties = d
        return statement

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
