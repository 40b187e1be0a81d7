import datetime
from collections.abc import Mapping
from typing import Any, TypeVar

from attrs import define as _attrs_define
from attrs import field as _attrs_field
from dateutil.parser import isoparse

T = TypeVar("T", bound="ProductImage")


@_attrs_define
class ProductImage:
    """Location of a product's image.

    Attributes:
        content_type (str): Media type of the image: `image/png`, `image/jpeg` or `image/webp`.
        image_url (str): URL of the image. GET it with your API key. The URL changes when the image does.
        product_id (int): Unique identifier of the product.
        updated_at (datetime.datetime): Time at which the image was set.
    """

    content_type: str
    image_url: str
    product_id: int
    updated_at: datetime.datetime
    additional_properties: dict[str, Any] = _attrs_field(init=False, factory=dict)

    def to_dict(self) -> dict[str, Any]:
        content_type = self.content_type

        image_url = self.image_url

        product_id = self.product_id

        updated_at = self.updated_at.isoformat()

        field_dict: dict[str, Any] = {}
        field_dict.update(self.additional_properties)
        field_dict.update(
            {
                "content_type": content_type,
                "image_url": image_url,
                "product_id": product_id,
                "updated_at": updated_at,
            }
        )

        return field_dict

    @classmethod
    def from_dict(cls: type[T], src_dict: Mapping[str, Any]) -> T:
        d = dict(src_dict)
        content_type = d.pop("content_type")

        image_url = d.pop("image_url")

        product_id = d.pop("product_id")

        updated_at = isoparse(d.pop("updated_at"))

        product_image = cls(
            content_type=content_type,
            image_url=image_url,
            product_id=product_id,
            updated_at=updated_at,
        )

        product_image.additional_properties = d
        return product_image

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
