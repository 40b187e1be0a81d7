// Code generated from openapi/client-v1.json by openapi-generator. DO NOT EDIT: run clients/generate go.

package ledger

import (
	"context"
	"net/http"
	"net/url"
	"time"
)

// CreateAPIKey: Create an API key.
//
// Creates an API key for the account. Key and secret are shown only in this response. `scopes`, `expires_at` and
// `allowed_networks` restrict the key; they cannot be changed later. Returns 409 `E_ALREADY_CREATED` for a
// repeated request with the same `Idempotency-Key`. Requires the role owner.
func (c *Client) CreateAPIKey(ctx context.Context, body IssueCredential, options ...CallOption) (*IssuedCredential, error) {
	return callData[IssuedCredential](ctx, c, call{method: http.MethodPost, path: "/client/api/api-keys", body: body, keyed: true}, options)
}

// GetAPIKey: Retrieve an API key.
//
// Returns an API key of the account, revoked or not, without its secret.
func (c *Client) GetAPIKey(ctx context.Context, id int64, options ...CallOption) (*APIKey, error) {
	return callData[APIKey](ctx, c, call{method: http.MethodGet, path: expand("/client/api/api-keys/{id}", "id", id)}, options)
}

// ListAPIKeys: List API keys.
//
// Returns the account's API keys, newest first, revoked ones included.
func (c *Client) ListAPIKeys(query ListAPIKeysQuery, options ...CallOption) *Pages[APIKey] {
	return newPages[APIKey](c, "api_keys", call{method: http.MethodGet, path: "/client/api/api-keys", query: query.values()}, options)
}

// ListAPIKeysQuery is the query of [Client.ListAPIKeys]. Zero values are left out.
type ListAPIKeysQuery struct {
	// Page number, from 1. Default: 1.
	Page int64
	// Keys per page, 1 to 100. Default: 20.
	Limit int64
}

func (q ListAPIKeysQuery) values() url.Values {
	values := url.Values{}
	setValue(values, "page", q.Page)
	setValue(values, "limit", q.Limit)
	return values
}

// RevokeAPIKey: Revoke an API key.
//
// Takes effect on the next request with the key. Webhooks linked to the key keep working. Requires the role
// owner.
func (c *Client) RevokeAPIKey(ctx context.Context, id int64, options ...CallOption) (*APIKey, error) {
	return callData[APIKey](ctx, c, call{method: http.MethodDelete, path: expand("/client/api/api-keys/{id}", "id", id)}, options)
}

// RotateSigningSecret: Rotate a signing secret.
//
// Replaces the signing secret of an API key. Requests with the key, and deliveries of webhooks linked to it, are
// signed with the new secret from now on. The secret is shown only in this response. Requires the role owner.
//
// With `previous_valid_hours`, deliveries carry a second signature for that time, made with the replaced secret,
// in the header `X-Signature-Previous`. Requests need the new secret at once.
func (c *Client) RotateSigningSecret(ctx context.Context, id int64, body *RotateSecret, options ...CallOption) (*RotatedSecret, error) {
	return callData[RotatedSecret](ctx, c, call{method: http.MethodPost, path: expand("/client/api/api-keys/{id}/rotate-signing-secret", "id", id), body: optional(body)}, options)
}

// AddBeneficiary: Add a beneficiary.
//
// Adds an account that payouts can be sent to. The account number is stored encrypted. Responses contain its
// last four characters only.
func (c *Client) AddBeneficiary(ctx context.Context, body AddBeneficiary, options ...CallOption) (*Beneficiary, error) {
	return callData[Beneficiary](ctx, c, call{method: http.MethodPost, path: "/api/v1/beneficiaries", body: body, keyed: true}, options)
}

// DeleteBeneficiary: Delete a beneficiary.
//
// No new payout can be made to a deleted beneficiary. Existing payouts, pending ones included, are not affected.
func (c *Client) DeleteBeneficiary(ctx context.Context, id int64, options ...CallOption) (*DeletedBeneficiary, error) {
	return callData[DeletedBeneficiary](ctx, c, call{method: http.MethodDelete, path: expand("/api/v1/beneficiaries/{id}", "id", id)}, options)
}

// GetBeneficiary: Retrieve a beneficiary.
//
// Returns 404 after the beneficiary is deleted or the person's data is erased.
func (c *Client) GetBeneficiary(ctx context.Context, id int64, options ...CallOption) (*Beneficiary, error) {
	return callData[Beneficiary](ctx, c, call{method: http.MethodGet, path: expand("/api/v1/beneficiaries/{id}", "id", id)}, options)
}

// ListBeneficiaries: List beneficiaries.
//
// Returns the account's beneficiaries, newest first.
func (c *Client) ListBeneficiaries(query ListBeneficiariesQuery, options ...CallOption) *Pages[Beneficiary] {
	return newPages[Beneficiary](c, "beneficiaries", call{method: http.MethodGet, path: "/api/v1/beneficiaries", query: query.values()}, options)
}

// ListBeneficiariesQuery is the query of [Client.ListBeneficiaries]. Zero values are left out.
type ListBeneficiariesQuery struct {
	// Page number, from 1. Default: 1.
	Page int64
	// Beneficiaries per page, 1 to 100. Default: 20.
	Limit int64
}

func (q ListBeneficiariesQuery) values() url.Values {
	values := url.Values{}
	setValue(values, "page", q.Page)
	setValue(values, "limit", q.Limit)
	return values
}

// CountDeliveries: Count deliveries.
//
// Returns the account's delivery counts by status, in total and for the last 24 hours.
func (c *Client) CountDeliveries(ctx context.Context, options ...CallOption) (*DeliveryStatistics, error) {
	return callData[DeliveryStatistics](ctx, c, call{method: http.MethodGet, path: "/api/v1/webhooks/deliveries/stats"}, options)
}

// GetDelivery: Retrieve a delivery.
//
// Returns the delivery with its complete payload, your endpoint's latest response, and its attempts with their
// responses.
func (c *Client) GetDelivery(ctx context.Context, id int64, options ...CallOption) (*DeliveryDetail, error) {
	return callData[DeliveryDetail](ctx, c, call{method: http.MethodGet, path: expand("/api/v1/webhooks/deliveries/{id}", "id", id)}, options)
}

