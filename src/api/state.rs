//! State and helpers that all handlers share.

use std::cmp::Reverse;
use std::sync::Arc;

use chrono::{DateTime, Datelike, Utc};
use ipnet::IpNet;
use ledger_database::PgPool;
use ledger_events::approval::ApprovalLimits;
use ledger_events::catalogue::ProductImage;
use ledger_events::{AccountId, Actor, Currency, ProductId, ShardId};
use ledger_projections::accounts;
use ledger_projections::page::{Listed as Rows, Page as RowPage};
use poem::web::Data;
use poem_openapi::Tags;
use rust_decimal::Decimal;
use tokio_util::sync::CancellationToken;

use super::conditions::Conditions;
use super::error::{ApiError, Code};
use super::lifecycle::Lifecycle;
use super::log_position;
use super::page::Page;
use super::recent::Recent;
use super::reply::{Listed, Plural};
use super::request_id::current_text;
use crate::access::open_id::OpenId;
use crate::access::{Console, Gate, Operators, Sessions};
use crate::audit::runner::Runner;
use crate::delivery::retention::RetentionSettings;
use crate::fulfilment::supply::Notices;
use crate::ledger::feed::FeedWaiters;
use crate::ledger::{FIRST_SHARD, Ledger, Origin};
use crate::secrets::seal::Keyring;
use crate::telemetry::Metrics;
use crate::transparency::PublicLog;

/// State of the API. Cheap to clone.
#[derive(Clone, Debug)]
pub struct ApiState {
    pub ledger: Ledger,
    pub gate: Gate,
    pub sessions: Sessions,
    pub operators: Operators,
    pub console: Console,
    /// Sign-in of operators' users through OpenID Connect, if it is configured.
    pub open_id: Option<OpenId>,
    pub keyring: Arc<Keyring>,
    pub lifecycle: Lifecycle,
    /// Networks of the proxies whose `X-Forwarded-For` is trusted.
    pub trusted_proxies: Arc<[IpNet]>,
    pub metrics: Metrics,
    /// Whether the node serves the operations of a sandbox.
    pub is_sandbox: bool,
    /// Whether the node shows the mails that it sends.
    pub shows_outbox: bool,
    /// Base URL at which clients reach the service, without a trailing slash.
    pub public_url: Arc<str>,
    /// Base URL at which operators reach the console, without a trailing slash.
    pub console_url: Arc<str>,
    /// Base URL to which mails link, without a trailing slash.
    pub portal_url: Arc<str>,
    pub public_log: PublicLog,
    /// Amounts above which a second operator must approve.
    pub approval_limits: Arc<ApprovalLimits>,
    /// Suppliers whose notices the node accepts.
    pub notices: Notices,
    /// Requests that wait for events.
    pub feed: FeedWaiters,
    /// Verifications on this node.
    pub audits: Runner,
    /// Conditions of the alerts, read for all who ask within a few seconds.
    pub conditions: Arc<Recent<Conditions>>,
    /// Retention of delivery data.
    pub retention: RetentionSettings,
    /// Cancelled when the node begins to stop: it is not ready any more.
    pub leaving: CancellationToken,
}

/// URLs at which browsers reach the service's pages.
#[derive(Debug, Clone, Copy)]
pub struct Origins<'a> {
    /// Public URL, for the pages of clients.
    pub portal: &'a str,
    /// URL of the console, for the pages of operators.
    pub console: &'a str,
}

/// The state as a handler's argument.
pub type State<'a> = Data<&'a Arc<ApiState>>;

impl ApiState {
    /// Returns the shard of an account that an operator names.
    ///
    /// # Errors
    /// 404 for an unknown account.
    pub async fn shard_of(&self, account: AccountId) -> Result<ShardId, ApiError> {
        let found = accounts::find(self.ledger.pool(), account).await?;
        found.map(|(shard, _)| shard).ok_or_else(not_found)
    }

    /// Returns the pool for the reads of a list, an export, a statement or a report. They go to the standby, if there is one, and
    /// miss no event that reads on the primary would see.
    pub fn read_pool(&self) -> PgPool {
        log_position::read_pool(&self.ledger)
    }

