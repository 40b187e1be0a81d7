//! Assembly of the HTTP interface and of the two OpenAPI documents that describe it.

use std::sync::{Arc, LazyLock};

use poem::middleware::AddData;
use poem::{Endpoint, EndpointExt, Response, Route};
use poem_openapi::{LicenseObject, OpenApi, OpenApiService, ServerObject};
use serde_json::{Value, json};

use super::allow::Methods;
use super::auth::Admission;
use super::edge::{Edge, refuse_nul};
use super::inner::Inner;
use super::log_position::ReadYourWrites;
use super::notices::Notices;
use super::operator_security::OperatorSecurity;
use super::operator_sessions::OperatorSessions;
use super::operator_two_factor::OperatorTwoFactor;
use super::outbox::Outbox;
use super::pages::{ErrorPages, Pages, WithPages};
use super::portal::Portal;
use super::queries::KnownQueries;
use super::recovery::Recovery;
use super::security::Security;
use super::sessions::Sessions;
use super::state::ApiState;
use super::surface::Surface;
use super::team::Team;
use super::{
    attempts, beneficiaries, charges, deliveries, document, events, guides, history, images, log, open_id, operator, orders,
    payouts, probes, products, reference, sandbox, statements, statistics, supplier_notices, transactions, vouchers, wallets,
    webhooks,
};
use crate::access::limits::Rule;

const CLIENT_TITLE: &str = "Rewards Ledger: client API";

const CLIENT_TEXT: &str = "Order digital rewards, pay for them from a wallet, and follow their delivery.

## Authentication

A program sends the headers `X-API-Key` and `X-API-Secret` with every request. A person logs in with `POST /auth/login` \
and sends `Authorization: Bearer <access token>`. The person's role determines the permissions:

- A viewer can read everything except voucher codes.
- An operator can also place and cancel orders, read voucher codes, and manage webhooks.
- An owner can do everything.

## Formats

Amounts of money are strings with two decimals. Times are ISO 8601 in UTC. IDs are integers.

Every field and header documented here keeps its name and meaning within `/api/v1`. New fields, error codes and values may \
be added. Ignore fields, event types, statuses and `sub_status` values that you do not know.

## Errors and retries

An error has the body `{\"error\": {\"name\", \"code\", \"message\", \"messages\"}}`. Branch on `code`. With an \
`Idempotency-Key`, you can safely retry a POST for 24 hours.

Some errors can occur for any request and are not listed with the operations:

- 405 `E_METHOD_NOT_ALLOWED`: the path does not support the method. The header `Allow` lists those that it supports.
- 400 `E_MALFORMED_REQUEST`: the request is not valid HTTP/1.1.
- 414 `E_URI_TOO_LONG`: the request line is longer than 16 KiB.
- 431 `E_HEADERS_TOO_LARGE`: the request has more than 100 headers, or more than 16 KiB of them.

## Polling

To follow an order, register a webhook, or pull events with `GET /api/v1/events?wait=30`. If you poll instead, wait at least 10 seconds between two requests for the same \
order, or 60 seconds while it is `DELAYED`.";

const OPERATOR_TEXT: &str =
    "Operate the ledger: accounts, users, credentials, wallets, products, stock, and any account's orders and payouts.

## Authentication

A program sends `Authorization: Bearer <operator token>` with every request. A person signs in with \
`POST /admin/auth/login` and sends the cookie of the session. The role of the token or person determines the permissions:

- An admin can do everything.
- Finance can read, fund and adjust wallets, settle payouts, and decide approvals.
- An auditor can read, including the entries of the transparency log.

Every change is recorded as an event in the log. The probes need no token, so do not expose them to the public.

## Transparency log

The operations under `/log` prove that nobody has changed the log. See \
[The transparency log](/docs/guides/transparency). They are public and need no token, except for the log's entries, which \
only auditors and admins can read.

## Errors

Some errors can occur for any request and are not listed with the operations:

- 405 `E_METHOD_NOT_ALLOWED`: the path does not support the method. The header `Allow` lists those that it supports.
- 400 `E_MALFORMED_REQUEST`: the request is not valid HTTP/1.1.
- 414 `E_URI_TOO_LONG`: the request line is longer than 16 KiB.
- 431 `E_HEADERS_TOO_LARGE`: the request has more than 100 headers, or more than 16 KiB of them.";