// ListDeliveries: List deliveries.
//
// Returns the deliveries of all webhooks of the account, newest first.
func (c *Client) ListDeliveries(query ListDeliveriesQuery, options ...CallOption) *Pages[Delivery] {
	return newPages[Delivery](c, "deliveries", call{method: http.MethodGet, path: "/api/v1/webhooks/deliveries", query: query.values()}, options)
}

// ListDeliveriesQuery is the query of [Client.ListDeliveries]. Zero values are left out.
type ListDeliveriesQuery struct {
	// Page number, from 1. Default: 1.
	Page int64
	// Deliveries per page, 1 to 100. Default: 20.
	Limit int64
	// Only deliveries with this status.
	Status DeliveryStatus
	// Only deliveries of this event type.
	EventType WebhookEventType
	// Only deliveries about this order.
	OrderID int64
	// Only deliveries to this webhook.
	WebhookURLID int64
	// Only deliveries that this replay made.
	ReplayID int64
	// Only deliveries made at or after this time.
	CreatedFrom time.Time
	// Only deliveries made before this time.
	CreatedTo time.Time
}

func (q ListDeliveriesQuery) values() url.Values {
	values := url.Values{}
	setValue(values, "page", q.Page)
	setValue(values, "limit", q.Limit)
	setValue(values, "status", q.Status)
	setValue(values, "event_type", q.EventType)
	setValue(values, "order_id", q.OrderID)
	setValue(values, "webhook_url_id", q.WebhookURLID)
	setValue(values, "replay_id", q.ReplayID)
	setValue(values, "created_from", q.CreatedFrom)
	setValue(values, "created_to", q.CreatedTo)
	return values
}

// RetryDelivery: Retry a delivery.
//
// Makes a `failed` delivery `pending` again if it has attempts left, for example because its webhook was
// deactivated. The attempts already used still count, and the webhook must be active. The retry is sent within a
// minute.
func (c *Client) RetryDelivery(ctx context.Context, id int64, options ...CallOption) (*DeliveryRetry, error) {
	return callData[DeliveryRetry](ctx, c, call{method: http.MethodPost, path: expand("/api/v1/webhooks/deliveries/{id}/retry", "id", id), keyed: true}, options)
}

// ListEvents: List events.
//
// Returns the account's events in the order in which they happened, oldest first, with the same envelopes as
// webhooks. No webhook is needed. Begin without `after`, with `since` to begin at a time, or with `after=latest`
// to skip the past. Continue with the `cursor` of each response. A cursor survives restarts and upgrades of the
// service. Events are kept as long as the ledger exists.
//
// With `wait`, a request that finds no event waits for one. It is answered as soon as there is one, or with an
// empty list after that time. At most 10 requests of an account can wait at a time. Further ones fail with 503.
//
// If the request is signed, the service signs the page with the same secret, as it signs a webhook. Verify
// `X-Signature` and `X-Timestamp` over the raw body. See [Receiving webhooks](/docs/guides/webhooks).
func (c *Client) ListEvents(ctx context.Context, query ListEventsQuery, options ...CallOption) (*EventPage, error) {
	return callData[EventPage](ctx, c, call{method: http.MethodGet, path: "/api/v1/events", query: query.values()}, options)
}

// ListEventsQuery is the query of [Client.ListEvents]. Zero values are left out.
type ListEventsQuery struct {
	// Only events after this cursor. `latest` means the events from now on. Default: all events.
	After string
	// Only events recorded at or after this time. If there is none yet, the events from now on. Cannot be combined
	// with `after`.
	Since time.Time
	// Seconds to wait for an event if there is none yet, 0 to 30. Default: 0.
	Wait int64
	// Only events of these types, separated by commas, such as `order.delivered,order.cancelled`.
	Types string
	// Maximum number of events, 1 to 100. Default: 20.
	Limit int64
}

func (q ListEventsQuery) values() url.Values {
	values := url.Values{}
	setValue(values, "after", q.After)
	setValue(values, "since", q.Since)
	setValue(values, "wait", q.Wait)
	setValue(values, "types", q.Types)
	setValue(values, "limit", q.Limit)
	return values
}

// CancelOrder: Cancel an order.
//
// Cancels the undelivered units and refunds them to the wallet. Vouchers that are already delivered stay valid.
// Fails with 409 `E_ORDER_NOT_CANCELLABLE` if the order is `DELIVERED` or `CANCELLED`.
func (c *Client) CancelOrder(ctx context.Context, id int64, body *CancelOrder, options ...CallOption) (*Order, error) {
	return callData[Order](ctx, c, call{method: http.MethodPost, path: expand("/api/v1/orders/{id}/cancel", "id", id), body: optional(body), keyed: true}, options)
}

// CountOrders: Count orders by day.
//
// Returns the number of orders and the spend of each day (UTC), up to today, and the number of all orders in
// each status.
func (c *Client) CountOrders(ctx context.Context, query CountOrdersQuery, options ...CallOption) (*OrderStatistics, error) {
	return callData[OrderStatistics](ctx, c, call{method: http.MethodGet, path: "/api/v1/orders/stats", query: query.values()}, options)
}

// CountOrdersQuery is the query of [Client.CountOrders]. Zero values are left out.
type CountOrdersQuery struct {
	// Number of days up to today, 1 to 92. Default: 30.
	Days int64
}

func (q CountOrdersQuery) values() url.Values {
	values := url.Values{}
	setValue(values, "days", q.Days)
	return values
}

// GetOrder: Retrieve an order.
//
// Returns the order as it is now. To learn of changes, prefer a webhook. If you poll, wait at least 10 seconds
// between requests, or 60 seconds while the order is `DELAYED`.
func (c *Client) GetOrder(ctx context.Context, id int64, options ...CallOption) (*Order, error) {
	return callData[Order](ctx, c, call{method: http.MethodGet, path: expand("/api/v1/orders/{id}", "id", id)}, options)
}

// GetOrderVouchers: Retrieve voucher codes.
//
// Returns the codes of all vouchers of the order that are delivered so far. Every read is recorded. Requires an
// API key, or a user with the role operator or owner. Returns 404 once the codes are erased; the order itself
// still exists.
//
// With `Accept: text/csv`, the vouchers are returned as CSV.
func (c *Client) GetOrderVouchers(ctx context.Context, id int64, options ...CallOption) (*Vouchers, error) {
	return callData[Vouchers](ctx, c, call{method: http.MethodGet, path: expand("/api/v1/orders/{id}/vouchers", "id", id)}, options)
}

