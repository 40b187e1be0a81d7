// Generated from openapi/client-v1.json by openapi-generator. Do not edit: run clients/generate rust.

//! Operations of the API: a method of the client for each, and its query.

use chrono::{DateTime, SecondsFormat, Utc};
use reqwest::Method;

use crate::call::{Call, Page, segment};
use crate::client::Client;
use crate::models;

/// API keys.
impl Client {
    /// Create an API key.
    ///
    /// Creates an API key for the account. Key and secret are shown only in this response. `scopes`, `expires_at` and
    /// `allowed_networks` restrict the key; they cannot be changed later. Returns 409 `E_ALREADY_CREATED` for a
    /// repeated request with the same `Idempotency-Key`. Requires the role owner.
    pub fn create_api_key(&self, body: &models::IssueCredential) -> Call<models::IssuedCredential> {
        Call::data(self, Method::POST, "/client/api/api-keys".to_owned()).json(Some(body)).keyed()
    }

    /// Retrieve an API key.
    ///
    /// Returns an API key of the account, revoked or not, without its secret.
    pub fn get_api_key(&self, id: i64) -> Call<models::ApiKey> {
        Call::data(self, Method::GET, format!("/client/api/api-keys/{id}"))
    }

    /// List API keys.
    ///
    /// Returns the account's API keys, newest first, revoked ones included.
    pub fn list_api_keys(&self, query: &ListApiKeysQuery) -> Call<Page<models::ApiKey>> {
        Call::page(self, Method::GET, "/client/api/api-keys".to_owned(), "api_keys").query(query.pairs())
    }

    /// Revoke an API key.
    ///
    /// Takes effect on the next request with the key. Webhooks linked to the key keep working. Requires the role
    /// owner.
    pub fn revoke_api_key(&self, id: i64) -> Call<models::ApiKey> {
        Call::data(self, Method::DELETE, format!("/client/api/api-keys/{id}"))
    }

    /// Rotate a signing secret.
    ///
    /// Replaces the signing secret of an API key. Requests with the key, and deliveries of webhooks linked to it, are
    /// signed with the new secret from now on. The secret is shown only in this response. Requires the role owner.
    ///
    /// With `previous_valid_hours`, deliveries carry a second signature for that time, made with the replaced secret,
    /// in the header `X-Signature-Previous`. Requests need the new secret at once.
    pub fn rotate_signing_secret(&self, id: i64, body: Option<&models::RotateSecret>) -> Call<models::RotatedSecret> {
        Call::data(self, Method::POST, format!("/client/api/api-keys/{id}/rotate-signing-secret")).json(body)
    }
}

/// Query of [`Client::list_api_keys`].
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ListApiKeysQuery {
    /// Page number, from 1. Default: 1.
    pub page: Option<i64>,
    /// Keys per page, 1 to 100. Default: 20.
    pub limit: Option<i64>,
}

impl ListApiKeysQuery {
    fn pairs(&self) -> Vec<(&'static str, String)> {
        let pairs = [
            self.page.as_ref().map(|value| ("page", value.to_string())),
            self.limit.as_ref().map(|value| ("limit", value.to_string())),
        ];
        pairs.into_iter().flatten().collect()
    }
}

/// Beneficiaries.
impl Client {
    /// Add a beneficiary.
    ///
    /// Adds an account that payouts can be sent to. The account number is stored encrypted. Responses contain its
    /// last four characters only.
    pub fn add_beneficiary(&self, body: &models::AddBeneficiary) -> Call<models::Beneficiary> {
        Call::data(self, Method::POST, "/api/v1/beneficiaries".to_owned()).json(Some(body)).keyed()
    }

    /// Delete a beneficiary.
    ///
    /// No new payout can be made to a deleted beneficiary. Existing payouts, pending ones included, are not affected.
    pub fn delete_beneficiary(&self, id: i64) -> Call<models::DeletedBeneficiary> {
        Call::data(self, Method::DELETE, format!("/api/v1/beneficiaries/{id}"))
    }

    /// Retrieve a beneficiary.
    ///
    /// Returns 404 after the beneficiary is deleted or the person's data is erased.
    pub fn get_beneficiary(&self, id: i64) -> Call<models::Beneficiary> {
        Call::data(self, Method::GET, format!("/api/v1/beneficiaries/{id}"))
    }

    /// List beneficiaries.
    ///
    /// Returns the account's beneficiaries, newest first.
    pub fn list_beneficiaries(&self, query: &ListBeneficiariesQuery) -> Call<Page<models::Beneficiary>> {
        Call::page(self, Method::GET, "/api/v1/beneficiaries".to_owned(), "beneficiaries").query(query.pairs())
    }
}

/// Query of [`Client::list_beneficiaries`].
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ListBeneficiariesQuery {
    /// Page number, from 1. Default: 1.
    pub page: Option<i64>,
    /// Beneficiaries per page, 1 to 100. Default: 20.
    pub limit: Option<i64>,
}

impl ListBeneficiariesQuery {
    fn pairs(&self) -> Vec<(&'static str, String)> {
        let pairs = [
            self.page.as_ref().map(|value| ("page", value.to_string())),
            self.limit.as_ref().map(|value| ("limit", value.to_string())),
        ];
        pairs.into_iter().flatten().collect()
    }
}

/// Deliveries.
impl Client {
    /// Count deliveries.
    ///
    /// Returns the account's delivery counts by status, in total and for the last 24 hours.
    pub fn count_deliveries(&self) -> Call<models::DeliveryStatistics> {
        Call::data(self, Method::GET, "/api/v1/webhooks/deliveries/stats".to_owned())
    }

    /// Retrieve a delivery.
    ///
    /// Returns the delivery with its complete payload, your endpoint's latest response, and its attempts with their
    /// responses.
    pub fn get_delivery(&self, id: i64) -> Call<models::DeliveryDetail> {
        Call::data(self, Method::GET, format!("/api/v1/webhooks/deliveries/{id}"))
    }

    /// List deliveries.
    ///
    /// Returns the deliveries of all webhooks of the account, newest first.
    pub fn list_deliveries(&self, query: &ListDeliveriesQuery) -> Call<Page<models::Delivery>> {
        Call::page(self, Method::GET, "/api/v1/webhooks/deliveries".to_owned(), "deliveries").query(query.pairs())
    }

    /// Retry a delivery.
    ///
    /// Makes a `failed` delivery `pending` again if it has attempts left, for example because its webhook was
    /// deactivated. The attempts already used still count, and the webhook must be active. The retry is sent within a
    /// minute.
    pub fn retry_delivery(&self, id: i64) -> Call<models::DeliveryRetry> {
        Call::data(self, Method::POST, format!("/api/v1/webhooks/deliveries/{id}/retry")).keyed()
    }
}

