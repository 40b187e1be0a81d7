//! Histories of the operations on wallets and their orders, and the files that keep them.

use std::path::{Path, PathBuf};
use std::sync::Mutex;

use serde::{Deserialize, Serialize};

/// A request about a wallet or its orders. Amounts are in cents.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Request {
    Fund { reference: String, amount: i64 },
    Place(Place),
    Cancel { number: u32, key: Option<String> },
    Balance,
    Order { number: u32 },
    Orders,
}

/// An order to place. Its number stands in its metadata, so that it is recognised whichever id it got.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Place {
    pub number: u32,
    /// `Idempotency-Key`.
    pub key: Option<String>,
    /// `client_reference`.
    pub reference: Option<String>,
    pub amount: i64,
    /// Whether there are vouchers, so that the order is delivered.
    pub is_stocked: bool,
}

impl Request {
    /// Returns whether the request changes nothing.
    pub fn is_read(&self) -> bool {
        matches!(self, Request::Balance | Request::Order { .. } | Request::Orders)
    }

    /// Returns whether the request may be repeated after an unknown outcome.
    pub fn is_repeatable(&self) -> bool {
        match self {
            Request::Place(place) => place.key.is_some() || place.reference.is_some(),
            _ => true,
        }
    }
}

/// A definite answer.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Response {
    Funded {
        is_new: bool,
        transaction: i64,
        balance: i64,
    },
    /// `is_replay` says that the answer was marked as a repeated one.
    Placed {
        is_new: bool,
        is_replay: bool,
        order: Seen,
    },
    Cancelled {
        is_replay: bool,
        order: Seen,
    },
    Balance(i64),
    Order(Seen),
    Orders(Vec<Seen>),
    Refused(Refusal),
}

/// An order as a response shows it.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Seen {
    pub number: u32,
    pub id: i64,
    pub amount: i64,
    pub refunded: i64,
    pub status: Status,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Deserialize, Serialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum Status {
    Pending,
    Delayed,
    Delivered,
    Cancelled,
}

/// A refusal, which changes nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Refusal {
    InsufficientBalance,
    NotCancellable,
    NotFound,
    KeyReused,
    ReferenceTaken,
    FundingConflict,
    /// 503.
    Unavailable,
    /// 409 beside an undecided request under the same key.
    InProgress,
}

/// An operation of a client. Times count the invocations and answers of the whole run.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Operation {
    pub client: usize,
    pub node: usize,
    pub wallet: usize,
    pub invoked: u64,
    /// `None` if the outcome is unknown: 504, or no answer.
    pub answered: Option<(u64, Response)>,
    /// Whether the node may read this from a standby.
    pub is_on_standby: bool,
    /// Time of the answer whose `X-Log-Position` a read on a standby carried.
    pub sees: Option<u64>,
    pub request: Request,
}

/// Collects the operations of concurrent clients.
#[derive(Debug, Default)]
pub struct Recorder(Mutex<(u64, Vec<Operation>)>);

impl Recorder {
    /// Returns the next time.
    pub fn tick(&self) -> u64 {
        let mut inner = self.0.lock().unwrap();
        inner.0 += 1;
        inner.0
    }

    pub fn record(&self, operation: Operation) {
        self.0.lock().unwrap().1.push(operation);
    }

    /// Returns the operations in the order of their invocations.
    pub fn operations(&self) -> Vec<Operation> {
        let mut operations = self.0.lock().unwrap().1.clone();
        operations.sort_by_key(|operation| operation.invoked);
        operations
    }
}

/// First line of a history's file.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Heading {
    /// Origin of the history, or the fault that it shows.
    pub about: String,
    /// Verdict on it.
    pub is_linearizable: bool,
}

/// Writes a history, one operation a line.
pub fn write(path: &Path, heading: &Heading, operations: &[Operation]) {
    let mut text = serde_json::to_string(heading).unwrap() + "\n";
    for operation in operations {
        text += &(serde_json::to_string(operation).unwrap() + "\n");
    }
    std::fs::write(path, text).unwrap();
}

/// Reads a history's file.
pub fn read(path: &Path) -> (Heading, Vec<Operation>) {
    let text = std::fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let mut lines = text.lines();
    let heading = serde_json::from_str(lines.next().unwrap_or_default());
    let heading = heading.unwrap_or_else(|error| panic!("{}, line 1: {error}", path.display()));
    let parsed = lines.zip(2..).map(|(line, number)| {
        serde_json::from_str(line).unwrap_or_else(|error| panic!("{}, line {number}: {error}", path.display()))
    });
    (heading, parsed.collect())
}

/// Returns the files of the kept histories.
pub fn kept() -> Vec<PathBuf> {
    let directory = crate::support::repository("tests/histories/kept");
    let mut files: Vec<PathBuf> = std::fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    files
}
