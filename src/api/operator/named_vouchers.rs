//! `/admin/v1/products/:id/vouchers/void`, `/expiry` and `/transfer`: changes of vouchers that an operator names by their references.

use std::collections::{BTreeMap, HashMap, HashSet};

use chrono::NaiveDate;
use ledger_events::{Actor, ProductId, ShardId};
use poem_openapi::param::Path;
use poem_openapi::{Object, OpenApi};
use serde::Serialize;

use crate::api::body::StrictJson;
use crate::api::error::{ApiError, Code};
use crate::api::fields::{Fields, FromFields};
use crate::api::outcome::answered;
use crate::api::principal::{Admin, Caller};
use crate::api::readers::{date, integer, line, list, text};
use crate::api::reply::Reply;
use crate::api::state::{ApiState, State, Tag, origin};
use crate::ledger::reasons::MAX_REASON;
use crate::ledger::stock::{self, Gone};
use crate::ledger::{Command, CommandResult, FIRST_SHARD, commands};
use crate::secrets::seal::Secret;

/// Maximum number of vouchers in a request, so that its transaction does not delay others.
const MAX_VOUCHERS: usize = 1_000;

/// Maximum number of looks for vouchers that move between shards meanwhile.
const MAX_LOOKS: usize = 3;

/// Reads the reference numbers that each of the requests has.
fn references(fields: &mut Fields<'_>) -> Vec<String> {
    fields.required("vouchers", list(1..=MAX_VOUCHERS, || line(1..=100)))
}

/// Vouchers to withdraw from the stock.
#[derive(Object)]
struct VoidVouchers {
    /// Reference numbers of the vouchers, at most 1,000.
    #[oai(validator(min_items = 1, max_items = 1000))]
    vouchers: Vec<String>,
    /// Reason for the withdrawal. Stored encrypted.
    #[oai(validator(min_length = 1, max_length = 500))]
    reason: String,
}

impl FromFields for VoidVouchers {
    fn from_fields(fields: &mut Fields<'_>) -> Self {
        Self { vouchers: references(fields), reason: fields.required("reason", text(1..=MAX_REASON)) }
    }
}

/// Result of a withdrawal of vouchers.
#[derive(Object, Serialize)]
struct StockVoided {
    /// Number of vouchers that were voided.
    voided: i32,
    /// Number of vouchers that were voided before.
    already_voided: i32,
    /// Vouchers that stay as they are, each with the reason.
    refused: Vec<RefusedVoucher>,
}

/// A voucher that stays as it is.
#[derive(Object, Serialize)]
struct RefusedVoucher {
    /// Reference number of the voucher.
    voucher_reference_number: String,
    /// Reason for the refusal.
    reason: String,
}

impl RefusedVoucher {
    /// Returns refused vouchers in the order in which the request names them.
    fn all(mut refused: Vec<(String, String)>, references: &[String]) -> Vec<RefusedVoucher> {
        let places: HashMap<&String, usize> = references.iter().enumerate().rev().map(|(place, name)| (name, place)).collect();
        refused.sort_by_key(|(name, _)| places.get(name).copied());
        let one = |(voucher_reference_number, reason)| RefusedVoucher { voucher_reference_number, reason };
        refused.into_iter().map(one).collect()
    }
}

/// Result of a command in one shard.
struct InShard {
    /// Number of vouchers that it changed.
    changed: i32,
    /// Vouchers that stay as they are, each with the reason.
    refused: Vec<(String, String)>,
}

