from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, TypeVar

from attrs import define as _attrs_define
from attrs import field as _attrs_field

if TYPE_CHECKING:
    from ..models.low_balance_notice_list_data import LowBalanceNoticeListData


T = TypeVar("T", bound="LowBalanceNoticeList")


@_attrs_define
class LowBalanceNoticeList:
    """
    Attributes:
        data (LowBalanceNoticeListData): One page of the list.
        success (bool): Always `true`.
    """

    data: "LowBalanceNoticeListData"
    success: bool
    additional_properties: dict[str, Any] = _attrs_field(init=False, factory=dict)

    def to_dict(self) -> dict[str, Any]:
        data = self.data.to_dict()

        success = self.success

        field_dict: dict[str, Any] = {}
        field_dict.update(self.additional_properties)
        field_dict.update(
            {
                "data": data,
                "success": success,
            }
        )

        return field_dict

    @classmethod
    def from_dict(cls: type[T], src_dict: Mapping[str, Any]) -> T:
        from ..models.low_balance_notice_list_data import LowBalanceNoticeListData

        d = dict(src_dict)
        data = LowBalanceNoticeListData.from_dict(d.pop("data"))

        success = d.pop("success")

        low_balance_notice_list = cls(
            data=data,
            success=success,
        )

        low_balance_notice_list.additional_properties = d
        return low_balance_notice_list

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
