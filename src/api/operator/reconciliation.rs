//! `/admin/v1/reconciliation`: totals of a period as of a position of the log, and the differences found.

mod events;
mod narrowed;
mod stock_figures;

use chrono::{DateTime, NaiveDate, SecondsFormat, Utc};
use ledger_events::{AccountId, ShardId};
use poem::http::header;
use poem::web::Accept;
use poem::{IntoResponse, Response};
use poem_openapi::param::Query;
use poem_openapi::registry::{MetaMediaType, MetaResponse, MetaResponses, MetaSchema, MetaSchemaRef, Registry};
use poem_openapi::types::Type;
use poem_openapi::{ApiResponse, Enum, Object, OpenApi};
use serde::Serialize;

use crate::access::Operator;
use crate::api::error::{ApiError, JSON, documented_header};
use crate::api::images::binary;
use crate::api::principal::Caller;
use crate::api::progress::Progress;
use crate::api::reply::{Data, render};
use crate::api::scalars::{Money, Timestamp};
use crate::api::state::{State, Tag, time};
use crate::api::statements::Form;
use crate::reconciliation::{self as figures, Amount, Period, ReconcileError, render as rendering, workbook};
use narrowed::NarrowedAccount;
use stock_figures::{StockDayTotals, StockTotals};

/// Maximum number of differences and wallets in a response. The CLI has no limit.
const MAX_DIFFERENCES: usize = 1_000;
const MAX_WALLETS: usize = 10_000;
/// Media type of a workbook (Office Open XML).
pub(super) const WORKBOOK: &str = "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet";

impl From<Amount> for Money {
    fn from(amount: Amount) -> Money {
        Money(amount.0)
    }
}

impl From<ReconcileError> for ApiError {
    fn from(error: ReconcileError) -> ApiError {
        match error {
            ReconcileError::Database(error) => error.into(),
            ReconcileError::Read(error) => error.into(),
            ReconcileError::Projection(_) | ReconcileError::Uncosigned(..) => ApiError::internal(error),
        }
    }
}

/// Money that moved in the period.
#[derive(Object, Serialize)]
struct MovedMoney {
    /// Sum of funding: money that came in from outside.
    funding: Money,
    /// Sum of debits by orders and payouts.
    debits: Money,
    /// Part of `debits` that orders caused.
    order_debits: Money,
    /// Part of `debits` that payouts caused.
    payout_debits: Money,
    /// Sum of refunds for cancelled orders and for payouts that were not made.
    refunds: Money,
    /// Part of `refunds` that orders caused.
    order_refunds: Money,
    /// Part of `refunds` that payouts caused.
    payout_refunds: Money,
    /// Net sum of corrections by operators: credits minus debits.
    adjustments: Money,
    /// Part of `adjustments` that credits account for.
    adjustment_credits: Money,
    /// Part of `adjustments` that debits account for.
    adjustment_debits: Money,
    /// Number of wallet transactions.
    movements: i64,
}

impl From<figures::MovementSums> for MovedMoney {
    fn from(moved: figures::MovementSums) -> Self {
        Self {
            funding: moved.funding.into(),
            debits: moved.debits.into(),
            order_debits: moved.order_debits.into(),
            payout_debits: moved.payout_debits.into(),
            refunds: moved.refunds.into(),
            order_refunds: moved.order_refunds.into(),
            payout_refunds: moved.payout_refunds.into(),
            adjustments: moved.adjustments.into(),
            adjustment_credits: moved.adjustment_credits.into(),
            adjustment_debits: moved.adjustment_debits.into(),
            movements: moved.movements,
        }
    }
}

/// Totals of a wallet in the period: `opening_balance` + `funding` − `debits` + `refunds` + `adjustments` =
/// `closing_balance`.
#[derive(Object, Serialize)]
struct WalletTotals {
    /// Shard of the wallet's account.
    shard_id: i16,
    /// Account of the wallet, from its last transaction, or from its row if nothing moved; null if it has neither.
    account_id: Option<i64>,
    /// Unique identifier of the wallet.
    wallet_id: i64,
    /// Currency of the wallet, as an ISO 4217 code; null if it has neither a transaction nor a row.
    currency: Option<String>,
    /// Balance at the start of the period.
    opening_balance: Money,
    /// Balance at the end of the period.
    closing_balance: Money,
    #[oai(flatten)]
    #[serde(flatten)]
    moved: MovedMoney,
}

/// Totals of all wallets in a currency.
#[derive(Object, Serialize)]
struct CurrencyTotals {
    /// Currency, as an ISO 4217 code.
    currency: String,
    /// Number of wallets in the currency.
    wallets: i64,
    /// Sum of the balances at the start of the period.
    opening_balance: Money,
    /// Sum of the balances at the end of the period.
    closing_balance: Money,
    #[oai(flatten)]
    #[serde(flatten)]
    moved: MovedMoney,
}

