//! Reconciliation: the money that moved into and out of every wallet in a period, verified against the log and matched
//! with bank statements.
//!
//! There are two levels. The totals come from `daily_totals` and the movements at the edges of the period. They are read
//! in one snapshot, in well under a second, and compared with the wallets' rows and last movements. The walk reads the
//! period's events in pages, and compares each movement, order and payout. In a period that is too long for that, it reads
//! the events of the accounts whose wallets differ.

mod differing;
mod narrow;
pub mod render;
mod report;
pub mod statements;
mod stock;
mod walk;
pub mod workbook;

use std::fmt;

use chrono::{DateTime, NaiveDate, Utc};
use ledger_database::{Replannable, is_plan_outdated};
use ledger_events::{AccountId, OrderId, PayoutId, Position, ShardId, WalletId};
use ledger_projections::ProjectionError;
use ledger_projections::envelope::iso8601;
use ledger_projections::totals::Sums;
use rust_decimal::Decimal;
use serde::{Serialize, Serializer};

use crate::ledger::reader::ReadError;
pub use narrow::{NarrowedAccount, NarrowedTo, narrow};
pub use report::{await_checkpoints, report, walk_account, walk_all};
pub use stock::{StockDay, StockFigures, StockLot};

#[derive(Debug, thiserror::Error)]
pub enum ReconcileError {
    #[error(transparent)]
    Database(#[from] sqlx::Error),
    #[error(transparent)]
    Read(#[from] ReadError),
    #[error(transparent)]
    Projection(#[from] ProjectionError),
    #[error("no checkpoint of shard {0} in the database has the cosignatures of {1} witnesses")]
    Uncosigned(ShardId, usize),
}

impl Replannable for ReconcileError {
    fn is_plan_outdated(&self) -> bool {
        match self {
            Self::Database(error) | Self::Projection(ProjectionError::Database(error)) => is_plan_outdated(error),
            Self::Read(error) => error.is_plan_outdated(),
            _ => false,
        }
    }
}

/// Time range and wallets of a reconciliation. Without `from`, the range starts at the log's first event. Without `to`,
/// it ends at the last event. `to` is exclusive.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Period {
    pub from: Option<DateTime<Utc>>,
    pub to: Option<DateTime<Utc>>,
    pub account_id: Option<AccountId>,
}

/// A sum of money. Text and JSON show two decimals.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Amount(pub Decimal);

impl fmt::Display for Amount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&format!("{:.2}", self.0))
    }
}

impl Serialize for Amount {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// Sums of movements. `debits` and `refunds` add up those of orders and payouts. `adjustments` is credits minus debits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct MovementSums {
    pub funding: Amount,
    pub debits: Amount,
    pub order_debits: Amount,
    pub payout_debits: Amount,
    pub refunds: Amount,
    pub order_refunds: Amount,
    pub payout_refunds: Amount,
    pub adjustments: Amount,
    pub adjustment_credits: Amount,
    pub adjustment_debits: Amount,
    pub movements: i64,
}

impl From<&Sums> for MovementSums {
    fn from(sums: &Sums) -> MovementSums {
        MovementSums {
            funding: Amount(sums.funding),
            debits: Amount(sums.debits()),
            order_debits: Amount(sums.order_debits),
            payout_debits: Amount(sums.payout_debits),
            refunds: Amount(sums.refunds()),
            order_refunds: Amount(sums.order_refunds),
            payout_refunds: Amount(sums.payout_refunds),
            adjustments: Amount(sums.adjustments()),
            adjustment_credits: Amount(sums.adjustment_credits),
            adjustment_debits: Amount(sums.adjustment_debits),
            movements: sums.movements,
        }
    }
}

/// Figures of a wallet in the period: `opening_balance` + `funding` − `debits` + `refunds` + `adjustments` =
/// `closing_balance`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct WalletFigures {
    pub shard_id: ShardId,
    /// Account according to the last movement, or to the wallet's row if nothing moved. None if the wallet has neither.
    pub account_id: Option<AccountId>,
    pub wallet_id: WalletId,
    /// Currency according to the last movement, or to the wallet's row, like the account.
    pub currency: Option<String>,
    pub opening_balance: Amount,
    #[serde(flatten)]
    pub moved: MovementSums,
    pub closing_balance: Amount,
}

/// Figures of all wallets of a currency.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct CurrencyFigures {
    pub currency: String,
    pub wallets: i64,
    pub opening_balance: Amount,
    #[serde(flatten)]
    pub moved: MovementSums,
    pub closing_balance: Amount,
}

/// Movements of one day (UTC) in one currency.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct DayFigures {
    pub day: NaiveDate,
    pub currency: String,
    #[serde(flatten)]
    pub moved: MovementSums,
}

