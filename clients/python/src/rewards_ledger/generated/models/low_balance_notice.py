from collections.abc import Mapping
from typing import Any, TypeVar, Union, cast

from attrs import define as _attrs_define
from attrs import field as _attrs_field

T = TypeVar("T", bound="LowBalanceNotice")


@_attrs_define
class LowBalanceNotice:
    """Notice of a low balance.

    Attributes:
        below (Union[None, str]): Amount that the balance must fall below; null for no notices.
        wallet_id (int): Wallet that the notice is about.
    """

    below: Union[None, str]
    wallet_id: int
    additional_properties: dict[str, Any] = _attrs_field(init=False, factory=dict)

    def to_dict(self) -> dict[str, Any]:
        below: Union[None, str]
        below = self.below

        wallet_id = self.wallet_id

        field_dict: dict[str, Any] = {}
        field_dict.update(self.additional_properties)
        field_dict.update(
            {
                "below": below,
                "wallet_id": wallet_id,
            }
        )

        return field_dict

    @classmethod
    def from_dict(cls: type[T], src_dict: Mapping[str, Any]) -> T:
        d = dict(src_dict)

        def _parse_below(data: object) -> Union[None, str]:
            if data is None:
                return data
            return cast(Union[None, str], data)

        below = _parse_below(d.pop("below"))

        wallet_id = d.pop("wallet_id")

        low_balance_notice = cls(
            below=below,
            wallet_id=wallet_id,
        )

        low_balance_notice.additional_properties = d
        return low_balance_notice

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