    /// Returns the shard that an operator names, or the first one.
    ///
    /// # Errors
    /// 400 for an unknown shard.
    pub fn shard_named(&self, named: Option<ShardId>) -> Result<ShardId, ApiError> {
        let shard = named.unwrap_or(FIRST_SHARD);
        let is_known = self.ledger.shards().contains(&shard);
        if is_known { Ok(shard) } else { Err(ApiError::invalid("shard_id", "is not a shard of this ledger")) }
    }

    /// Returns the shards that a list reads. A list of one account reads its shard, or none if the account is unknown.
    pub async fn shards_of(&self, account: Option<AccountId>) -> Result<Vec<ShardId>, ApiError> {
        let all = self.ledger.shards();
        match account {
            Some(account) if all.len() > 1 => Ok(self.ledger.shard_of_account(account).await?.into_iter().collect()),
            _ => Ok(all),
        }
    }

    /// Returns the URLs at which browsers reach the service's pages.
    pub fn origins(&self) -> Origins<'_> {
        Origins { portal: &self.public_url, console: &self.console_url }
    }

    /// Returns the URL of a product's image.
    pub fn image_url(&self, product: ProductId, image: &ProductImage) -> String {
        format!("{}/api/v1/products/{product}/image/{}", self.public_url, image.version())
    }
}

/// Groups of operations in the documents.
#[derive(Tags)]
pub enum Tag {
    /// Place, follow and cancel orders, and read the codes of delivered vouchers.
    Orders,
    /// Browse the products that you can order, and their images.
    Products,
    /// Look up countries, currencies and product categories.
    Reference,
    /// Wallets hold balances, one wallet per currency.
    Wallets,
    /// Transactions are the movements of money in wallets.
    Transactions,
    /// Reconcile incoming and outgoing money with the log and with bank statements.
    Reconciliation,
    /// Beneficiaries are the recipients of payouts.
    Beneficiaries,
    /// Approvals let a second operator decide about movements of money above a configured amount.
    Approvals,
    /// Payouts send money from a wallet to a beneficiary.
    Payouts,
    /// Operations for testing. They exist in a sandbox only.
    Sandbox,
    /// Webhooks notify your endpoints of events in the life of your orders.
    Webhooks,
    /// Deliveries show what was sent to webhooks, with attempts and outcomes.
    Deliveries,
    /// Log in and out as a user of an account, and manage the own login.
    Sessions,
    /// Manage the users of the account. Changes require the role owner.
    Team,
    /// Manage the account's API keys. Changes require the role owner.
    #[oai(rename = "API keys")]
    ApiKeys,
    /// The transparency log proves that nobody has changed past events.
    #[oai(rename = "Transparency log")]
    Log,
    /// Accounts are client organisations, with their users and credentials.
    Accounts,
    /// Manage products, categories and voucher stock.
    Catalogue,
    /// Sign in to the console and out again, and manage the own login.
    #[oai(rename = "Console sessions")]
    Console,
    /// People who operate the service, with their roles.
    Operators,
    /// Events record everything that has happened.
    Events,
    /// The state of nodes, queues and projections, for the people who run the service.
    Operations,
    /// Health checks and metrics of a node, for its operators.
    Probes,
}

/// Returns the origin of a command: the actor, and the ID of the request that the current task handles.
pub fn origin(actor: Actor) -> Origin {
    Origin { actor, request_id: current_text() }
}

pub fn not_found() -> ApiError {
    ApiError::new(Code::NotFound)
}

/// Converts a page to the type of the projections.
pub fn rows_of(page: Page) -> RowPage {
    // `Page` accepts only numbers that fit.
    let fit = |number: u64| i64::try_from(number).unwrap_or(i64::MAX);
    RowPage { number: fit(page.page), size: fit(page.limit) }
}

/// Returns the rows to read from each shard to build one page over all shards.
pub fn rows_of_each(page: Page, shards: usize) -> RowPage {
    if shards == 1 { rows_of(page) } else { rows_of(Page { page: 1, limit: page.offset() + page.limit }) }
}

