"""Calls of the tag `products`."""

import datetime
from collections.abc import AsyncIterator, Iterator
from typing import Optional
from urllib.parse import quote

from ...call import AsyncSend, Call, Send, async_pages, pages
from ..models.image_size import ImageSize
from ..models.product import Product
from ..models.product_image import ProductImage
from ..models.product_image_list import ProductImageList
from ..models.product_image_reply import ProductImageReply
from ..models.product_list import ProductList
from ..models.product_reply import ProductReply


def _list_products(
    *,
    page: Optional[int] = None,
    limit: Optional[int] = None,
    per_page: Optional[int] = None,
    ids: Optional[str] = None,
    category_id: Optional[int] = None,
    country: Optional[str] = None,
    currency: Optional[str] = None,
    search: Optional[str] = None,
    updated_since: Optional[datetime.datetime] = None,
) -> Call:
    return Call(
        "GET",
        "/api/v1/products",
        params={
            "page": page,
            "limit": limit,
            "per_page": per_page,
            "ids": ids,
            "category_id": category_id,
            "country": country,
            "currency": currency,
            "search": search,
            "updated_since": updated_since,
        },
    )


def _list_product_images(
    *,
    page: Optional[int] = None,
    limit: Optional[int] = None,
) -> Call:
    return Call(
        "GET",
        "/api/v1/products/images",
        params={
            "page": page,
            "limit": limit,
        },
    )


def _get_product(
    id: int,
) -> Call:
    return Call(
        "GET",
        f"/api/v1/products/{quote(str(id), safe='')}",
    )


def _get_product_image(
    id: int,
) -> Call:
    return Call(
        "GET",
        f"/api/v1/products/{quote(str(id), safe='')}/image",
    )


def _get_product_image_bytes(
    id: int,
    version: str,
    *,
    size: Optional[ImageSize] = None,
) -> Call:
    return Call(
        "GET",
        f"/api/v1/products/{quote(str(id), safe='')}/image/{quote(str(version), safe='')}",
        params={
            "size": size,
        },
    )


class Products:
    """Calls of the tag `products`."""

    def __init__(self, send: Send) -> None:
        self._send = send

    def list_products(
        self,
        *,
        page: Optional[int] = None,
        limit: Optional[int] = None,
        per_page: Optional[int] = None,
        ids: Optional[str] = None,
        category_id: Optional[int] = None,
        country: Optional[str] = None,
        currency: Optional[str] = None,
        search: Optional[str] = None,
        updated_since: Optional[datetime.datetime] = None,
    ) -> ProductList:
        """List products.

        Returns the active products, newest first, each with your account's discount. With `updated_since`, the list also
        includes products that are no longer active, so that you can keep a copy of the catalogue current. A discount is not
        part of a product: when it changes, `updated_at` does not, and `updated_since` does not find it."""
        response = self._send(
            _list_products(
                page=page,
                limit=limit,
                per_page=per_page,
                ids=ids,
                category_id=category_id,
                country=country,
                currency=currency,
                search=search,
                updated_since=updated_since,
            )
        )
        return ProductList.from_dict(response.json())

    def iter_products(
        self,
        *,
        limit: Optional[int] = None,
        per_page: Optional[int] = None,
        ids: Optional[str] = None,
        category_id: Optional[int] = None,
        country: Optional[str] = None,
        currency: Optional[str] = None,
        search: Optional[str] = None,
        updated_since: Optional[datetime.datetime] = None,
    ) -> Iterator[Product]:
        """List products, page after page.

        Returns the active products, newest first, each with your account's discount. With `updated_since`, the list also
        includes products that are no longer active, so that you can keep a copy of the catalogue current. A discount is not
        part of a product: when it changes, `updated_at` does not, and `updated_since` does not find it."""
        for response in pages(
            self._send,
            _list_products(
                limit=limit,
                per_page=per_page,
                ids=ids,
                category_id=category_id,
                country=country,
                currency=currency,
                search=search,
                updated_since=updated_since,
            ),
        ):
            for each in ProductList.from_dict(response.json()).data.products:
                yield each

    def list_product_images(
        self,
        *,
        page: Optional[int] = None,
        limit: Optional[int] = None,
    ) -> ProductImageList:
        """List product images.

        Returns the images of all active products that have one, newest products first."""
        response = self._send(
            _list_product_images(
                page=page,
                limit=limit,
            )
        )
        return ProductImageList.from_dict(response.json())

    def iter_product_images(
        self,
        *,
        limit: Optional[int] = None,
    ) -> Iterator[ProductImage]:
        """List product images, page after page.

        Returns the images of all active products that have one, newest products first."""
        for response in pages(
            self._send,
            _list_product_images(
                limit=limit,
            ),
        ):
            for each in ProductImageList.from_dict(response.json()).data.images:
                yield each

    def get_product(
        self,
        id: int,
    ) -> ProductReply:
        """Retrieve a product.

        Returns an active product with your account's discount. 404 if the product is inactive."""
        response = self._send(
            _get_product(
                id,
            )
        )
        return ProductReply.from_dict(response.json())

    def get_product_image(
        self,
        id: int,
    ) -> ProductImageReply:
        """Retrieve a product's image.

        Returns the image's URL and media type. 404 if the product is inactive or has no image."""
        response = self._send(
            _get_product_image(
                id,
            )
        )
        return ProductImageReply.from_dict(response.json())

    def get_product_image_bytes(
        self,
        id: int,
        version: str,
        *,
        size: Optional[ImageSize] = None,
    ) -> bytes:
        """Download an image.

        Returns the bytes of the image at `image_url`. The URL of a replaced image returns 404."""
        response = self._send(
            _get_product_image_bytes(
                id,
                version,
                size=size,
            )
        )
        return response.content