/// Query of [`Client::list_deliveries`].
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ListDeliveriesQuery {
    /// Page number, from 1. Default: 1.
    pub page: Option<i64>,
    /// Deliveries per page, 1 to 100. Default: 20.
    pub limit: Option<i64>,
    /// Only deliveries with this status.
    pub status: Option<models::DeliveryStatus>,
    /// Only deliveries of this event type.
    pub event_type: Option<models::WebhookEventType>,
    /// Only deliveries about this order.
    pub order_id: Option<i64>,
    /// Only deliveries to this webhook.
    pub webhook_url_id: Option<i64>,
    /// Only deliveries that this replay made.
    pub replay_id: Option<i64>,
    /// Only deliveries made at or after this time.
    pub created_from: Option<DateTime<Utc>>,
    /// Only deliveries made before this time.
    pub created_to: Option<DateTime<Utc>>,
}

impl ListDeliveriesQuery {
    fn pairs(&self) -> Vec<(&'static str, String)> {
        let pairs = [
            self.page.as_ref().map(|value| ("page", value.to_string())),
            self.limit.as_ref().map(|value| ("limit", value.to_string())),
            self.status.as_ref().map(|value| ("status", value.to_string())),
            self.event_type.as_ref().map(|value| ("event_type", value.to_string())),
            self.order_id.as_ref().map(|value| ("order_id", value.to_string())),
            self.webhook_url_id.as_ref().map(|value| ("webhook_url_id", value.to_string())),
            self.replay_id.as_ref().map(|value| ("replay_id", value.to_string())),
            self.created_from.as_ref().map(|value| ("created_from", value.to_rfc3339_opts(SecondsFormat::AutoSi, true))),
            self.created_to.as_ref().map(|value| ("created_to", value.to_rfc3339_opts(SecondsFormat::AutoSi, true))),
        ];
        pairs.into_iter().flatten().collect()
    }
}

/// Events.
impl Client {
    /// List events.
    ///
    /// Returns the account's events in the order in which they happened, oldest first, with the same envelopes as
    /// webhooks. No webhook is needed. Begin without `after`, with `since` to begin at a time, or with `after=latest`
    /// to skip the past. Continue with the `cursor` of each response. A cursor survives restarts and upgrades of the
    /// service. Events are kept as long as the ledger exists.
    ///
    /// With `wait`, a request that finds no event waits for one. It is answered as soon as there is one, or with an
    /// empty list after that time. At most 10 requests of an account can wait at a time. Further ones fail with 503.
    ///
    /// If the request is signed, the service signs the page with the same secret, as it signs a webhook. Verify
    /// `X-Signature` and `X-Timestamp` over the raw body. See [Receiving webhooks](/docs/guides/webhooks).
    pub fn list_events(&self, query: &ListEventsQuery) -> Call<models::EventPage> {
        Call::data(self, Method::GET, "/api/v1/events".to_owned()).query(query.pairs())
    }
}

/// Query of [`Client::list_events`].
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ListEventsQuery {
    /// Only events after this cursor. `latest` means the events from now on. Default: all events.
    pub after: Option<String>,
    /// Only events recorded at or after this time. If there is none yet, the events from now on. Cannot be combined
    /// with `after`.
    pub since: Option<DateTime<Utc>>,
    /// Seconds to wait for an event if there is none yet, 0 to 30. Default: 0.
    pub wait: Option<i64>,
    /// Only events of these types, separated by commas, such as `order.delivered,order.cancelled`.
    pub types: Option<String>,
    /// Maximum number of events, 1 to 100. Default: 20.
    pub limit: Option<i64>,
}

impl ListEventsQuery {
    fn pairs(&self) -> Vec<(&'static str, String)> {
        let pairs = [
            self.after.as_ref().map(|value| ("after", value.to_string())),
            self.since.as_ref().map(|value| ("since", value.to_rfc3339_opts(SecondsFormat::AutoSi, true))),
            self.wait.as_ref().map(|value| ("wait", value.to_string())),
            self.types.as_ref().map(|value| ("types", value.to_string())),
            self.limit.as_ref().map(|value| ("limit", value.to_string())),
        ];
        pairs.into_iter().flatten().collect()
    }
}

/// Orders.
impl Client {
    /// Cancel an order.
    ///
    /// Cancels the undelivered units and refunds them to the wallet. Vouchers that are already delivered stay valid.
    /// Fails with 409 `E_ORDER_NOT_CANCELLABLE` if the order is `DELIVERED` or `CANCELLED`.
    pub fn cancel_order(&self, id: i64, body: Option<&models::CancelOrder>) -> Call<models::Order> {
        Call::data(self, Method::POST, format!("/api/v1/orders/{id}/cancel")).json(body).keyed()
    }

    /// Count orders by day.
    ///
    /// Returns the number of orders and the spend of each day (UTC), up to today, and the number of all orders in
    /// each status.
    pub fn count_orders(&self, query: &CountOrdersQuery) -> Call<models::OrderStatistics> {
        Call::data(self, Method::GET, "/api/v1/orders/stats".to_owned()).query(query.pairs())
    }

    /// Retrieve an order.
    ///
    /// Returns the order as it is now. To learn of changes, prefer a webhook. If you poll, wait at least 10 seconds
    /// between requests, or 60 seconds while the order is `DELAYED`.
    pub fn get_order(&self, id: i64) -> Call<models::Order> {
        Call::data(self, Method::GET, format!("/api/v1/orders/{id}"))
    }

    /// Retrieve voucher codes.
    ///
    /// Returns the codes of all vouchers of the order that are delivered so far. Every read is recorded. Requires an
    /// API key, or a user with the role operator or owner. Returns 404 once the codes are erased; the order itself
    /// still exists.
    ///
    /// With `Accept: text/csv`, the vouchers are returned as CSV.
    pub fn get_order_vouchers(&self, id: i64) -> Call<models::Vouchers> {
        Call::data(self, Method::GET, format!("/api/v1/orders/{id}/vouchers"))
    }

    /// Retrieve the history of an order.
    ///
    /// Returns every event of the order with its actor, time and wallet transaction. Webhook deliveries are included
    /// with all attempts and retries.
    ///
    /// If codes were read very often, not every reading is listed: `entries_left_out` is the number omitted.
    pub fn get_own_order_history(&self, id: i64) -> Call<models::OrderTimeline> {
        Call::data(self, Method::GET, format!("/api/v1/orders/{id}/history"))
    }

