//! Reconciliation: what came in and went out of every wallet in a period, proved against the log,
//! and matched with what a bank says.
//!
//! Two levels. The totals come from `daily_totals` and the edges of the period, in one snapshot and
//! in well under a second, and are compared with the wallets' rows and their last movements. The
//! walk goes over the period's events in pages and compares each movement, order and payout.

mod camt;
pub mod lines;
pub mod matching;
pub mod render;
mod report;
pub mod statements;
mod walk;
mod xml;

use std::fmt;

use chrono::{DateTime, NaiveDate, Utc};
use ledger_events::{AccountId, OrderId, PayoutId, Position, ShardId, WalletId};
use ledger_projections::ProjectionError;
use ledger_projections::envelope::iso8601;
use ledger_projections::totals::Sums;
use rust_decimal::Decimal;
use serde::{Serialize, Serializer};

use crate::ledger::reader::ReadError;
pub use report::{await_checkpoints, report, walk_account, walk_all};

#[derive(Debug, thiserror::Error)]
pub enum ReconcileError {
    #[error(transparent)]
    Database(#[from] sqlx::Error),
    #[error(transparent)]
    Read(#[from] ReadError),
    #[error(transparent)]
    Projection(#[from] ProjectionError),
    #[error("no checkpoint of shard {0} that the database knows of has been cosigned by {1} witnesses")]
    Uncosigned(ShardId, usize),
}

/// Which time, and whose wallets. Without `from` from the log's first event, without `to` up to its
/// last one; `to` itself is not in it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Period {
    pub from: Option<DateTime<Utc>>,
    pub to: Option<DateTime<Utc>>,
    pub account_id: Option<AccountId>,
}

/// A sum of money; its text and JSON form has two decimals.
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

/// What moved. Debits and refunds are those of orders and payouts together; adjustments are credits
/// less debits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Moved {
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

impl From<&Sums> for Moved {
    fn from(sums: &Sums) -> Moved {
        Moved {
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

/// A wallet in the period: `opening_balance` + `funding` − `debits` + `refunds` + `adjustments` =
/// `closing_balance`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct WalletFigures {
    pub shard_id: ShardId,
    /// By its last movement, or its row where nothing moved; none where it has neither.
    pub account_id: Option<AccountId>,
    pub wallet_id: WalletId,
    /// Likewise.
    pub currency: Option<String>,
    pub opening_balance: Amount,
    #[serde(flatten)]
    pub moved: Moved,
    pub closing_balance: Amount,
}

/// All wallets of a currency.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct CurrencyFigures {
    pub currency: String,
    pub wallets: i64,
    pub opening_balance: Amount,
    #[serde(flatten)]
    pub moved: Moved,
    pub closing_balance: Amount,
}

/// A day (UTC) in one currency.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct DayFigures {
    pub day: NaiveDate,
    pub currency: String,
    #[serde(flatten)]
    pub moved: Moved,
}

/// What the figures of a shard are tied to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct AsOf {
    pub shard_id: ShardId,
    /// The last position that is in them.
    pub position: Position,
    /// Where the log ended.
    pub head: Position,
    /// Up to where the daily totals had come; the rest was read from the movements.
    pub projected: Position,
    /// The first signed checkpoint of the log that covers the position, or the newest one if none does yet.
    pub log_checkpoint: Option<LogCheckpoint>,
}

/// A checkpoint of the transparency log: a later one proves that what it covers has not changed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ledger_database::FromRow)]
pub struct LogCheckpoint {
    /// How many events it covers: those up to this position.
    pub size: i64,
    /// The tree's root (hex).
    pub root: String,
    /// The signed note.
    pub note: String,
}

/// What was compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum Checked {
    /// The totals with the wallets' rows and their last movements.
    Totals,
    /// Also each movement, order and payout of the period, and each wallet's days.
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

/// What kind of thing is not as it should be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum DifferenceKind {
    /// A wallet's row has another balance than its movements make.
    WalletBalance,
    /// A wallet has movements and no row.
    WalletMissing,
    /// A wallet's row says another account or currency than its last movement, or that it was opened after it.
    WalletDiffers,
    /// A wallet's totals do not lead to the balance that its last movement left.
    WalletClosing,
    /// A movement in the log says another balance after it than the movements make.
    BalanceAfter,
    /// A movement of the log has no row.
    MovementMissing,
    /// A movement's row is not what the log says.
    MovementDiffers,
    /// A movement's row is of nothing in the log.
    MovementExtra,
    /// An order's amount is not its price.
    OrderPrice,
    /// An order's debit is missing, another amount, or one too many.
    OrderDebit,
    /// An order's refund does not follow the rule, is missing, or is one too many.
    OrderRefund,
    PayoutDebit,
    PayoutRefund,
    /// A payout's event that cannot follow those before it.
    Payout,
    /// A wallet's row of a day is not what its movements make.
    DailyTotal,
    /// An event cannot be read.
    Unreadable,
}

