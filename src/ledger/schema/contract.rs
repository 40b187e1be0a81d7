//! Contract step of a rolling upgrade: changes that would break statements of older nodes, so they wait until none runs.
//!
//! Text keys get the collation "C". A unique index over text that libc or ICU orders breaks on a server with another
//! version of that library. The server looks for a key in the wrong place, and accepts a duplicate. Bytes have only one
//! order. Both collations have the same equality, so the keys stay unique.
//!
//! Each index is built a second time under "C" while the service works. A transaction that changes only the catalogue
//! then replaces the first index by the second. A node of this release prepares a statement again when it fails because a
//! column's collation has changed (0A000).

use std::time::Duration;

use ledger_database::{FromRow, PgConnectOptions};
use sqlx::migrate::MigrateError;
use sqlx::{AssertSqlSafe, Connection, PgConnection, PgExecutor};

use super::SchemaError;
use super::migration::{Attempts, LOCK_TIMEOUT, PATIENCE, lock, set_lock_timeout};

/// A unique index that depends on a collation of libc or ICU. All names are quoted as SQL identifiers.
#[derive(Clone, Debug, FromRow)]
struct Dependent {
    schema: String,
    table: String,
    /// Name without the schema.
    name: String,
    /// Columns with their collations, in the syntax of CREATE INDEX.
    keys: String,
    /// `ALTER COLUMN … TYPE …` for each column that gets the collation. None for a partial index.
    alterations: Option<String>,
    /// ` WHERE …` of a partial index, or an empty text.
    condition: String,
    /// `PRIMARY KEY` or `UNIQUE`, if a constraint owns the index.
    constraint: Option<String>,
    /// Foreign keys that refer to the index: table, name and definition of each.
    referring: Vec<String>,
}

/// Query for the dependent indexes. The catalogue of PostgreSQL 14 has no provider of a database's own collation; there
/// it is always libc.
const DEPENDENT: &str = r#"
    WITH own AS (
        SELECT CASE coalesce(to_jsonb(d)->>'datlocprovider', 'c') WHEN 'c' THEN d.datcollate IN ('C', 'POSIX') WHEN 'b' THEN true ELSE false END AS is_bytes
        FROM pg_database d WHERE d.datname = current_database()),
    keys AS (
        SELECT i.indexrelid, i.indrelid, k.n, a.attname, k.coll <> 0 AND NOT
            CASE co.collprovider WHEN 'd' THEN own.is_bytes WHEN 'c' THEN co.collcollate IN ('C', 'POSIX') WHEN 'b' THEN true ELSE false END AS depends
        FROM own, pg_index i
        JOIN pg_class c ON c.oid = i.indexrelid
        CROSS JOIN LATERAL unnest(i.indkey::smallint[], i.indcollation::oid[]) WITH ORDINALITY AS k (attnum, coll, n)
        JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = k.attnum
        LEFT JOIN pg_collation co ON co.oid = k.coll
        WHERE i.indisunique AND i.indislive AND c.relnamespace::regnamespace::text IN ('public', 'vault'))
    SELECT quote_ident(n.nspname) AS schema, format('%I.%I', n.nspname, t.relname) AS "table", quote_ident(c.relname) AS name,
        string_agg(quote_ident(k.attname) || CASE WHEN k.depends THEN ' COLLATE "C"' ELSE '' END, ', ' ORDER BY k.n) AS keys,
        CASE WHEN i.indpred IS NULL THEN string_agg(format('ALTER COLUMN %I TYPE text COLLATE "C"', k.attname), ', ' ORDER BY k.n)
            FILTER (WHERE k.depends) END AS alterations,
        coalesce(' WHERE ' || pg_get_expr(i.indpred, i.indrelid), '') AS condition,
        (SELECT CASE contype WHEN 'p' THEN 'PRIMARY KEY' ELSE 'UNIQUE' END FROM pg_constraint
         WHERE conindid = c.oid AND conrelid = t.oid AND contype IN ('p', 'u')) AS constraint,
        ARRAY(SELECT unnest(ARRAY[conrelid::regclass::text, quote_ident(conname), pg_get_constraintdef(oid)]) FROM pg_constraint
         WHERE conindid = c.oid AND contype = 'f') AS referring
    FROM keys k JOIN pg_index i ON i.indexrelid = k.indexrelid
    JOIN pg_class c ON c.oid = k.indexrelid JOIN pg_class t ON t.oid = k.indrelid JOIN pg_namespace n ON n.oid = t.relnamespace
    WHERE c.relname NOT LIKE '%\_in\_bytes'
    GROUP BY n.nspname, t.oid, t.relname, c.oid, c.relname, i.indrelid, i.indpred::text, i.indpred HAVING bool_or(k.depends)
    ORDER BY 2, 3"#;

/// Returns the unique indexes that a server with another libc or ICU would break. [`contract`] replaces them.
pub async fn dependent(db: impl PgExecutor<'_>) -> Result<Vec<String>, sqlx::Error> {
    let found: Vec<Dependent> = sqlx::query_as(DEPENDENT).fetch_all(db).await?;
    Ok(found.into_iter().map(|index| format!("{}.{}", index.schema, index.name)).collect())
}