    /// List orders.
    ///
    /// Returns the account's orders, newest first.
    pub fn list_orders(&self, query: &ListOrdersQuery) -> Call<Page<models::Order>> {
        Call::page(self, Method::GET, "/api/v1/orders".to_owned(), "orders").query(query.pairs())
    }

    /// Place an order.
    ///
    /// Prices the order, debits the wallet in the product's currency and records both in one step. If any part fails,
    /// nothing happens. Returns 201 with the new order, whose status is always `PENDING`. Returns 200 with the
    /// existing order if the same request was sent with the same `client_reference` before.
    pub fn place_order(&self, body: &models::PlaceOrder) -> Call<models::Order> {
        Call::data(self, Method::POST, "/api/v1/orders".to_owned()).json(Some(body)).keyed()
    }

    /// Price an order.
    ///
    /// Prices the order as if it were placed now, and fails for the same reasons. The only exception is a low
    /// balance, which `sufficient_balance` reports instead. Nothing is recorded, so a suspended account can also
    /// price orders.
    pub fn quote_charge(&self, body: &models::QuoteCharge) -> Call<models::Charge> {
        Call::data(self, Method::POST, "/api/v1/charges".to_owned()).json(Some(body)).keyed()
    }
}

/// Query of [`Client::count_orders`].
#[derive(Clone, Debug, Default, PartialEq)]
pub struct CountOrdersQuery {
    /// Number of days up to today, 1 to 92. Default: 30.
    pub days: Option<i64>,
}

impl CountOrdersQuery {
    fn pairs(&self) -> Vec<(&'static str, String)> {
        let pairs = [self.days.as_ref().map(|value| ("days", value.to_string()))];
        pairs.into_iter().flatten().collect()
    }
}

/// Query of [`Client::list_orders`].
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ListOrdersQuery {
    /// Page number, from 1. Default: 1.
    pub page: Option<i64>,
    /// Orders per page, 1 to 100. Default: 20.
    pub limit: Option<i64>,
    /// Only orders with this status.
    pub status: Option<models::OrderStatus>,
    /// Only orders of this product.
    pub product_id: Option<i64>,
    /// Only the order with this reference code.
    pub reference_code: Option<String>,
    /// Only the order with this client reference.
    pub client_reference: Option<String>,
    /// Only orders placed at or after this time.
    pub created_from: Option<DateTime<Utc>>,
    /// Only orders placed before this time.
    pub created_to: Option<DateTime<Utc>>,
}

impl ListOrdersQuery {
    fn pairs(&self) -> Vec<(&'static str, String)> {
        let pairs = [
            self.page.as_ref().map(|value| ("page", value.to_string())),
            self.limit.as_ref().map(|value| ("limit", value.to_string())),
            self.status.as_ref().map(|value| ("status", value.to_string())),
            self.product_id.as_ref().map(|value| ("product_id", value.to_string())),
            self.reference_code.as_ref().map(|value| ("reference_code", value.to_string())),
            self.client_reference.as_ref().map(|value| ("client_reference", value.to_string())),
            self.created_from.as_ref().map(|value| ("created_from", value.to_rfc3339_opts(SecondsFormat::AutoSi, true))),
            self.created_to.as_ref().map(|value| ("created_to", value.to_rfc3339_opts(SecondsFormat::AutoSi, true))),
        ];
        pairs.into_iter().flatten().collect()
    }
}

/// Payouts.
impl Client {
    /// Cancel a payout.
    ///
    /// Cancels a `PENDING` payout and returns its amount to the wallet. Fails with 409 `E_PAYOUT_NOT_CANCELLABLE` if
    /// the payout has any other status.
    pub fn cancel_payout(&self, id: i64) -> Call<models::Payout> {
        Call::data(self, Method::POST, format!("/api/v1/payouts/{id}/cancel")).keyed()
    }

    /// Retrieve a payout.
    ///
    /// Returns the payout as it is now.
    pub fn get_payout(&self, id: i64) -> Call<models::Payout> {
        Call::data(self, Method::GET, format!("/api/v1/payouts/{id}"))
    }

    /// List payouts.
    ///
    /// Returns the account's payouts, newest first.
    pub fn list_payouts(&self, query: &ListPayoutsQuery) -> Call<Page<models::Payout>> {
        Call::page(self, Method::GET, "/api/v1/payouts".to_owned(), "payouts").query(query.pairs())
    }

    /// Request a payout.
    ///
    /// Debits the wallet and records the payout in one step. If either fails, nothing happens. Returns 201 with the
    /// new payout, which is `PENDING` until an operator settles it. Returns 200 with the existing payout if the same
    /// request was sent with the same `client_reference` before.
    pub fn request_payout(&self, body: &models::RequestPayout) -> Call<models::Payout> {
        Call::data(self, Method::POST, "/api/v1/payouts".to_owned()).json(Some(body)).keyed()
    }
}

/// Query of [`Client::list_payouts`].
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ListPayoutsQuery {
    /// Page number, from 1. Default: 1.
    pub page: Option<i64>,
    /// Payouts per page, 1 to 100. Default: 20.
    pub limit: Option<i64>,
    /// Only payouts with this status.
    pub status: Option<models::PayoutStatus>,
    /// Only payouts to this beneficiary.
    pub beneficiary_id: Option<i64>,
    /// Only payouts from this wallet.
    pub wallet_id: Option<i64>,
    /// Only the payout with this client reference.
    pub client_reference: Option<String>,
    /// Only payouts requested at or after this time.
    pub created_from: Option<DateTime<Utc>>,
    /// Only payouts requested before this time.
    pub created_to: Option<DateTime<Utc>>,
}

impl ListPayoutsQuery {
    fn pairs(&self) -> Vec<(&'static str, String)> {
        let pairs = [
            self.page.as_ref().map(|value| ("page", value.to_string())),
            self.limit.as_ref().map(|value| ("limit", value.to_string())),
            self.status.as_ref().map(|value| ("status", value.to_string())),
            self.beneficiary_id.as_ref().map(|value| ("beneficiary_id", value.to_string())),
            self.wallet_id.as_ref().map(|value| ("wallet_id", value.to_string())),
            self.client_reference.as_ref().map(|value| ("client_reference", value.to_string())),
            self.created_from.as_ref().map(|value| ("created_from", value.to_rfc3339_opts(SecondsFormat::AutoSi, true))),
            self.created_to.as_ref().map(|value| ("created_to", value.to_rfc3339_opts(SecondsFormat::AutoSi, true))),
        ];
        pairs.into_iter().flatten().collect()
    }
}

