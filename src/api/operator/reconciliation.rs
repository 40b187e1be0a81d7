//! `/admin/v1/reconciliation`: a period's totals, tied to the log, and what does not add up.

use chrono::{DateTime, NaiveDate, SecondsFormat, Utc};
use ledger_events::ShardId;
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
use crate::api::principal::Caller;
use crate::api::reply::{Data, render};
use crate::api::scalars::{Money, Timestamp};
use crate::api::state::{State, Tag, time};
use crate::api::statements::Form;
use crate::reconciliation::{self as figures, Amount, Period, ReconcileError, render as rendering};

/// With at most so many events in the period, each of them is looked at, too.
const MOST_EVENTS: i64 = 20_000;
/// The same of the events of the one account that is asked for, however long the log is.
const MOST_OF_ACCOUNT: usize = 100_000;
/// Most differences and wallets of an answer; the CLI has no limit.
const MOST_DIFFERENCES: usize = 1_000;
const MOST_WALLETS: usize = 10_000;

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

/// What moved.
#[derive(Object, Serialize)]
struct MovedMoney {
    /// Money that came in from outside.
    funding: Money,
    /// What orders and payouts took.
    debits: Money,
    /// Of these: orders.
    order_debits: Money,
    /// Of these: payouts.
    payout_debits: Money,
    /// What cancelled orders and payouts that were not made gave back.
    refunds: Money,
    /// Of these: orders.
    order_refunds: Money,
    /// Of these: payouts.
    payout_refunds: Money,
    /// Corrections by operators: credits less debits.
    adjustments: Money,
    /// Of these: credits.
    adjustment_credits: Money,
    /// Of these: debits.
    adjustment_debits: Money,
    /// How many movements these are.
    movements: i64,
}

