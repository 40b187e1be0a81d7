//! The whole HTTP interface, and the two documents that describe it.

use std::sync::Arc;

use poem::middleware::AddData;
use poem::{Endpoint, EndpointExt, Response, Route};
use poem_openapi::{LicenseObject, OpenApi, OpenApiService, ServerObject};
use serde_json::{Value, json};

use super::allow::Methods;
use super::auth::Admission;
use super::edge::{Edge, refuse_nul};
use super::portal::Portal;
use super::queries::KnownQueries;
use super::sessions::Sessions;
use super::state::ApiState;
use super::surface::Surface;
use super::{
    beneficiaries, charges, deliveries, document, guides, images, log, operator, orders, payouts, probes, products, reference,
    sandbox, statements, transactions, vouchers, wallets, webhooks,
};
use crate::access::limits::Rule;

type ClientApi = (
    orders::Orders,
    charges::Charges,
    vouchers::VoucherCodes,
    products::Products,
    images::Images,
    reference::Reference,
    wallets::Wallets,
    statements::Statements,
    transactions::Transactions,
    beneficiaries::Beneficiaries,
    payouts::Payouts,
    webhooks::Webhooks,
    deliveries::Deliveries,
);

type OperatorApi = (
    (operator::Accounts, operator::Users, operator::Credentials, operator::IpBlocks),
    (operator::Wallets, operator::Statements, operator::Payouts, operator::Reconciliation, operator::BankStatements),
    (operator::Catalogue, operator::Images, operator::Stock),
    (operator::Orders, operator::Histories, operator::Receipts, operator::Events, operator::Replays),
);

const CLIENT_TITLE: &str = "Rewards Ledger: client API";

const CLIENT_TEXT: &str = "Order digital rewards, paid from a wallet, and follow them.

A program sends `X-API-Key` and `X-API-Secret` with every request. A person logs in with `POST /auth/login` and sends \
`Authorization: Bearer <access token>`; what a person may do is a matter of role: a viewer reads all but voucher codes, \
an operator also orders, cancels, reads codes and manages webhooks, an owner may do everything.

Money is a decimal string with two decimals, times are ISO 8601 in UTC, ids are integers. A field or header named here keeps its name and meaning within `/api/v1`; new fields, codes \
and values may be added. An error is `{\"error\": {\"name\", \"code\", \"message\", \"messages\"}}`: branch on `code`. \
A method that a path does not have is 405 `E_METHOD_NOT_ALLOWED`, with the header `Allow`: it stands at no operation. Nor do refusals of the HTTP layer: 400 `E_MALFORMED_REQUEST` for what is not HTTP/1.1, 414 `E_URI_TOO_LONG` for a request line over 16 KiB, and 431 `E_HEADERS_TOO_LARGE`. With an `Idempotency-Key`, a POST can be repeated without harm for 24 hours.

Ignore fields, event types, statuses and `sub_status` values that you do not know. Wait at least 10 seconds between two \
looks at an order, 60 when it is DELAYED; better, register a webhook.";

const OPERATOR_TEXT: &str =
    "Run the ledger: accounts, users, credentials, wallets, products, stock, and any account's orders and payouts.

Every request carries `Authorization: Bearer <operator token>`. An admin may do everything; finance funds and adjusts \
wallets, and reads; an auditor reads, the entries of the log too. Every change is an event in the log.

What is under `/log` proves that the log was not changed: see [The transparency log](/docs/guides/transparency). It is for \
everyone, without a token, but for the entries themselves: those are for auditors and admins.

A method that a path does not have is 405 `E_METHOD_NOT_ALLOWED`, with the header `Allow`: it stands at no operation. Nor do refusals of the HTTP layer: 400 `E_MALFORMED_REQUEST` for what is not HTTP/1.1, 414 `E_URI_TOO_LONG` for a request line over 16 KiB, and 431 `E_HEADERS_TOO_LARGE`. The probes need no token: keep them from the public.";

fn client_api() -> ClientApi {
    (
        orders::Orders,
        charges::Charges,
        vouchers::VoucherCodes,
        products::Products,
        images::Images,
        reference::Reference,
        wallets::Wallets,
        statements::Statements,
        transactions::Transactions,
        beneficiaries::Beneficiaries,
        payouts::Payouts,
        webhooks::Webhooks,
        deliveries::Deliveries,
    )
}

/// What both documents say of themselves.
fn service<T: OpenApi>(api: T, title: &str, text: &str) -> OpenApiService<T, ()> {
    let license = LicenseObject::new("Apache-2.0").identifier("Apache-2.0");
    OpenApiService::new(api, title, "1").description(text).license(license).server(ServerObject::new("/"))
}

/// The client document's text, with the guides and the promises of the version.
fn client_text() -> String {
    let promises = guides::versioning().replacen("# Versioning", "## Versioning", 1);
    format!("{CLIENT_TEXT}\n\n## Guides\n\n{}\n{promises}", guides::links())
}