/// Runs a command in each shard whose stock has some of the vouchers. `add` adds up its answers. Returns all refused vouchers.
/// Vouchers that have moved to another shard meanwhile are looked for again.
async fn in_their_shards(
    state: &ApiState,
    (actor, product): (Actor, ProductId),
    references: Vec<String>,
    command: impl Fn(Vec<String>) -> Command,
    mut add: impl FnMut(CommandResult) -> Result<InShard, ApiError>,
) -> Result<Vec<RefusedVoucher>, ApiError> {
    let is_unknown = |reason: &str| reason == Gone::Unknown.to_string();
    let mut refused: Vec<(String, String)> = vec![];
    let mut asked: HashMap<String, ShardId> = HashMap::new();
    let (mut left, mut is_begun) = (references.clone(), false);
    for _ in 0..MAX_LOOKS {
        let places = places(state, product, std::mem::take(&mut left)).await;
        for (shard, names) in places.map_err(|error| broken_off(error, is_begun))? {
            let (gone, names): (Vec<_>, Vec<_>) = names.into_iter().partition(|name| asked.get(name) == Some(&shard));
            refused.extend(gone.into_iter().map(|name| (name, Gone::Unknown.to_string())));
            if names.is_empty() {
                continue;
            }
            asked.extend(names.iter().map(|name| (name.clone(), shard)));
            let answer = state.ledger.execute(shard, command(names), origin(actor)).await;
            let answer = answer.map_err(|error| broken_off(error.into(), is_begun))?;
            let result = add(answer)?;
            is_begun |= result.changed > 0;
            let (unknown, others): (Vec<_>, Vec<_>) = result.refused.into_iter().partition(|(_, reason)| is_unknown(reason));
            left.extend(unknown.into_iter().map(|(name, _)| name));
            refused.extend(others);
        }
        if left.is_empty() {
            break;
        }
    }
    refused.extend(left.into_iter().map(|name| (name, Gone::Unknown.to_string())));
    Ok(RefusedVoucher::all(refused, &references))
}

/// Returns the shards whose stock has these vouchers. The first one is to refuse those that no shard has.
async fn places(
    state: &ApiState,
    product: ProductId,
    references: Vec<String>,
) -> Result<BTreeMap<ShardId, Vec<String>>, ApiError> {
    let mut places = stock::shards_of(state.ledger.pool(), &state.ledger.shards(), product, &references).await?;
    let found: HashSet<String> = places.values().flatten().cloned().collect();
    let unknown = references.into_iter().filter(|name| !found.contains(name));
    places.entry(FIRST_SHARD).or_default().extend(unknown);
    Ok(places)
}

/// Builds the error for a request of which a part fails. `is_begun` says whether another part has changed vouchers. Any other
/// code would say that nothing happened. If the request is sent again and fails for the same reason, nothing happens, and it
/// has that code.
fn broken_off(error: ApiError, is_begun: bool) -> ApiError {
    match is_begun {
        true => ApiError::new(Code::OutcomeUnknown).message(
            "The request was interrupted after some of the vouchers were changed. Send it again: no voucher is changed twice.",
        ),
        false => error,
    }
}

/// Vouchers, and their new last day.
#[derive(Object)]
struct SetVoucherExpiry {
    /// Reference numbers of the vouchers, at most 1,000.
    #[oai(validator(min_items = 1, max_items = 1000))]
    vouchers: Vec<String>,
    /// Last day (UTC) of the vouchers. A day in the past expires them at once.
    expires_on: NaiveDate,
}

impl FromFields for SetVoucherExpiry {
    fn from_fields(fields: &mut Fields<'_>) -> Self {
        Self { vouchers: references(fields), expires_on: fields.required("expires_on", date) }
    }
}

/// Result of setting the last day of vouchers.
#[derive(Object, Serialize)]
struct StockExpiry {
    /// Number of vouchers with a new last day.
    changed: i32,
    /// Number of vouchers that have this last day already.
    unchanged: i32,
    /// Vouchers that stay as they are, each with the reason.
    refused: Vec<RefusedVoucher>,
}

/// Vouchers to move to another product.
#[derive(Object)]
struct TransferVouchers {
    /// Reference numbers of the vouchers, at most 1,000.
    #[oai(validator(min_items = 1, max_items = 1000))]
    vouchers: Vec<String>,
    /// Unique identifier of the product that gets the vouchers. It has the same currency.
    to_product_id: i64,
    /// Reason for the transfer. Stored encrypted.
    #[oai(validator(min_length = 1, max_length = 500))]
    reason: String,
}

impl FromFields for TransferVouchers {
    fn from_fields(fields: &mut Fields<'_>) -> Self {
        Self {
            vouchers: references(fields),
            to_product_id: fields.required("to_product_id", integer(1..=i64::MAX)),
            reason: fields.required("reason", text(1..=MAX_REASON)),
        }
    }
}

/// Result of a transfer of vouchers.
#[derive(Object, Serialize)]
struct StockTransferred {
    /// Number of vouchers that were moved.
    transferred: i32,
    /// Number of vouchers that the other product has already.
    already_there: i32,
    /// Vouchers that stay as they are, each with the reason.
    refused: Vec<RefusedVoucher>,
}

pub struct NamedVouchers;

