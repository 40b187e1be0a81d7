from collections.abc import Mapping
from typing import Any, TypeVar

from attrs import define as _attrs_define
from attrs import field as _attrs_field

T = TypeVar("T", bound="DeletedBeneficiary")


@_attrs_define
class DeletedBeneficiary:
    """Confirmation that a beneficiary is deleted. The history of its payouts is kept.

    Attributes:
        beneficiary_id (int): Unique identifier of the deleted beneficiary.
        message (str): Confirmation in plain English.
    """

    beneficiary_id: int
    message: str
    additional_properties: dict[str, Any] = _attrs_field(init=False, factory=dict)

    def to_dict(self) -> dict[str, Any]:
        beneficiary_id = self.beneficiary_id

        message = self.message

        field_dict: dict[str, Any] = {}
        field_dict.update(self.additional_properties)
        field_dict.update(
            {
                "beneficiary_id": beneficiary_id,
                "message": message,
            }
        )

        return field_dict

    @classmethod
    def from_dict(cls: type[T], src_dict: Mapping[str, Any]) -> T:
        d = dict(src_dict)
        beneficiary_id = d.pop("beneficiary_id")

        message = d.pop("message")

        deleted_beneficiary = cls(
            beneficiary_id=beneficiary_id,
            message=message,
        )

        deleted_beneficiary.additional_properties = d
        return deleted_beneficiary

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