/// Totals of a day in a currency.
#[derive(Object, Serialize)]
struct DayTotals {
    /// UTC day.
    day: NaiveDate,
    /// Currency, as an ISO 4217 code.
    currency: String,
    #[oai(flatten)]
    #[serde(flatten)]
    moved: MovedMoney,
}

/// Position of a shard's log that the figures refer to.
#[derive(Object, Serialize)]
struct AsOfPosition {
    /// Shard of the log.
    shard_id: i16,
    /// Last position of the log that the figures include.
    position: i64,
    /// Last position of the log when the report was made.
    head: i64,
    /// Last position that the daily totals include. Later events were added from the wallet transactions.
    projected: i64,
    /// Last position whose movements the voucher stock includes. Later events are not in it yet.
    stock_projected: i64,
    /// First signed checkpoint of the log that covers the position, or the newest one if none does yet; null if the log has
    /// no checkpoint.
    log_checkpoint: Option<SignedCheckpoint>,
}

/// A signed checkpoint of the log.
#[derive(Object, Serialize)]
struct SignedCheckpoint {
    /// Number of events that the checkpoint covers, which is the position of the last one.
    size: i64,
    /// Root hash of the tree over these events, in hexadecimal.
    root: String,
    /// Signed note of the checkpoint (C2SP `tlog-checkpoint`).
    note: String,
}

/// Depth of the comparison.
///
/// - `TOTALS`: the totals were compared with the wallets' rows and last transactions.
/// - `MOVEMENTS`: each transaction, order and payout of the period was compared as well.
#[derive(Clone, Copy, Enum, Serialize)]
#[oai(rename = "CheckedLevel", rename_all = "SCREAMING_SNAKE_CASE")]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
enum Checked {
    Totals,
    Movements,
}

/// A difference between figures that should be equal.
#[derive(Object, Serialize)]
struct ReconciliationDifference {
    /// Kind of difference: `WALLET_BALANCE`, `WALLET_MISSING`, `WALLET_DIFFERS`, `WALLET_CLOSING`, `BALANCE_AFTER`,
    /// `MOVEMENT_MISSING`, `MOVEMENT_DIFFERS`, `MOVEMENT_EXTRA`, `ORDER_PRICE`, `ORDER_DEBIT`, `ORDER_REFUND`,
    /// `PAYOUT_DEBIT`, `PAYOUT_REFUND`, `PAYOUT`, `DAILY_TOTAL` or `UNREADABLE`.
    kind: String,
    /// Shard in which the difference was found.
    shard_id: i16,
    /// Wallet that the difference concerns, if any.
    wallet_id: Option<i64>,
    /// Order that the difference concerns, if any.
    order_id: Option<i64>,
    /// Payout that the difference concerns, if any.
    payout_id: Option<i64>,
    /// Positions of the log to inspect.
    positions: Vec<i64>,
    /// Description of the difference, for people.
    problem: String,
}

/// Totals of a period and the differences found.
#[derive(Object, Serialize)]
struct ReconciliationReport {
    /// Start of the period; null for the start of the log.
    from: Option<Timestamp>,
    /// End of the period; null for the last event of the log.
    to: Option<Timestamp>,
    /// Account that the report is limited to; null for all accounts.
    account_id: Option<i64>,
    /// Position of each shard's log that the figures refer to.
    as_of: Vec<AsOfPosition>,
    /// Depth of the comparison.
    checked: Checked,
    /// Number of events of orders, payouts and wallets that were checked one by one, also those of the accounts in `narrowed`.
    checked_events: i64,
    /// The first 10 accounts with wallets that differ, if `checked` is `TOTALS`. Their events lead to the differences.
    narrowed: Vec<NarrowedAccount>,
    /// Number of further accounts with wallets that differ.
    narrowed_left_out: u64,
    /// Totals by currency.
    currencies: Vec<CurrencyTotals>,
    /// Totals by day and currency. Days without transactions are omitted.
    days: Vec<DayTotals>,
    /// Voucher stock by currency, of the whole UTC days that the period touches. Empty with `account_id`.
    stock: Vec<StockTotals>,
    /// Voucher stock by day and currency. Days on which nothing moved are omitted. Empty with `account_id`.
    stock_days: Vec<StockDayTotals>,
    /// Totals of the first 10,000 wallets, by shard and then by identifier. `rewards-ledger reconcile` lists all of them.
    wallets: Vec<WalletTotals>,
    /// Number of wallets that `wallets` omits. All other figures include them.
    wallets_left_out: u64,
    /// Number of differences found.
    found: u64,
    /// The first 1,000 differences. `rewards-ledger reconcile` lists all of them.
    differences: Vec<ReconciliationDifference>,
}

