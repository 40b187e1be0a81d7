//! `/api/v1/countries`, `/currencies` and `/categories`: reference data for codes and IDs.
//!
//! Countries come from the crate `celes` (ISO 3166-1). Currencies come from `iso_currency` (ISO 4217), restricted to those
//! that the ledger supports.

use std::sync::LazyLock;

use iso_currency::IntoEnumIterator;
use ledger_events::catalogue as domain;
use ledger_projections::catalogue;
use poem_openapi::{Object, OpenApi};
use serde::Serialize;
use serde_json::value::RawValue;

use super::conditional::{Conditional, ETag, IfNoneMatch};
use super::error::ApiError;
use super::limits::Reader as _;
use super::principal::Caller;
use super::problems::Read;
use super::readers::line;
use super::reply::{Listed, Plural};
use super::state::{State, Tag};

/// `Cache-Control` for reference data: private, one day (specification, "Limits").
const FOR_A_DAY: &str = "private, max-age=86400";

/// A country.
#[derive(Clone, Object, Serialize)]
struct Country {
    /// ISO 3166-1 alpha-2 code of the country.
    code: String,
    /// English name of the country.
    name: String,
}

impl Plural for Country {
    const PLURAL: &'static str = "countries";
}

/// A currency.
#[derive(Clone, Object, Serialize)]
struct Currency {
    /// ISO 4217 code of the currency.
    code: String,
    /// English name of the currency.
    name: String,
    /// Number of decimals that ISO 4217 defines for the currency: 0 or 2. The API always writes amounts with two.
    decimals: u16,
}

impl Plural for Currency {
    const PLURAL: &'static str = "currencies";
}

/// A category of products.
#[derive(Object, Serialize)]
pub struct Category {
    /// Unique identifier of the category.
    id: i64,
    /// Name of the category.
    name: String,
    /// Unique identifier of the parent category; null for a top-level category.
    parent_id: Option<i64>,
}

impl Plural for Category {
    const PLURAL: &'static str = "categories";
}

impl From<domain::Category> for Category {
    fn from(category: domain::Category) -> Self {
        Self { id: category.id.0, name: category.name, parent_id: category.parent_id.map(|id| id.0) }
    }
}

static COUNTRIES: LazyLock<Vec<Country>> = LazyLock::new(|| {
    let countries = celes::Country::get_countries().into_iter();
    let mut countries: Vec<Country> =
        countries.map(|country| Country { code: country.alpha2.to_owned(), name: country.long_name.to_owned() }).collect();
    countries.sort_by(|a, b| a.code.cmp(&b.code));
    countries
});

static CURRENCIES: LazyLock<Vec<Currency>> = LazyLock::new(|| {
    let current = iso_currency::Currency::iter()
        .filter(|currency| currency.is_superseded().is_none() && !currency.is_fund() && !currency.is_special());
    let mut currencies: Vec<Currency> = current
        .filter_map(|currency| {
            let decimals = decimals(currency.code())?;
            Some(Currency { code: currency.code().to_owned(), name: currency.name().to_owned(), decimals })
        })
        .collect();
    currencies.sort_by(|a, b| a.code.cmp(&b.code));
    currencies
});

/// Returns the codes of all currencies that [`currency`] accepts, sorted.
pub fn currencies_of_wallets() -> Vec<&'static str> {
    let mut codes: Vec<_> = iso_currency::Currency::iter().map(|currency| currency.code()).collect();
    codes.retain(|code| decimals(code).is_some());
    codes.sort_unstable();
    codes
}

/// Returns the number of decimals of an ISO 4217 currency that the ledger supports, and `None` for any other text.
fn decimals(code: &str) -> Option<u16> {
    code.parse::<ledger_events::Currency>().ok()?;
    iso_currency::Currency::from_code(code)?.exponent().filter(|decimals| *decimals <= 2)
}

/// Reads an ISO 3166-1 alpha-2 code.
pub fn country(value: &RawValue) -> Read<String> {
    let text = line(2..=2).read(value)?;
    let is_known = COUNTRIES.binary_search_by(|country| country.code.cmp(&text)).is_ok();
    if is_known { Ok(text) } else { Err("must be an ISO 3166-1 code of two capital letters".into()) }
}

/// Reads the ISO 4217 code of a currency with at most two decimals, withdrawn currencies included. Returns it as text.
pub fn currency(value: &RawValue) -> Read<String> {
    let text = line(3..=3).read(value)?;
    text.parse::<ledger_events::Currency>()?;
    if decimals(&text).is_some() { Ok(text) } else { Err("must be an ISO 4217 code of three capital letters".into()) }
}