// GetOwnOrderHistory: Retrieve the history of an order.
//
// Returns every event of the order with its actor, time and wallet transaction. Webhook deliveries are included
// with all attempts and retries.
//
// If codes were read very often, not every reading is listed: `entries_left_out` is the number omitted.
func (c *Client) GetOwnOrderHistory(ctx context.Context, id int64, options ...CallOption) (*OrderTimeline, error) {
	return callData[OrderTimeline](ctx, c, call{method: http.MethodGet, path: expand("/api/v1/orders/{id}/history", "id", id)}, options)
}

// ListOrders: List orders.
//
// Returns the account's orders, newest first.
func (c *Client) ListOrders(query ListOrdersQuery, options ...CallOption) *Pages[Order] {
	return newPages[Order](c, "orders", call{method: http.MethodGet, path: "/api/v1/orders", query: query.values()}, options)
}

// ListOrdersQuery is the query of [Client.ListOrders]. Zero values are left out.
type ListOrdersQuery struct {
	// Page number, from 1. Default: 1.
	Page int64
	// Orders per page, 1 to 100. Default: 20.
	Limit int64
	// Only orders with this status.
	Status OrderStatus
	// Only orders of this product.
	ProductID int64
	// Only the order with this reference code.
	ReferenceCode string
	// Only the order with this client reference.
	ClientReference string
	// Only orders placed at or after this time.
	CreatedFrom time.Time
	// Only orders placed before this time.
	CreatedTo time.Time
}

func (q ListOrdersQuery) values() url.Values {
	values := url.Values{}
	setValue(values, "page", q.Page)
	setValue(values, "limit", q.Limit)
	setValue(values, "status", q.Status)
	setValue(values, "product_id", q.ProductID)
	setValue(values, "reference_code", q.ReferenceCode)
	setValue(values, "client_reference", q.ClientReference)
	setValue(values, "created_from", q.CreatedFrom)
	setValue(values, "created_to", q.CreatedTo)
	return values
}

// PlaceOrder: Place an order.
//
// Prices the order, debits the wallet in the product's currency and records both in one step. If any part fails,
// nothing happens. Returns 201 with the new order, whose status is always `PENDING`. Returns 200 with the
// existing order if the same request was sent with the same `client_reference` before.
func (c *Client) PlaceOrder(ctx context.Context, body PlaceOrder, options ...CallOption) (*Order, error) {
	return callData[Order](ctx, c, call{method: http.MethodPost, path: "/api/v1/orders", body: body, keyed: true}, options)
}

// QuoteCharge: Price an order.
//
// Prices the order as if it were placed now, and fails for the same reasons. The only exception is a low
// balance, which `sufficient_balance` reports instead. Nothing is recorded, so a suspended account can also
// price orders.
func (c *Client) QuoteCharge(ctx context.Context, body QuoteCharge, options ...CallOption) (*Charge, error) {
	return callData[Charge](ctx, c, call{method: http.MethodPost, path: "/api/v1/charges", body: body, keyed: true}, options)
}

// CancelPayout: Cancel a payout.
//
// Cancels a `PENDING` payout and returns its amount to the wallet. Fails with 409 `E_PAYOUT_NOT_CANCELLABLE` if
// the payout has any other status.
func (c *Client) CancelPayout(ctx context.Context, id int64, options ...CallOption) (*Payout, error) {
	return callData[Payout](ctx, c, call{method: http.MethodPost, path: expand("/api/v1/payouts/{id}/cancel", "id", id), keyed: true}, options)
}

// GetPayout: Retrieve a payout.
//
// Returns the payout as it is now.
func (c *Client) GetPayout(ctx context.Context, id int64, options ...CallOption) (*Payout, error) {
	return callData[Payout](ctx, c, call{method: http.MethodGet, path: expand("/api/v1/payouts/{id}", "id", id)}, options)
}

// ListPayouts: List payouts.
//
// Returns the account's payouts, newest first.
func (c *Client) ListPayouts(query ListPayoutsQuery, options ...CallOption) *Pages[Payout] {
	return newPages[Payout](c, "payouts", call{method: http.MethodGet, path: "/api/v1/payouts", query: query.values()}, options)
}

// ListPayoutsQuery is the query of [Client.ListPayouts]. Zero values are left out.
type ListPayoutsQuery struct {
	// Page number, from 1. Default: 1.
	Page int64
	// Payouts per page, 1 to 100. Default: 20.
	Limit int64
	// Only payouts with this status.
	Status PayoutStatus
	// Only payouts to this beneficiary.
	BeneficiaryID int64
	// Only payouts from this wallet.
	WalletID int64
	// Only the payout with this client reference.
	ClientReference string
	// Only payouts requested at or after this time.
	CreatedFrom time.Time
	// Only payouts requested before this time.
	CreatedTo time.Time
}

func (q ListPayoutsQuery) values() url.Values {
	values := url.Values{}
	setValue(values, "page", q.Page)
	setValue(values, "limit", q.Limit)
	setValue(values, "status", q.Status)
	setValue(values, "beneficiary_id", q.BeneficiaryID)
	setValue(values, "wallet_id", q.WalletID)
	setValue(values, "client_reference", q.ClientReference)
	setValue(values, "created_from", q.CreatedFrom)
	setValue(values, "created_to", q.CreatedTo)
	return values
}

// RequestPayout: Request a payout.
//
// Debits the wallet and records the payout in one step. If either fails, nothing happens. Returns 201 with the
// new payout, which is `PENDING` until an operator settles it. Returns 200 with the existing payout if the same
// request was sent with the same `client_reference` before.
func (c *Client) RequestPayout(ctx context.Context, body RequestPayout, options ...CallOption) (*Payout, error) {
	return callData[Payout](ctx, c, call{method: http.MethodPost, path: "/api/v1/payouts", body: body, keyed: true}, options)
}

// GetProduct: Retrieve a product.
//
// Returns an active product with your account's discount. 404 if the product is inactive.
func (c *Client) GetProduct(ctx context.Context, id int64, options ...CallOption) (*Product, error) {
	return callData[Product](ctx, c, call{method: http.MethodGet, path: expand("/api/v1/products/{id}", "id", id)}, options)
}

// GetProductImage: Retrieve a product's image.
//
// Returns the image's URL and media type. 404 if the product is inactive or has no image.
func (c *Client) GetProductImage(ctx context.Context, id int64, options ...CallOption) (*ProductImage, error) {
	return callData[ProductImage](ctx, c, call{method: http.MethodGet, path: expand("/api/v1/products/{id}/image", "id", id)}, options)
}

