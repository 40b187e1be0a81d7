//! Cost of a unit of work: the processor time of the program and of Postgres, and what Postgres writes to its log.

use std::time::Duration;

use anyhow::{Context, Result};
use embedded_postgres::Server;
use sqlx::postgres::{PgConnectOptions, PgConnection};
use sqlx::{ConnectOptions, Executor};

use super::Serve;

/// Readings of all meters at one moment.
#[derive(Debug)]
struct Reading {
    program: Duration,
    postgres: Duration,
    /// Position in the write-ahead log.
    lsn: String,
}

/// A measurement that has started.
#[derive(Debug)]
pub struct Meter {
    connection: PgConnection,
    postmaster: u32,
    start: Reading,
}

/// Cost of all work between two readings.
#[derive(Clone, Copy, Debug)]
pub struct Cost {
    /// User and system time of the program under test, of all nodes together.
    pub program: Duration,
    /// User and system time of the server and of all its sessions.
    pub postgres: Duration,
    /// Bytes of the write-ahead log without full-page images, which depend on the time of the last checkpoint.
    pub wal_bytes: f64,
    /// Full-page images in the write-ahead log, in bytes.
    pub page_bytes: f64,
    /// Rows inserted into or updated in tables.
    pub rows: f64,
    /// Entries inserted into indexes.
    pub index_entries: f64,
}

impl Meter {
    /// Reads all meters. The server must have the contributed extension `pg_walinspect` (Postgres 15 and later).
    pub async fn start(server: &Server, nodes: &[Serve]) -> Result<Meter> {
        let options: PgConnectOptions = server.url_of("postgres").parse()?;
        let mut connection = options.connect().await?;
        connection.execute("CREATE EXTENSION IF NOT EXISTS pg_walinspect").await.context("pg_walinspect")?;
        let start = read(&mut connection, server.pid(), nodes).await?;
        Ok(Meter { connection, postmaster: server.pid(), start })
    }

    /// Reads all meters again, and returns the difference.
    pub async fn end(mut self, nodes: &[Serve]) -> Result<Cost> {
        let end = read(&mut self.connection, self.postmaster, nodes).await?;
        let (wal_bytes, page_bytes, rows, index_entries): (f64, f64, f64, f64) = sqlx::query_as(
            r#"SELECT sum(record_size)::float8, sum(fpi_size)::float8,
                sum(count) FILTER (WHERE "resource_manager/record_type" ~ '^Heap2?/(INSERT|UPDATE|HOT_UPDATE|MULTI_INSERT)')::float8,
                sum(count) FILTER (WHERE "resource_manager/record_type" ~ '^Btree/INSERT_LEAF')::float8
            FROM pg_get_wal_stats($1::pg_lsn, $2::pg_lsn, true)"#,
        )
        .bind(&self.start.lsn)
        .bind(&end.lsn)
        .fetch_one(&mut self.connection)
        .await
        .context("the write-ahead log of the measured period")?;
        let program = end.program.saturating_sub(self.start.program);
        let postgres = end.postgres.saturating_sub(self.start.postgres);
        Ok(Cost { program, postgres, wal_bytes, page_bytes, rows, index_entries })
    }
}

async fn read(connection: &mut PgConnection, postmaster: u32, nodes: &[Serve]) -> Result<Reading> {
    let lsn = sqlx::query_scalar("SELECT pg_current_wal_flush_lsn()::text").fetch_one(connection).await?;
    Ok(Reading { program: nodes.iter().map(Serve::cpu).sum(), postgres: of_server(postmaster)?, lsn })
}

/// Returns the processor time of the postmaster, of its ended children and of its living children.
fn of_server(postmaster: u32) -> Result<Duration> {
    let mut total = Duration::ZERO;
    for entry in std::fs::read_dir("/proc")? {
        let Some(pid) = entry?.file_name().to_str().and_then(|name| name.parse::<u32>().ok()) else { continue };
        // A process may end at any time. Its time then counts as that of an ended child.
        let Ok(stat) = std::fs::read_to_string(format!("/proc/{pid}/stat")) else { continue };
        let fields: Vec<u64> = super::stat_fields(&stat);
        let [parent, user, system, user_of_ended, system_of_ended] =
            [1, 11, 12, 13, 14].map(|n| fields.get(n).copied().unwrap_or(0));
        if pid == postmaster {
            total += super::time_of(user + system + user_of_ended + system_of_ended);
        } else if parent == u64::from(postmaster) {
            total += super::time_of(user + system);
        }
    }
    Ok(total)
}