fn client_api() -> impl OpenApi {
    (
        (orders::Orders, statistics::Statistics),
        charges::Charges,
        (vouchers::VoucherCodes, history::OwnHistories),
        products::Products,
        images::Images,
        reference::Reference,
        wallets::Wallets,
        statements::Statements,
        transactions::Transactions,
        beneficiaries::Beneficiaries,
        payouts::Payouts,
        (webhooks::Webhooks, webhooks::Explanations, webhooks::Replays),
        (deliveries::Deliveries, attempts::Attempts, events::Events),
    )
}

fn auth_api() -> impl OpenApi {
    (Sessions, Recovery)
}

fn portal_api() -> impl OpenApi {
    (Portal, Notices, Security, Team)
}

/// Creates the service of a document, with the metadata that both documents share.
fn service<T: OpenApi>(api: T, title: &str, text: &str) -> OpenApiService<T, ()> {
    let license = LicenseObject::new("Apache-2.0").identifier("Apache-2.0");
    OpenApiService::new(api, title, "1").description(text).license(license).server(ServerObject::new("/"))
}

/// Returns the client document's introduction, with links to the guides and the version's promises.
fn client_text() -> String {
    let promises = guides::versioning().replacen("# Versioning", "## Versioning", 1);
    format!("{CLIENT_TEXT}\n\n## Guides\n\n{}\n{promises}", guides::links())
}

/// Creates the service of the client document, with everything for clients, sandbox operations included. The node serves
/// it in parts, because each part admits different callers.
fn client() -> OpenApiService<impl OpenApi, ()> {
    service((client_api(), (sandbox::Sandbox, Outbox), auth_api(), portal_api()), CLIENT_TITLE, &client_text())
}

/// Creates the service of a part of a document.
fn part<T: OpenApi>(api: T) -> OpenApiService<T, ()> {
    OpenApiService::new(api, "", "1")
}

fn operator_api() -> impl OpenApi {
    (
        (
            operator::Accounts,
            operator::Lookups,
            operator::Attempts,
            operator::Queue,
            operator::Search,
            operator::Users,
            operator::Credentials,
            operator::IpBlocks,
            operator::Operators,
            operator::OperatorTokens,
        ),
        (
            operator::Wallets,
            operator::Transactions,
            operator::Statements,
            operator::Payouts,
            operator::Approvals,
            operator::Reconciliation,
            operator::BankStatements,
        ),
        (operator::Catalogue, operator::Images, operator::Stock, operator::NamedVouchers, operator::Supply),
        (
            operator::Orders,
            operator::Histories,
            operator::Receipts,
            operator::Events,
            operator::Replays,
            operator::Audit,
            operator::Operations,
            operator::Shards,
            operator::AuditRuns,
            operator::Erasures,
            operator::Checkpoints,
        ),
    )
}

fn console_api() -> impl OpenApi {
    (OperatorSessions, OperatorSecurity, OperatorTwoFactor)
}

/// Creates the service of the operator document, with everything for operators and auditors and the public log. The node
/// serves it in parts.
fn operators() -> OpenApiService<impl OpenApi, ()> {
    service((operator_api(), console_api(), log::Log, probes::Probes), "Rewards Ledger: operator API", OPERATOR_TEXT)
}

/// Returns the finished document of a service.
fn published<T: OpenApi>(service: &OpenApiService<T, ()>) -> Value {
    // poem-openapi writes valid JSON, so this cannot fail.
    document::finish(serde_json::from_str(&service.spec()).unwrap_or_default())
}

/// A published document, and its interactive page.
struct Document {
    content: Value,
    page: String,
}

/// Documents for clients and for operators. They depend on the build alone, so each process derives them once.
static CLIENT_DOCUMENT: LazyLock<Document> = LazyLock::new(|| {
    let service = client();
    let mut content = published(&service);
    document::describe_webhooks(&mut content);
    Document { page: page(&service, &content), content }
});
static OPERATOR_DOCUMENT: LazyLock<Document> = LazyLock::new(|| {
    let service = operators();
    let content = published(&service);
    Document { page: page(&service, &content), content }
});

/// Returns the interactive page of the finished document. Scripts and styles are inlined, so the page works offline and
/// loads nothing else.
fn page<T: OpenApi>(service: &OpenApiService<T, ()>, document: &Value) -> String {
    let title = document["info"]["title"].as_str().unwrap_or_default();
    let head = format!("<title>{title}</title><link rel=\"icon\" href=\"data:,\">");
    // swagger_ui_html() embeds the unfinished document; replace it with the finished one.
    let page = service.swagger_ui_html().replacen(&service.spec(), &document.to_string(), 1);
    page.replacen("<title>Swagger UI</title>", &head, 1)
}

