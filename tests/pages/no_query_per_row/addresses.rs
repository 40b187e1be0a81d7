//! Addresses at which the pages are read, with and without filters.

use poem::http::Method;
use rewards_ledger::pages;

use crate::pages::every_page::NO_PAGES;

/// Queries with which pages are read beside their plain addresses: one for each kind of statement that their filters lead to.
/// Names in braces stand for ids. The lists of these pages grow.
const QUERIES: [(&str, &str); 48] = [
    ("/console/accounts/{id}/deliveries", "status=pending"),
    ("/console/accounts/{id}/deliveries", "webhook_url_id={webhooks}"),
    ("/console/approvals", "status=ALL"),
    ("/console/approvals", "wallet_id={wallets}"),
    ("/console/attempts", "from=2020-01-01"),
    ("/console/attempts", "outcome=failed"),
    ("/console/audit", "account_id={accounts}"),
    ("/console/audit", "actor=operator"),
    ("/console/audit", "from=2020-01-01"),
    ("/console/audit", "reveals=true"),
    ("/console/audit", "type=OrderPlaced"),
    ("/console/orders", "account_id={accounts}"),
    ("/console/orders", "before={orders}"),
    ("/console/orders", "from=2020-01-01"),
    ("/console/orders", "product_id={ordered}"),
    ("/console/orders", "status=DELAYED"),
    ("/console/payouts", "from=2020-01-01"),
    ("/console/payouts", "status=PENDING"),
    ("/console/payouts", "wallet_id={wallets}"),
    ("/console/products/{id}/stock/vouchers", "status=AVAILABLE"),
    ("/console/purchases", "product_id={ordered}"),
    ("/console/purchases", "supplier=acme"),
    ("/console/queue", "part=retries"),
    ("/console/reconciliation", "account_id={accounts}"),
    ("/console/reconciliation", "from=2020-01-01"),
    ("/console/replays", "webhook_id={webhooks}"),
    ("/console/search", "q=Acme"),
    ("/console/wallets/{id}", "category=ORDER"),
    ("/console/wallets/{id}", "type=DEBIT"),
    ("/console/webhooks/{id}/queue", "part=retries"),
    ("/portal/events", "since=2020-01-01T00:00"),
    ("/portal/events", "types=order.created"),
    ("/portal/orders", "from=2020-01-01"),
    ("/portal/orders", "product_id={ordered}"),
    ("/portal/orders", "status=DELAYED"),
    ("/portal/payouts", "status=PENDING"),
    ("/portal/payouts", "wallet_id={wallets}"),
    ("/portal/products", "search=Card"),
    ("/portal/wallets/{id}", "category=ORDER&from=2020-01-01"),
    ("/portal/wallets/{id}", "type=DEBIT"),
    ("/portal/wallets/{id}/statement", "from=2020-01-01"),
    ("/portal/webhooks/deliveries", "from=2020-01-01"),
    ("/portal/webhooks/deliveries", "order_id={orders}"),
    ("/portal/webhooks/deliveries", "status=delivered"),
    ("/portal/webhooks/deliveries", "status=pending"),
    ("/portal/webhooks/deliveries", "webhook_url_id={webhooks}"),
    ("/portal/webhooks/{id}/attempts", "from=2020-01-01"),
    ("/portal/webhooks/{id}/attempts", "outcome=failed"),
];

/// Queries that leave a list of few rows or none, which does not grow. Only the numbers of their statements are compared.
const NARROW: [(&str, &str); 19] = [
    ("/console/attempts", "outcome=unknown"),
    ("/console/audit", "subject=order/{orders}"),
    ("/console/log/proof", "order_id={orders}"),
    ("/console/orders", "to=2020-01-01"),
    ("/console/orders/{id}", "as_of={head}"),
    ("/console/payouts", "beneficiary_id={beneficiaries}"),
    ("/console/products/{id}/discounts", "account_id={accounts}"),
    ("/console/products/{id}/stock/vouchers", "denomination=1.00"),
    ("/console/queue", "part=failed"),
    ("/console/queue", "part=in_flight"),
    ("/console/queue", "part=without_outcome"),
    ("/console/search", "q={orders}"),
    ("/console/wallets/{id}", "type=CREDIT"),
    ("/console/webhooks/{id}/queue", "part=failed"),
    ("/portal/orders", "to=2020-01-01"),
    ("/portal/products/{id}", "denomination=10.00&quantity=1"),
    ("/portal/wallets/{id}", "order_id={orders}"),
    ("/portal/webhooks/deliveries", "status=failed"),
    ("/portal/webhooks/{id}/explanation", "order_id={orders}"),
];

/// Pages that refuse an address without a query.
const ONLY_WITH_QUERY: [&str; 1] = ["/console/log/proof"];

/// Pages of one thing and forms, and pages that list nothing without a query. They have no list that grows.
const WITHOUT_LIST: [&str; 42] = [
    "/console",
    "/console/accounts/{id}/credentials/{key}",
    "/console/accounts/{id}/limits",
    "/console/accounts/{id}/users/{user}",
    "/console/approvals/{id}",
    "/console/bank-statements/{id}/lines/{line}",
    "/console/events/{shard}/{position}",
    "/console/login",
    "/console/operators/{id}",
    "/console/payouts/{id}",
    "/console/products/new",
    "/console/products/{id}/edit",
    "/console/products/{id}/supplier",
    "/console/products/{id}/vouchers",
    "/console/products/{id}/vouchers/expiry",
    "/console/products/{id}/vouchers/transfer",
    "/console/products/{id}/vouchers/void",
    "/console/purchases/{id}",
    "/console/queue",
    "/console/replays",
    "/console/search",
    "/console/transactions/{id}",
    "/console/wallets/{id}/adjust",
    "/console/wallets/{id}/fund",
    "/console/webhooks/{id}/queue",
    "/portal/accept-invitation",
    "/portal/account/two-factor",
    "/portal/api-keys/{id}/revoke",
    "/portal/api-keys/{id}/signing-secret",
    "/portal/beneficiaries/{id}",
    "/portal/login",
    "/portal/orders/bulk",
    "/portal/password-reset",
    "/portal/payouts/request",
    "/portal/payouts/{id}",
    "/portal/products/{id}",
    "/portal/reset-password",
    "/portal/team/{id}",
    "/portal/transactions/{id}",
    "/portal/webhooks/new",
    "/portal/webhooks/{id}/delete",
    "/portal/webhooks/{id}/explanation",
];

/// Returns the addresses at which pages are read, with names in braces: the plain one of each page, and those with a query.
pub fn addresses() -> Vec<String> {
    let is_read = |route: &str, methods: &[Method]| methods.contains(&Method::GET) && !NO_PAGES.contains(&route);
    let pages = pages::routes().into_iter().filter(|(route, methods)| is_read(route, methods)).map(|(route, _)| route);
    let plain = pages.filter(|route| !ONLY_WITH_QUERY.contains(&&**route));
    plain.chain(QUERIES.iter().chain(&NARROW).map(|(route, query)| format!("{route}?{query}"))).collect()
}

/// Returns whether an address has a list that grows.
pub fn has_list(address: &str) -> bool {
    let is_narrow = NARROW.iter().any(|(route, query)| format!("{route}?{query}") == address);
    !is_narrow && !WITHOUT_LIST.contains(&address)
}