/// State of a shard's log to which the figures refer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct AsOf {
    pub shard_id: ShardId,
    /// Last position that the figures include.
    pub position: Position,
    /// Position of the log's head when the report was made.
    pub head: Position,
    /// Position up to which the daily totals were projected. Later movements were read one by one.
    pub projected: Position,
    /// Position up to which the log moved the voucher stock in the figures. Later events are not in them.
    pub stock_projected: Position,
    /// First signed checkpoint of the log that covers `position`, or the newest one if none covers it yet.
    pub log_checkpoint: Option<LogCheckpoint>,
}

/// A checkpoint of the transparency log. A consistency proof from a later one shows that the covered events are
/// unchanged.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ledger_database::FromRow)]
pub struct LogCheckpoint {
    /// Number of events that it covers: those at positions 1 to `size`.
    pub size: i64,
    /// Root of the tree, in hex.
    pub root: String,
    /// Signed note of the checkpoint.
    pub note: String,
}

/// Level of detail of a reconciliation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum Checked {
    /// The totals were compared with the wallets' rows and last movements.
    Totals,
    /// In addition, each movement, order and payout of the period was compared, and each wallet's daily totals.
    Movements,
}

impl Checked {
    pub fn name(self) -> &'static str {
        match self {
            Self::Totals => "TOTALS",
            Self::Movements => "MOVEMENTS",
        }
    }
}

/// Kind of a difference that a reconciliation finds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum DifferenceKind {
    /// The balance in a wallet's row differs from the sum of its movements.
    WalletBalance,
    /// A wallet has movements but no row.
    WalletMissing,
    /// A wallet's row has another account or currency than its last movement, or a creation time after that movement.
    WalletDiffers,
    /// A wallet's totals do not lead to the balance after its last movement.
    WalletClosing,
    /// A movement in the log has a balance after it that differs from the sum of the movements.
    BalanceAfter,
    /// A movement in the log has no row.
    MovementMissing,
    /// A movement's row differs from the log.
    MovementDiffers,
    /// A movement's row has no event in the log.
    MovementExtra,
    /// An order's amount differs from its price.
    OrderPrice,
    /// An order's debit is missing, has another amount, or occurs more than once.
    OrderDebit,
    /// An order's refund is missing, breaks the refund rule, or occurs more than once.
    OrderRefund,
    PayoutDebit,
    PayoutRefund,
    /// A payout's event cannot follow the events before it.
    Payout,
    /// A wallet's row for a day differs from its movements.
    DailyTotal,
    /// An event cannot be decoded.
    Unreadable,
}

impl DifferenceKind {
    /// Returns the name that JSON and CSV use.
    pub fn name(self) -> &'static str {
        match self {
            Self::WalletBalance => "WALLET_BALANCE",
            Self::WalletMissing => "WALLET_MISSING",
            Self::WalletDiffers => "WALLET_DIFFERS",
            Self::WalletClosing => "WALLET_CLOSING",
            Self::BalanceAfter => "BALANCE_AFTER",
            Self::MovementMissing => "MOVEMENT_MISSING",
            Self::MovementDiffers => "MOVEMENT_DIFFERS",
            Self::MovementExtra => "MOVEMENT_EXTRA",
            Self::OrderPrice => "ORDER_PRICE",
            Self::OrderDebit => "ORDER_DEBIT",
            Self::OrderRefund => "ORDER_REFUND",
            Self::PayoutDebit => "PAYOUT_DEBIT",
            Self::PayoutRefund => "PAYOUT_REFUND",
            Self::Payout => "PAYOUT",
            Self::DailyTotal => "DAILY_TOTAL",
            Self::Unreadable => "UNREADABLE",
        }
    }
}

/// A single difference, with the positions in the log to look at.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Difference {
    pub kind: DifferenceKind,
    pub shard_id: ShardId,
    pub wallet_id: Option<WalletId>,
    pub order_id: Option<OrderId>,
    pub payout_id: Option<PayoutId>,
    /// Positions of the events involved, in ascending order.
    pub positions: Vec<Position>,
    pub problem: String,
}

impl Difference {
    fn of_wallet(kind: DifferenceKind, shard_id: ShardId, wallet: WalletId, positions: Vec<Position>, problem: String) -> Self {
        Difference { kind, shard_id, wallet_id: Some(wallet), order_id: None, payout_id: None, positions, problem }
    }