/// Returns the published documents: path in the repository, and text.
pub fn documents() -> Vec<(&'static str, String)> {
    vec![
        ("openapi/client-v1.json", document::text(&CLIENT_DOCUMENT.content)),
        ("openapi/operator-v1.json", document::text(&OPERATOR_DOCUMENT.content)),
    ]
}

/// Builds the HTTP interface, or the part of it that a listener serves. `pages` builds the pages, if the node has any.
pub fn app(state: ApiState, surface: Surface, pages: impl FnOnce(Inner) -> Option<Pages>) -> impl Endpoint<Output = Response> {
    let known_queries = KnownQueries::of_documents(&[&CLIENT_DOCUMENT.content, &OPERATOR_DOCUMENT.content]);
    let mut paths = CLIENT_DOCUMENT.content["paths"].clone();
    Rule::ALL.map(Rule::name).into_iter().chain(["block"]).for_each(|rule| state.metrics.show_rule(rule));
    let state = Arc::new(state);
    let routes = routes(&state, surface);
    let consistency = ReadYourWrites { ledger: state.ledger.clone(), keyring: state.keyring.clone() };
    let api = routes.with(known_queries).before(refuse_nul).with(AddData::new(state.clone())).with(consistency).boxed();
    let api = Inner::new(api, state.shows_outbox);
    let pages = pages(api.clone());
    if let (Some(paths), Some(more)) = (paths.as_object_mut(), OPERATOR_DOCUMENT.content["paths"].as_object()) {
        paths.extend(more.clone());
        for path in ["/docs", "/openapi.json", "/admin/docs", "/admin/openapi.json", open_id::START, open_id::CALLBACK] {
            paths.insert(path.to_owned(), json!({"get": {}}));
        }
        paths.insert(supplier_notices::TEMPLATE.to_owned(), json!({"post": {}}));
        paths.extend(guides::paths().into_iter().map(|path| (path, json!({"get": {}}))));
        paths.extend(pages.iter().flat_map(Pages::paths));
    }
    let edge = Edge::with_methods(Methods::of_document(&json!({ "paths": paths })))
        .with_metrics(state.metrics.clone())
        .until_leaving(state.leaving.clone())
        .with_lifecycle(state.lifecycle.clone());
    let error_pages = ErrorPages(pages.as_ref().map(|pages| (pages.error_page, pages.enrolment)));
    let whole = WithPages { pages: pages.map(|pages| pages.routes), api };
    // Boxed, because the edge moves the future of the inner endpoint several times, and that one is large.
    whole.with(Admission { state, surface }).with(error_pages).boxed().with(edge)
}

/// Builds the routes of the API that a listener serves.
fn routes(state: &Arc<ApiState>, surface: Surface) -> Route {
    let v1 = match state.is_sandbox {
        true => part((client_api(), sandbox::Sandbox)).boxed(),
        false => part(client_api()).boxed(),
    };
    let portal = match state.shows_outbox {
        true => part((portal_api(), Outbox)).boxed(),
        false => part(portal_api()).boxed(),
    };
    let mut route = Route::new().nest_no_strip("/log", part(log::Log));
    for path in probes::PATHS.into_iter().filter(|path| surface.serves(path)) {
        route = route.nest_no_strip(path, part(probes::Probes));
    }
    if surface != Surface::Operators {
        route = guides::add(route);
        route = probes::add_document(
            route,
            "/docs",
            CLIENT_DOCUMENT.page.clone(),
            "/openapi.json",
            document::text(&CLIENT_DOCUMENT.content),
        );
        route = route.nest_no_strip("/api/v1", v1).nest_no_strip("/auth", part(auth_api())).nest_no_strip("/client/api", portal);
        route = supplier_notices::add(route, state);
    }
    if surface != Surface::Clients {
        let (page, text) = (OPERATOR_DOCUMENT.page.clone(), document::text(&OPERATOR_DOCUMENT.content));
        route = probes::add_document(route, "/admin/docs", page, "/admin/openapi.json", text);
        route = route.nest_no_strip("/admin/v1", part(operator_api())).nest_no_strip("/admin/auth", part(console_api()));
        route = open_id::add(route, state);
    }
    route
}