/// Products.
impl Client {
    /// Retrieve a product.
    ///
    /// Returns an active product with your account's discount. 404 if the product is inactive.
    pub fn get_product(&self, id: i64) -> Call<models::Product> {
        Call::data(self, Method::GET, format!("/api/v1/products/{id}"))
    }

    /// Retrieve a product's image.
    ///
    /// Returns the image's URL and media type. 404 if the product is inactive or has no image.
    pub fn get_product_image(&self, id: i64) -> Call<models::ProductImage> {
        Call::data(self, Method::GET, format!("/api/v1/products/{id}/image"))
    }

    /// Download an image.
    ///
    /// Returns the bytes of the image at `image_url`. The URL of a replaced image returns 404.
    pub fn get_product_image_bytes(&self, id: i64, version: &str, query: &GetProductImageBytesQuery) -> Call<Vec<u8>> {
        let version = segment(version);
        Call::bytes(self, Method::GET, format!("/api/v1/products/{id}/image/{version}")).query(query.pairs())
    }

    /// List product images.
    ///
    /// Returns the images of all active products that have one, newest products first.
    pub fn list_product_images(&self, query: &ListProductImagesQuery) -> Call<Page<models::ProductImage>> {
        Call::page(self, Method::GET, "/api/v1/products/images".to_owned(), "images").query(query.pairs())
    }

    /// List products.
    ///
    /// Returns the active products, newest first, each with your account's discount. With `updated_since`, the list
    /// also includes products that are no longer active, so that you can keep a copy of the catalogue current. A
    /// discount is not part of a product: when it changes, `updated_at` does not, and `updated_since` does not find
    /// it.
    pub fn list_products(&self, query: &ListProductsQuery) -> Call<Page<models::Product>> {
        Call::page(self, Method::GET, "/api/v1/products".to_owned(), "products").query(query.pairs())
    }
}

/// Query of [`Client::get_product_image_bytes`].
#[derive(Clone, Debug, Default, PartialEq)]
pub struct GetProductImageBytesQuery {
    /// Size of the image. Default: `original`.
    pub size: Option<models::ImageSize>,
}

impl GetProductImageBytesQuery {
    fn pairs(&self) -> Vec<(&'static str, String)> {
        let pairs = [self.size.as_ref().map(|value| ("size", value.to_string()))];
        pairs.into_iter().flatten().collect()
    }
}

/// Query of [`Client::list_product_images`].
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ListProductImagesQuery {
    /// Page number, from 1. Default: 1.
    pub page: Option<i64>,
    /// Images per page, 1 to 100. Default: 20.
    pub limit: Option<i64>,
}

impl ListProductImagesQuery {
    fn pairs(&self) -> Vec<(&'static str, String)> {
        let pairs = [
            self.page.as_ref().map(|value| ("page", value.to_string())),
            self.limit.as_ref().map(|value| ("limit", value.to_string())),
        ];
        pairs.into_iter().flatten().collect()
    }
}

/// Query of [`Client::list_products`].
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ListProductsQuery {
    /// Page number, from 1. Default: 1.
    pub page: Option<i64>,
    /// Products per page, 1 to 10,000. Default: 50.
    pub limit: Option<i64>,
    /// Alias of `limit`. If both are given, `limit` takes precedence.
    pub per_page: Option<i64>,
    /// Only the products with these IDs, separated by commas: at most 1,000.
    pub ids: Option<String>,
    /// Only products in this category.
    pub category_id: Option<i64>,
    /// Only products of this country, as an ISO 3166-1 alpha-2 code.
    pub country: Option<String>,
    /// Only products in this currency, as an ISO 4217 code.
    pub currency: Option<String>,
    /// Only products whose name or brand contains this text, ignoring case.
    pub search: Option<String>,
    /// Only products that changed at or after this time, active or not.
    pub updated_since: Option<DateTime<Utc>>,
}

impl ListProductsQuery {
    fn pairs(&self) -> Vec<(&'static str, String)> {
        let pairs = [
            self.page.as_ref().map(|value| ("page", value.to_string())),
            self.limit.as_ref().map(|value| ("limit", value.to_string())),
            self.per_page.as_ref().map(|value| ("per_page", value.to_string())),
            self.ids.as_ref().map(|value| ("ids", value.to_string())),
            self.category_id.as_ref().map(|value| ("category_id", value.to_string())),
            self.country.as_ref().map(|value| ("country", value.to_string())),
            self.currency.as_ref().map(|value| ("currency", value.to_string())),
            self.search.as_ref().map(|value| ("search", value.to_string())),
            self.updated_since.as_ref().map(|value| ("updated_since", value.to_rfc3339_opts(SecondsFormat::AutoSi, true))),
        ];
        pairs.into_iter().flatten().collect()
    }
}

/// Reference.
impl Client {
    /// List categories.
    ///
    /// Returns the product categories, sorted by name, all on one page. Cache the list for a day.
    pub fn list_categories(&self) -> Call<Vec<models::Category>> {
        Call::list(self, Method::GET, "/api/v1/categories".to_owned(), "categories")
    }

    /// List countries.
    ///
    /// Returns the countries of ISO 3166-1, and `XK` (Kosovo), sorted by code, all on one page. Cache the list for a
    /// day.
    pub fn list_countries(&self) -> Call<Vec<models::Country>> {
        Call::list(self, Method::GET, "/api/v1/countries".to_owned(), "countries")
    }

    /// List currencies.
    ///
    /// Returns the ISO 4217 currencies that products and wallets can have, sorted by code, all on one page. These are
    /// the currencies in circulation with at most two decimals. Currencies with three decimals, such as `KWD`, are
    /// not supported and not listed. Cache the list for a day.
    pub fn list_currencies(&self) -> Call<Vec<models::Currency>> {
        Call::list(self, Method::GET, "/api/v1/currencies".to_owned(), "currencies")
    }
}

/// Sandbox.
impl Client {
    /// Fund your own wallet.
    ///
    /// Adds test money to one of your wallets. It is available at once and has no real value. This operation exists
    /// in the sandbox only; elsewhere it returns 404.
    pub fn fund_own_wallet(&self, id: i64, body: &models::FundOwnWallet) -> Call<models::Transaction> {
        Call::data(self, Method::POST, format!("/api/v1/sandbox/wallets/{id}/fund")).json(Some(body)).keyed()
    }