class AsyncProducts:
    """Calls of the tag `products`."""

    def __init__(self, send: AsyncSend) -> None:
        self._send = send

    async def list_products(
        self,
        *,
        page: Optional[int] = None,
        limit: Optional[int] = None,
        per_page: Optional[int] = None,
        ids: Optional[str] = None,
        category_id: Optional[int] = None,
        country: Optional[str] = None,
        currency: Optional[str] = None,
        search: Optional[str] = None,
        updated_since: Optional[datetime.datetime] = None,
    ) -> ProductList:
        """List products.

        Returns the active products, newest first, each with your account's discount. With `updated_since`, the list also
        includes products that are no longer active, so that you can keep a copy of the catalogue current. A discount is not
        part of a product: when it changes, `updated_at` does not, and `updated_since` does not find it."""
        response = await self._send(
            _list_products(
                page=page,
                limit=limit,
                per_page=per_page,
                ids=ids,
                category_id=category_id,
                country=country,
                currency=currency,
                search=search,
                updated_since=updated_since,
            )
        )
        return ProductList.from_dict(response.json())

    async def iter_products(
        self,
        *,
        limit: Optional[int] = None,
        per_page: Optional[int] = None,
        ids: Optional[str] = None,
        category_id: Optional[int] = None,
        country: Optional[str] = None,
        currency: Optional[str] = None,
        search: Optional[str] = None,
        updated_since: Optional[datetime.datetime] = None,
    ) -> AsyncIterator[Product]:
        """List products, page after page.

        Returns the active products, newest first, each with your account's discount. With `updated_since`, the list also
        includes products that are no longer active, so that you can keep a copy of the catalogue current. A discount is not
        part of a product: when it changes, `updated_at` does not, and `updated_since` does not find it."""
        async for response in async_pages(
            self._send,
            _list_products(
                limit=limit,
                per_page=per_page,
                ids=ids,
                category_id=category_id,
                country=country,
                currency=currency,
                search=search,
                updated_since=updated_since,
            ),
        ):
            for each in ProductList.from_dict(response.json()).data.products:
                yield each

    async def list_product_images(
        self,
        *,
        page: Optional[int] = None,
        limit: Optional[int] = None,
    ) -> ProductImageList:
        """List product images.

        Returns the images of all active products that have one, newest products first."""
        response = await self._send(
            _list_product_images(
                page=page,
                limit=limit,
            )
        )
        return ProductImageList.from_dict(response.json())

    async def iter_product_images(
        self,
        *,
        limit: Optional[int] = None,
    ) -> AsyncIterator[ProductImage]:
        """List product images, page after page.

        Returns the images of all active products that have one, newest products first."""
        async for response in async_pages(
            self._send,
            _list_product_images(
                limit=limit,
            ),
        ):
            for each in ProductImageList.from_dict(response.json()).data.images:
                yield each

    async def get_product(
        self,
        id: int,
    ) -> ProductReply:
        """Retrieve a product.

        Returns an active product with your account's discount. 404 if the product is inactive."""
        response = await self._send(
            _get_product(
                id,
            )
        )
        return ProductReply.from_dict(response.json())

    async def get_product_image(
        self,
        id: int,
    ) -> ProductImageReply:
        """Retrieve a product's image.

        Returns the image's URL and media type. 404 if the product is inactive or has no image."""
        response = await self._send(
            _get_product_image(
                id,
            )
        )
        return ProductImageReply.from_dict(response.json())

    async def get_product_image_bytes(
        self,
        id: int,
        version: str,
        *,
        size: Optional[ImageSize] = None,
    ) -> bytes:
        """Download an image.

        Returns the bytes of the image at `image_url`. The URL of a replaced image returns 404."""
        response = await self._send(
            _get_product_image_bytes(
                id,
                version,
                size=size,
            )
        )
        return response.content