/// Everything for clients, a sandbox's too, in one document. It is served in parts: each lets in
/// others.
fn client() -> OpenApiService<(ClientApi, sandbox::Sandbox, Sessions, Portal), ()> {
    service((client_api(), sandbox::Sandbox, Sessions, Portal), CLIENT_TITLE, &client_text())
}

/// A part of a document, to be served.
fn part<T: OpenApi>(api: T) -> OpenApiService<T, ()> {
    OpenApiService::new(api, "", "1")
}

fn operator_api() -> OperatorApi {
    (
        (operator::Accounts, operator::Users, operator::Credentials, operator::IpBlocks),
        (operator::Wallets, operator::Statements, operator::Payouts, operator::Reconciliation, operator::BankStatements),
        (operator::Catalogue, operator::Images, operator::Stock),
        (operator::Orders, operator::Histories, operator::Receipts, operator::Events, operator::Replays),
    )
}

/// Everything for operators and auditors in one document, with the public log; served in parts.
fn operators() -> OpenApiService<(OperatorApi, log::Log, probes::Probes), ()> {
    service((operator_api(), log::Log, probes::Probes), "Rewards Ledger: operator API", OPERATOR_TEXT)
}

/// The finished document of a service.
fn published<T: OpenApi>(service: &OpenApiService<T, ()>) -> Value {
    // What poem-openapi writes is JSON; nothing here can fail.
    document::finish(serde_json::from_str(&service.spec()).unwrap_or_default())
}

fn published_client() -> Value {
    let mut document = published(&client());
    document::describe_webhooks(&mut document);
    document
}

/// The interactive page of the finished document: scripts and styles are in it, so it works
/// offline, and a browser asks for nothing else.
fn page<T: OpenApi>(service: &OpenApiService<T, ()>, document: &Value) -> String {
    let title = document["info"]["title"].as_str().unwrap_or_default();
    let head = format!("<title>{title}</title><link rel=\"icon\" href=\"data:,\">");
    // The page is made around the unfinished document.
    let page = service.swagger_ui_html().replacen(&service.spec(), &document.to_string(), 1);
    page.replacen("<title>Swagger UI</title>", &head, 1)
}

/// The published documents: each with its path in the repository and its text.
pub fn documents() -> Vec<(&'static str, String)> {
    vec![
        ("openapi/client-v1.json", document::text(&published_client())),
        ("openapi/operator-v1.json", document::text(&published(&operators()))),
    ]
}

/// The HTTP interface, or the part of it that a listener serves.
pub fn app(state: ApiState, surface: Surface) -> impl Endpoint<Output = Response> {
    let (client, operators) = (client(), operators());
    let (client_document, operator_document) = (published_client(), published(&operators));
    let known_queries = KnownQueries::of_documents(&[&client_document, &operator_document]);
    let mut paths = client_document["paths"].clone();
    if let (Some(paths), Some(more)) = (paths.as_object_mut(), operator_document["paths"].as_object()) {
        paths.extend(more.clone());
        for path in ["/docs", "/openapi.json", "/admin/docs", "/admin/openapi.json"] {
            paths.insert(path.to_owned(), json!({"get": {}}));
        }
        paths.extend(guides::paths().into_iter().map(|path| (path, json!({"get": {}}))));
    }
    let edge = Edge::with_methods(Methods::of_document(&json!({ "paths": paths })))
        .with_metrics(state.metrics.clone())
        .with_lifecycle(state.lifecycle.clone());
    let client_page = page(&client, &client_document);
    let operator_page = page(&operators, &operator_document);

    Rule::ALL.map(Rule::name).into_iter().chain(["block"]).for_each(|rule| state.metrics.show_rule(rule));
    let state = Arc::new(state);
    let v1 = match state.is_sandbox {
        true => part((client_api(), sandbox::Sandbox)).boxed(),
        false => part(client_api()).boxed(),
    };
    let mut route = Route::new().nest_no_strip("/log", part(log::Log));
    for path in probes::PATHS.into_iter().filter(|path| surface.serves(path)) {
        route = route.nest_no_strip(path, part(probes::Probes));
    }
    if surface != Surface::Operators {
        route = guides::add(route);
        route = probes::add_document(route, "/docs", client_page, "/openapi.json", document::text(&client_document));
        route =
            route.nest_no_strip("/api/v1", v1).nest_no_strip("/auth", part(Sessions)).nest_no_strip("/client/api", part(Portal));
    }
    if surface != Surface::Clients {
        let document = document::text(&operator_document);
        route = probes::add_document(route, "/admin/docs", operator_page, "/admin/openapi.json", document);
        route = route.nest_no_strip("/admin/v1", part(operator_api()));
    }
    route.with(known_queries).before(refuse_nul).with(AddData::new(state.clone())).with(Admission { state, surface }).with(edge)
}