    /// List sent mails.
    ///
    /// Returns up to 100 mails that the sandbox has sent to the account's users and to the people they invited,
    /// newest first. A mail is listed until its link expires, and at most a week. This operation exists in a sandbox
    /// and in the demo only; elsewhere it returns 404. Requires the role owner.
    pub fn list_sent_mails(&self) -> Call<Vec<models::SentMail>> {
        Call::list(self, Method::GET, "/client/api/outbox".to_owned(), "mails")
    }
}

/// Sessions.
impl Client {
    /// Accept an invitation.
    ///
    /// Creates the user to whom the token was sent by mail. The user can then log in. Returns 409 `E_CONFLICT` if
    /// another user has the email address, or if the user who sent the invitation is no longer an owner.
    pub fn accept_invitation(&self, body: &models::ChoosePassword) -> Call<models::AcceptedInvitation> {
        Call::data(self, Method::POST, "/auth/invitations/accept".to_owned()).json(Some(body))
    }

    /// Begin two-factor enrolment.
    ///
    /// Creates a secret for an authenticator app (TOTP, RFC 6238). It has no effect until a code confirms it. Returns
    /// 409 `E_CONFLICT` if the user has two-factor authentication.
    pub fn begin_two_factor(&self) -> Call<models::Enrolment> {
        Call::data(self, Method::POST, "/client/api/two-factor".to_owned())
    }

    /// Change the password.
    ///
    /// Changes the password of the signed-in user. The current session goes on; all other sessions of the user end.
    /// Returns 409 `E_CONFLICT` if somebody else changes the password at the same time.
    pub fn change_password(&self, body: &models::ChangePassword) -> Call<models::Confirmation> {
        Call::data(self, Method::PUT, "/client/api/password".to_owned()).json(Some(body))
    }

    /// Change the security policy.
    ///
    /// Sets whether owners need two-factor authentication. From the next request on, an owner without it gets 403
    /// `E_TWO_FACTOR_ENROLMENT` for everything but enrolment and logout. Returns 409 `E_CONFLICT` if the owner who
    /// requires it has none. Requires the role owner.
    pub fn change_security_policy(&self, body: &models::ChangeSecurityPolicy) -> Call<models::SecurityPolicy> {
        Call::data(self, Method::PUT, "/client/api/security".to_owned()).json(Some(body))
    }

    /// Confirm two-factor enrolment.
    ///
    /// Enables two-factor authentication with a code of the app. Each login takes a code from now on, and the user's
    /// other sessions end. The recovery codes are shown only in this response. Returns 409 `E_CONFLICT` if no
    /// enrolment was begun.
    pub fn confirm_two_factor(&self, body: &models::OneTimeCode) -> Call<models::RecoveryCodes> {
        Call::data(self, Method::POST, "/client/api/two-factor/confirm".to_owned()).json(Some(body))
    }

    /// Disable two-factor authentication.
    ///
    /// Takes a code of the app, or a recovery code. Returns 409 `E_CONFLICT` if the user has no two-factor
    /// authentication.
    pub fn disable_two_factor(&self, body: &models::OneTimeCode) -> Call<models::TwoFactor> {
        Call::data(self, Method::DELETE, "/client/api/two-factor".to_owned()).json(Some(body))
    }

    /// End a session.
    ///
    /// Ends a session of the signed-in user. Its tokens and its portal cookie are invalid from the next request on.
    pub fn end_session(&self, id: i64) -> Call<models::Confirmation> {
        Call::data(self, Method::DELETE, format!("/client/api/sessions/{id}"))
    }

    /// Get the security policy.
    ///
    /// Returns the account's rules for logins.
    pub fn get_security_policy(&self) -> Call<models::SecurityPolicy> {
        Call::data(self, Method::GET, "/client/api/security".to_owned())
    }

    /// Get two-factor authentication.
    ///
    /// Returns whether the signed-in user has two-factor authentication.
    pub fn get_two_factor(&self) -> Call<models::TwoFactor> {
        Call::data(self, Method::GET, "/client/api/two-factor".to_owned())
    }

    /// List sessions.
    ///
    /// Returns up to 100 sessions of the signed-in user, newest first.
    pub fn list_sessions(&self) -> Call<Vec<models::Session>> {
        Call::list(self, Method::GET, "/client/api/sessions".to_owned(), "sessions")
    }

    /// Log in.
    ///
    /// Starts a session. Returns an access token, valid for 15 minutes, and a refresh token, valid for 7 days. Also
    /// sets the portal cookie, valid for 8 hours. An unknown email and a wrong password both return 401
    /// `E_INVALID_CREDENTIALS`. A user with two-factor authentication also sends `otp`; without it, a right password
    /// returns 401 `E_TWO_FACTOR_REQUIRED`. Failed logins of a user are rate limited: see [Rate limits and
    /// polling](/docs/guides/limits).
    pub fn log_in(&self, body: &models::Login) -> Call<models::Tokens> {
        Call::data(self, Method::POST, "/auth/login".to_owned()).json(Some(body))
    }

    /// Log out.
    ///
    /// Ends the session. Its tokens and its portal cookie are invalid from the next request on.
    pub fn log_out(&self) -> Call<models::LoggedOut> {
        Call::data(self, Method::POST, "/auth/logout".to_owned())
    }

    /// Refresh tokens.
    ///
    /// Exchanges a refresh token for a new access token and a new refresh token. A refresh token works only once. A
    /// second use means that it was copied, so it ends the whole session, and the user must log in again.
    pub fn refresh_tokens(&self, body: &models::Refresh) -> Call<models::Tokens> {
        Call::data(self, Method::POST, "/auth/refresh".to_owned()).json(Some(body))
    }

    /// Request a password reset.
    ///
    /// Sends a mail with a token to the user with this email address. The token is valid for 30 minutes. The response
    /// is the same if there is no such user. At most 3 mails an hour are sent to an address.
    pub fn request_password_reset(&self, body: &models::RequestPasswordReset) -> Call<models::Confirmation> {
        Call::data(self, Method::POST, "/auth/password-reset".to_owned()).json(Some(body))
    }

    /// Reset a password.
    ///
    /// Sets a new password with the token from a mail, and ends all sessions of the user. Two-factor authentication
    /// stays as it is.
    pub fn reset_password(&self, body: &models::ChoosePassword) -> Call<models::Confirmation> {
        Call::data(self, Method::POST, "/auth/password-reset/confirm".to_owned()).json(Some(body))
    }
}

/// Team.
impl Client {
    /// Change a user's role.
    ///
    /// The change takes effect with the next request and ends all sessions of the user, who has to log in again.
    /// Returns 409 `E_CONFLICT` for the last owner and for a removed user. Requires the role owner.
    pub fn change_team_member(&self, id: i64, body: &models::ChangeTeamMember) -> Call<models::TeamMember> {
        Call::data(self, Method::PUT, format!("/client/api/users/{id}")).json(Some(body))
    }

