//! Differences that an audit finds.

use std::fmt;

use chrono::{DateTime, Utc};
use ledger_events::{AccountId, OrderId, Position, ProductId, ShardId};
use rust_decimal::Decimal;
use serde::Serialize;
use serde_json::Value;
use uuid::Uuid;

/// A single inconsistency between the data and the log, or within the log. Its text is one readable line.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Difference {
    /// Positions are missing between two events.
    Gap { shard: ShardId, after: Position, next: Position },
    /// An event follows one with a later position, or occurs twice.
    Order { shard: ShardId, after: Position, next: Position },
    /// An import was begun but not completed.
    HalfImported { shard: ShardId, position: Position, total: Position },
    /// The events of a file do not yield the root of a signed checkpoint. They do yield the root of the largest smaller
    /// checkpoint that agrees, of `agreed` events, so the difference is after that one.
    Root { shard: ShardId, source: String, size: u64, agreed: u64 },
    /// An event differs from the leaf in the tree.
    Leaf { shard: ShardId, source: String, position: Position },
    /// A checkpoint was signed for more events than exist.
    Short { shard: ShardId, source: String, size: u64, last: Position },
    /// A checkpoint that is invalid, or that no trusted key has signed.
    Note { source: String, problem: String },
    /// A tile that is missing, or does not match the level of the tree below it.
    Tile { path: String, problem: String },
    /// A table has rows of a shard without a row in `log_head`.
    Headless { shard: ShardId, table: String },
    /// The first shard's log and `log_head` differ about a shard: no event adds it, or it has no head.
    Shard { shard: i64, problem: &'static str },
    /// The position in `log_head` differs from the last event's.
    Head { shard: ShardId, head: Position, last: Position },
    /// A projection's checkpoint is after the head of the log.
    Checkpoint { shard: ShardId, projection: &'static str, checkpoint: Position, head: Position },
    /// An event was recorded before its predecessor, or the head before its last event.
    Time { shard: ShardId, position: Position, recorded_at: DateTime<Utc>, before: DateTime<Utc> },
    /// The payload or the metadata of an event cannot be decoded.
    Unreadable { shard: ShardId, position: Position, problem: String },
    /// The versions of a stream are not consecutive.
    Version { shard: ShardId, stream: String, id: i64, position: Position, found: i64, expected: i64 },
    /// `causation_id` or `correlation_id` does not refer to an earlier event.
    Reference { shard: ShardId, position: Position, field: &'static str, event_id: Uuid },
    /// An event that cannot follow the earlier events of its stream, or that breaks a rule about money.
    Rule { shard: ShardId, stream: &'static str, id: i64, position: Position, problem: String },
    /// The transparency log's tree differs from the events, from this position on.
    Tree { shard: ShardId, position: Position, problem: String },
    /// A node refuses to sign the transparency log, because events that were signed are missing from the database.
    Refused(Refused),
    /// A row of a projection differs from the fold of the log.
    Row(RowDifference),
    /// The vault's stock contradicts the events that delivered an order's vouchers.
    Voucher { shard: ShardId, order_id: OrderId, reference: String, problem: String },
    /// The bytes of a product's image do not have the hash in the log.
    Image { shard: ShardId, product_id: ProductId, problem: &'static str },
    /// A delivery without a final or scheduled state, or a state without a delivery.
    Delivery { shard: ShardId, delivery_id: i64, problem: String },
    /// Deliveries of the events between two positions are missing, although all these events are more than a minute old.
    /// The projection has not processed them.
    Overdue { shard: ShardId, after: Position, upto: Position, deliveries: i64 },
    /// A sealed value, or a row that grants access, differs from what the service wrote.
    Secret { table: &'static str, row: String, problem: String },
    /// A count or a page anchor for the pagination of lists is wrong.
    Listing { shard: ShardId, table: String, account_id: AccountId, field: String, stored: Option<i64>, derived: Option<i64> },
}

/// A node's refusal to sign the transparency log.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Refused {
    pub shard: ShardId,
    pub node: Uuid,
    pub host: String,
    pub refused_at: DateTime<Utc>,
    pub reason: String,
    /// First and last position at which the node remembers events that the log may lack.
    pub missing: Option<(Position, Position)>,
    /// Root of the tree up to the last of these positions, in base64.
    pub root: Option<String>,
}

/// A row that differs from the fold of the log.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct RowDifference {
    pub table: &'static str,
    pub shard: ShardId,
    /// Id of the row, or of its event.
    pub key: String,
    /// Distinguishes several rows with the same key, such as `day 2026-01-31`.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub part: String,
    pub problem: RowProblem,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "problem", rename_all = "snake_case")]
pub enum RowProblem {
    /// The log yields the row, but the table lacks it.
    Missing,
    /// The table has the row, but the log does not yield it.
    Extra,
    Differs {
        fields: Vec<FieldDifference>,
    },
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct FieldDifference {
    pub field: String,
    /// Value in the table.
    pub stored: Value,
    /// Value according to the log.
    pub folded: Value,
}

/// The number of differences, and the first ones in full.
#[derive(Clone, Debug, Default)]
pub struct Findings {
    pub differences: Vec<Difference>,
    pub found: u64,
}

impl Findings {
    /// Largest number of differences that are kept. All of them are counted.
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
    /// Returns the range of positions that contains the changed event, if the difference shows it. A broken rule does
    /// not, because its cause may be another event.
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

impl Difference {
    /// Returns the line without the content of rows and events. A row that somebody changed can hold anything, personal data
    /// and secrets included, so a line that is kept has only numbers, times and truth values of it.
    pub fn without_content(&self) -> String {
        match self {
            Self::Row(row) => row.without_content().to_string(),
            Self::Unreadable { shard, position, .. } => format!("shard {shard}, position {position}: the event cannot be read"),
            other => other.to_string(),
        }
    }
}

impl RowDifference {
    fn without_content(&self) -> RowDifference {
        let problem = match &self.problem {
            RowProblem::Differs { fields } => {
                RowProblem::Differs { fields: fields.iter().map(FieldDifference::without_content).collect() }
            }
            problem => problem.clone(),
        };
        RowDifference { problem, ..self.clone() }
    }
}

impl FieldDifference {
    fn without_content(&self) -> FieldDifference {
        FieldDifference { field: self.field.clone(), stored: plain(&self.stored), folded: plain(&self.folded) }
    }
}

/// Returns a value if it is a number, a time or a truth value, and its kind otherwise.
fn plain(value: &Value) -> Value {
    match value {
        Value::String(text) if text.parse::<Decimal>().is_ok() || DateTime::parse_from_rfc3339(text).is_ok() => value.clone(),
        Value::String(_) => "(text)".into(),
        Value::Array(_) | Value::Object(_) => "(content)".into(),
        Value::Null | Value::Bool(_) | Value::Number(_) => value.clone(),
    }
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Gap { shard, after, next } if after + 2 == *next => {
                write!(f, "shard {shard}: position {} is missing", after + 1)
            }
            Self::Gap { shard, after, next } => write!(f, "shard {shard}: positions {} to {} are missing", after + 1, next - 1),
            Self::Order { shard, after, next } => write!(f, "shard {shard}: position {next} follows position {after}"),
            Self::Root { shard, source, size, agreed } => {
                write!(f, "shard {shard}: {source} contradicts the checkpoint of {size} events: it differs ")?;
                write!(f, "somewhere in positions {} to {size}", agreed + 1)
            }
            Self::Leaf { shard, source, position } => {
                write!(f, "shard {shard}, position {position}: the event differs from the one in {source}")
            }
            Self::Short { shard, source, size, last } => {
                write!(f, "shard {shard}: {source} ends at position {last}, but a checkpoint of {size} events was signed: ")?;
                write!(f, "positions {} to {size} are missing", last + 1)
            }
            Self::Note { source, problem } => write!(f, "{source}: {problem}"),
            Self::Tile { path, problem } => write!(f, "{path}: {problem}"),
            Self::HalfImported { shard, position, total } => {
                write!(f, "shard {shard}: an import stopped at position {position} of {total}")
            }
            Self::Headless { shard, table } => write!(f, "shard {shard}: {table} has rows of this shard, but log_head has none"),
            Self::Shard { shard, problem } => write!(f, "shard {shard}: {problem}"),
            Self::Head { shard, head, last } => {
                write!(f, "shard {shard}: log_head is at position {head}, but the last event is at {last}")
            }
            Self::Checkpoint { shard, projection, checkpoint, head } => {
                write!(f, "shard {shard}: the checkpoint of {projection} is {checkpoint}, beyond the log's head at {head}")
            }
            Self::Time { shard, position, recorded_at, before } => {
                write!(f, "shard {shard}, position {position}: recorded at {recorded_at}, before its predecessor's {before}")
            }
            Self::Unreadable { shard, problem, .. } => write!(f, "shard {shard}, {problem}"),
            Self::Version { shard, stream, id, position, found, expected } => {
                write!(f, "shard {shard}, position {position}: {stream} {id} has version {found} instead of {expected}")
            }
            Self::Reference { shard, position, field, event_id } => {
                write!(f, "shard {shard}, position {position}: {field} {event_id} is not an earlier event")
            }
            Self::Rule { shard, stream, id, position, problem } => {
                write!(f, "shard {shard}, position {position}: {stream} {id}: {problem}")
            }
            Self::Tree { shard, position, problem } => write!(f, "shard {shard}, position {position}: {problem}"),
            Self::Refused(refused) => refused.fmt(f),
            Self::Row(row) => row.fmt(f),
            Self::Voucher { shard, order_id, reference, problem } => {
                write!(f, "shard {shard}: voucher {reference} of order {order_id}: {problem}")
            }
            Self::Image { shard, product_id, problem } => write!(f, "shard {shard}: the image of product {product_id} {problem}"),
            Self::Delivery { shard, delivery_id, problem } => write!(f, "shard {shard}: delivery {delivery_id}: {problem}"),
            Self::Overdue { shard, after, upto, deliveries } => {
                write!(
                    f,
                    "shard {shard}: deliveries of the events in positions {} to {upto} are missing after a minute: ",
                    after + 1
                )?;
                write!(f, "{deliveries} in total")
            }
            Self::Secret { table, row, problem } => write!(f, "{table} {row}: {problem}"),
            Self::Listing { shard, table, account_id, field, stored, derived } => {
                let or_none = |value: &Option<i64>| value.map_or_else(|| "none".to_owned(), |value| value.to_string());
                let (stored, derived) = (or_none(stored), or_none(derived));
                write!(f, "shard {shard}: {table} of account {account_id}: {field} is {stored}, but its rows yield {derived}")
            }
        }
    }
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Refused { shard, node, host, refused_at, reason, missing, root } = self;
        write!(f, "shard {shard}: node {node} on {host} has refused to sign the transparency log since {refused_at}: {reason}")?;
        if let Some((from, to)) = missing {
            let root = root.as_deref().unwrap_or("unknown");
            write!(f, "; a tree of {to} events with the root {root} was signed, and of its events those at ")?;
            write!(f, "positions {from} to {to} are missing, or differ in the log")?;
        }
        Ok(())
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

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_kept_line_has_numbers_and_times_of_a_row_and_no_text() {
        let field = |field: &str, stored: Value, folded: Value| FieldDifference { field: field.to_owned(), stored, folded };
        let fields = vec![
            field("balance", json!("6.00"), json!(5)),
            field("created_at", json!("2026-01-31T12:00:00+00:00"), json!(null)),
            field("name", json!("Ada Lovelace"), json!("Acme")),
            field("details", json!({"email": "ada@example.com"}), json!(["secret"])),
        ];
        let (key, part) = ("7".to_owned(), String::new());
        let row =
            Difference::Row(RowDifference { table: "wallets", shard: 1, key, part, problem: RowProblem::Differs { fields } });
        assert_eq!(
            row.without_content(),
            "shard 1: wallets 7: balance is \"6.00\", the log says 5; created_at is \"2026-01-31T12:00:00+00:00\", the log says null; \
             name is \"(text)\", the log says \"(text)\"; details is \"(content)\", the log says \"(content)\""
        );
        assert!(row.to_string().contains("Ada Lovelace"), "the command shows the whole row");
        let problem = "position 5: the payload is not readable: invalid type: string \"Ada\"".to_owned();
        let unreadable = Difference::Unreadable { shard: 1, position: 5, problem };
        assert_eq!(unreadable.without_content(), "shard 1, position 5: the event cannot be read");
    }
}
