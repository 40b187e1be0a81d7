//! Writing rows of many tables with one statement: one round trip, and all of it or nothing.
//!
//! Rows go as arrays of composite types (`public.order_row[]` …), one value a table: half of what
//! an array per column costs Postgres (measured: 6 µs against 12 µs for a row of `orders`).

use std::borrow::Cow;
use std::time::Duration;

use chrono::{DateTime, Utc};
use ledger_database::PgConnection;
use ledger_events::{Position, ShardId};
use sqlx::encode::IsNull;
use sqlx::error::BoxDynError;
use sqlx::postgres::types::Oid;
use sqlx::postgres::{PgArgumentBuffer, PgHasArrayType, PgTypeInfo};
use sqlx::{Encode, Postgres, QueryBuilder, Type};
use uuid::Uuid;

/// Where a shard's head stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Head {
    pub shard: ShardId,
    pub position: Position,
    /// The event at this position; none in an empty log. After a failover that lost commits, a log can come to the same
    /// position and epoch with other events.
    pub event_id: Option<Uuid>,
    /// `log_head.epoch`: it grows when what was decided before is not to be written: tables were
    /// replaced, or a batch was given up for lost.
    pub epoch: i64,
}

/// A statement in the making; nothing is written before [`Write::execute`]. Owns its rows.
pub struct Write {
    query: QueryBuilder<Postgres>,
    parts: usize,
    /// Parts that must touch exactly so many rows.
    expected: Vec<(usize, i64)>,
}

impl Default for Write {
    fn default() -> Write {
        Write::new()
    }
}

impl std::fmt::Debug for Write {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Write").field("parts", &self.parts).finish_non_exhaustive()
    }
}

impl Write {
    /// Writes whatever the head is: for rebuilding tables.
    pub fn new() -> Write {
        Write::of(QueryBuilder::new("WITH head AS (SELECT clock_timestamp() AS now)"))
    }

    /// Writes only if the head stands where it is said to, and moves it on; the head stays locked
    /// until the transaction ends.
    pub fn moving(from: Head, to: Position, recorded_at: DateTime<Utc>) -> Write {
        Write::moving_if(Write::move_head(from, to, recorded_at))
    }

    /// The same, but refuses what was recorded longer ago than a batch waits: a clock stood still.
    pub fn moving_now(from: Head, to: Position, recorded_at: DateTime<Utc>) -> Write {
        let mut query = Write::move_head(from, to, recorded_at);
        query.push(" AND clock_timestamp() - interval '15 s' < ").push_bind(recorded_at);
        Write::moving_if(query)
    }

    fn moving_if(mut query: QueryBuilder<Postgres>) -> Write {
        query.push(" RETURNING clock_timestamp() AS now)");
        Write::of(query)
    }

    /// Up to its conditions.
    fn move_head(from: Head, to: Position, recorded_at: DateTime<Utc>) -> QueryBuilder<Postgres> {
        let mut query = QueryBuilder::new("WITH head AS (UPDATE log_head SET position = ");
        query.push_bind(to).push(", recorded_at = ").push_bind(recorded_at);
        Write::where_it_is(&mut query, from);
        query
    }

    fn where_it_is(query: &mut QueryBuilder<Postgres>, head: Head) {
        query.push(" WHERE shard_id = ").push_bind(head.shard).push(" AND position = ").push_bind(head.position);
        query.push(" AND epoch = ").push_bind(head.epoch);
        query.push(" AND (SELECT event_id FROM events WHERE shard_id = ").push_bind(head.shard);
        query.push(" AND position = ").push_bind(head.position).push(") IS NOT DISTINCT FROM ").push_bind(head.event_id);
    }

    /// Writes nothing, and tells whether the head stands where it is said to.
    pub fn looking_at(head: Head) -> Write {
        let mut query = QueryBuilder::new("WITH head AS (SELECT clock_timestamp() AS now FROM log_head");
        Write::where_it_is(&mut query, head);
        query.push(")");
        Write::of(query)
    }

    fn of(query: QueryBuilder<Postgres>) -> Write {
        Write { query, parts: 0, expected: vec![] }
    }

    /// Whether there is nothing to write but the head.
    pub fn is_empty(&self) -> bool {
        self.parts == 0
    }

    /// Whether rows are looked for, so that its plan depends on statistics.
    pub fn joins(&self) -> bool {
        !self.expected.is_empty()
    }