/// Contracts the schema while nodes of this release work. Returns the replaced indexes. After an error, the replaced
/// indexes stay, and the next run continues.
pub async fn contract(options: &PgConnectOptions, patience: Duration) -> Result<Vec<String>, SchemaError> {
    let mut connection = options.clone().application_name("rewards-ledger migrate").connect().await?;
    lock(&mut connection, patience).await?;
    let indexes: Vec<Dependent> = sqlx::query_as(DEPENDENT).fetch_all(&mut connection).await?;
    let mut replaced = vec![];
    for index in indexes {
        let name = format!("{}.{}", index.schema, index.name);
        tracing::info!(index = %name, "giving a unique index the collation C");
        index.build(&mut connection, patience).await?;
        let waits_for = format!("the replacement of {name} is waiting for a lock");
        let mut attempts = Attempts::new(patience);
        while let Err(error) = index.swap(&mut connection).await {
            attempts.pause(MigrateError::Execute(error), &waits_for, &mut connection).await?;
        }
        index.settle(&mut connection).await?;
        replaced.push(name);
    }
    // Includes foreign keys that an earlier run left unvalidated because it ended between `swap` and `settle`.
    validate_foreign_keys(&mut connection).await?;
    connection.close().await?;
    Ok(replaced)
}

/// Validates every foreign key that is not valid yet, without blocking other sessions.
async fn validate_foreign_keys(connection: &mut PgConnection) -> Result<(), sqlx::Error> {
    let unchecked: Vec<(String, String)> = sqlx::query_as(
        "SELECT conrelid::regclass::text, quote_ident(conname) FROM pg_constraint
         WHERE contype = 'f' AND NOT convalidated AND connamespace::regnamespace::text IN ('public', 'vault') ORDER BY 1, 2",
    )
    .fetch_all(&mut *connection)
    .await?;
    set_lock_timeout(connection, PATIENCE).await?;
    for (table, name) in unchecked {
        execute(connection, format!("ALTER TABLE {table} VALIDATE CONSTRAINT {name}")).await?;
    }
    set_lock_timeout(connection, LOCK_TIMEOUT).await
}

/// Executes a statement built from names. Safe for all callers: the names come quoted from the catalogue.
async fn execute(connection: &mut PgConnection, statement: String) -> Result<(), sqlx::Error> {
    sqlx::raw_sql(AssertSqlSafe(statement)).execute(connection).await?;
    Ok(())
}

impl Dependent {
    /// Returns the name of the second index until it takes the first one's.
    fn second(&self) -> String {
        format!("\"{}_in_bytes\"", self.name.trim_matches('"'))
    }

    /// Builds the second index. First drops one that an interrupted run has left unfinished.
    async fn build(&self, connection: &mut PgConnection, patience: Duration) -> Result<(), sqlx::Error> {
        let (schema, second) = (&self.schema, self.second());
        // Building blocks nobody while it waits.
        set_lock_timeout(connection, patience).await?;
        let is_unfinished: bool =
            sqlx::query_scalar("SELECT EXISTS (SELECT FROM pg_index WHERE indexrelid = to_regclass($1) AND NOT indisvalid)")
                .bind(format!("{schema}.{second}"))
                .fetch_one(&mut *connection)
                .await?;
        if is_unfinished {
            execute(connection, format!("DROP INDEX CONCURRENTLY {schema}.{second}")).await?;
        }
        let Dependent { table, keys, condition, .. } = self;
        execute(connection, format!("CREATE UNIQUE INDEX CONCURRENTLY IF NOT EXISTS {second} ON {table} ({keys}){condition}"))
            .await?;
        set_lock_timeout(connection, LOCK_TIMEOUT).await
    }

    /// Replaces the first index by the second. The columns get the collation too, so that statements that do not name it
    /// use the index. None of this reads the table. The columns of a partial index keep their collation, because changing
    /// it would rebuild the index; statements that use it name the collation.
    async fn swap(&self, connection: &mut PgConnection) -> Result<(), sqlx::Error> {
        let Dependent { schema, table, name, .. } = self;
        let mut statements = vec!["BEGIN".to_owned(), format!("LOCK TABLE {table} IN ACCESS EXCLUSIVE MODE")];
        for reference in self.referring.chunks_exact(3) {
            statements.push(format!("ALTER TABLE {} DROP CONSTRAINT {}", reference[0], reference[1]));
        }
        statements.push(match &self.constraint {
            Some(_) => format!("ALTER TABLE {table} DROP CONSTRAINT {name}"),
            None => format!("DROP INDEX {schema}.{name}"),
        });
        if let Some(alterations) = &self.alterations {
            statements.push(format!("ALTER TABLE {table} {alterations}"));
        }
        statements.push(match &self.constraint {
            Some(kind) => format!("ALTER TABLE {table} ADD CONSTRAINT {name} {kind} USING INDEX {}", self.second()),
            None => format!("ALTER INDEX {schema}.{} RENAME TO {name}", self.second()),
        });
        for reference in self.referring.chunks_exact(3) {
            statements.push(format!("ALTER TABLE {} ADD CONSTRAINT {} {} NOT VALID", reference[0], reference[1], reference[2]));
        }
        statements.push("COMMIT".to_owned());
        let outcome = execute(connection, statements.join("; ")).await;
        if outcome.is_err() {
            execute(connection, "ROLLBACK".to_owned()).await?;
        }
        outcome
    }

    /// Validates foreign keys again without blocking other sessions, and recreates the statistics lost with the old
    /// collation.
    async fn settle(&self, connection: &mut PgConnection) -> Result<(), sqlx::Error> {
        validate_foreign_keys(connection).await?;
        set_lock_timeout(connection, PATIENCE).await?;
        execute(connection, format!("ANALYZE {}", self.table)).await?;
        set_lock_timeout(connection, LOCK_TIMEOUT).await
    }
}