    /// Returns the sort key: the shard and the last position.
    fn place(&self) -> (ShardId, Position) {
        (self.shard_id, self.positions.last().copied().unwrap_or_default())
    }
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "shard {}", self.shard_id)?;
        let positions: Vec<String> = self.positions.iter().map(ToString::to_string).collect();
        match &*positions {
            [] => {}
            [position] => write!(f, ", position {position}")?,
            _ => write!(f, ", positions {}", positions.join(", "))?,
        }
        let subject = [
            ("order", self.order_id.map(|id| id.0)),
            ("payout", self.payout_id.map(|id| id.0)),
            ("wallet", self.wallet_id.map(|id| id.0)),
        ];
        if let Some((kind, id)) = subject.into_iter().find_map(|(kind, id)| Some((kind, id?))) {
            write!(f, ": {kind} {id}")?;
        }
        write!(f, ": {} ({})", self.problem, self.kind.name())
    }
}

/// The number of differences, and the first ones in full.
#[derive(Clone, Debug, Serialize)]
pub struct Differences {
    pub found: u64,
    pub differences: Vec<Difference>,
    /// Largest number of differences that are kept. All of them are counted.
    #[serde(skip)]
    most: usize,
}

impl Differences {
    pub fn keeping(most: usize) -> Differences {
        Differences { found: 0, differences: vec![], most }
    }

    /// Returns whether the next difference is kept. Otherwise it is only counted, so it needs no details.
    pub fn is_keeping(&self) -> bool {
        self.differences.len() < self.most
    }

    pub fn add(&mut self, difference: Difference) {
        self.found += 1;
        if self.is_keeping() {
            self.differences.push(difference);
        }
    }

    /// Adds differences before those that are here. If there are too many to keep, the last ones are only counted.
    fn put_first(&mut self, mut first: Differences) {
        self.found += first.found;
        first.differences.append(&mut self.differences);
        first.differences.truncate(self.most);
        self.differences = first.differences;
    }
}

/// A wallet whose totals, row and last movement do not agree.
#[derive(Clone, Debug)]
struct DifferingWallet {
    shard_id: ShardId,
    wallet_id: WalletId,
    /// Account according to the last movement, or to the wallet's row. None if the wallet has neither.
    account_id: Option<AccountId>,
    /// Day (UTC) of the last movement in the period.
    last_day: Option<NaiveDate>,
}

/// Result of the reconciliation of a period.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    #[serde(serialize_with = "time")]
    pub from: Option<DateTime<Utc>>,
    #[serde(serialize_with = "time")]
    pub to: Option<DateTime<Utc>>,
    pub account_id: Option<AccountId>,
    pub as_of: Vec<AsOf>,
    pub checked: Checked,
    /// Number of events that were checked one by one.
    pub checked_events: i64,
    /// First accounts with wallets that differ, if only totals were compared and [`narrow()`] has looked for the events.
    pub narrowed: Vec<NarrowedAccount>,
    /// Number of further accounts with wallets that differ.
    pub narrowed_left_out: usize,
    #[serde(skip)]
    differing: Vec<DifferingWallet>,
    /// Figures by currency.
    pub currencies: Vec<CurrencyFigures>,
    /// Movements by day and currency, without days on which nothing moved.
    pub days: Vec<DayFigures>,
    /// Voucher stock by currency, of the whole days that the period touches. Empty for a single account.
    pub stock: Vec<StockFigures>,
    /// Voucher stock by day and currency, without days on which nothing moved. Empty for a single account.
    pub stock_days: Vec<StockDay>,
    /// Figures by shard and wallet.
    pub wallets: Vec<WalletFigures>,
    /// Number of wallets that `wallets` does not list. All other figures include them.
    pub wallets_left_out: usize,
    #[serde(flatten)]
    pub differences: Differences,
}

/// Formats a time as ISO 8601 with milliseconds.
fn time<S: Serializer>(time: &Option<DateTime<Utc>>, serializer: S) -> Result<S::Ok, S::Error> {
    time.map(iso8601).serialize(serializer)
}

impl Report {
    /// Creates a report without figures, which keeps this many differences.
    fn new(period: Period, max_differences: usize) -> Report {
        Report {
            from: period.from,
            to: period.to,
            account_id: period.account_id,
            as_of: vec![],
            checked: Checked::Totals,
            checked_events: 0,
            narrowed: vec![],
            narrowed_left_out: 0,
            differing: vec![],
            currencies: vec![],
            days: vec![],
            stock: vec![],
            stock_days: vec![],
            wallets: vec![],
            wallets_left_out: 0,
            differences: Differences::keeping(max_differences),
        }
    }

    pub fn is_clean(&self) -> bool {
        self.differences.found == 0
    }

    /// Shortens the list of wallets to `most`, and counts the rest as left out.
    pub fn list_wallets(&mut self, most: usize) {
        self.wallets_left_out += self.wallets.len().saturating_sub(most);
        self.wallets.truncate(most);
    }
}