// GetProductImageBytes: Download an image.
//
// Returns the bytes of the image at `image_url`. The URL of a replaced image returns 404.
func (c *Client) GetProductImageBytes(ctx context.Context, id int64, version string, query GetProductImageBytesQuery, options ...CallOption) ([]byte, error) {
	return callBytes(ctx, c, call{method: http.MethodGet, path: expand("/api/v1/products/{id}/image/{version}", "id", id, "version", version), query: query.values()}, options)
}

// GetProductImageBytesQuery is the query of [Client.GetProductImageBytes]. Zero values are left out.
type GetProductImageBytesQuery struct {
	// Size of the image. Default: `original`.
	Size ImageSize
}

func (q GetProductImageBytesQuery) values() url.Values {
	values := url.Values{}
	setValue(values, "size", q.Size)
	return values
}

// ListProductImages: List product images.
//
// Returns the images of all active products that have one, newest products first.
func (c *Client) ListProductImages(query ListProductImagesQuery, options ...CallOption) *Pages[ProductImage] {
	return newPages[ProductImage](c, "images", call{method: http.MethodGet, path: "/api/v1/products/images", query: query.values()}, options)
}

// ListProductImagesQuery is the query of [Client.ListProductImages]. Zero values are left out.
type ListProductImagesQuery struct {
	// Page number, from 1. Default: 1.
	Page int64
	// Images per page, 1 to 100. Default: 20.
	Limit int64
}

func (q ListProductImagesQuery) values() url.Values {
	values := url.Values{}
	setValue(values, "page", q.Page)
	setValue(values, "limit", q.Limit)
	return values
}

// ListProducts: List products.
//
// Returns the active products, newest first, each with your account's discount. With `updated_since`, the list
// also includes products that are no longer active, so that you can keep a copy of the catalogue current. A
// discount is not part of a product: when it changes, `updated_at` does not, and `updated_since` does not find
// it.
func (c *Client) ListProducts(query ListProductsQuery, options ...CallOption) *Pages[Product] {
	return newPages[Product](c, "products", call{method: http.MethodGet, path: "/api/v1/products", query: query.values()}, options)
}

// ListProductsQuery is the query of [Client.ListProducts]. Zero values are left out.
type ListProductsQuery struct {
	// Page number, from 1. Default: 1.
	Page int64
	// Products per page, 1 to 10,000. Default: 50.
	Limit int64
	// Alias of `limit`. If both are given, `limit` takes precedence.
	PerPage int64
	// Only the products with these IDs, separated by commas: at most 1,000.
	IDs string
	// Only products in this category.
	CategoryID int64
	// Only products of this country, as an ISO 3166-1 alpha-2 code.
	Country string
	// Only products in this currency, as an ISO 4217 code.
	Currency string
	// Only products whose name or brand contains this text, ignoring case.
	Search string
	// Only products that changed at or after this time, active or not.
	UpdatedSince time.Time
}

func (q ListProductsQuery) values() url.Values {
	values := url.Values{}
	setValue(values, "page", q.Page)
	setValue(values, "limit", q.Limit)
	setValue(values, "per_page", q.PerPage)
	setValue(values, "ids", q.IDs)
	setValue(values, "category_id", q.CategoryID)
	setValue(values, "country", q.Country)
	setValue(values, "currency", q.Currency)
	setValue(values, "search", q.Search)
	setValue(values, "updated_since", q.UpdatedSince)
	return values
}

// ListCategories: List categories.
//
// Returns the product categories, sorted by name, all on one page. Cache the list for a day.
func (c *Client) ListCategories(ctx context.Context, options ...CallOption) ([]Category, error) {
	return callList[Category](ctx, c, "categories", call{method: http.MethodGet, path: "/api/v1/categories"}, options)
}

// ListCountries: List countries.
//
// Returns the countries of ISO 3166-1, and `XK` (Kosovo), sorted by code, all on one page. Cache the list for a
// day.
func (c *Client) ListCountries(ctx context.Context, options ...CallOption) ([]Country, error) {
	return callList[Country](ctx, c, "countries", call{method: http.MethodGet, path: "/api/v1/countries"}, options)
}

// ListCurrencies: List currencies.
//
// Returns the ISO 4217 currencies that products and wallets can have, sorted by code, all on one page. These are
// the currencies in circulation with at most two decimals. Currencies with three decimals, such as `KWD`, are
// not supported and not listed. Cache the list for a day.
func (c *Client) ListCurrencies(ctx context.Context, options ...CallOption) ([]Currency, error) {
	return callList[Currency](ctx, c, "currencies", call{method: http.MethodGet, path: "/api/v1/currencies"}, options)
}

// FundOwnWallet: Fund your own wallet.
//
// Adds test money to one of your wallets. It is available at once and has no real value. This operation exists
// in the sandbox only; elsewhere it returns 404.
func (c *Client) FundOwnWallet(ctx context.Context, id int64, body FundOwnWallet, options ...CallOption) (*Transaction, error) {
	return callData[Transaction](ctx, c, call{method: http.MethodPost, path: expand("/api/v1/sandbox/wallets/{id}/fund", "id", id), body: body, keyed: true}, options)
}

// ListSentMails: List sent mails.
//
// Returns up to 100 mails that the sandbox has sent to the account's users and to the people they invited,
// newest first. A mail is listed until its link expires, and at most a week. This operation exists in a sandbox
// and in the demo only; elsewhere it returns 404. Requires the role owner.
func (c *Client) ListSentMails(ctx context.Context, options ...CallOption) ([]SentMail, error) {
	return callList[SentMail](ctx, c, "mails", call{method: http.MethodGet, path: "/client/api/outbox"}, options)
}

// AcceptInvitation: Accept an invitation.
//
// Creates the user to whom the token was sent by mail. The user can then log in. Returns 409 `E_CONFLICT` if
// another user has the email address, or if the user who sent the invitation is no longer an owner.
func (c *Client) AcceptInvitation(ctx context.Context, body ChoosePassword, options ...CallOption) (*AcceptedInvitation, error) {
	return callData[AcceptedInvitation](ctx, c, call{method: http.MethodPost, path: "/auth/invitations/accept", body: body}, options)
}

