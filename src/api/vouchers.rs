//! `/api/v1/orders/:id/vouchers`: the codes of delivered vouchers.

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
use crate::ledger::{CommandResult, commands, stock};
use crate::secrets::seal::Secret;

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
    #[oai(path = "/orders/:id/vouchers", method = "get", operation_id = "get_order_vouchers")]
    async fn get(
        &self,
        caller: Caller<ClientOperator>,
        state: State<'_>,
        /// Unique identifier of the order.
        id: Path<i64>,
    ) -> Result<NoStore<Reply<Vouchers>>, ApiError> {
        let caller = caller.0;
        let pool = state.ledger.pool();
        // Rejects an unknown order without using the writer.
        orders::find(pool, caller.shard_id, id.0, Some(caller.account_id)).await?.ok_or_else(not_found)?;
        if stock::are_erased(pool, caller.shard_id, id.0).await? {
            return Err(erased());
        }
        let command = commands::RevealVouchers { account_id: caller.account_id, order_id: id.0 };
        let answer = state.ledger.execute(caller.shard_id, command, origin(caller.actor())).await?;
        let view = answered!(answer, CommandResult::Order(view) => view)?;
        // Show only the vouchers that the audit event covers, not those delivered since.
        let covered: HashSet<&str> = view.order.items.iter().flat_map(|item| &item.vouchers).map(String::as_str).collect();
        let mut vouchers = stock::revealed(pool, &state.keyring, caller.shard_id, id.0).await?;
        vouchers.retain(|voucher| covered.contains(&*voucher.reference));
        if vouchers.len() < covered.len() {
            // The codes were erased after the check above.
            return Err(erased());
        }
        Ok(NoStore(Reply(Vouchers { vouchers: vouchers.into_iter().map(Into::into).collect() })))
    }
}
