import datetime
from collections.abc import Mapping
from typing import Any, TypeVar, Union, cast

from attrs import define as _attrs_define
from attrs import field as _attrs_field
from dateutil.parser import isoparse

from ..models.denomination_type import DenominationType

T = TypeVar("T", bound="Product")


@_attrs_define
class Product:
    """A product that can be ordered, such as a gift card.

    Attributes:
        brand (str): Brand of the product.
        category_id (Union[None, int]): Unique identifier of the product's category, from `GET /api/v1/categories`; null
            if it has none.
        country (str): Country of the product, as an ISO 3166-1 alpha-2 code.
        currency (str): Currency of the product, as an ISO 4217 code. Orders are paid from the wallet in this currency.
        denomination_type (DenominationType): Kind of face values that a product has.

            - `FIXED`: one of the values in `denominations`.
            - `RANGE`: any value from `min_denomination` to `max_denomination`.
        denominations (list[str]): Available face values of a `FIXED` product; empty for a `RANGE` product.
        description (str): Description of the product, for people.
        discount (str): Your account's discount on the product, in percent.
        id (int): Unique identifier of the product.
        image_url (Union[None, str]): URL of the product's image; null if it has none. GET it with your API key. The URL
            changes when the image does.
        is_active (bool): Whether the product is active. Inactive products cannot be ordered.
        max_denomination (Union[None, str]): Largest face value of a `RANGE` product; null for a `FIXED` product.
        max_quantity (int): Maximum number of units per order.
        min_denomination (Union[None, str]): Smallest face value of a `RANGE` product; null for a `FIXED` product.
        name (str): Name of the product.
        terms (str): Terms of use, for people.
        updated_at (datetime.datetime): Time of the product's latest change. A change of your discount does not count.
    """

    brand: str
    category_id: Union[None, int]
    country: str
    currency: str
    denomination_type: DenominationType
    denominations: list[str]
    description: str
    discount: str
    id: int
    image_url: Union[None, str]
    is_active: bool
    max_denomination: Union[None, str]
    max_quantity: int
    min_denomination: Union[None, str]
    name: str
    terms: str
    updated_at: datetime.datetime
    additional_properties: dict[str, Any] = _attrs_field(init=False, factory=dict)

    def to_dict(self) -> dict[str, Any]:
        brand = self.brand

        category_id: Union[None, int]
        category_id = self.category_id

        country = self.country

        currency = self.currency

        denomination_type = self.denomination_type.value

        denominations = self.denominations

        description = self.description

        discount = self.discount

        id = self.id

        image_url: Union[None, str]
        image_url = self.image_url

        is_active = self.is_active

        max_denomination: Union[None, str]
        max_denomination = self.max_denomination

        max_quantity = self.max_quantity

        min_denomination: Union[None, str]
        min_denomination = self.min_denomination

        name = self.name

        terms = self.terms

        updated_at = self.updated_at.isoformat()

        field_dict: dict[str, Any] = {}
        field_dict.update(self.additional_properties)
        field_dict.update(
            {
                "brand": brand,
                "category_id": category_id,
                "country": country,
                "currency": currency,
                "denomination_type": denomination_type,
                "denominations": denominations,
                "description": description,
                "discount": discount,
                "id": id,
                "image_url": image_url,
                "is_active": is_active,
                "max_denomination": max_denomination,
                "max_quantity": max_quantity,
                "min_denomination": min_denomination,
                "name": name,
                "terms": terms,
                "updated_at": updated_at,
            }
        )

        return field_dict

    @classmethod
    def from_dict(cls: type[T], src_dict: Mapping[str, Any]) -> T:
        d = dict(src_dict)
        brand = d.pop("brand")

        def _parse_category_id(data: object) -> Union[None, int]:
            if data is None:
                return data
            return cast(Union[None, int], data)

        category_id = _parse_category_id(d.pop("category_id"))

        country = d.pop("country")

        currency = d.pop("currency")

        denomination_type = DenominationType(d.pop("denomination_type"))

        denominations = cast(list[str], d.pop("denominations"))

        description = d.pop("description")

        discount = d.pop("discount")

        id = d.pop("id")

        def _parse_image_url(data: object) -> Union[None, str]:
            if data is None:
                return data
            return cast(Union[None, str], data)

        image_url = _parse_image_url(d.pop("image_url"))

        is_active = d.pop("is_active")

        def _parse_max_denomination(data: object) -> Union[None, str]:
            if data is None:
                return data
            return cast(Union[None, str], data)

        max_denomination = _parse_max_denomination(d.pop("max_denomination"))

        max_quantity = d.pop("max_quantity")

        def _parse_min_denomination(data: object) -> Union[None, str]:
            if data is None:
                return data
            return cast(Union[None, str], data)

        min_denomination = _parse_min_denomination(d.pop("min_denomination"))

        name = d.pop("name")

        terms = d.pop("terms")

        updated_at = isoparse(d.pop("updated_at"))

        product = cls(
            brand=brand,
            category_id=category_id,
            country=country,
            currency=currency,
            denomination_type=denomination_type,
            denominations=denominations,
            description=description,
            discount=discount,
            id=id,
            image_url=image_url,
            is_active=is_active,
            max_denomination=max_denomination,
            max_quantity=max_quantity,
            min_denomination=min_denomination,
            name=name,
            terms=terms,
            updated_at=updated_at,
        )

        product.additional_properties = d
        return product

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