// BeginTwoFactor: Begin two-factor enrolment.
//
// Creates a secret for an authenticator app (TOTP, RFC 6238). It has no effect until a code confirms it. Returns
// 409 `E_CONFLICT` if the user has two-factor authentication.
func (c *Client) BeginTwoFactor(ctx context.Context, options ...CallOption) (*Enrolment, error) {
	return callData[Enrolment](ctx, c, call{method: http.MethodPost, path: "/client/api/two-factor"}, options)
}

// ChangePassword: Change the password.
//
// Changes the password of the signed-in user. The current session goes on; all other sessions of the user end.
// Returns 409 `E_CONFLICT` if somebody else changes the password at the same time.
func (c *Client) ChangePassword(ctx context.Context, body ChangePassword, options ...CallOption) (*Confirmation, error) {
	return callData[Confirmation](ctx, c, call{method: http.MethodPut, path: "/client/api/password", body: body}, options)
}

// ChangeSecurityPolicy: Change the security policy.
//
// Sets whether owners need two-factor authentication. From the next request on, an owner without it gets 403
// `E_TWO_FACTOR_ENROLMENT` for everything but enrolment and logout. Returns 409 `E_CONFLICT` if the owner who
// requires it has none. Requires the role owner.
func (c *Client) ChangeSecurityPolicy(ctx context.Context, body ChangeSecurityPolicy, options ...CallOption) (*SecurityPolicy, error) {
	return callData[SecurityPolicy](ctx, c, call{method: http.MethodPut, path: "/client/api/security", body: body}, options)
}

// ConfirmTwoFactor: Confirm two-factor enrolment.
//
// Enables two-factor authentication with a code of the app. Each login takes a code from now on, and the user's
// other sessions end. The recovery codes are shown only in this response. Returns 409 `E_CONFLICT` if no
// enrolment was begun.
func (c *Client) ConfirmTwoFactor(ctx context.Context, body OneTimeCode, options ...CallOption) (*RecoveryCodes, error) {
	return callData[RecoveryCodes](ctx, c, call{method: http.MethodPost, path: "/client/api/two-factor/confirm", body: body}, options)
}

// DisableTwoFactor: Disable two-factor authentication.
//
// Takes a code of the app, or a recovery code. Returns 409 `E_CONFLICT` if the user has no two-factor
// authentication.
func (c *Client) DisableTwoFactor(ctx context.Context, body OneTimeCode, options ...CallOption) (*TwoFactor, error) {
	return callData[TwoFactor](ctx, c, call{method: http.MethodDelete, path: "/client/api/two-factor", body: body}, options)
}

// EndSession: End a session.
//
// Ends a session of the signed-in user. Its tokens and its portal cookie are invalid from the next request on.
func (c *Client) EndSession(ctx context.Context, id int64, options ...CallOption) (*Confirmation, error) {
	return callData[Confirmation](ctx, c, call{method: http.MethodDelete, path: expand("/client/api/sessions/{id}", "id", id)}, options)
}

// GetSecurityPolicy: Get the security policy.
//
// Returns the account's rules for logins.
func (c *Client) GetSecurityPolicy(ctx context.Context, options ...CallOption) (*SecurityPolicy, error) {
	return callData[SecurityPolicy](ctx, c, call{method: http.MethodGet, path: "/client/api/security"}, options)
}

// GetTwoFactor: Get two-factor authentication.
//
// Returns whether the signed-in user has two-factor authentication.
func (c *Client) GetTwoFactor(ctx context.Context, options ...CallOption) (*TwoFactor, error) {
	return callData[TwoFactor](ctx, c, call{method: http.MethodGet, path: "/client/api/two-factor"}, options)
}

// ListSessions: List sessions.
//
// Returns up to 100 sessions of the signed-in user, newest first.
func (c *Client) ListSessions(ctx context.Context, options ...CallOption) ([]Session, error) {
	return callList[Session](ctx, c, "sessions", call{method: http.MethodGet, path: "/client/api/sessions"}, options)
}

// LogIn: Log in.
//
// Starts a session. Returns an access token, valid for 15 minutes, and a refresh token, valid for 7 days. Also
// sets the portal cookie, valid for 8 hours. An unknown email and a wrong password both return 401
// `E_INVALID_CREDENTIALS`. A user with two-factor authentication also sends `otp`; without it, a right password
// returns 401 `E_TWO_FACTOR_REQUIRED`. Failed logins of a user are rate limited: see [Rate limits and
// polling](/docs/guides/limits).
func (c *Client) LogIn(ctx context.Context, body Login, options ...CallOption) (*Tokens, error) {
	return callData[Tokens](ctx, c, call{method: http.MethodPost, path: "/auth/login", body: body}, options)
}

// LogOut: Log out.
//
// Ends the session. Its tokens and its portal cookie are invalid from the next request on.
func (c *Client) LogOut(ctx context.Context, options ...CallOption) (*LoggedOut, error) {
	return callData[LoggedOut](ctx, c, call{method: http.MethodPost, path: "/auth/logout"}, options)
}

// RefreshTokens: Refresh tokens.
//
// Exchanges a refresh token for a new access token and a new refresh token. A refresh token works only once. A
// second use means that it was copied, so it ends the whole session, and the user must log in again.
func (c *Client) RefreshTokens(ctx context.Context, body Refresh, options ...CallOption) (*Tokens, error) {
	return callData[Tokens](ctx, c, call{method: http.MethodPost, path: "/auth/refresh", body: body}, options)
}

// RequestPasswordReset: Request a password reset.
//
// Sends a mail with a token to the user with this email address. The token is valid for 30 minutes. The response
// is the same if there is no such user. At most 3 mails an hour are sent to an address.
func (c *Client) RequestPasswordReset(ctx context.Context, body RequestPasswordReset, options ...CallOption) (*Confirmation, error) {
	return callData[Confirmation](ctx, c, call{method: http.MethodPost, path: "/auth/password-reset", body: body}, options)
}

// ResetPassword: Reset a password.
//
// Sets a new password with the token from a mail, and ends all sessions of the user. Two-factor authentication
// stays as it is.
func (c *Client) ResetPassword(ctx context.Context, body ChoosePassword, options ...CallOption) (*Confirmation, error) {
	return callData[Confirmation](ctx, c, call{method: http.MethodPost, path: "/auth/password-reset/confirm", body: body}, options)
}