impl DifferenceKind {
    /// As it stands in JSON and CSV.
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

/// One thing that is not as it should be, and where in the log to look.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Difference {
    pub kind: DifferenceKind,
    pub shard_id: ShardId,
    pub wallet_id: Option<WalletId>,
    pub order_id: Option<OrderId>,
    pub payout_id: Option<PayoutId>,
    /// The events involved, in their order.
    pub positions: Vec<Position>,
    pub problem: String,
}

impl Difference {
    fn of_wallet(kind: DifferenceKind, shard_id: ShardId, wallet: WalletId, positions: Vec<Position>, problem: String) -> Self {
        Difference { kind, shard_id, wallet_id: Some(wallet), order_id: None, payout_id: None, positions, problem }
    }

    /// The position by which it is put in order.
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
        let subject = [("order", self.order_id), ("payout", self.payout_id), ("wallet", self.wallet_id)];
        if let Some((kind, id)) = subject.into_iter().find_map(|(kind, id)| Some((kind, id?))) {
            write!(f, ": {kind} {id}")?;
        }
        write!(f, ": {} ({})", self.problem, self.kind.name())
    }
}

/// The first differences in full, and how many there are.
#[derive(Clone, Debug, Serialize)]
pub struct Differences {
    pub found: u64,
    pub differences: Vec<Difference>,
    /// So many are kept; all are counted.
    #[serde(skip)]
    most: usize,
}

impl Differences {
    pub fn keeping(most: usize) -> Differences {
        Differences { found: 0, differences: vec![], most }
    }

    pub fn add(&mut self, difference: Difference) {
        self.found += 1;
        if self.differences.len() < self.most {
            self.differences.push(difference);
        }
    }
}

/// A reconciliation of a period.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    #[serde(serialize_with = "time")]
    pub from: Option<DateTime<Utc>>,
    #[serde(serialize_with = "time")]
    pub to: Option<DateTime<Utc>>,
    pub account_id: Option<AccountId>,
    pub as_of: Vec<AsOf>,
    pub checked: Checked,
    /// How many events were looked at one by one.
    pub checked_events: i64,
    /// By currency.
    pub currencies: Vec<CurrencyFigures>,
    /// By day and currency; without the days on which nothing moved.
    pub days: Vec<DayFigures>,
    /// By shard and wallet.
    pub wallets: Vec<WalletFigures>,
    /// How many more wallets there are, which are in everything else.
    pub wallets_left_out: usize,
    #[serde(flatten)]
    pub differences: Differences,
}

/// ISO 8601 with milliseconds.
fn time<S: Serializer>(time: &Option<DateTime<Utc>>, serializer: S) -> Result<S::Ok, S::Error> {
    time.map(iso8601).serialize(serializer)
}

impl Report {
    pub fn is_clean(&self) -> bool {
        self.differences.found == 0
    }

    /// Lists at most so many wallets.
    pub fn list_wallets(&mut self, most: usize) {
        self.wallets_left_out += self.wallets.len().saturating_sub(most);
        self.wallets.truncate(most);
    }
}