impl From<figures::Report> for ReconciliationReport {
    fn from(report: figures::Report) -> Self {
        let number = |count: usize| u64::try_from(count).unwrap_or(u64::MAX);
        let as_of = |as_of: figures::AsOf| AsOfPosition {
            shard_id: as_of.shard_id,
            position: as_of.position,
            head: as_of.head,
            projected: as_of.projected,
            stock_projected: as_of.stock_projected,
            log_checkpoint: as_of.log_checkpoint.map(|c| SignedCheckpoint { size: c.size, root: c.root, note: c.note }),
        };
        let currency = |c: figures::CurrencyFigures| CurrencyTotals {
            currency: c.currency,
            wallets: c.wallets,
            opening_balance: c.opening_balance.into(),
            closing_balance: c.closing_balance.into(),
            moved: c.moved.into(),
        };
        let wallet = |w: figures::WalletFigures| WalletTotals {
            shard_id: w.shard_id,
            account_id: w.account_id.map(|id| id.0),
            wallet_id: w.wallet_id.0,
            currency: w.currency,
            opening_balance: w.opening_balance.into(),
            closing_balance: w.closing_balance.into(),
            moved: w.moved.into(),
        };
        let difference = |d: figures::Difference| ReconciliationDifference {
            kind: d.kind.name().to_owned(),
            shard_id: d.shard_id,
            wallet_id: d.wallet_id.map(|id| id.0),
            order_id: d.order_id.map(|id| id.0),
            payout_id: d.payout_id.map(|id| id.0),
            positions: d.positions,
            problem: d.problem,
        };
        let day = |d: figures::DayFigures| DayTotals { day: d.day, currency: d.currency, moved: d.moved.into() };
        Self {
            from: report.from.map(Into::into),
            to: report.to.map(Into::into),
            account_id: report.account_id.map(|id| id.0),
            as_of: report.as_of.into_iter().map(as_of).collect(),
            checked: match report.checked {
                figures::Checked::Totals => Checked::Totals,
                figures::Checked::Movements => Checked::Movements,
            },
            checked_events: report.checked_events,
            narrowed: report.narrowed.into_iter().map(Into::into).collect(),
            narrowed_left_out: number(report.narrowed_left_out),
            currencies: report.currencies.into_iter().map(currency).collect(),
            days: report.days.into_iter().map(day).collect(),
            stock: report.stock.into_iter().map(Into::into).collect(),
            stock_days: report.stock_days.into_iter().map(Into::into).collect(),
            wallets: report.wallets.into_iter().map(wallet).collect(),
            wallets_left_out: number(report.wallets_left_out),
            found: report.differences.found,
            differences: report.differences.differences.into_iter().map(difference).collect(),
        }
    }
}

/// A report in the requested format.
enum Reconciled {
    Json(String),
    Csv(Vec<u8>),
    Workbook(Vec<u8>),
}

impl IntoResponse for Reconciled {
    fn into_response(self) -> Response {
        let response = Response::builder().header(header::VARY, "Accept");
        let file = |extension: &str| {
            let now = Utc::now().to_rfc3339_opts(SecondsFormat::Secs, true).replace(':', "");
            format!("attachment; filename=\"reconciliation-{now}.{extension}\"")
        };
        match self {
            Self::Json(body) => response.content_type(JSON).body(body),
            Self::Csv(body) => {
                let response = response.content_type("text/csv; charset=utf-8; header=present");
                response.header(header::CONTENT_DISPOSITION, file("csv")).body(body)
            }
            Self::Workbook(body) => response.content_type(WORKBOOK).header(header::CONTENT_DISPOSITION, file("xlsx")).body(body),
        }
    }
}

/// Returns whether a workbook is the first format in `Accept` that is supported.
pub(super) fn wants_workbook(accept: &Accept) -> bool {
    let place = accept
        .0
        .iter()
        .position(|wish| wish.essence_str() == WORKBOOK && wish.get_param("q").is_none_or(|q| q.as_str().parse() != Ok(0.0_f32)));
    place.is_some_and(|place| Form::first(&Accept(accept.0[..place].to_vec())).is_none())
}