/// Returns the whole list, or 304 if the caller's cached copy is current.
fn kept<T: Plural>(items: Vec<T>, known: &IfNoneMatch) -> Result<Conditional<Listed<T>>, ApiError> {
    let etag = ETag::of(&items)?;
    Ok(match known.has(&etag) {
        true => Conditional::not_modified(etag, FOR_A_DAY),
        false => Conditional::modified(etag, FOR_A_DAY, Listed::whole(items)),
    })
}

pub struct Reference;

#[OpenApi(prefix_path = "/api/v1", tag = "Tag::Reference")]
impl Reference {
    /// List countries
    ///
    /// Returns the countries of ISO 3166-1, and `XK` (Kosovo), sorted by code, all on one page. Cache the list for a day.
    #[oai(path = "/countries", method = "get", operation_id = "list_countries")]
    async fn countries(
        &self,
        _caller: Caller,
        /// `ETag` of your cached copy. The response is 304 if the copy is current.
        #[oai(name = "If-None-Match")]
        known: IfNoneMatch,
    ) -> Result<Conditional<Listed<Country>>, ApiError> {
        kept(COUNTRIES.clone(), &known)
    }

    /// List currencies
    ///
    /// Returns the ISO 4217 currencies that products and wallets can have, sorted by code, all on one page. These are the
    /// currencies in circulation with at most two decimals. Currencies with three decimals, such as `KWD`, are not
    /// supported and not listed. Cache the list for a day.
    #[oai(path = "/currencies", method = "get", operation_id = "list_currencies")]
    async fn currencies(
        &self,
        _caller: Caller,
        /// `ETag` of your cached copy. The response is 304 if the copy is current.
        #[oai(name = "If-None-Match")]
        known: IfNoneMatch,
    ) -> Result<Conditional<Listed<Currency>>, ApiError> {
        kept(CURRENCIES.clone(), &known)
    }

    /// List categories
    ///
    /// Returns the product categories, sorted by name, all on one page. Cache the list for a day.
    #[oai(path = "/categories", method = "get", operation_id = "list_categories")]
    async fn categories(
        &self,
        _caller: Caller,
        state: State<'_>,
        /// `ETag` of your cached copy. The response is 304 if the copy is current.
        #[oai(name = "If-None-Match")]
        known: IfNoneMatch,
    ) -> Result<Conditional<Listed<Category>>, ApiError> {
        let categories = catalogue::categories(state.ledger.pool()).await?;
        kept(categories.into_iter().map(Category::from).collect(), &known)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn raw(text: &str) -> Box<RawValue> {
        RawValue::from_string(format!("\"{text}\"")).unwrap()
    }

    #[test]
    fn the_lists_are_complete_sorted_and_accepted_by_the_readers() {
        assert!((249..=252).contains(&COUNTRIES.len()), "{}", COUNTRIES.len());
        assert!((140..=180).contains(&CURRENCIES.len()), "{}", CURRENCIES.len());
        assert!(COUNTRIES.windows(2).all(|pair| pair[0].code < pair[1].code));
        assert!(CURRENCIES.windows(2).all(|pair| pair[0].code < pair[1].code));
        assert!(COUNTRIES.iter().all(|entry| country(&raw(&entry.code)).is_ok()));
        assert!(CURRENCIES.iter().all(|entry| currency(&raw(&entry.code)).is_ok() && entry.decimals <= 2));
        let decimals = |code| CURRENCIES.iter().find(|entry| entry.code == code).map(|entry| entry.decimals);
        assert_eq!((decimals("EUR"), decimals("JPY"), decimals("KWD"), decimals("XAU")), (Some(2), Some(0), None, None));
    }

    #[test]
    fn the_ledger_rejects_every_currency_with_more_than_two_decimals() {
        for currency in iso_currency::Currency::iter().filter(|currency| currency.exponent().is_some_and(|digits| digits > 2)) {
            assert!(currency.code().parse::<ledger_events::Currency>().is_err(), "{}", currency.code());
        }
    }

    #[test]
    fn unknown_codes_are_rejected() {
        for code in ["ZZZ", "KWD", "XAU", "eur", "EU", ""] {
            assert!(currency(&raw(code)).is_err(), "{code}");
        }
        for code in ["ZZ", "de", "DEU", ""] {
            assert!(country(&raw(code)).is_err(), "{code}");
        }
    }
}