/// Merges the rows read from each shard into the page, newest first by their time. IDs tell nothing of the order between shards
/// (`docs/decisions/0029-lists-over-shards.md`). Rows of one shard keep their order, so that each is on one page. Among rows
/// with the same time, the first shard's come first.
pub fn newest<R>(read: Vec<(ShardId, Vec<R>)>, page: Page, at: impl Fn(&R) -> DateTime<Utc>) -> Vec<(ShardId, R)> {
    let is_merged = read.len() != 1;
    let mut shards: Vec<_> = read.into_iter().map(|(shard, rows)| (shard, rows.into_iter().peekable())).collect();
    let merged = std::iter::from_fn(|| {
        let next = shards.iter_mut().filter_map(|(shard, rows)| Some((at(rows.peek()?), Reverse(*shard), rows)));
        let (_, Reverse(shard), rows) = next.max_by_key(|(at, shard, _)| (*at, *shard))?;
        Some((shard, rows.next()?))
    });
    let within = |number: u64| usize::try_from(number).unwrap_or(usize::MAX);
    // The rows of a single shard are those of the page.
    merged.skip(if is_merged { within(page.offset()) } else { 0 }).take(within(page.limit)).collect()
}

/// Converts a page of rows to a page of resources.
pub fn listed<R, T: Plural>(rows: Rows<R>, page: Page, view: impl FnMut(R) -> T) -> Listed<T> {
    let total = u64::try_from(rows.total).unwrap_or_default();
    Listed::page(rows.rows.into_iter().map(view).collect(), page, total)
}

/// Validates a time in a query. The years 1 to 9999 are valid, which both chrono and Postgres support.
///
/// # Errors
/// 400 naming the parameter.
pub fn time(name: &str, time: Option<DateTime<Utc>>) -> Result<Option<DateTime<Utc>>, ApiError> {
    match time {
        Some(time) if !(1..=9999).contains(&time.year()) => Err(ApiError::invalid(name, "must be in the years 1 to 9999")),
        time => Ok(time),
    }
}

/// Returns the range of amounts that can move: from 0.01 to the maximum of `numeric(18, 2)`.
pub fn amounts() -> std::ops::RangeInclusive<Decimal> {
    Decimal::new(1, 2)..=Decimal::from_i128_with_scale(999_999_999_999_999_999, 2)
}

/// Converts an amount that was read within [`amounts`].
///
/// # Errors
/// 400 naming the field, if the amount is out of range.
pub fn money(field: &str, amount: Decimal) -> Result<ledger_events::Money, ApiError> {
    amount.try_into().map_err(|problem: ledger_events::MoneyError| ApiError::invalid(field, problem.to_string()))
}

/// Converts a currency that [`super::reference::currency`] has read.
///
/// # Errors
/// 400 naming the field `currency`, if the code is not supported.
pub fn parsed_currency(text: &str) -> Result<Currency, ApiError> {
    text.parse().map_err(|problem: &str| ApiError::invalid("currency", problem))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_of_several_shards_are_in_the_order_of_their_times() {
        let row = |second: i64, name: &'static str| (DateTime::UNIX_EPOCH + chrono::TimeDelta::seconds(second), name);
        let read = || {
            vec![
                (1, vec![row(9, "a"), row(5, "b"), row(4, "c")]),
                (2, vec![row(8, "d"), row(5, "e")]),
                (3, vec![]),
                // Two nodes wrote it: the IDs, by which it was read, are not in the order of time.
                (4, vec![row(3, "f"), row(6, "g")]),
            ]
        };
        let page = |page, limit| {
            let rows = newest(read(), Page { page, limit }, |(at, _)| *at);
            rows.into_iter().map(|(shard, (_, name))| (shard, name)).collect::<Vec<_>>()
        };
        let all = [(1, "a"), (2, "d"), (1, "b"), (2, "e"), (1, "c"), (4, "f"), (4, "g")];
        assert_eq!(page(1, 100), all);
        for limit in 1..=all.len() {
            let pages = (1..=all.len()).flat_map(|number| page(number as u64, limit as u64));
            assert_eq!(pages.collect::<Vec<_>>(), all, "{limit} rows a page");
        }
        let single = newest(vec![(2, vec!["x", "y"])], Page { page: 7, limit: 2 }, |_| DateTime::UNIX_EPOCH);
        assert_eq!(single, [(2, "x"), (2, "y")], "a single shard reads the page itself");
    }
}
