//! What handlers work with, and what they all need.

use std::sync::Arc;

use chrono::{DateTime, Datelike, Utc};
use ipnet::IpNet;
use ledger_events::catalogue::ProductImage;
use ledger_events::{AccountId, Actor, Currency, ProductId, ShardId};
use ledger_projections::accounts;
use ledger_projections::page::{Listed as Rows, Page as RowPage};
use poem::web::Data;
use poem_openapi::Tags;
use rust_decimal::Decimal;

use super::error::{ApiError, Code};
use super::lifecycle::Lifecycle;
use super::page::Page;
use super::reply::{Listed, Plural};
use super::request_id::current_text;
use crate::access::{Gate, Operators, Sessions};
use crate::ledger::{Ledger, Origin};
use crate::secrets::seal::Keyring;
use crate::telemetry::Metrics;
use crate::transparency::PublicLog;

/// What the API works with. Cheap to clone.
#[derive(Clone, Debug)]
pub struct ApiState {
    pub ledger: Ledger,
    pub gate: Gate,
    pub sessions: Sessions,
    pub operators: Operators,
    pub keyring: Arc<Keyring>,
    pub lifecycle: Lifecycle,
    /// Proxies whose `X-Forwarded-For` is believed.
    pub trusted_proxies: Arc<[IpNet]>,
    pub metrics: Metrics,
    /// Serves what only a sandbox has.
    pub is_sandbox: bool,
    /// The address by which clients reach the service, without a slash at its end.
    pub public_url: Arc<str>,
    pub public_log: PublicLog,
}

/// The state as a handler's argument.
pub type State<'a> = Data<&'a Arc<ApiState>>;

impl ApiState {
    /// The shard of an account that an operator names.
    ///
    /// # Errors
    /// 404 for an unknown account.
    pub async fn shard_of(&self, account: AccountId) -> Result<ShardId, ApiError> {
        let found = accounts::find(self.ledger.pool(), account).await?;
        found.map(|(shard, _)| shard).ok_or_else(not_found)
    }

    /// Where the bytes of a product's image are.
    pub fn image_url(&self, product: ProductId, image: &ProductImage) -> String {
        format!("{}/api/v1/products/{product}/image/{}", self.public_url, image.version())
    }
}

/// How the document groups its operations.
#[derive(Tags)]
pub enum Tag {
    /// Ordering vouchers, following orders, reading codes.
    Orders,
    /// What can be ordered.
    Products,
    /// What countries, currencies and categories there are.
    Reference,
    /// Balances, one wallet per currency.
    Wallets,
    /// Every movement of money.
    Transactions,
    /// What came in and went out, proved against the log and a bank's statements.
    Reconciliation,
    /// Whom payouts go to.
    Beneficiaries,
    /// Money out of a wallet.
    Payouts,
    /// What only a sandbox has.
    Sandbox,
    /// Being told of what happens to orders.
    Webhooks,
    /// What was sent to webhooks, and what became of it.
    Deliveries,
    /// Logging in as a user of an account.
    Sessions,
    /// The account's own API keys, for its owners.
    #[oai(rename = "API keys")]
    ApiKeys,
    /// The transparency log: that nobody has changed the past.
    #[oai(rename = "Transparency log")]
    Log,
    /// Client organisations, their users and their credentials.
    Accounts,
    /// Products, categories and voucher stock.
    Catalogue,
    /// Everything that has happened, as it is recorded.
    Events,
    /// How a node is, for those who run it.
    Probes,
}

/// Who asks, within the request that this task is answering.
pub fn origin(actor: Actor) -> Origin {
    Origin { actor, request_id: current_text() }
}

pub fn not_found() -> ApiError {
    ApiError::new(Code::NotFound)
}

/// The page as the projections count it.
pub fn rows_of(page: Page) -> RowPage {
    // `Page` lets nothing pass that does not fit.
    let fit = |number: u64| i64::try_from(number).unwrap_or(i64::MAX);
    RowPage { number: fit(page.page), size: fit(page.limit) }
}

/// What to read of each shard for one page of all of them.
pub fn rows_of_each(page: Page, shards: usize) -> RowPage {
    if shards == 1 { rows_of(page) } else { rows_of(Page { page: 1, limit: page.offset() + page.limit }) }
}

/// The page out of what was read of each shard. Ids are from one sequence over all shards: the
/// newest of each, merged, are the newest.
pub fn newest<R>(read: Vec<(ShardId, Vec<R>)>, page: Page, id: impl Fn(&R) -> i64) -> Vec<(ShardId, R)> {
    let shards = read.len();
    let mut found: Vec<(ShardId, R)> =
        read.into_iter().flat_map(|(shard, rows)| rows.into_iter().map(move |row| (shard, row))).collect();
    if shards == 1 {
        return found;
    }
    found.sort_by_key(|(_, row)| std::cmp::Reverse(id(row)));
    let within = |number: u64| usize::try_from(number).unwrap_or(usize::MAX);
    found.into_iter().skip(within(page.offset())).take(within(page.limit)).collect()
}

/// A page of rows as a page of resources.
pub fn listed<R, T: Plural>(rows: Rows<R>, page: Page, view: impl FnMut(R) -> T) -> Listed<T> {
    let total = u64::try_from(rows.total).unwrap_or_default();
    Listed::page(rows.rows.into_iter().map(view).collect(), page, total)
}

/// A time in a query: of a year that both sides can count.
///
/// # Errors
/// 400 naming the parameter.
pub fn time(name: &str, time: Option<DateTime<Utc>>) -> Result<Option<DateTime<Utc>>, ApiError> {
    match time {
        Some(time) if !(1..=9999).contains(&time.year()) => Err(ApiError::invalid(name, "must be in the years 1 to 9999")),
        time => Ok(time),
    }
}

/// An amount that moves: more than nothing, and what `numeric(18, 2)` holds.
pub fn amounts() -> std::ops::RangeInclusive<Decimal> {
    Decimal::new(1, 2)..=Decimal::from_i128_with_scale(999_999_999_999_999_999, 2)
}

/// An amount that was read within [`amounts`].
///
/// # Errors
/// 400 naming the field, if it was not.
pub fn money(field: &str, amount: Decimal) -> Result<ledger_events::Money, ApiError> {
    amount.try_into().map_err(|problem: ledger_events::MoneyError| ApiError::invalid(field, problem.to_string()))
}

/// The currency that [`super::reference::currency`] has read.
///
/// # Errors
/// 400, if it had not.
pub fn parsed_currency(text: &str) -> Result<Currency, ApiError> {
    text.parse().map_err(|problem: &str| ApiError::invalid("currency", problem))
}
