//! `/api/v1/orders/:id/vouchers`: the codes of delivered vouchers.

use std::collections::HashSet;

use ledger_events::OrderId;
use ledger_projections::orders;
use poem::http::{HeaderValue, header};
use poem::web::Accept;
use poem::{IntoResponse, Response};
use poem_openapi::param::Path;
use poem_openapi::registry::{MetaMediaType, MetaResponses, MetaSchema, MetaSchemaRef, Registry};
use poem_openapi::{ApiResponse, Object, OpenApi};
use serde::Serialize;

use super::error::{ApiError, documented_header};
use super::outcome::answered;
use super::principal::{Caller, ClientOperator};
use super::reply::{Reply, Revealing};
use super::state::{State, Tag, not_found, origin};
use super::statements::Form;
use crate::ledger::{CommandResult, commands, stock};
use crate::secrets::seal::Secret;
use crate::spreadsheet::{self, inert};

/// The delivered vouchers of an order, with their codes.
#[derive(Object, Serialize)]
struct Vouchers {
    /// The vouchers, one per delivered unit.
    vouchers: Vec<Voucher>,
}

/// A voucher with its codes.
#[derive(Object, Serialize)]
struct Voucher {
    /// Reference number of the voucher. It does not reveal the code.
    voucher_reference_number: String,
    /// Code of the voucher.
    card_number: String,
    /// PIN that belongs to the card number; null if there is none.
    pin: Option<String>,
    /// URL at which the end user can claim the voucher; null if there is none.
    claim_url: Option<String>,
    /// Last day on which the voucher is valid, as `YYYY-MM-DD`; null if it has no expiry date.
    expires_on: Option<String>,
}

impl From<stock::Revealed> for Voucher {
    fn from(voucher: stock::Revealed) -> Self {
        let expose = |text: Secret| text.expose().to_owned();
        Self {
            voucher_reference_number: voucher.reference,
            card_number: expose(voucher.card_number),
            pin: voucher.pin.map(expose),
            claim_url: voucher.claim_url.map(expose),
            expires_on: voucher.expires_on.map(|day| day.to_string()),
        }
    }
}

/// The delivered vouchers of an order, as JSON or as CSV.
enum Codes {
    Json(Vouchers),
    Csv { order_id: i64, text: Vec<u8> },
}

impl Codes {
    /// Renders the vouchers in the wanted format.
    fn of(order_id: i64, vouchers: Vouchers, form: Form) -> Result<Self, ApiError> {
        match form {
            Form::Json => Ok(Self::Json(vouchers)),
            Form::Csv => Ok(Self::Csv { order_id, text: csv(&vouchers.vouchers).map_err(ApiError::internal)? }),
        }
    }
}

/// Columns of the CSV.
const COLUMNS: [&str; 5] = ["voucher_reference_number", "card_number", "pin", "claim_url", "expires_on"];

/// Writes one row per voucher.
fn csv(vouchers: &[Voucher]) -> Result<Vec<u8>, csv::Error> {
    let mut text = Vec::new();
    spreadsheet::rows(&mut text, |csv| {
        csv.write_record(COLUMNS)?;
        vouchers.iter().try_for_each(|voucher| {
            let optional =
                [&voucher.pin, &voucher.claim_url, &voucher.expires_on].map(|text| text.as_deref().unwrap_or_default());
            let [pin, claim_url, expires_on] = optional;
            let row = [&*voucher.voucher_reference_number, &*voucher.card_number, pin, claim_url, expires_on];
            csv.write_record(row.map(|text| inert(text).into_owned()))
        })
    })?;
    Ok(text)
}

impl IntoResponse for Codes {
    fn into_response(self) -> Response {
        let mut response = match self {
            Self::Json(vouchers) => Reply(vouchers).into_response(),
            Self::Csv { order_id, text } => Response::builder()
                .content_type("text/csv; charset=utf-8; header=present")
                .header(header::CONTENT_DISPOSITION, format!("attachment; filename=\"vouchers-{order_id}.csv\""))
                .body(text),
        };
        response.headers_mut().insert(header::VARY, HeaderValue::from_static("Accept"));
        response
    }
}

