from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, TypeVar

from attrs import define as _attrs_define
from attrs import field as _attrs_field

if TYPE_CHECKING:
    from ..models.beneficiary import Beneficiary


T = TypeVar("T", bound="BeneficiaryListData")


@_attrs_define
class BeneficiaryListData:
    """One page of the list.

    Attributes:
        beneficiaries (list['Beneficiary']):
    """

    beneficiaries: list["Beneficiary"]
    additional_properties: dict[str, Any] = _attrs_field(init=False, factory=dict)

    def to_dict(self) -> dict[str, Any]:
        beneficiaries = []
        for beneficiaries_item_data in self.beneficiaries:
            beneficiaries_item = beneficiaries_item_data.to_dict()
            beneficiaries.append(beneficiaries_item)

        field_dict: dict[str, Any] = {}
        field_dict.update(self.additional_properties)
        field_dict.update(
            {
                "beneficiaries": beneficiaries,
            }
        )

        return field_dict

    @classmethod
    def from_dict(cls: type[T], src_dict: Mapping[str, Any]) -> T:
        from ..models.beneficiary import Beneficiary

        d = dict(src_dict)
        beneficiaries = []
        _beneficiaries = d.pop("beneficiaries")
        for beneficiaries_item_data in _beneficiaries:
            beneficiaries_item = Beneficiary.from_dict(beneficiaries_item_data)

            beneficiaries.append(beneficiaries_item)

        beneficiary_list_data = cls(
            beneficiaries=beneficiaries,
        )

        beneficiary_list_data.additional_properties = d
        return beneficiary_list_data

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
