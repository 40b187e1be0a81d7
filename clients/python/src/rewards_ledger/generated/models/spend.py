from collections.abc import Mapping
from typing import Any, TypeVar

from attrs import define as _attrs_define
from attrs import field as _attrs_field

T = TypeVar("T", bound="Spend")


@_attrs_define
class Spend:
    """Amounts that orders moved on a day, in one currency.

    Attributes:
        currency (str): Currency of the amounts, as an ISO 4217 code.
        refunded (str): Amount returned for cancelled orders, whenever they were placed.
        spent (str): Amount debited for orders.
    """

    currency: str
    refunded: str
    spent: str
    additional_properties: dict[str, Any] = _attrs_field(init=False, factory=dict)

    def to_dict(self) -> dict[str, Any]:
        currency = self.currency

        refunded = self.refunded

        spent = self.spent

        field_dict: dict[str, Any] = {}
        field_dict.update(self.additional_properties)
        field_dict.update(
            {
                "currency": currency,
                "refunded": refunded,
                "spent": spent,
            }
        )

        return field_dict

    @classmethod
    def from_dict(cls: type[T], src_dict: Mapping[str, Any]) -> T:
        d = dict(src_dict)
        currency = d.pop("currency")

        refunded = d.pop("refunded")

        spent = d.pop("spent")

        spend = cls(
            currency=currency,
            refunded=refunded,
            spent=spent,
        )

        spend.additional_properties = d
        return spend

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
