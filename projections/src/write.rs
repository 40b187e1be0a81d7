//! Writes to many tables with one statement: one round trip, all or nothing.
//!
//! Each table's rows travel as one array of a composite type (`public.order_row[]` …). That costs Postgres half as
//! much as one array per column (measured: 6 µs against 12 µs for a row of `orders`).

use std::borrow::Cow;
use std::time::Duration;

use chrono::{DateTime, Utc};
use ledger_database::PgConnection;
use sqlx::encode::IsNull;
use sqlx::error::BoxDynError;
use sqlx::postgres::types::Oid;
use sqlx::postgres::{PgArgumentBuffer, PgHasArrayType, PgTypeInfo};
use sqlx::{Encode, Postgres, QueryBuilder, Type};

/// Builder of one writing statement. Nothing is written before [`Write::execute`]. Owns its rows.
pub struct Write {
    query: QueryBuilder<Postgres>,
    parts: usize,
    /// Parts that must affect exactly this number of rows: (part, rows).
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
    /// Creates a statement without a condition, for rebuilding tables.
    pub fn new() -> Write {
        Write::with_head(|query| {
            query.push("SELECT clock_timestamp() AS now");
        })
    }

    /// Creates a statement that writes only if its first query returns a row. `head` appends that query, which has the
    /// column `now`: the time of the database.
    pub fn with_head(head: impl FnOnce(&mut QueryBuilder<Postgres>)) -> Write {
        let mut query = QueryBuilder::new("WITH head AS (");
        head(&mut query);
        query.push(")");
        Write { query, parts: 0, expected: vec![] }
    }

    /// Returns whether the statement writes no table but what the first query writes.
    pub fn is_empty(&self) -> bool {
        self.parts == 0
    }

    /// Returns whether the statement looks up rows, so that its plan depends on statistics.
    pub fn joins(&self) -> bool {
        !self.expected.is_empty()
    }

    /// Adds an insert, if there are rows. `into` is the table with its columns, in the order of the row's type.
    /// `on_conflict` is the clause of that name, or empty.
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

    /// Adds an update, if there are rows: `<update> FROM head, <rows> AS r <matching>`. If one of the rows does
    /// not exist, the whole statement writes nothing.
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

    /// Adds a condition, if there are rows: `<rows> AS r <matching>` finds each of them. Otherwise the whole statement writes
    /// nothing.
    pub fn require<'q, R>(&mut self, rows: &[R], matching: &'static str)
    where
        R: Encode<'q, Postgres> + Type<Postgres> + PgHasArrayType,
    {
        if rows.is_empty() {
            return;
        }
        self.expected.push((self.parts, i64::try_from(rows.len()).unwrap_or(i64::MAX)));
        self.begin_part().push("SELECT FROM head, unnest(").push_bind(rows);
        self.query.push(") AS r ").push(matching).push(")");
    }

    fn begin_part(&mut self) -> &mut QueryBuilder<Postgres> {
        self.query.push(", part").push(self.parts).push(" AS (");
        self.parts += 1;
        &mut self.query
    }

    /// Executes the statement. Returns `None`, and writes nothing, if the first query returns no row.
    pub async fn execute(mut self, conn: &mut PgConnection) -> Result<Option<Written>, sqlx::Error> {
        self.query.push(" SELECT now, extract(epoch FROM now - statement_timestamp())::float8 AS waited FROM head WHERE true");
        for (part, rows) in std::mem::take(&mut self.expected) {
            self.query.push(" AND is_expected((SELECT count(*) FROM part").push(part).push("), ").push_bind(rows).push(")");
        }
        let row: Option<(DateTime<Utc>, f64)> = self.query.build_query_as().fetch_optional(conn).await?;
        Ok(row.map(|(at, waited)| Written { at, waited: Duration::try_from_secs_f64(waited).unwrap_or_default() }))
    }
}

/// Result of a successful write.
#[derive(Clone, Copy, Debug)]
pub struct Written {
    /// Time of the database that the first query returned.
    pub at: DateTime<Utc>,
    /// Time that the first query waited for a lock.
    pub waited: Duration,
}

/// Text of a column of type `json`, passed on unchanged.
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

/// Declares the composite type of a row: `row_type!(OrderRow<'_>, "public.order_row")`.
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
