//! The projections' tables, and their comparison with the rows that a fold of the log has made.

use std::collections::BTreeSet;

use ledger_database::PgConnection;
use ledger_events::replay::ReplayEvent;
use ledger_events::wallet::Movement;
use ledger_events::{Event, Recorded, ShardId, StreamType};
use ledger_projections::stock;
use serde_json::Value;
use sqlx::AssertSqlSafe;

use super::{FieldDifference, RowDifference, RowProblem};

/// Description of a projection's table.
#[derive(Debug)]
pub struct Table {
    pub name: &'static str,
    /// Column that pagination and findings use.
    key: &'static str,
    key_type: &'static str,
    /// Columns, in addition to `shard_id`, that identify a row.
    identity: &'static [&'static str],
    rows_of: RowsOf,
    /// Column whose value retention may delete. A stored null then does not count as a difference.
    prunable: Option<&'static str>,
}

/// Rows of a table that an event writes.
#[derive(Debug)]
enum RowsOf {
    Stream(StreamType),
    Movement,
    /// Rows with the event's id, and with the ids of the events that a step of a replay delivers.
    Event,
    /// Rows of the event's day, if it moves the stock.
    StockDay,
    /// Rows of the vouchers that the event loads with a cost.
    StockCost,
}

const fn stream(name: &'static str, stream_type: StreamType) -> Table {
    Table { name, key: "id", key_type: "bigint", identity: &["id"], rows_of: RowsOf::Stream(stream_type), prunable: None }
}

const TABLES: [Table; 25] = [
    stream("accounts", StreamType::Account),
    stream("credentials", StreamType::Credential),
    stream("credential_restrictions", StreamType::Credential),
    stream("users", StreamType::User),
    stream("categories", StreamType::Category),
    stream("products", StreamType::Product),
    stream("orders", StreamType::Order),
    stream("wallets", StreamType::Wallet),
    stream("webhooks", StreamType::Webhook),
    stream("webhook_subscriptions", StreamType::Webhook),
    stream("webhook_deactivations", StreamType::Webhook),
    stream("webhook_replays", StreamType::Replay),
    stream("beneficiaries", StreamType::Beneficiary),
    stream("payouts", StreamType::Payout),
    stream("purchases", StreamType::Purchase),
    stream("bank_statements", StreamType::Reconciliation),
    stream("approvals", StreamType::Approval),
    stream("shards", StreamType::Shard),
    Table {
        name: "wallet_transactions",
        key: "id",
        key_type: "bigint",
        identity: &["id"],
        rows_of: RowsOf::Movement,
        prunable: None,
    },
    Table {
        name: "daily_totals",
        key: "wallet_id",
        key_type: "bigint",
        identity: &["wallet_id", "day"],
        rows_of: RowsOf::Stream(StreamType::Wallet),
        prunable: None,
    },
    Table {
        name: "stock_days",
        key: "day",
        key_type: "date",
        identity: &["day", "product_id"],
        rows_of: RowsOf::StockDay,
        prunable: None,
    },
    Table {
        name: "stock_costs",
        key: "reference",
        key_type: "text",
        identity: &["reference"],
        rows_of: RowsOf::StockCost,
        prunable: None,
    },
    Table {
        name: "webhook_audience",
        key: "webhook_id",
        key_type: "bigint",
        identity: &["webhook_id"],
        rows_of: RowsOf::Stream(StreamType::Webhook),
        prunable: None,
    },
    Table {
        name: "webhook_envelopes",
        key: "event_id",
        key_type: "uuid",
        identity: &["event_id"],
        rows_of: RowsOf::Event,
        prunable: Some("payload"),
    },
    Table {
        name: "deliveries",
        key: "event_id",
        key_type: "uuid",
        identity: &["event_id", "webhook_id", "replay_id"],
        rows_of: RowsOf::Event,
        prunable: None,
    },
];

/// Returns the table with this name.
pub fn table(name: &str) -> Option<&'static Table> {
    const ALL: &[Table] = &TABLES;
    ALL.iter().find(|table| table.name == name)
}