// ChangeTeamMember: Change a user's role.
//
// The change takes effect with the next request and ends all sessions of the user, who has to log in again.
// Returns 409 `E_CONFLICT` for the last owner and for a removed user. Requires the role owner.
func (c *Client) ChangeTeamMember(ctx context.Context, id int64, body ChangeTeamMember, options ...CallOption) (*TeamMember, error) {
	return callData[TeamMember](ctx, c, call{method: http.MethodPut, path: expand("/client/api/users/{id}", "id", id), body: body}, options)
}

// GetTeamMember: Retrieve a user.
//
// Returns a user of the account. Returns 404 for a removed user.
func (c *Client) GetTeamMember(ctx context.Context, id int64, options ...CallOption) (*TeamMember, error) {
	return callData[TeamMember](ctx, c, call{method: http.MethodGet, path: expand("/client/api/users/{id}", "id", id)}, options)
}

// InviteUser: Invite a user.
//
// Sends a mail with a link to the person, who chooses a password there. The invitation expires after 7 days. It
// replaces an open one to the same address, whose link stops. An account can have 100 open invitations. Requires
// the role owner.
func (c *Client) InviteUser(ctx context.Context, body InvitePerson, options ...CallOption) (*Invitation, error) {
	return callData[Invitation](ctx, c, call{method: http.MethodPost, path: "/client/api/users/invitations", body: body, keyed: true}, options)
}

// ListInvitations: List invitations.
//
// Returns the account's invitations that nobody has accepted, newest first. Requires the role owner.
func (c *Client) ListInvitations(ctx context.Context, options ...CallOption) ([]Invitation, error) {
	return callList[Invitation](ctx, c, "invitations", call{method: http.MethodGet, path: "/client/api/users/invitations"}, options)
}

// ListTeam: List users.
//
// Returns the users of the account, newest first. Removed users are not listed.
func (c *Client) ListTeam(query ListTeamQuery, options ...CallOption) *Pages[TeamMember] {
	return newPages[TeamMember](c, "users", call{method: http.MethodGet, path: "/client/api/users", query: query.values()}, options)
}

// ListTeamQuery is the query of [Client.ListTeam]. Zero values are left out.
type ListTeamQuery struct {
	// Page number, from 1. Default: 1.
	Page int64
	// Users per page, 1 to 100. Default: 20.
	Limit int64
}

func (q ListTeamQuery) values() url.Values {
	values := url.Values{}
	setValue(values, "page", q.Page)
	setValue(values, "limit", q.Limit)
	return values
}

// RemoveTeamMember: Remove a user.
//
// Takes effect with the next request and ends all sessions and tokens of the user. Returns 409 `E_CONFLICT` for
// the last owner. Requires the role owner.
func (c *Client) RemoveTeamMember(ctx context.Context, id int64, options ...CallOption) (*TeamMember, error) {
	return callData[TeamMember](ctx, c, call{method: http.MethodDelete, path: expand("/client/api/users/{id}", "id", id)}, options)
}

// RevokeInvitation: Revoke an invitation.
//
// Ends an invitation that nobody has accepted. Requires the role owner.
func (c *Client) RevokeInvitation(ctx context.Context, id int64, options ...CallOption) (*Confirmation, error) {
	return callData[Confirmation](ctx, c, call{method: http.MethodDelete, path: expand("/client/api/users/invitations/{id}", "id", id)}, options)
}

// GetTransaction: Retrieve a transaction.
//
// Returns one transaction of a wallet of the account, with the event that recorded it.
func (c *Client) GetTransaction(ctx context.Context, id int64, options ...CallOption) (*RecordedTransaction, error) {
	return callData[RecordedTransaction](ctx, c, call{method: http.MethodGet, path: expand("/api/v1/transactions/{id}", "id", id)}, options)
}

// ListTransactions: List transactions.
//
// Returns the transactions of all wallets of the account, newest first.
func (c *Client) ListTransactions(query ListTransactionsQuery, options ...CallOption) *Pages[Transaction] {
	return newPages[Transaction](c, "transactions", call{method: http.MethodGet, path: "/api/v1/transactions", query: query.values()}, options)
}

// ListTransactionsQuery is the query of [Client.ListTransactions]. Zero values are left out.
type ListTransactionsQuery struct {
	// Page number, from 1. Default: 1.
	Page int64
	// Transactions per page, 1 to 100. Default: 20.
	Limit int64
	// Only transactions of this wallet.
	WalletID int64
	// Only transactions in this direction.
	Type TransactionType
	// Only transactions of this category.
	Category TransactionCategory
	// Only transactions of exactly this amount.
	Amount string
	// Only transactions after which the balance was exactly this amount.
	BalanceAfter string
	// Only transactions in this currency, as an ISO 4217 code.
	Currency string
	// Only transactions for this order.
	OrderID int64
	// Only transactions with this reference.
	Reference string
	// Only transactions made at or after this time.
	CreatedFrom time.Time
	// Only transactions made before this time.
	CreatedTo time.Time
}

func (q ListTransactionsQuery) values() url.Values {
	values := url.Values{}
	setValue(values, "page", q.Page)
	setValue(values, "limit", q.Limit)
	setValue(values, "wallet_id", q.WalletID)
	setValue(values, "type", q.Type)
	setValue(values, "category", q.Category)
	setValue(values, "amount", q.Amount)
	setValue(values, "balance_after", q.BalanceAfter)
	setValue(values, "currency", q.Currency)
	setValue(values, "order_id", q.OrderID)
	setValue(values, "reference", q.Reference)
	setValue(values, "created_from", q.CreatedFrom)
	setValue(values, "created_to", q.CreatedTo)
	return values
}

// GetLowBalanceNotice: Retrieve the low-balance notice of a wallet.
//
// Returns the amount below which the account's owners are told about the balance. A change shows within seconds.
func (c *Client) GetLowBalanceNotice(ctx context.Context, id int64, options ...CallOption) (*LowBalanceNotice, error) {
	return callData[LowBalanceNotice](ctx, c, call{method: http.MethodGet, path: expand("/client/api/wallets/{id}/notice", "id", id)}, options)
}

// GetStatement: Retrieve a statement.
//
// Returns the balances at the start and the end of a period, and every transaction in between, oldest first. The
// response is JSON, or CSV with `Accept: text/csv`. Transactions recorded while the statement is being sent are
// not included.
func (c *Client) GetStatement(ctx context.Context, id int64, query GetStatementQuery, options ...CallOption) (*Statement, error) {
	return callData[Statement](ctx, c, call{method: http.MethodGet, path: expand("/api/v1/wallets/{id}/statement", "id", id), query: query.values()}, options)
}

