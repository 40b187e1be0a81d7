//! `/suppliers/:name/notices`: a supplier says that an order is ready. It is no part of the API, because each supplier's settings
//! name its headers and its fields: see docs/suppliers.md.

use std::sync::Arc;
use std::time::Duration;

use chrono::Utc;
use poem::http::StatusCode;
use poem::{Request, Response, Route, post};
use serde_json::Value;
use uuid::Uuid;
use webhook_client::signature::VerifyError;

use super::auth::only;
use super::body;
use super::error::{ApiError, Code};
use super::state::{ApiState, not_found};
use crate::fulfilment::supply;
use crate::ledger::connect::within;

/// Path of the route, as the documents write templates.
pub const TEMPLATE: &str = "/suppliers/{name}/notices";

/// Deadline of the statement that makes a purchase due.
const DEADLINE: Duration = Duration::from_secs(5);

/// Adds the route.
pub fn add(route: Route, state: &Arc<ApiState>) -> Route {
    let state = state.clone();
    let endpoint = poem::endpoint::make(move |request: Request| {
        let state = state.clone();
        async move { Ok::<_, poem::Error>(accept(&state, request).await?) }
    });
    route.at("/suppliers/:name/notices", post(endpoint))
}

/// Accepts a notice. The response is the same for a key that is unknown and for a purchase that has ended: it tells nothing about
/// purchases.
async fn accept(state: &ApiState, mut request: Request) -> Result<Response, ApiError> {
    let name = request.raw_path_param("name").unwrap_or_default().to_owned();
    let settings = state.notices.of(&name).ok_or_else(not_found)?;
    let body = body::read(request.take_body(), body::NOTICE_LIMIT).await?;
    let headers = only(&request, &settings.timestamp_header).zip(only(&request, &settings.signature_header));
    let (timestamp, signature) = headers.ok_or_else(|| ApiError::new(Code::HmacSignatureRequired))?;
    settings.verify(timestamp, signature, &body, Utc::now().timestamp()).map_err(refusal)?;
    let notice: Value = serde_json::from_slice(&body).map_err(|_| ApiError::new(Code::MalformedJson))?;
    let key = settings.key(&notice).ok_or_else(|| ApiError::invalid(&settings.key, "is required, as a string"))?;
    // The ledger has made each key itself, so any other text is an unknown one.
    if let Ok(key) = Uuid::try_parse(key) {
        within(DEADLINE, supply::take_notice(state.ledger.pool(), &name, key)).await?;
    }
    Ok(Response::builder().status(StatusCode::NO_CONTENT).finish())
}

fn refusal(error: VerifyError) -> ApiError {
    ApiError::new(match error {
        VerifyError::Timestamp => Code::HmacHeaderInvalid,
        VerifyError::Expired => Code::HmacTimestampExpired,
        VerifyError::Signature => Code::HmacSignatureInvalid,
    })
}
