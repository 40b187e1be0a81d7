"""Calls of the tag `reference`."""

from ...call import AsyncSend, Call, Send
from ..models.category_list import CategoryList
from ..models.country_list import CountryList
from ..models.currency_list import CurrencyList


def _list_categories() -> Call:
    return Call(
        "GET",
        "/api/v1/categories",
    )


def _list_countries() -> Call:
    return Call(
        "GET",
        "/api/v1/countries",
    )


def _list_currencies() -> Call:
    return Call(
        "GET",
        "/api/v1/currencies",
    )


class Reference:
    """Calls of the tag `reference`."""

    def __init__(self, send: Send) -> None:
        self._send = send

    def list_categories(
        self,
    ) -> CategoryList:
        """List categories.

        Returns the product categories, sorted by name, all on one page. Cache the list for a day."""
        response = self._send(_list_categories())
        return CategoryList.from_dict(response.json())

    def list_countries(
        self,
    ) -> CountryList:
        """List countries.

        Returns the countries of ISO 3166-1, and `XK` (Kosovo), sorted by code, all on one page. Cache the list for a day."""
        response = self._send(_list_countries())
        return CountryList.from_dict(response.json())

    def list_currencies(
        self,
    ) -> CurrencyList:
        """List currencies.

        Returns the ISO 4217 currencies that products and wallets can have, sorted by code, all on one page. These are the
        currencies in circulation with at most two decimals. Currencies with three decimals, such as `KWD`, are not
        supported and not listed. Cache the list for a day."""
        response = self._send(_list_currencies())
        return CurrencyList.from_dict(response.json())


class AsyncReference:
    """Calls of the tag `reference`."""

    def __init__(self, send: AsyncSend) -> None:
        self._send = send

    async def list_categories(
        self,
    ) -> CategoryList:
        """List categories.

        Returns the product categories, sorted by name, all on one page. Cache the list for a day."""
        response = await self._send(_list_categories())
        return CategoryList.from_dict(response.json())

    async def list_countries(
        self,
    ) -> CountryList:
        """List countries.

        Returns the countries of ISO 3166-1, and `XK` (Kosovo), sorted by code, all on one page. Cache the list for a day."""
        response = await self._send(_list_countries())
        return CountryList.from_dict(response.json())

    async def list_currencies(
        self,
    ) -> CurrencyList:
        """List currencies.

        Returns the ISO 4217 currencies that products and wallets can have, sorted by code, all on one page. These are the
        currencies in circulation with at most two decimals. Currencies with three decimals, such as `KWD`, are not
        supported and not listed. Cache the list for a day."""
        response = await self._send(_list_currencies())
        return CurrencyList.from_dict(response.json())
