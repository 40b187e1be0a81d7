//! `/api/v1/orders/:id/vouchers`: the codes of what was delivered.

use std::collections::HashSet;

use ledger_projections::orders;
use poem_openapi::param::Path;
use poem_openapi::{Object, OpenApi};
use serde::Serialize;

use super::error::ApiError;
use super::outcome::answered;
use super::principal::{Caller, ClientOperator};
use super::reply::{NoStore, Reply};
use super::state::{State, Tag, not_found, origin};
use crate::ledger::{Answer, Command, stock};
use crate::secrets::seal::Private;

/// The delivered units of an order.
#[derive(Object, Serialize)]
struct Vouchers {
    /// The vouchers, one a unit.
    vouchers: Vec<Voucher>,
}

/// A voucher with its codes.
#[derive(Object, Serialize)]
struct Voucher {
    /// Names the voucher without telling its code.
    voucher_reference_number: String,
    /// The voucher's code.
    card_number: String,
    /// The PIN that goes with the card number.
    pin: Option<String>,
    /// Where the end user can claim it.
    claim_url: Option<String>,
    /// The last day that it is valid, `YYYY-MM-DD`.
    expires_on: Option<String>,
}

impl From<stock::Revealed> for Voucher {
    fn from(voucher: stock::Revealed) -> Self {
        let expose = |text: Private| text.expose().to_owned();
        Self {
            voucher_reference_number: voucher.reference,
            card_number: expose(voucher.card_number),
            pin: voucher.pin.map(expose),
            claim_url: voucher.claim_url.map(expose),
            expires_on: voucher.expires_on.map(|day| day.to_string()),
        }
    }
}

fn erased() -> ApiError {
    not_found().message("The voucher codes of this order were erased.")
}

pub struct VoucherCodes;

#[OpenApi(prefix_path = "/api/v1", tag = "Tag::Orders")]
impl VoucherCodes {
    /// Read the voucher codes
    ///
    /// Of the units that were delivered so far. Each read is recorded. 404 once they were erased: the
    /// order itself is still there.
    #[oai(path = "/orders/:id/vouchers", method = "get", operation_id = "get_order_vouchers")]
    async fn get(
        &self,
        caller: Caller<ClientOperator>,
        state: State<'_>,
        /// The order's id.
        id: Path<i64>,
    ) -> Result<NoStore<Reply<Vouchers>>, ApiError> {
        let caller = caller.0;
        let pool = state.ledger.pool();
        // An unknown order need not trouble the writer.
        orders::find(pool, caller.shard_id, id.0, Some(caller.account_id)).await?.ok_or_else(not_found)?;
        if stock::are_erased(pool, caller.shard_id, id.0).await? {
            return Err(erased());
        }
        let command = Command::RevealVouchers { account_id: caller.account_id, order_id: id.0 };
        let answer = state.ledger.execute(caller.shard_id, command, origin(caller.actor())).await?;
        let view = answered!(answer, Answer::Order(view) => view)?;
        // Shown is what the audited event covers, not what was delivered since.
        let covered: HashSet<&str> = view.order.items.iter().flat_map(|item| &item.vouchers).map(String::as_str).collect();
        let mut vouchers = stock::revealed(pool, &state.keyring, caller.shard_id, id.0).await?;
        vouchers.retain(|voucher| covered.contains(&*voucher.reference));
        if vouchers.len() < covered.len() {
            // Between the two.
            return Err(erased());
        }
        Ok(NoStore(Reply(Vouchers { vouchers: vouchers.into_iter().map(Into::into).collect() })))
    }
}