impl ApiResponse for Reconciled {
    fn meta() -> MetaResponses {
        let text = "CSV (RFC 4180) with a header row and one row per record: `record` is `REPORT`, `AS_OF`, `NARROWED`, \
                    `CURRENCY`, `DAY`, `STOCK`, `STOCK_DAY`, `WALLET` or `DIFFERENCE`.";
        let csv = MetaSchema { description: Some(text), ..MetaSchema::new("string") };
        let content = vec![
            MetaMediaType { content_type: JSON, schema: Data::<ReconciliationReport>::schema_ref() },
            MetaMediaType { content_type: "text/csv", schema: MetaSchemaRef::Inline(Box::new(csv)) },
            MetaMediaType { content_type: WORKBOOK, schema: binary() },
        ];
        let headers = vec![
            documented_header::<Option<String>>("Content-Disposition", "Suggested file name, for CSV and workbooks only."),
            documented_header::<String>("Vary", "`Accept`"),
        ];
        MetaResponses {
            responses: vec![MetaResponse { description: "OK", status: Some(200), status_range: None, content, headers }],
        }
    }

    fn register(registry: &mut Registry) {
        Data::<ReconciliationReport>::register(registry);
    }
}

pub struct Reconciliation;

#[OpenApi(prefix_path = "/admin/v1", tag = "Tag::Reconciliation")]
impl Reconciliation {
    /// Reconcile a period
    ///
    /// Returns opening balance, transactions and closing balance of every wallet, by day and by currency. The figures are
    /// exact as of one position of the log. Each difference comes with the positions of the log to inspect.
    ///
    /// Closing balances are always compared with the wallets' rows and last transactions. Each transaction, order and
    /// payout is checked too if the period has at most 20,000 events. With `account_id`, the account may have up to
    /// 100,000 events in the period, and at most as many orders and payouts in all. `checked` shows which comparison was
    /// made, and `checked_events` the number of events.
    ///
    /// With `every_event=true`, each event of a period with up to 1,000,000 events is checked, which can take a
    /// minute. A longer period is refused with 400. `rewards-ledger reconcile` checks every event of any period.
    ///
    /// If the totals of wallets differ in a longer period, the events of their accounts are checked: of the first 10
    /// accounts, up to 100,000 events in all. The differences found come first. If an account has too many events, those of
    /// the first day that differs are checked. `narrowed` lists these accounts.
    ///
    /// The voucher stock is that of all accounts, in whole days (UTC). `sales` is what customers paid for the allocated
    /// vouchers, and `margin` is `sales` minus their cost. Vouchers that were loaded without a cost count as free; `unpriced`
    /// is their number.
    ///
    /// At most 10,000 wallets are listed, and `wallets_left_out` is the number omitted. Currencies, days and differences
    /// always cover all wallets.
    ///
    /// The response is JSON, CSV with `Accept: text/csv`, or a workbook (Office Open XML) with
    /// `Accept: application/vnd.openxmlformats-officedocument.spreadsheetml.sheet`. The workbook has a sheet each for the
    /// summary, the currencies, the days, the voucher stock, the stock by day, the wallets and the differences.
    #[oai(path = "/reconciliation", method = "get", operation_id = "reconcile")]
    #[allow(clippy::too_many_arguments)] // each is a parameter
    async fn reconcile(
        &self,
        _caller: Caller<Operator>,
        state: State<'_>,
        progress: Progress,
        accept: Accept,
        /// Only transactions at or after this time. Default: the start of the log.
        from: Query<Option<DateTime<Utc>>>,
        /// Only transactions before this time. Default: now.
        to: Query<Option<DateTime<Utc>>>,
        /// Only wallets of this account.
        account_id: Query<Option<i64>>,
        /// Whether to check each event of a period with up to 1,000,000 events. Default: false.
        every_event: Query<Option<bool>>,
    ) -> Result<Reconciled, ApiError> {
        let account_id = account_id.0.map(AccountId);
        let period = Period { from: time("from", from.0)?, to: time("to", to.0)?, account_id };
        if period.from.zip(period.to).is_some_and(|(from, to)| to < from) {
            return Err(ApiError::invalid("to", "must not be earlier than from"));
        }
        let shards: Vec<ShardId> = match account_id {
            Some(account) => vec![state.shard_of(account).await?],
            None => state.ledger.shards(),
        };
        let pool = &state.read_pool();
        let (mut report, bounds) = figures::report(pool, &shards, period, MAX_DIFFERENCES).await?;
        report.list_wallets(MAX_WALLETS);
        events::check(pool, &mut report, &bounds, every_event.0.unwrap_or_default(), &progress).await?;
        if wants_workbook(&accept) {
            let workbook = tokio::task::spawn_blocking(move || workbook::render(workbook::of_report(&report))).await;
            return Ok(Reconciled::Workbook(workbook.map_err(ApiError::internal)?.map_err(ApiError::internal)?));
        }
        Ok(match Form::wanted(&accept) {
            Form::Json => Reconciled::Json(render(&ReconciliationReport::from(report)).map_err(ApiError::internal)?),
            Form::Csv => Reconciled::Csv(rendering::csv(&report).map_err(ApiError::internal)?),
        })
    }
}
