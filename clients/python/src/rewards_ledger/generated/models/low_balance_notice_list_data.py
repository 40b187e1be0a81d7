from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, TypeVar

from attrs import define as _attrs_define
from attrs import field as _attrs_field

if TYPE_CHECKING:
    from ..models.low_balance_notice import LowBalanceNotice


T = TypeVar("T", bound="LowBalanceNoticeListData")


@_attrs_define
class LowBalanceNoticeListData:
    """One page of the list.

    Attributes:
        notices (list['LowBalanceNotice']):
    """

    notices: list["LowBalanceNotice"]
    additional_properties: dict[str, Any] = _attrs_field(init=False, factory=dict)

    def to_dict(self) -> dict[str, Any]:
        notices = []
        for notices_item_data in self.notices:
            notices_item = notices_item_data.to_dict()
            notices.append(notices_item)

        field_dict: dict[str, Any] = {}
        field_dict.update(self.additional_properties)
        field_dict.update(
            {
                "notices": notices,
            }
        )

        return field_dict

    @classmethod
    def from_dict(cls: type[T], src_dict: Mapping[str, Any]) -> T:
        from ..models.low_balance_notice import LowBalanceNotice

        d = dict(src_dict)
        notices = []
        _notices = d.pop("notices")
        for notices_item_data in _notices:
            notices_item = LowBalanceNotice.from_dict(notices_item_data)

            notices.append(notices_item)

        low_balance_notice_list_data = cls(
            notices=notices,
        )

        low_balance_notice_list_data.additional_properties = d
        return low_balance_notice_list_data

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