impl From<figures::Moved> for MovedMoney {
    fn from(moved: figures::Moved) -> Self {
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

/// A wallet in the period: `opening_balance` + `funding` − `debits` + `refunds` + `adjustments` =
/// `closing_balance`.
#[derive(Object, Serialize)]
struct WalletTotals {
    /// The shard of its account.
    shard_id: i16,
    /// Whose it is, by its last movement, or by its row where nothing moved; null where it has neither.
    account_id: Option<i64>,
    /// The wallet.
    wallet_id: i64,
    /// ISO 4217, likewise.
    currency: Option<String>,
    /// When the period begins.
    opening_balance: Money,
    /// When it ends.
    closing_balance: Money,
    #[oai(flatten)]
    #[serde(flatten)]
    moved: MovedMoney,
}

/// All wallets of a currency.
#[derive(Object, Serialize)]
struct CurrencyTotals {
    /// ISO 4217.
    currency: String,
    /// How many there are.
    wallets: i64,
    /// When the period begins.
    opening_balance: Money,
    /// When it ends.
    closing_balance: Money,
    #[oai(flatten)]
    #[serde(flatten)]
    moved: MovedMoney,
}

/// A day in one currency.
#[derive(Object, Serialize)]
struct DayTotals {
    /// The day, UTC.
    day: NaiveDate,
    /// ISO 4217.
    currency: String,
    #[oai(flatten)]
    #[serde(flatten)]
    moved: MovedMoney,
}

/// What the figures of a shard are tied to.
#[derive(Object, Serialize)]
struct AsOfPosition {
    /// The shard.
    shard_id: i16,
    /// The last position of its log that is in the figures.
    position: i64,
    /// Where its log ended.
    head: i64,
    /// Up to where the daily totals had come: what is later was added from the movements.
    projected: i64,
    /// The first signed checkpoint of the log that covers the position, or the newest one if none does yet; null without any.
    log_checkpoint: Option<SignedCheckpoint>,
}

/// A signed checkpoint of the log.
#[derive(Object, Serialize)]
struct SignedCheckpoint {
    /// How many events it covers: those up to this position.
    size: i64,
    /// The root of the tree over them, in hex.
    root: String,
    /// The signed note (C2SP tlog-checkpoint).
    note: String,
}

/// What was compared.
#[derive(Clone, Copy, Enum, Serialize)]
#[oai(rename = "CheckedLevel", rename_all = "SCREAMING_SNAKE_CASE")]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
enum Checked {
    /// The totals with the wallets' rows and their last movements.
    Totals,
    /// Also each movement, order and payout of the period.
    Movements,
}

/// Something that does not add up.
#[derive(Object, Serialize)]
struct ReconciliationDifference {
    /// `WALLET_BALANCE`, `WALLET_MISSING`, `WALLET_DIFFERS`, `WALLET_CLOSING`, `BALANCE_AFTER`, `MOVEMENT_MISSING`,
    /// `MOVEMENT_DIFFERS`, `MOVEMENT_EXTRA`, `ORDER_PRICE`, `ORDER_DEBIT`, `ORDER_REFUND`,
    /// `PAYOUT_DEBIT`, `PAYOUT_REFUND`, `PAYOUT`, `DAILY_TOTAL` or `UNREADABLE`.
    kind: String,
    /// The shard.
    shard_id: i16,
    /// The wallet that it is about, if it is about one.
    wallet_id: Option<i64>,
    /// The order that it is about, if it is about one.
    order_id: Option<i64>,
    /// The payout that it is about, if it is about one.
    payout_id: Option<i64>,
    /// The positions of the log to look at.
    positions: Vec<i64>,
    /// What it is, for people.
    problem: String,
}

/// A period's totals.
#[derive(Object, Serialize)]
struct ReconciliationReport {
    /// When the period begins; null: with the log.
    from: Option<Timestamp>,
    /// When it ends; null: with the log's last event.
    to: Option<Timestamp>,
    /// Whose wallets; null: everybody's.
    account_id: Option<i64>,
    /// What the figures are tied to, for each shard.
    as_of: Vec<AsOfPosition>,
    /// What was compared.
    checked: Checked,
    /// How many events of the log were looked at one by one: those of orders, payouts and wallets in
    /// the period. 0 where the totals were compared alone.
    checked_events: i64,
    /// By currency.
    currencies: Vec<CurrencyTotals>,
    /// By day and currency, without the days on which nothing moved.
    days: Vec<DayTotals>,
    /// By wallet, the first 10,000: by shard, then by id. `rewards-ledger reconcile` lists all.
    wallets: Vec<WalletTotals>,
    /// How many more wallets there are: they are not listed, and in everything else.
    wallets_left_out: u64,
    /// How many differences there are.
    found: u64,
    /// The first 1,000 of them; `rewards-ledger reconcile` lists all.
    differences: Vec<ReconciliationDifference>,
}

impl From<figures::Report> for ReconciliationReport {
    fn from(report: figures::Report) -> Self {
        let wallets_left_out = u64::try_from(report.wallets_left_out).unwrap_or(u64::MAX);
        let as_of = |as_of: figures::AsOf| AsOfPosition {
            shard_id: as_of.shard_id,
            position: as_of.position,
            head: as_of.head,
            projected: as_of.projected,
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
            account_id: w.account_id,
            wallet_id: w.wallet_id,
            currency: w.currency,
            opening_balance: w.opening_balance.into(),
            closing_balance: w.closing_balance.into(),
            moved: w.moved.into(),
        };
        let difference = |d: figures::Difference| ReconciliationDifference {
            kind: d.kind.name().to_owned(),
            shard_id: d.shard_id,
            wallet_id: d.wallet_id,
            order_id: d.order_id,
            payout_id: d.payout_id,
            positions: d.positions,
            problem: d.problem,
        };
        let day = |d: figures::DayFigures| DayTotals { day: d.day, currency: d.currency, moved: d.moved.into() };
        Self {
            from: report.from.map(Into::into),
            to: report.to.map(Into::into),
            account_id: report.account_id,
            as_of: report.as_of.into_iter().map(as_of).collect(),
            checked: match report.checked {
                figures::Checked::Totals => Checked::Totals,
                figures::Checked::Movements => Checked::Movements,
            },
            checked_events: report.checked_events,
            currencies: report.currencies.into_iter().map(currency).collect(),
            days: report.days.into_iter().map(day).collect(),
            wallets: report.wallets.into_iter().map(wallet).collect(),
            wallets_left_out,
            found: report.differences.found,
            differences: report.differences.differences.into_iter().map(difference).collect(),
        }
    }
}

/// A report in the form that was asked for.
enum Reconciled {
    Json(String),
    Csv(Vec<u8>),
}

impl IntoResponse for Reconciled {
    fn into_response(self) -> Response {
        let response = Response::builder().header(header::VARY, "Accept");
        match self {
            Self::Json(body) => response.content_type(JSON).body(body),
            Self::Csv(body) => {
                let name = format!(
                    "attachment; filename=\"reconciliation-{}.csv\"",
                    Utc::now().to_rfc3339_opts(SecondsFormat::Secs, true)
                );
                let response = response.content_type("text/csv; charset=utf-8; header=present");
                response.header(header::CONTENT_DISPOSITION, name.replace(':', "")).body(body)
            }
        }
    }
}

impl ApiResponse for Reconciled {
    fn meta() -> MetaResponses {
        let text = "A line of column names, then a line for each thing: `record` is `AS_OF`, `CURRENCY`, `DAY`, `WALLET` or \
                    `DIFFERENCE` (RFC 4180).";
        let csv = MetaSchema { description: Some(text), ..MetaSchema::new("string") };
        let content = vec![
            MetaMediaType { content_type: JSON, schema: Data::<ReconciliationReport>::schema_ref() },
            MetaMediaType { content_type: "text/csv", schema: MetaSchemaRef::Inline(Box::new(csv)) },
        ];
        let headers = vec![
            documented_header::<Option<String>>("Content-Disposition", "A file's name, for CSV."),
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
    /// Opening balance, what moved, and closing balance of every wallet, by day and by currency,
    /// exact as of one position of the log, and each difference with the positions to look at. The
    /// closing balances are compared with the wallets' rows and their last movements. Where the
    /// period has at most 20,000 events, or with `account_id` the account at most 100,000 in it (and has at
    /// most as many orders and payouts in all), each movement, order and payout is looked at, too; `checked` says whether it was, `checked_events` at
    /// how many. `rewards-ledger reconcile` does so for any period. Of more than 10,000 wallets the first are listed, and
    /// `wallets_left_out` says how many more there are; currencies, days and differences are always of all. As JSON, or with `Accept: text/csv` as CSV.
    #[oai(path = "/reconciliation", method = "get", operation_id = "reconcile")]
    async fn reconcile(
        &self,
        _caller: Caller<Operator>,
        state: State<'_>,
        accept: Accept,
        /// Movements at this time or later; by default from the log's first.
        from: Query<Option<DateTime<Utc>>>,
        /// Movements before this time; by default up to now.
        to: Query<Option<DateTime<Utc>>>,
        /// Only this account's wallets.
        account_id: Query<Option<i64>>,
    ) -> Result<Reconciled, ApiError> {
        let period = Period { from: time("from", from.0)?, to: time("to", to.0)?, account_id: account_id.0 };
        if period.from.zip(period.to).is_some_and(|(from, to)| to < from) {
            return Err(ApiError::invalid("to", "must not be before from"));
        }
        let shards: Vec<ShardId> = match account_id.0 {
            Some(account) => vec![state.shard_of(account).await?],
            None => state.ledger.shards().collect(),
        };
        let pool = state.ledger.pool();
        let (mut report, bounds) = figures::report(pool, &shards, period, MOST_DIFFERENCES).await?;
        report.list_wallets(MOST_WALLETS);
        if bounds.iter().map(|(_, bounds)| bounds.upto - bounds.after).sum::<i64>() <= MOST_EVENTS {
            figures::walk_all(pool, &mut report, &bounds, |_| {}).await?;
        } else if let (Some(account), Some(bounds)) = (account_id.0, bounds.first()) {
            figures::walk_account(pool, &mut report, bounds, account, MOST_OF_ACCOUNT).await?;
        }
        Ok(match Form::wanted(&accept) {
            Form::Json => Reconciled::Json(render(&ReconciliationReport::from(report)).map_err(ApiError::internal)?),
            Form::Csv => Reconciled::Csv(rendering::csv(&report).map_err(ApiError::internal)?),
        })
    }
}
