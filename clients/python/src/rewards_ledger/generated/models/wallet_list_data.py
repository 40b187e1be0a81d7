from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, TypeVar

from attrs import define as _attrs_define
from attrs import field as _attrs_field

if TYPE_CHECKING:
    from ..models.wallet import Wallet


T = TypeVar("T", bound="WalletListData")


@_attrs_define
class WalletListData:
    """One page of the list.

    Attributes:
        wallets (list['Wallet']):
    """

    wallets: list["Wallet"]
    additional_properties: dict[str, Any] = _attrs_field(init=False, factory=dict)

    def to_dict(self) -> dict[str, Any]:
        wallets = []
        for wallets_item_data in self.wallets:
            wallets_item = wallets_item_data.to_dict()
            wallets.append(wallets_item)

        field_dict: dict[str, Any] = {}
        field_dict.update(self.additional_properties)
        field_dict.update(
            {
                "wallets": wallets,
            }
        )

        return field_dict

    @classmethod
    def from_dict(cls: type[T], src_dict: Mapping[str, Any]) -> T:
        from ..models.wallet import Wallet

        d = dict(src_dict)
        wallets = []
        _wallets = d.pop("wallets")
        for wallets_item_data in _wallets:
            wallets_item = Wallet.from_dict(wallets_item_data)

            wallets.append(wallets_item)

        wallet_list_data = cls(
            wallets=wallets,
        )

        wallet_list_data.additional_properties = d
        return wallet_list_data

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