    /// Inserts rows, if there are any. `into` is the table with its columns, in the order of the
    /// row's type; `on_conflict` the clause of that name, or nothing.
    pub fn insert<'q, R>(&mut self, into: &'static str, rows: &[R], on_conflict: &'static str)
    where
        R: Encode<'q, Postgres> + Type<Postgres> + PgHasArrayType,
    {
        if rows.is_empty() {
            return;
        }
        self.begin_part().push("INSERT INTO ").push(into).push(" SELECT r.* FROM head, unnest(").push_bind(rows);
        self.query.push(") AS r ").push(on_conflict).push(")");
    }

    /// Updates rows, if there are any: `<update> FROM head, <rows> AS r <matching>`. All must be
    /// there, or nothing is written.
    pub fn update<'q, R>(&mut self, update: &'static str, rows: &[R], matching: &'static str)
    where
        R: Encode<'q, Postgres> + Type<Postgres> + PgHasArrayType,
    {
        if rows.is_empty() {
            return;
        }
        self.expected.push((self.parts, i64::try_from(rows.len()).unwrap_or(i64::MAX)));
        self.begin_part().push(update).push(" FROM head, unnest(").push_bind(rows);
        self.query.push(") AS r ").push(matching).push(" RETURNING 1)");
    }

    fn begin_part(&mut self) -> &mut QueryBuilder<Postgres> {
        self.query.push(", part").push(self.parts).push(" AS (");
        self.parts += 1;
        &mut self.query
    }

    /// Writes all of it. `None` if the head stands elsewhere: nothing was written then.
    pub async fn execute(mut self, conn: &mut PgConnection) -> Result<Option<Written>, sqlx::Error> {
        self.query.push(" SELECT now, extract(epoch FROM now - statement_timestamp())::float8 AS waited FROM head WHERE true");
        for (part, rows) in std::mem::take(&mut self.expected) {
            self.query.push(" AND is_expected((SELECT count(*) FROM part").push(part).push("), ").push_bind(rows).push(")");
        }
        let row: Option<(DateTime<Utc>, f64)> = self.query.build_query_as().fetch_optional(conn).await?;
        Ok(row.map(|(at, waited)| Written { at, waited: Duration::try_from_secs_f64(waited).unwrap_or_default() }))
    }
}

/// How a statement came to write.
#[derive(Clone, Copy, Debug)]
pub struct Written {
    /// The database's time when it had the head.
    pub at: DateTime<Utc>,
    /// How long it had to wait for the head.
    pub waited: Duration,
}

/// Text of a column of the type `json`, kept as it is.
#[derive(Clone, Debug)]
pub struct JsonText<'a>(pub Cow<'a, str>);

impl Type<Postgres> for JsonText<'_> {
    fn type_info() -> PgTypeInfo {
        PgTypeInfo::with_oid(Oid(114))
    }
}

impl<'q> Encode<'q, Postgres> for JsonText<'_> {
    fn encode_by_ref(&self, buf: &mut PgArgumentBuffer) -> Result<IsNull, BoxDynError> {
        buf.extend_from_slice(self.0.as_bytes());
        Ok(IsNull::No)
    }
}

/// Defines a row that is sent as a value of a composite type: `row_type! { struct OrderRow<'a> as "public.order_row" { … } }`.
/// The fields stand in the type's order. `derive(sqlx::Encode)` writes the same, but builds sqlx's driver for the host too.
#[macro_export]
macro_rules! row_type {
    ($(#[$meta:meta])* $visible:vis struct $row:ident $(<$life:lifetime>)? as $name:literal { $($(#[$note:meta])* $field:ident: $type:ty,)* }) => {
        $(#[$meta])*
        $visible struct $row $(<$life>)? { $($(#[$note])* $field: $type,)* }

        impl$(<$life>)? ::sqlx::Encode<'_, ::sqlx::Postgres> for $row$(<$life>)? {
            fn encode_by_ref(
                &self,
                buffer: &mut ::sqlx::postgres::PgArgumentBuffer,
            ) -> ::std::result::Result<::sqlx::encode::IsNull, ::sqlx::error::BoxDynError> {
                let mut encoder = ::sqlx::postgres::types::PgRecordEncoder::new(buffer);
                $(encoder.encode(&self.$field)?;)*
                encoder.finish();
                Ok(::sqlx::encode::IsNull::No)
            }
        }

        impl$(<$life>)? ::sqlx::Type<::sqlx::Postgres> for $row$(<$life>)? {
            fn type_info() -> ::sqlx::postgres::PgTypeInfo {
                ::sqlx::postgres::PgTypeInfo::with_name($name)
            }
        }

        impl$(<$life>)? ::sqlx::postgres::PgHasArrayType for $row$(<$life>)? {
            fn array_type_info() -> ::sqlx::postgres::PgTypeInfo {
                ::sqlx::postgres::PgTypeInfo::array_of($name)
            }
        }
    };
}