impl ApiResponse for Codes {
    fn meta() -> MetaResponses {
        let mut meta = Reply::<Vouchers>::meta();
        let text = "The vouchers as CSV (RFC 4180) with a header row. Text that a spreadsheet would interpret as a formula is \
                    prefixed with an apostrophe.";
        let schema = MetaSchema { description: Some(text), ..MetaSchema::new("string") };
        for response in &mut meta.responses {
            let schema = MetaSchemaRef::Inline(Box::new(schema.clone()));
            response.content.push(MetaMediaType { content_type: "text/csv", schema });
            let text = "Suggested file name, for CSV only.";
            response.headers.push(documented_header::<Option<String>>("Content-Disposition", text));
            response.headers.push(documented_header::<String>("Vary", "`Accept`"));
        }
        meta
    }

    fn register(registry: &mut Registry) {
        Reply::<Vouchers>::register(registry);
    }
}

fn erased() -> ApiError {
    not_found().message("The voucher codes of this order were erased.")
}

pub struct VoucherCodes;

#[OpenApi(prefix_path = "/api/v1", tag = "Tag::Orders")]
impl VoucherCodes {
    /// Retrieve voucher codes
    ///
    /// Returns the codes of all vouchers of the order that are delivered so far. Every read is recorded. Requires an API
    /// key, or a user with the role operator or owner. Returns 404 once the codes are erased; the order itself still exists.
    ///
    /// With `Accept: text/csv`, the vouchers are returned as CSV.
    #[oai(path = "/orders/:id/vouchers", method = "get", operation_id = "get_order_vouchers")]
    async fn get(
        &self,
        caller: Caller<ClientOperator>,
        state: State<'_>,
        /// Unique identifier of the order.
        id: Path<i64>,
        accept: Accept,
    ) -> Result<Revealing<Codes>, ApiError> {
        let id = OrderId(id.0);
        let caller = caller.0;
        let pool = state.ledger.pool();
        // Rejects an unknown order without using the writer.
        orders::find(pool, caller.shard_id, id, Some(caller.account_id)).await?.ok_or_else(not_found)?;
        if stock::are_erased(pool, caller.shard_id, id).await? {
            return Err(erased());
        }
        let command = commands::RevealVouchers { account_id: caller.account_id, order_id: id };
        let answer = state.ledger.execute(caller.shard_id, command, origin(caller.actor())).await?;
        let view = answered!(answer, CommandResult::Order(view) => view)?;
        // Show only the vouchers that the audit event covers, not those delivered since.
        let covered: HashSet<&str> = view.order.items.iter().flat_map(|item| &item.vouchers).map(String::as_str).collect();
        let mut vouchers = stock::revealed(pool, &state.keyring, caller.shard_id, id).await?;
        vouchers.retain(|voucher| covered.contains(&*voucher.reference));
        if vouchers.len() < covered.len() {
            // The codes were erased after the check above.
            return Err(erased());
        }
        let vouchers = Vouchers { vouchers: vouchers.into_iter().map(Into::into).collect() };
        Ok(Revealing(Codes::of(id.0, vouchers, Form::wanted(&accept))?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_csv_has_one_row_per_voucher() {
        let voucher = |reference: &str, card_number: &str, pin: Option<&str>| Voucher {
            voucher_reference_number: reference.to_owned(),
            card_number: card_number.to_owned(),
            pin: pin.map(str::to_owned),
            claim_url: None,
            expires_on: None,
        };
        let text = csv(&[voucher("VR-1", "1111,2", Some("0042")), voucher("VR-2", "=1+1", None)]).unwrap();
        let expected =
            "voucher_reference_number,card_number,pin,claim_url,expires_on\r\nVR-1,\"1111,2\",0042,,\r\nVR-2,'=1+1,,,\r\n";
        assert_eq!(String::from_utf8(text).unwrap(), expected);
    }
}