    /// Retrieve a user.
    ///
    /// Returns a user of the account. Returns 404 for a removed user.
    pub fn get_team_member(&self, id: i64) -> Call<models::TeamMember> {
        Call::data(self, Method::GET, format!("/client/api/users/{id}"))
    }

    /// Invite a user.
    ///
    /// Sends a mail with a link to the person, who chooses a password there. The invitation expires after 7 days. It
    /// replaces an open one to the same address, whose link stops. An account can have 100 open invitations. Requires
    /// the role owner.
    pub fn invite_user(&self, body: &models::InvitePerson) -> Call<models::Invitation> {
        Call::data(self, Method::POST, "/client/api/users/invitations".to_owned()).json(Some(body)).keyed()
    }

    /// List invitations.
    ///
    /// Returns the account's invitations that nobody has accepted, newest first. Requires the role owner.
    pub fn list_invitations(&self) -> Call<Vec<models::Invitation>> {
        Call::list(self, Method::GET, "/client/api/users/invitations".to_owned(), "invitations")
    }

    /// List users.
    ///
    /// Returns the users of the account, newest first. Removed users are not listed.
    pub fn list_team(&self, query: &ListTeamQuery) -> Call<Page<models::TeamMember>> {
        Call::page(self, Method::GET, "/client/api/users".to_owned(), "users").query(query.pairs())
    }

    /// Remove a user.
    ///
    /// Takes effect with the next request and ends all sessions and tokens of the user. Returns 409 `E_CONFLICT` for
    /// the last owner. Requires the role owner.
    pub fn remove_team_member(&self, id: i64) -> Call<models::TeamMember> {
        Call::data(self, Method::DELETE, format!("/client/api/users/{id}"))
    }

    /// Revoke an invitation.
    ///
    /// Ends an invitation that nobody has accepted. Requires the role owner.
    pub fn revoke_invitation(&self, id: i64) -> Call<models::Confirmation> {
        Call::data(self, Method::DELETE, format!("/client/api/users/invitations/{id}"))
    }
}

/// Query of [`Client::list_team`].
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ListTeamQuery {
    /// Page number, from 1. Default: 1.
    pub page: Option<i64>,
    /// Users per page, 1 to 100. Default: 20.
    pub limit: Option<i64>,
}

impl ListTeamQuery {
    fn pairs(&self) -> Vec<(&'static str, String)> {
        let pairs = [
            self.page.as_ref().map(|value| ("page", value.to_string())),
            self.limit.as_ref().map(|value| ("limit", value.to_string())),
        ];
        pairs.into_iter().flatten().collect()
    }
}

/// Transactions.
impl Client {
    /// Retrieve a transaction.
    ///
    /// Returns one transaction of a wallet of the account, with the event that recorded it.
    pub fn get_transaction(&self, id: i64) -> Call<models::RecordedTransaction> {
        Call::data(self, Method::GET, format!("/api/v1/transactions/{id}"))
    }

    /// List transactions.
    ///
    /// Returns the transactions of all wallets of the account, newest first.
    pub fn list_transactions(&self, query: &ListTransactionsQuery) -> Call<Page<models::Transaction>> {
        Call::page(self, Method::GET, "/api/v1/transactions".to_owned(), "transactions").query(query.pairs())
    }
}

/// Query of [`Client::list_transactions`].
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ListTransactionsQuery {
    /// Page number, from 1. Default: 1.
    pub page: Option<i64>,
    /// Transactions per page, 1 to 100. Default: 20.
    pub limit: Option<i64>,
    /// Only transactions of this wallet.
    pub wallet_id: Option<i64>,
    /// Only transactions in this direction.
    pub r#type: Option<models::TransactionType>,
    /// Only transactions of this category.
    pub category: Option<models::TransactionCategory>,
    /// Only transactions of exactly this amount.
    pub amount: Option<String>,
    /// Only transactions after which the balance was exactly this amount.
    pub balance_after: Option<String>,
    /// Only transactions in this currency, as an ISO 4217 code.
    pub currency: Option<String>,
    /// Only transactions for this order.
    pub order_id: Option<i64>,
    /// Only transactions with this reference.
    pub reference: Option<String>,
    /// Only transactions made at or after this time.
    pub created_from: Option<DateTime<Utc>>,
    /// Only transactions made before this time.
    pub created_to: Option<DateTime<Utc>>,
}

impl ListTransactionsQuery {
    fn pairs(&self) -> Vec<(&'static str, String)> {
        let pairs = [
            self.page.as_ref().map(|value| ("page", value.to_string())),
            self.limit.as_ref().map(|value| ("limit", value.to_string())),
            self.wallet_id.as_ref().map(|value| ("wallet_id", value.to_string())),
            self.r#type.as_ref().map(|value| ("type", value.to_string())),
            self.category.as_ref().map(|value| ("category", value.to_string())),
            self.amount.as_ref().map(|value| ("amount", value.to_string())),
            self.balance_after.as_ref().map(|value| ("balance_after", value.to_string())),
            self.currency.as_ref().map(|value| ("currency", value.to_string())),
            self.order_id.as_ref().map(|value| ("order_id", value.to_string())),
            self.reference.as_ref().map(|value| ("reference", value.to_string())),
            self.created_from.as_ref().map(|value| ("created_from", value.to_rfc3339_opts(SecondsFormat::AutoSi, true))),
            self.created_to.as_ref().map(|value| ("created_to", value.to_rfc3339_opts(SecondsFormat::AutoSi, true))),
        ];
        pairs.into_iter().flatten().collect()
    }
}

/// Wallets.
impl Client {
    /// Retrieve the low-balance notice of a wallet.
    ///
    /// Returns the amount below which the account's owners are told about the balance. A change shows within seconds.
    pub fn get_low_balance_notice(&self, id: i64) -> Call<models::LowBalanceNotice> {
        Call::data(self, Method::GET, format!("/client/api/wallets/{id}/notice"))
    }

    /// Retrieve a statement.
    ///
    /// Returns the balances at the start and the end of a period, and every transaction in between, oldest first. The
    /// response is JSON, or CSV with `Accept: text/csv`. Transactions recorded while the statement is being sent are
    /// not included.
    pub fn get_statement(&self, id: i64, query: &GetStatementQuery) -> Call<models::Statement> {
        Call::data(self, Method::GET, format!("/api/v1/wallets/{id}/statement")).query(query.pairs())
    }

