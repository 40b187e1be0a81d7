//! A small API that uses the layer as the real one does.

use ledger_events::restrictions::Scopes;
use ledger_events::{AccountId, CredentialId};
use poem::http::StatusCode;
use poem::middleware::AddData;
use poem::{Body, Endpoint, EndpointExt, Response, Route};
use poem_openapi::param::{Path, Query};
use poem_openapi::{Object, OpenApi, OpenApiService};
use rust_decimal::Decimal;
use serde::Serialize;
use serde_json::{Value, json};

use crate::access::{ClientIdentity, Principal};
use crate::api::LateOutcome;
use crate::api::allow::Methods;
use crate::api::audit_log::{Kind, note};
use crate::api::body::{OptionalJson, StrictJson};
use crate::api::document;
use crate::api::edge::{Edge, refuse_nul};
use crate::api::error::{ApiError, Code, RateLimited};
use crate::api::fields::{Fields, FromFields};
use crate::api::page::Page;
use crate::api::principal::Caller;
use crate::api::readers::{integer, json_object, line, list, number, object};
use crate::api::reply::{Created, Data, Listed, NoStore, Plural, Reply, Stored, render};
use crate::api::request_id::{self, RequestId};
use crate::api::scalars::{JsonObject, Money, Number};
use crate::api::wire_uri::WireUri;

/// A request to place an order.
#[derive(Debug, Clone, Object, Serialize)]
struct PlaceOrder {
    #[oai(validator(minimum(value = "1")))]
    product_id: i64,
    denomination: Number,
    client_reference: Option<String>,
    metadata: Option<JsonObject>,
    lines: Option<Vec<SampleLine>>,
}

#[derive(Debug, Clone, Default, Object, Serialize)]
struct SampleLine {
    /// Free text.
    note: String,
}

#[derive(Debug, Clone, Object)]
struct CancelOrder {
    reason: Option<String>,
}

#[derive(Debug, Clone, Object, Serialize)]
struct Order {
    id: i64,
    amount: Money,
    reason: Option<String>,
}

impl Plural for Order {
    const PLURAL: &'static str = "orders";
}

impl FromFields for PlaceOrder {
    fn from_fields(fields: &mut Fields<'_>) -> Self {
        Self {
            product_id: fields.required("product_id", integer(1..=i64::MAX)),
            denomination: fields.required("denomination", number(2, Decimal::ZERO..=Decimal::MAX)),
            client_reference: fields.optional("client_reference", line(1..=100)),
            metadata: fields.optional("metadata", json_object(4096)),
            lines: fields.optional("lines", list(0..=9, object)),
        }
    }
}

impl FromFields for SampleLine {
    fn from_fields(fields: &mut Fields<'_>) -> Self {
        Self { note: fields.required("note", line(1..=9)) }
    }
}

impl FromFields for CancelOrder {
    fn from_fields(fields: &mut Fields<'_>) -> Self {
        Self { reason: fields.optional("reason", line(1..=9)) }
    }
}

fn order(id: i64) -> Order {
    Order { id, amount: Money(Decimal::ONE_HUNDRED), reason: None }
}

struct Api;

#[OpenApi]
impl Api {
    #[oai(path = "/orders", method = "post", operation_id = "place_order")]
    async fn place(&self, caller: Caller, body: StrictJson<PlaceOrder>) -> Result<Stored<Data<Order>, 201, 200>, ApiError> {
        let mut order = order(body.0.product_id);
        order.id += caller.0.account_id.0;
        let replayed = body.0.client_reference.is_some();
        Ok(Stored::new(if replayed { 200 } else { 201 }, render(&order).map_err(ApiError::internal)?, replayed))
    }

    #[oai(path = "/orders", method = "get")]
    async fn list(
        &self,
        _caller: Caller,
        page: Query<Option<i64>>,
        limit: Query<Option<i64>>,
        #[oai(validator(maximum(value = "5")))] product_id: Query<Option<i64>>,
    ) -> Result<Listed<Order>, ApiError> {
        let page = Page::of(page.0, limit.0, 20, 100)?;
        Ok(Listed::page(vec![order(product_id.0.unwrap_or(1))], page, 41))
    }

    #[oai(path = "/orders/:id", method = "get")]
    async fn get(&self, _caller: Caller, id: Path<i64>) -> Result<Reply<Order>, ApiError> {
        match id.0 {
            1 => Ok(Reply(order(1))),
            2 => panic!("a bug"),
            3 => Err(ApiError::internal("the password is hunter2")),
            4 => Err(ApiError::new(Code::Unavailable).retry_after(7)),
            _ => Err(ApiError::new(Code::NotFound)),
        }
    }

    #[oai(path = "/orders/:id/cancel", method = "post")]
    async fn cancel(&self, id: Path<i64>, body: OptionalJson<CancelOrder>) -> Result<NoStore<Created<Order>>, ApiError> {
        Ok(NoStore(Created(Order { reason: body.0.reason, ..order(id.0) })))
    }

    #[oai(path = "/small", method = "put")]
    async fn small(&self, body: StrictJson<CancelOrder, 16>) -> Result<Listed<Order>, ApiError> {
        let _ = body;
        Ok(Listed::whole(vec![]))
    }
}

fn service() -> OpenApiService<Api, ()> {
    OpenApiService::new(Api, "Test", "1")
}

pub fn published() -> Value {
    document::finish(serde_json::from_str(&service().spec()).unwrap())
}

pub fn app() -> impl Endpoint {
    #[poem::handler]
    fn limited() -> poem::Result<()> {
        Err(RateLimited { message: "Wait a minute.".into(), retry_after: 42 }.into())
    }
    #[poem::handler]
    fn foreign() -> poem::Result<()> {
        Err(poem::error::InternalServerError(std::io::Error::other("secret words")))
    }
    #[poem::handler]
    fn seen(request: &poem::Request, id: RequestId) -> String {
        let wire = &request.extensions().get::<WireUri>().unwrap().0;
        let current = request_id::current().unwrap();
        format!("{wire} {} {}", request.uri().path(), id == current)
    }
    #[poem::handler]
    fn late() -> Response {
        note(Kind::Reveal);
        let line = LateOutcome::default();
        let late = line.clone();
        let outcome = async move {
            late.end(StatusCode::GATEWAY_TIMEOUT);
            Ok::<_, std::io::Error>("the outcome")
        };
        let mut response = Response::builder().body(Body::from_bytes_stream(futures::stream::once(outcome)));
        response.set_data(line);
        response
    }
    Route::new()
        .nest(
            "/v1",
            service().with(AddData::new(Principal {
                account_id: AccountId(1000),
                shard_id: 1,
                identity: ClientIdentity::Credential(CredentialId(1)),
                scopes: Scopes::ALL,
            })),
        )
        .nest("/anonymous", service())
        .at("/limited", poem::get(limited))
        .at("/foreign", poem::get(foreign))
        .at("/late", poem::get(late))
        .at("/seen", poem::get(seen))
        .before(refuse_nul)
        .with(Edge::with_methods(Methods::of_document(&json!({"paths": {"/v1/orders": {"get": {}, "post": {}}}}))))
}
