from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, TypeVar, Union

from attrs import define as _attrs_define
from attrs import field as _attrs_field

from ..models.error_code import ErrorCode
from ..types import UNSET, Unset

if TYPE_CHECKING:
    from ..models.error_detail_messages import ErrorDetailMessages


T = TypeVar("T", bound="ErrorDetail")


@_attrs_define
class ErrorDetail:
    """
    Attributes:
        code (ErrorCode): Stable error code. Branch on it. New codes may be added; existing ones do not change.
        message (str): Human-readable explanation. Its wording may change, so do not parse it.
        name (str): Class of the error, one per HTTP status, for example `ValidationError`.
        messages (Union[Unset, ErrorDetailMessages]): Problems of each field or parameter, by its name or path. Left out
            when the error is not about a field.
    """

    code: ErrorCode
    message: str
    name: str
    messages: Union[Unset, "ErrorDetailMessages"] = UNSET
    additional_properties: dict[str, Any] = _attrs_field(init=False, factory=dict)

    def to_dict(self) -> dict[str, Any]:
        code = self.code.value

        message = self.message

        name = self.name

        messages: Union[Unset, dict[str, Any]] = UNSET
        if not isinstance(self.messages, Unset):
            messages = self.messages.to_dict()

        field_dict: dict[str, Any] = {}
        field_dict.update(self.additional_properties)
        field_dict.update(
            {
                "code": code,
                "message": message,
                "name": name,
            }
        )
        if messages is not UNSET:
            field_dict["messages"] = messages

        return field_dict

    @classmethod
    def from_dict(cls: type[T], src_dict: Mapping[str, Any]) -> T:
        from ..models.error_detail_messages import ErrorDetailMessages

        d = dict(src_dict)
        code = ErrorCode(d.pop("code"))

        message = d.pop("message")

        name = d.pop("name")

        _messages = d.pop("messages", UNSET)
        messages: Union[Unset, ErrorDetailMessages]
        if isinstance(_messages, Unset):
            messages = UNSET
        else:
            messages = ErrorDetailMessages.from_dict(_messages)

        error_detail = cls(
            code=code,
            message=message,
            name=name,
            messages=messages,
        )

        error_detail.additional_properties = d
        return error_detail

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