    /// List low-balance notices.
    ///
    /// Returns the notices of all wallets of the account that have an amount, by the ID of the wallet. A change shows
    /// within seconds.
    pub fn list_low_balance_notices(&self) -> Call<Vec<models::LowBalanceNotice>> {
        Call::list(self, Method::GET, "/client/api/wallets/notices".to_owned(), "notices")
    }

    /// List wallets.
    ///
    /// Returns the account's wallets, newest first.
    pub fn list_wallets(&self, query: &ListWalletsQuery) -> Call<Page<models::Wallet>> {
        Call::page(self, Method::GET, "/api/v1/wallets".to_owned(), "wallets").query(query.pairs())
    }

    /// Set the low-balance notice of a wallet.
    ///
    /// A movement that takes the balance below the amount makes one notice to the account's owners. There is no
    /// further one until the balance has been at least the amount again. Requires the role operator.
    pub fn set_low_balance_notice(&self, id: i64, body: &models::SetNotice) -> Call<models::LowBalanceNotice> {
        Call::data(self, Method::PUT, format!("/client/api/wallets/{id}/notice")).json(Some(body))
    }
}

/// Query of [`Client::get_statement`].
#[derive(Clone, Debug, Default, PartialEq)]
pub struct GetStatementQuery {
    /// Only transactions at or after this time. Default: the wallet's first transaction.
    pub from: Option<DateTime<Utc>>,
    /// Only transactions before this time. Default: now.
    pub to: Option<DateTime<Utc>>,
    /// Whether to return only balances and sums, which is fast for any period. `transactions` is then empty. Default:
    /// false.
    pub totals_only: Option<bool>,
}

impl GetStatementQuery {
    fn pairs(&self) -> Vec<(&'static str, String)> {
        let pairs = [
            self.from.as_ref().map(|value| ("from", value.to_rfc3339_opts(SecondsFormat::AutoSi, true))),
            self.to.as_ref().map(|value| ("to", value.to_rfc3339_opts(SecondsFormat::AutoSi, true))),
            self.totals_only.as_ref().map(|value| ("totals_only", value.to_string())),
        ];
        pairs.into_iter().flatten().collect()
    }
}

/// Query of [`Client::list_wallets`].
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ListWalletsQuery {
    /// Page number, from 1. Default: 1.
    pub page: Option<i64>,
    /// Wallets per page, 1 to 100. Default: 20.
    pub limit: Option<i64>,
}

impl ListWalletsQuery {
    fn pairs(&self) -> Vec<(&'static str, String)> {
        let pairs = [
            self.page.as_ref().map(|value| ("page", value.to_string())),
            self.limit.as_ref().map(|value| ("limit", value.to_string())),
        ];
        pairs.into_iter().flatten().collect()
    }
}

/// Webhooks.
impl Client {
    /// Change a webhook.
    ///
    /// Changes the given fields. With `credential_id`, the credential's signing secret becomes the token. A linked
    /// webhook cannot be unlinked. Linking a webhook, or changing the `url` of a linked one, requires the role owner
    /// or a request made with that credential. The reason is that the URL receives the secret.
    pub fn change_webhook(&self, id: i64, body: &models::ChangeWebhook) -> Call<models::Webhook> {
        Call::data(self, Method::PUT, format!("/api/v1/webhooks/{id}")).json(Some(body))
    }

    /// Count a webhook's attempts by day.
    ///
    /// Returns the number of delivery attempts of each day (UTC) up to today, and how long they took. Attempts are
    /// counted since the release that added this operation.
    pub fn count_attempts(&self, id: i64, query: &CountAttemptsQuery) -> Call<models::WebhookStatistics> {
        Call::data(self, Method::GET, format!("/api/v1/webhooks/{id}/stats")).query(query.pairs())
    }

    /// Count the attempts of all webhooks by day.
    ///
    /// Returns the number of delivery attempts of each day (UTC) up to today, and how long they took, for each
    /// webhook of the account. Deleted webhooks are left out.
    pub fn count_attempts_by_webhook(&self, query: &CountAttemptsByWebhookQuery) -> Call<models::AttemptsByWebhook> {
        Call::data(self, Method::GET, "/api/v1/webhooks/stats".to_owned()).query(query.pairs())
    }

    /// Delete a webhook.
    ///
    /// Deletes the webhook. Its pending deliveries fail. The history of its deliveries is kept.
    pub fn delete_webhook(&self, id: i64) -> Call<models::DeletedWebhook> {
        Call::data(self, Method::DELETE, format!("/api/v1/webhooks/{id}"))
    }

    /// Explain a webhook's deliveries of an order.
    ///
    /// Returns each event of an order, whether the webhook received it, and why or why not. The state of the webhook
    /// when the event happened decides that, as recorded in the log. Also works for a webhook that is deleted.
    pub fn explain_webhook(&self, id: i64, query: &ExplainWebhookQuery) -> Call<models::WebhookExplanation> {
        Call::data(self, Method::GET, format!("/api/v1/webhooks/{id}/explanation")).query(query.pairs())
    }

    /// Retrieve a webhook.
    ///
    /// Returns the webhook without its token.
    pub fn get_webhook(&self, id: i64) -> Call<models::Webhook> {
        Call::data(self, Method::GET, format!("/api/v1/webhooks/{id}"))
    }

    /// List a webhook's attempts.
    ///
    /// Returns the attempts to deliver events to the webhook, the latest first. A period has the attempts that ended
    /// in it, as in the counts by day of `GET /api/v1/webhooks/{id}/stats`, or that began in it if they have no
    /// recorded outcome. A page ends after a bounded scan, so continue until `next_before` is null. Old attempts are
    /// removed, and attempts from before the release that added this operation are left out.
    pub fn list_webhook_attempts(&self, id: i64, query: &ListWebhookAttemptsQuery) -> Call<models::WebhookAttempts> {
        Call::data(self, Method::GET, format!("/api/v1/webhooks/{id}/attempts")).query(query.pairs())
    }

    /// List a webhook's replays.
    ///
    /// Returns the replays of a webhook, newest first. Operators of the service can start and cancel replays, too.
    pub fn list_webhook_replays(&self, id: i64, query: &ListWebhookReplaysQuery) -> Call<Page<models::WebhookReplay>> {
        Call::page(self, Method::GET, format!("/api/v1/webhooks/{id}/replays"), "replays").query(query.pairs())
    }