/// Rows to compare.
#[derive(Clone, Copy, Debug)]
pub enum Rows<'a> {
    /// Rows after one key, up to another one or to the end.
    Between(&'a str, Option<&'a str>),
    Keys(&'a [String]),
    /// Only for `deliveries`: rows that these events made themselves.
    Made(&'a [String]),
    /// Only for `deliveries`: rows that replays made.
    Replayed,
}

impl Table {
    /// Returns a value less than every key.
    pub fn before_all(&self) -> String {
        match self.key_type {
            "uuid" => uuid::Uuid::nil().to_string(),
            "date" => "-infinity".to_owned(),
            "text" => String::new(),
            _ => i64::MIN.to_string(),
        }
    }

    /// Adds the keys of the rows that an event may have written.
    pub fn keys_of(&self, recorded: &Recorded, keys: &mut BTreeSet<String>) {
        match (&self.rows_of, &recorded.event) {
            (RowsOf::Stream(stream), _) if *stream == recorded.stream_type => _ = keys.insert(recorded.stream_id.to_string()),
            (RowsOf::Movement, Event::Wallet(event)) => {
                keys.extend(Movement::of(event).map(|movement| movement.transaction_id.to_string()));
            }
            (RowsOf::Event, event) => {
                keys.insert(recorded.moment.event_id.to_string());
                if let Event::Replay(ReplayEvent::WebhookReplayAdvanced(step)) = event {
                    keys.extend(step.events.iter().map(ToString::to_string));
                }
            }
            (RowsOf::StockDay, _) if stock::is_movement(recorded) => {
                keys.insert(recorded.moment.recorded_at.date_naive().to_string());
            }
            (RowsOf::StockCost, _) => {
                keys.extend(stock::priced(recorded).into_iter().flat_map(|(references, _)| references.iter().cloned()));
            }
            _ => {}
        }
    }

    /// Returns the rows that differ between the schema `folded`, where a fold has made them, and `public`. Compares every
    /// column, and the content of JSON columns.
    pub async fn differing(
        &self,
        conn: &mut PgConnection,
        folded: &'static str,
        shard: ShardId,
        rows: Rows<'_>,
    ) -> Result<Vec<RowDifference>, sqlx::Error> {
        let Table { name, key, key_type, .. } = self;
        let condition = match rows {
            Rows::Between(_, Some(_)) => format!("{key} > $2::text::{key_type} AND {key} <= $3::text::{key_type}"),
            Rows::Between(_, None) => format!("{key} > $2::text::{key_type}"),
            Rows::Keys(_) => format!("{key} = ANY ($2::text[]::{key_type}[])"),
            Rows::Made(_) => format!("{key} = ANY ($2::text[]::{key_type}[]) AND replay_id = 0"),
            Rows::Replayed => "replay_id > 0".to_owned(),
        };
        let same: String = self.identity.iter().map(|column| format!(" AND f.{column} = s.{column}")).collect();
        let sql = format!(
            "SELECT coalesce(f.{key}, s.{key})::text, to_jsonb(f), to_jsonb(s)
             FROM (SELECT * FROM {folded}.{name} WHERE shard_id = $1 AND {condition}) AS f
             FULL JOIN (SELECT * FROM public.{name} WHERE shard_id = $1 AND {condition}) AS s ON f.shard_id = s.shard_id{same}
             WHERE f::text IS DISTINCT FROM s::text ORDER BY 1"
        );
        // Safe: every name in it is a constant of this file, or a schema that the program names.
        let query = sqlx::query_as::<_, (String, Option<Value>, Option<Value>)>(AssertSqlSafe(sql)).bind(shard);
        let found = match rows {
            Rows::Between(after, Some(to)) => query.bind(after).bind(to),
            Rows::Between(after, None) => query.bind(after),
            Rows::Keys(keys) | Rows::Made(keys) => query.bind(keys),
            Rows::Replayed => query,
        };
        let found = found.fetch_all(conn).await?;
        Ok(found.into_iter().filter_map(|(key, folded, stored)| self.difference(shard, key, folded, stored)).collect())
    }

    fn difference(&self, shard: ShardId, key: String, folded: Option<Value>, stored: Option<Value>) -> Option<RowDifference> {
        // Columns that identify the row in addition to its key.
        let either = stored.as_ref().or(folded.as_ref());
        let further = self.identity.iter().filter(|column| **column != self.key);
        let named = further.filter_map(|column| Some(format!("{column} {}", text_of(either?.get(*column)?))));
        let part = named.collect::<Vec<_>>().join(", ");
        let problem = match (folded, stored) {
            (Some(Value::Object(mut folded)), Some(Value::Object(stored))) => {
                let fields: Vec<FieldDifference> = stored
                    .into_iter()
                    .map(|(field, stored)| FieldDifference { folded: folded.remove(&field).unwrap_or_default(), field, stored })
                    .filter(|field| field.stored != field.folded)
                    .filter(|field| !(field.stored.is_null() && self.prunable == Some(&*field.field)))
                    .collect();
                if fields.is_empty() {
                    return None;
                }
                RowProblem::Differs { fields }
            }
            (_, None) => RowProblem::Missing,
            (_, Some(_)) => RowProblem::Extra,
        };
        Some(RowDifference { table: self.name, shard, key, part, problem })
    }

    /// Returns the key that ends a page of `size` rows after a key, or none if there are fewer rows.
    pub async fn page_end(
        &self,
        conn: &mut PgConnection,
        folded: &'static str,
        shard: ShardId,
        after: &str,
        size: i64,
    ) -> Result<Option<String>, sqlx::Error> {
        let Table { name, key, key_type, .. } = self;
        // Without the name of the table, the order would be that of the text in the result, which no index has.
        let sql = format!(
            "SELECT {key}::text FROM {folded}.{name} WHERE shard_id = $1 AND {key} > $2::text::{key_type} ORDER BY {name}.{key} OFFSET $3 LIMIT 1"
        );
        // Safe: every name is a constant, as in `differing`.
        sqlx::query_scalar(AssertSqlSafe(sql)).bind(shard).bind(after).bind(size - 1).fetch_optional(conn).await
    }

    /// Returns the number of rows of this table in a schema.
    pub async fn count(&self, conn: &mut PgConnection, schema: &'static str) -> Result<i64, sqlx::Error> {
        // Safe: every name is a constant, as in `differing`.
        sqlx::query_scalar(AssertSqlSafe(format!("SELECT count(*) FROM {schema}.{}", self.name))).fetch_one(conn).await
    }
}

fn text_of(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}