#[OpenApi(prefix_path = "/admin/v1", tag = "Tag::Catalogue")]
impl NamedVouchers {
    /// Void vouchers
    ///
    /// Withdraws vouchers from a product's stock, so that no order gets them. A voucher that is allocated to an order
    /// cannot be voided. Voiding cannot be undone.
    #[oai(path = "/products/:id/vouchers/void", method = "post", operation_id = "void_vouchers")]
    async fn void(
        &self,
        caller: Caller<Admin>,
        state: State<'_>,
        /// Unique identifier of the product.
        id: Path<i64>,
        body: StrictJson<VoidVouchers>,
    ) -> Result<Reply<StockVoided>, ApiError> {
        let VoidVouchers { vouchers: references, reason } = body.0;
        let (product_id, reason) = (ProductId(id.0), Secret::new(reason));
        let (mut voided, mut already_voided) = (0, 0);
        let command = |references| Command::from(commands::VoidVouchers { product_id, references, reason: reason.clone() });
        let add = |answer: CommandResult| -> Result<_, ApiError> {
            let result = answered!(answer, CommandResult::StockVoided(result) => result)?;
            voided += result.voided;
            already_voided += result.already_voided;
            Ok(InShard { changed: result.voided, refused: result.refused })
        };
        let refused = in_their_shards(&state, (caller.0.0.actor(), product_id), references, command, add).await?;
        Ok(Reply(StockVoided { voided, already_voided, refused }))
    }

    /// Expire vouchers
    ///
    /// Gives vouchers of a product's stock an earlier last day, so that no order gets them after it. A voucher that is unknown,
    /// voided, allocated to an order, or that expires earlier, stays as it is. This cannot be undone: a last day cannot be later.
    #[oai(path = "/products/:id/vouchers/expiry", method = "post", operation_id = "set_voucher_expiry")]
    async fn set_expiry(
        &self,
        caller: Caller<Admin>,
        state: State<'_>,
        /// Unique identifier of the product.
        id: Path<i64>,
        body: StrictJson<SetVoucherExpiry>,
    ) -> Result<Reply<StockExpiry>, ApiError> {
        let SetVoucherExpiry { vouchers: references, expires_on } = body.0;
        let product_id = ProductId(id.0);
        let (mut changed, mut unchanged) = (0, 0);
        let command = |references| Command::from(commands::SetVoucherExpiry { product_id, references, expires_on });
        let add = |answer: CommandResult| -> Result<_, ApiError> {
            let result = answered!(answer, CommandResult::StockExpiry(result) => result)?;
            changed += result.changed;
            unchanged += result.unchanged;
            Ok(InShard { changed: result.changed, refused: result.refused })
        };
        let refused = in_their_shards(&state, (caller.0.0.actor(), product_id), references, command, add).await?;
        Ok(Reply(StockExpiry { changed, unchanged, refused }))
    }

    /// Transfer vouchers
    ///
    /// Moves vouchers from a product's stock to that of another product of the same currency, such as its successor. Orders of the
    /// other product then get them, those that wait within seconds. A voucher that is unknown, voided, expired or allocated to an
    /// order stays where it is, and so does one whose face value the other product lacks, or whose card number it has.
    #[oai(path = "/products/:id/vouchers/transfer", method = "post", operation_id = "transfer_vouchers")]
    async fn transfer(
        &self,
        caller: Caller<Admin>,
        state: State<'_>,
        /// Unique identifier of the product that gives the vouchers.
        id: Path<i64>,
        body: StrictJson<TransferVouchers>,
    ) -> Result<Reply<StockTransferred>, ApiError> {
        let TransferVouchers { vouchers: references, to_product_id, reason } = body.0;
        let (product_id, to_product_id, reason) = (ProductId(id.0), ProductId(to_product_id), Secret::new(reason));
        let (mut transferred, mut already_there) = (0, 0);
        let command = |references| {
            let reason = reason.clone();
            Command::from(commands::TransferVouchers { product_id, to_product_id, references, reason })
        };
        let add = |answer: CommandResult| -> Result<_, ApiError> {
            let result = answered!(answer, CommandResult::StockTransferred(result) => result)?;
            transferred += result.transferred;
            already_there += result.already_there;
            Ok(InShard { changed: result.transferred, refused: result.refused })
        };
        let refused = in_their_shards(&state, (caller.0.0.actor(), product_id), references, command, add).await?;
        Ok(Reply(StockTransferred { transferred, already_there, refused }))
    }
}