    /// List webhooks.
    ///
    /// Returns the account's webhooks, newest first.
    pub fn list_webhooks(&self, query: &ListWebhooksQuery) -> Call<Page<models::Webhook>> {
        Call::page(self, Method::GET, "/api/v1/webhooks".to_owned(), "webhooks").query(query.pairs())
    }

    /// Register a webhook.
    ///
    /// Creates a webhook. Its token is shown only in this response, which has no `success` and `data` wrapper. An
    /// account can have at most 20 webhooks. To verify deliveries, see [Receiving webhooks](/docs/guides/webhooks).
    pub fn register_webhook(&self, body: &models::RegisterWebhook) -> Call<models::RegisteredWebhook> {
        Call::bare(self, Method::POST, "/api/v1/webhooks".to_owned()).json(Some(body)).keyed()
    }

    /// Replay events to a webhook.
    ///
    /// Delivers events again that never reached the webhook and have no pending delivery, as far as it is subscribed
    /// to their types. Creates at most 50 deliveries per second. Each has five attempts of its own, with the same
    /// `event_id` and the same bytes as before. A webhook can have one running replay at a time.
    ///
    /// With `dry_run`, the events are only counted, and the status is 200. One dry run covers at most 500,000
    /// positions of the log. To count a longer range, start the next dry run at `next_position` of the previous one.
    pub fn replay_events(&self, id: i64, body: &models::ReplayEvents) -> Call<models::ReplayRequested> {
        Call::data(self, Method::POST, format!("/api/v1/webhooks/{id}/replays")).json(Some(body)).keyed()
    }

    /// Rotate a webhook's token.
    ///
    /// Replaces the webhook's token. Deliveries are signed with the new token from now on. The token is shown only in
    /// this response. Fails with 409 if the webhook is linked to a credential: rotate the credential's signing secret
    /// instead.
    ///
    /// With `previous_valid_hours`, deliveries carry a second signature for that time, made with the replaced token,
    /// in the header `X-Signature-Previous`. See [Receiving webhooks](/docs/guides/webhooks).
    pub fn rotate_webhook_token(&self, id: i64, body: Option<&models::RotateToken>) -> Call<models::RotatedToken> {
        Call::data(self, Method::POST, format!("/api/v1/webhooks/{id}/rotate-token")).json(body).keyed()
    }

    /// Test a webhook.
    ///
    /// Creates a real delivery with sample data: of the given `event_type`, or of the first event type that the
    /// webhook is subscribed to. Its `order_id` and `data.id` are 0, and `data.reference_code` is `TEST`. It is
    /// signed, retried and listed like any other delivery.
    pub fn test_webhook(&self, id: i64, body: Option<&models::TestWebhook>) -> Call<models::WebhookTest> {
        Call::data(self, Method::POST, format!("/api/v1/webhooks/{id}/test")).json(body).keyed()
    }
}

/// Query of [`Client::count_attempts`].
#[derive(Clone, Debug, Default, PartialEq)]
pub struct CountAttemptsQuery {
    /// Number of days up to today, 1 to 92. Default: 30.
    pub days: Option<i64>,
}

impl CountAttemptsQuery {
    fn pairs(&self) -> Vec<(&'static str, String)> {
        let pairs = [self.days.as_ref().map(|value| ("days", value.to_string()))];
        pairs.into_iter().flatten().collect()
    }
}

/// Query of [`Client::count_attempts_by_webhook`].
#[derive(Clone, Debug, Default, PartialEq)]
pub struct CountAttemptsByWebhookQuery {
    /// Number of days up to today, 1 to 92. Default: 30.
    pub days: Option<i64>,
}

impl CountAttemptsByWebhookQuery {
    fn pairs(&self) -> Vec<(&'static str, String)> {
        let pairs = [self.days.as_ref().map(|value| ("days", value.to_string()))];
        pairs.into_iter().flatten().collect()
    }
}

/// Query of [`Client::explain_webhook`].
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ExplainWebhookQuery {
    /// Unique identifier of the order.
    pub order_id: i64,
}

impl ExplainWebhookQuery {
    fn pairs(&self) -> Vec<(&'static str, String)> {
        let pairs = [Some(&self.order_id).map(|value| ("order_id", value.to_string()))];
        pairs.into_iter().flatten().collect()
    }
}

/// Query of [`Client::list_webhook_attempts`].
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ListWebhookAttemptsQuery {
    /// Only attempts with this outcome.
    pub outcome: Option<models::AttemptOutcome>,
    /// Only attempts that ended at or after this time.
    pub since: Option<DateTime<Utc>>,
    /// Only attempts that ended before this time.
    pub until: Option<DateTime<Utc>>,
    /// Only attempts before this one: `next_before` of the previous page.
    pub before: Option<String>,
    /// Attempts per page, 1 to 100. Default: 20.
    pub limit: Option<i64>,
}

impl ListWebhookAttemptsQuery {
    fn pairs(&self) -> Vec<(&'static str, String)> {
        let pairs = [
            self.outcome.as_ref().map(|value| ("outcome", value.to_string())),
            self.since.as_ref().map(|value| ("since", value.to_rfc3339_opts(SecondsFormat::AutoSi, true))),
            self.until.as_ref().map(|value| ("until", value.to_rfc3339_opts(SecondsFormat::AutoSi, true))),
            self.before.as_ref().map(|value| ("before", value.to_string())),
            self.limit.as_ref().map(|value| ("limit", value.to_string())),
        ];
        pairs.into_iter().flatten().collect()
    }
}

/// Query of [`Client::list_webhook_replays`].
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ListWebhookReplaysQuery {
    /// Page number, from 1. Default: 1.
    pub page: Option<i64>,
    /// Replays per page, 1 to 100. Default: 20.
    pub limit: Option<i64>,
}

impl ListWebhookReplaysQuery {
    fn pairs(&self) -> Vec<(&'static str, String)> {
        let pairs = [
            self.page.as_ref().map(|value| ("page", value.to_string())),
            self.limit.as_ref().map(|value| ("limit", value.to_string())),
        ];
        pairs.into_iter().flatten().collect()
    }
}

/// Query of [`Client::list_webhooks`].
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ListWebhooksQuery {
    /// Page number, from 1. Default: 1.
    pub page: Option<i64>,
    /// Webhooks per page, 1 to 100. Default: 20.
    pub limit: Option<i64>,
}

impl ListWebhooksQuery {
    fn pairs(&self) -> Vec<(&'static str, String)> {
        let pairs = [
            self.page.as_ref().map(|value| ("page", value.to_string())),
            self.limit.as_ref().map(|value| ("limit", value.to_string())),
        ];
        pairs.into_iter().flatten().collect()
    }
}