// GetStatementQuery is the query of [Client.GetStatement]. Zero values are left out.
type GetStatementQuery struct {
	// Only transactions at or after this time. Default: the wallet's first transaction.
	From time.Time
	// Only transactions before this time. Default: now.
	To time.Time
	// Whether to return only balances and sums, which is fast for any period. `transactions` is then empty. Default:
	// false.
	TotalsOnly bool
}

func (q GetStatementQuery) values() url.Values {
	values := url.Values{}
	setValue(values, "from", q.From)
	setValue(values, "to", q.To)
	setValue(values, "totals_only", q.TotalsOnly)
	return values
}

// ListLowBalanceNotices: List low-balance notices.
//
// Returns the notices of all wallets of the account that have an amount, by the ID of the wallet. A change shows
// within seconds.
func (c *Client) ListLowBalanceNotices(ctx context.Context, options ...CallOption) ([]LowBalanceNotice, error) {
	return callList[LowBalanceNotice](ctx, c, "notices", call{method: http.MethodGet, path: "/client/api/wallets/notices"}, options)
}

// ListWallets: List wallets.
//
// Returns the account's wallets, newest first.
func (c *Client) ListWallets(query ListWalletsQuery, options ...CallOption) *Pages[Wallet] {
	return newPages[Wallet](c, "wallets", call{method: http.MethodGet, path: "/api/v1/wallets", query: query.values()}, options)
}

// ListWalletsQuery is the query of [Client.ListWallets]. Zero values are left out.
type ListWalletsQuery struct {
	// Page number, from 1. Default: 1.
	Page int64
	// Wallets per page, 1 to 100. Default: 20.
	Limit int64
}

func (q ListWalletsQuery) values() url.Values {
	values := url.Values{}
	setValue(values, "page", q.Page)
	setValue(values, "limit", q.Limit)
	return values
}

// SetLowBalanceNotice: Set the low-balance notice of a wallet.
//
// A movement that takes the balance below the amount makes one notice to the account's owners. There is no
// further one until the balance has been at least the amount again. Requires the role operator.
func (c *Client) SetLowBalanceNotice(ctx context.Context, id int64, body SetNotice, options ...CallOption) (*LowBalanceNotice, error) {
	return callData[LowBalanceNotice](ctx, c, call{method: http.MethodPut, path: expand("/client/api/wallets/{id}/notice", "id", id), body: body}, options)
}

// ChangeWebhook: Change a webhook.
//
// Changes the given fields. With `credential_id`, the credential's signing secret becomes the token. A linked
// webhook cannot be unlinked. Linking a webhook, or changing the `url` of a linked one, requires the role owner
// or a request made with that credential. The reason is that the URL receives the secret.
func (c *Client) ChangeWebhook(ctx context.Context, id int64, body ChangeWebhook, options ...CallOption) (*Webhook, error) {
	return callData[Webhook](ctx, c, call{method: http.MethodPut, path: expand("/api/v1/webhooks/{id}", "id", id), body: body}, options)
}

// CountAttempts: Count a webhook's attempts by day.
//
// Returns the number of delivery attempts of each day (UTC) up to today, and how long they took. Attempts are
// counted since the release that added this operation.
func (c *Client) CountAttempts(ctx context.Context, id int64, query CountAttemptsQuery, options ...CallOption) (*WebhookStatistics, error) {
	return callData[WebhookStatistics](ctx, c, call{method: http.MethodGet, path: expand("/api/v1/webhooks/{id}/stats", "id", id), query: query.values()}, options)
}

// CountAttemptsQuery is the query of [Client.CountAttempts]. Zero values are left out.
type CountAttemptsQuery struct {
	// Number of days up to today, 1 to 92. Default: 30.
	Days int64
}

func (q CountAttemptsQuery) values() url.Values {
	values := url.Values{}
	setValue(values, "days", q.Days)
	return values
}

// CountAttemptsByWebhook: Count the attempts of all webhooks by day.
//
// Returns the number of delivery attempts of each day (UTC) up to today, and how long they took, for each
// webhook of the account. Deleted webhooks are left out.
func (c *Client) CountAttemptsByWebhook(ctx context.Context, query CountAttemptsByWebhookQuery, options ...CallOption) (*AttemptsByWebhook, error) {
	return callData[AttemptsByWebhook](ctx, c, call{method: http.MethodGet, path: "/api/v1/webhooks/stats", query: query.values()}, options)
}

// CountAttemptsByWebhookQuery is the query of [Client.CountAttemptsByWebhook]. Zero values are left out.
type CountAttemptsByWebhookQuery struct {
	// Number of days up to today, 1 to 92. Default: 30.
	Days int64
}

func (q CountAttemptsByWebhookQuery) values() url.Values {
	values := url.Values{}
	setValue(values, "days", q.Days)
	return values
}

// DeleteWebhook: Delete a webhook.
//
// Deletes the webhook. Its pending deliveries fail. The history of its deliveries is kept.
func (c *Client) DeleteWebhook(ctx context.Context, id int64, options ...CallOption) (*DeletedWebhook, error) {
	return callData[DeletedWebhook](ctx, c, call{method: http.MethodDelete, path: expand("/api/v1/webhooks/{id}", "id", id)}, options)
}

// ExplainWebhook: Explain a webhook's deliveries of an order.
//
// Returns each event of an order, whether the webhook received it, and why or why not. The state of the webhook
// when the event happened decides that, as recorded in the log. Also works for a webhook that is deleted.
func (c *Client) ExplainWebhook(ctx context.Context, id int64, query ExplainWebhookQuery, options ...CallOption) (*WebhookExplanation, error) {
	return callData[WebhookExplanation](ctx, c, call{method: http.MethodGet, path: expand("/api/v1/webhooks/{id}/explanation", "id", id), query: query.values()}, options)
}

// ExplainWebhookQuery is the query of [Client.ExplainWebhook]. Zero values are left out.
type ExplainWebhookQuery struct {
	// Unique identifier of the order.
	OrderID int64
}

func (q ExplainWebhookQuery) values() url.Values {
	values := url.Values{}
	setValue(values, "order_id", q.OrderID)
	return values
}

