//! What an audit finds.

use std::fmt;

use chrono::{DateTime, Utc};
use ledger_events::{AccountId, OrderId, Position, ProductId, ShardId};
use serde::Serialize;
use uuid::Uuid;

/// One thing that is not as the log or its rules say; one readable line each.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Difference {
    /// Positions are missing between two events.
    Gap { shard: ShardId, after: Position, next: Position },
    /// An event stands behind one of a later position, or a second time.
    Order { shard: ShardId, after: Position, next: Position },
    /// An import was begun and not ended.
    HalfImported { shard: ShardId, position: Position, total: Position },
    /// A file's events do not make the root that a checkpoint was signed for. They do at the greatest
    /// smaller checkpoint that agrees, of `agreed` events: what differs stands after it.
    Root { shard: ShardId, source: String, size: u64, agreed: u64 },
    /// An event is not the one that the tree holds.
    Leaf { shard: ShardId, source: String, position: Position },
    /// A checkpoint was signed for more events than there are.
    Short { shard: ShardId, source: String, size: u64, last: Position },
    /// A checkpoint that nobody who is trusted has signed, or that is none.
    Note { source: String, problem: String },
    /// A tile that is missing, or is not made of the tree below it.
    Tile { path: String, problem: String },
    /// A table has rows of a shard that `log_head` does not know.
    Headless { shard: ShardId, table: String },
    /// `log_head` does not stand at the last event.
    Head { shard: ShardId, head: Position, last: Position },
    /// A projection claims to have come further than the log goes.
    Checkpoint { shard: ShardId, projection: &'static str, checkpoint: Position, head: Position },
    /// An event was recorded before the one at the position before it, or the head before its last.
    Time { shard: ShardId, position: Position, recorded_at: DateTime<Utc>, before: DateTime<Utc> },
    /// A payload or its metadata cannot be decoded.
    Unreadable { shard: ShardId, position: Position, problem: String },
    /// A stream's versions do not go on by one.
    Version { shard: ShardId, stream: String, id: i64, position: Position, found: i64, expected: i64 },
    /// `causation_id` or `correlation_id` names no earlier event.
    Reference { shard: ShardId, position: Position, field: &'static str, event_id: Uuid },
    /// An event that cannot follow what its stream holds, or breaks a rule of money.
    Rule { shard: ShardId, stream: &'static str, id: i64, position: Position, problem: String },
    /// The tree of the transparency log is not that of the events, from this position on.
    Tree { shard: ShardId, position: Position, problem: String },
    /// A node refuses to sign the transparency log: the database lacks what was signed.
    Refused {
        shard: ShardId,
        node: Uuid,
        host: String,
        refused_at: DateTime<Utc>,
        reason: String,
        /// The first and the last position of which the node remembers other events than the log may have.
        missing: Option<(Position, Position)>,
        /// The root of the tree up to the last of them, in base64.
        root: Option<String>,
    },
    /// A row of a projection is not the fold of the log.
    Row(RowDifference),
    /// The vault's stock does not agree with what an order's events delivered.
    Voucher { shard: ShardId, order_id: OrderId, reference: String, problem: String },
    /// The bytes of a product's image are not those that the log names.
    Image { shard: ShardId, product_id: ProductId, problem: &'static str },
    /// A delivery without a state that is final or scheduled, or a state without a delivery.
    Delivery { shard: ShardId, delivery_id: i64, problem: String },
    /// Deliveries of the events after a position and up to another one, all more than a minute old, are not there: the
    /// projection has not come to them.
    Overdue { shard: ShardId, after: Position, upto: Position, deliveries: i64 },
    /// A row that opens something, or a sealed value, is not what the service wrote.
    Secret { table: &'static str, row: String, problem: String },
    /// A count or a mark, by which the pages of lists are found, is wrong.
    Listing { shard: ShardId, table: String, account_id: AccountId, field: String, stored: Option<i64>, derived: Option<i64> },
}

/// A row that is not what the fold of the log makes.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct RowDifference {
    pub table: &'static str,
    pub shard: ShardId,
    /// The row's id, or the id of its event.
    pub key: String,
    /// Which of several rows under the key, as `day 2026-01-31`.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub part: String,
    pub problem: RowProblem,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "problem", rename_all = "snake_case")]
pub enum RowProblem {
    /// The log makes it, the table does not have it.
    Missing,
    /// The table has it, the log does not make it.
    Extra,
    Differs {
        fields: Vec<FieldDifference>,
    },
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct FieldDifference {
    pub field: String,
    /// What the table has.
    pub stored: serde_json::Value,
    /// What the log makes.
    pub folded: serde_json::Value,
}

/// The first differences in full, and how many there are.
#[derive(Clone, Debug, Default)]
pub struct Findings {
    pub differences: Vec<Difference>,
    pub found: u64,
}

impl Findings {
    /// So many are kept; all are counted.
    pub const KEPT: usize = 1_000;

    pub fn add(&mut self, difference: Difference) {
        self.found += 1;
        if self.differences.len() < Self::KEPT {
            self.differences.push(difference);
        }
    }

    pub fn extend(&mut self, differences: impl IntoIterator<Item = Difference>) {
        differences.into_iter().for_each(|difference| self.add(difference));
    }
}

impl Difference {
    /// Between which positions of the log the event is that is not as it was, if it tells. A rule that
    /// is broken does not: its fault may be another event's.
    pub fn positions(&self) -> Option<(Position, Position)> {
        let fit = |size: u64| Position::try_from(size).unwrap_or(Position::MAX);
        match self {
            Self::Gap { after, .. } => Some((after + 1, after + 1)),
            Self::Order { next: position, .. }
            | Self::Time { position, .. }
            | Self::Unreadable { position, .. }
            | Self::Version { position, .. }
            | Self::Reference { position, .. }
            | Self::Leaf { position, .. } => Some((*position, *position)),
            Self::Short { last, .. } => Some((last + 1, last + 1)),
            Self::Root { agreed, size, .. } => Some((fit(*agreed) + 1, fit(*size))),
            _ => None,
        }
    }
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Gap { shard, after, next } if after + 2 == *next => {
                write!(f, "shard {shard}: position {} is missing", after + 1)
            }
            Self::Gap { shard, after, next } => write!(f, "shard {shard}: positions {} to {} are missing", after + 1, next - 1),
            Self::Order { shard, after, next } => write!(f, "shard {shard}: position {next} stands behind position {after}"),
            Self::Root { shard, source, size, agreed } => {
                write!(f, "shard {shard}: {source} does not agree with the checkpoint of {size} events: it differs ")?;
                write!(f, "somewhere in positions {} to {size}", agreed + 1)
            }
            Self::Leaf { shard, source, position } => {
                write!(f, "shard {shard}, position {position}: the event is not the one that {source} has")
            }
            Self::Short { shard, source, size, last } => {
                write!(f, "shard {shard}: {source} ends at position {last}, a checkpoint was signed for {size}: ")?;
                write!(f, "positions {} to {size} are missing", last + 1)
            }
            Self::Note { source, problem } => write!(f, "{source}: {problem}"),
            Self::Tile { path, problem } => write!(f, "{path}: {problem}"),
            Self::HalfImported { shard, position, total } => {
                write!(f, "shard {shard}: an import has stopped at position {position} of {total}")
            }
            Self::Headless { shard, table } => write!(f, "shard {shard}: {table} has rows of it, log_head knows no such shard"),
            Self::Head { shard, head, last } => {
                write!(f, "shard {shard}: log_head stands at {head}, the last event at {last}")
            }
            Self::Checkpoint { shard, projection, checkpoint, head } => {
                write!(f, "shard {shard}: the checkpoint of {projection} is {checkpoint}, beyond the log's head at {head}")
            }
            Self::Time { shard, position, recorded_at, before } => {
                write!(f, "shard {shard}, position {position}: recorded at {recorded_at}, before its predecessor's {before}")
            }
            Self::Unreadable { shard, problem, .. } => write!(f, "shard {shard}, {problem}"),
            Self::Version { shard, stream, id, position, found, expected } => {
                write!(f, "shard {shard}, position {position}: {stream} {id} has version {found} where {expected} is next")
            }
            Self::Reference { shard, position, field, event_id } => {
                write!(f, "shard {shard}, position {position}: {field} {event_id} is not an earlier event")
            }
            Self::Rule { shard, stream, id, position, problem } => {
                write!(f, "shard {shard}, position {position}: {stream} {id}: {problem}")
            }
            Self::Tree { shard, position, problem } => write!(f, "shard {shard}, position {position}: {problem}"),
            Self::Refused { shard, node, host, refused_at, reason, missing, root } => {
                write!(
                    f,
                    "shard {shard}: node {node} on {host} refuses to sign the transparency log since {refused_at}: {reason}"
                )?;
                if let Some((from, to)) = missing {
                    let root = root.as_deref().unwrap_or("unknown");
                    write!(f, "; a tree of {to} events with the root {root} was signed, and of it ")?;
                    write!(f, "positions {from} to {to} are missing, or the log has other events there")?;
                }
                Ok(())
            }
            Self::Row(row) => row.fmt(f),
            Self::Voucher { shard, order_id, reference, problem } => {
                write!(f, "shard {shard}: voucher {reference} of order {order_id}: {problem}")
            }
            Self::Image { shard, product_id, problem } => write!(f, "shard {shard}: the image of product {product_id} {problem}"),
            Self::Delivery { shard, delivery_id, problem } => write!(f, "shard {shard}: delivery {delivery_id}: {problem}"),
            Self::Overdue { shard, after, upto, deliveries } => {
                write!(
                    f,
                    "shard {shard}: deliveries of the events in positions {} to {upto} are not made after a minute: ",
                    after + 1
                )?;
                write!(f, "{deliveries} are missing")
            }
            Self::Secret { table, row, problem } => write!(f, "{table} {row}: {problem}"),
            Self::Listing { shard, table, account_id, field, stored, derived } => {
                let or_none = |value: &Option<i64>| value.map_or_else(|| "none".to_owned(), |value| value.to_string());
                let (stored, derived) = (or_none(stored), or_none(derived));
                write!(f, "shard {shard}: {table} of account {account_id}: {field} is {stored}, its rows say {derived}")
            }
        }
    }
}

impl fmt::Display for RowDifference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "shard {}: {} {}", self.shard, self.table, self.key)?;
        if !self.part.is_empty() {
            write!(f, ", {}", self.part)?;
        }
        match &self.problem {
            RowProblem::Missing => f.write_str(" is missing"),
            RowProblem::Extra => f.write_str(" is not in the log"),
            RowProblem::Differs { fields } => {
                for (n, field) in fields.iter().enumerate() {
                    let separator = if n == 0 { ": " } else { "; " };
                    write!(f, "{separator}{} is {}, the log says {}", field.field, field.stored, field.folded)?;
                }
                Ok(())
            }
        }
    }
}