// GetWebhook: Retrieve a webhook.
//
// Returns the webhook without its token.
func (c *Client) GetWebhook(ctx context.Context, id int64, options ...CallOption) (*Webhook, error) {
	return callData[Webhook](ctx, c, call{method: http.MethodGet, path: expand("/api/v1/webhooks/{id}", "id", id)}, options)
}

// ListWebhookAttempts: List a webhook's attempts.
//
// Returns the attempts to deliver events to the webhook, the latest first. A period has the attempts that ended
// in it, as in the counts by day of `GET /api/v1/webhooks/{id}/stats`, or that began in it if they have no
// recorded outcome. A page ends after a bounded scan, so continue until `next_before` is null. Old attempts are
// removed, and attempts from before the release that added this operation are left out.
func (c *Client) ListWebhookAttempts(ctx context.Context, id int64, query ListWebhookAttemptsQuery, options ...CallOption) (*WebhookAttempts, error) {
	return callData[WebhookAttempts](ctx, c, call{method: http.MethodGet, path: expand("/api/v1/webhooks/{id}/attempts", "id", id), query: query.values()}, options)
}

// ListWebhookAttemptsQuery is the query of [Client.ListWebhookAttempts]. Zero values are left out.
type ListWebhookAttemptsQuery struct {
	// Only attempts with this outcome.
	Outcome AttemptOutcome
	// Only attempts that ended at or after this time.
	Since time.Time
	// Only attempts that ended before this time.
	Until time.Time
	// Only attempts before this one: `next_before` of the previous page.
	Before string
	// Attempts per page, 1 to 100. Default: 20.
	Limit int64
}

func (q ListWebhookAttemptsQuery) values() url.Values {
	values := url.Values{}
	setValue(values, "outcome", q.Outcome)
	setValue(values, "since", q.Since)
	setValue(values, "until", q.Until)
	setValue(values, "before", q.Before)
	setValue(values, "limit", q.Limit)
	return values
}

// ListWebhookReplays: List a webhook's replays.
//
// Returns the replays of a webhook, newest first. Operators of the service can start and cancel replays, too.
func (c *Client) ListWebhookReplays(id int64, query ListWebhookReplaysQuery, options ...CallOption) *Pages[WebhookReplay] {
	return newPages[WebhookReplay](c, "replays", call{method: http.MethodGet, path: expand("/api/v1/webhooks/{id}/replays", "id", id), query: query.values()}, options)
}

// ListWebhookReplaysQuery is the query of [Client.ListWebhookReplays]. Zero values are left out.
type ListWebhookReplaysQuery struct {
	// Page number, from 1. Default: 1.
	Page int64
	// Replays per page, 1 to 100. Default: 20.
	Limit int64
}

func (q ListWebhookReplaysQuery) values() url.Values {
	values := url.Values{}
	setValue(values, "page", q.Page)
	setValue(values, "limit", q.Limit)
	return values
}

// ListWebhooks: List webhooks.
//
// Returns the account's webhooks, newest first.
func (c *Client) ListWebhooks(query ListWebhooksQuery, options ...CallOption) *Pages[Webhook] {
	return newPages[Webhook](c, "webhooks", call{method: http.MethodGet, path: "/api/v1/webhooks", query: query.values()}, options)
}

// ListWebhooksQuery is the query of [Client.ListWebhooks]. Zero values are left out.
type ListWebhooksQuery struct {
	// Page number, from 1. Default: 1.
	Page int64
	// Webhooks per page, 1 to 100. Default: 20.
	Limit int64
}

func (q ListWebhooksQuery) values() url.Values {
	values := url.Values{}
	setValue(values, "page", q.Page)
	setValue(values, "limit", q.Limit)
	return values
}

// RegisterWebhook: Register a webhook.
//
// Creates a webhook. Its token is shown only in this response, which has no `success` and `data` wrapper. An
// account can have at most 20 webhooks. To verify deliveries, see [Receiving webhooks](/docs/guides/webhooks).
func (c *Client) RegisterWebhook(ctx context.Context, body RegisterWebhook, options ...CallOption) (*RegisteredWebhook, error) {
	return callBare[RegisteredWebhook](ctx, c, call{method: http.MethodPost, path: "/api/v1/webhooks", body: body, keyed: true}, options)
}

// ReplayEvents: Replay events to a webhook.
//
// Delivers events again that never reached the webhook and have no pending delivery, as far as it is subscribed
// to their types. Creates at most 50 deliveries per second. Each has five attempts of its own, with the same
// `event_id` and the same bytes as before. A webhook can have one running replay at a time.
//
// With `dry_run`, the events are only counted, and the status is 200. One dry run covers at most 500,000
// positions of the log. To count a longer range, start the next dry run at `next_position` of the previous one.
func (c *Client) ReplayEvents(ctx context.Context, id int64, body ReplayEvents, options ...CallOption) (*ReplayRequested, error) {
	return callData[ReplayRequested](ctx, c, call{method: http.MethodPost, path: expand("/api/v1/webhooks/{id}/replays", "id", id), body: body, keyed: true}, options)
}

// RotateWebhookToken: Rotate a webhook's token.
//
// Replaces the webhook's token. Deliveries are signed with the new token from now on. The token is shown only in
// this response. Fails with 409 if the webhook is linked to a credential: rotate the credential's signing secret
// instead.
//
// With `previous_valid_hours`, deliveries carry a second signature for that time, made with the replaced token,
// in the header `X-Signature-Previous`. See [Receiving webhooks](/docs/guides/webhooks).
func (c *Client) RotateWebhookToken(ctx context.Context, id int64, body *RotateToken, options ...CallOption) (*RotatedToken, error) {
	return callData[RotatedToken](ctx, c, call{method: http.MethodPost, path: expand("/api/v1/webhooks/{id}/rotate-token", "id", id), body: optional(body), keyed: true}, options)
}

// TestWebhook: Test a webhook.
//
// Creates a real delivery with sample data: of the given `event_type`, or of the first event type that the
// webhook is subscribed to. Its `order_id` and `data.id` are 0, and `data.reference_code` is `TEST`. It is
// signed, retried and listed like any other delivery.
func (c *Client) TestWebhook(ctx context.Context, id int64, body *TestWebhook, options ...CallOption) (*WebhookTest, error) {
	return callData[WebhookTest](ctx, c, call{method: http.MethodPost, path: expand("/api/v1/webhooks/{id}/test", "id", id), body: optional(body), keyed: true}, options)
}
