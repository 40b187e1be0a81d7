//! Rebuilds projections while the service runs. Folds the log into shadow tables, compares them with the current tables,
//! and under the head lock folds the rest and swaps the tables.
//!
//! Until the swap commits, nothing in `public` changes except the worker's records: lost deliveries get theirs before the
//! swap. That is harmless, because nobody reads a record without its delivery. If a rebuild is killed, the next one drops
//! these records and what is left in `shadow`.

mod swap;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use ledger_database::{PgConnectOptions, PgConnection};
use ledger_events::{Position, Recorded, ShardId, id_base};
use ledger_projections::listing::maintain;
use ledger_projections::{Inline, deliveries as delivery_projection, stock, totals};
use serde::Serialize;

use super::pipeline::{Part, Reached, advance};
use super::tables::{Rows, Table, table};
use super::{AuditError, Difference, Findings, Progress, RowDifference, lock, shadow, shards};
use crate::ledger::{list_shards, reader};

const COMPARED_ROWS: i64 = 5_000;
/// Number of new events below which the swap can start.
const NEAR: i64 = 2_000;
/// Largest number of rounds of catching up with a busy log before the swap folds the rest under its locks.
const CATCH_UPS: usize = 20;

/// Projections to rebuild.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rebuild {
    Inline(Inline),
    Deliveries,
    Stock,
    Totals,
    All,
}

impl Rebuild {
    /// Names that [`Rebuild::parse`] accepts.
    pub const NAMES: [&'static str; 15] = [
        "orders",
        "payouts",
        "purchases",
        "wallets",
        "webhooks",
        "accounts",
        "approvals",
        "users",
        "catalogue",
        "reconciliation",
        "shards",
        "deliveries",
        "daily_totals",
        "stock_days",
        "all",
    ];

    pub fn parse(name: &str) -> Option<Rebuild> {
        match name {
            "all" => Some(Self::All),
            delivery_projection::NAME => Some(Self::Deliveries),
            stock::NAME => Some(Self::Stock),
            totals::NAME => Some(Self::Totals),
            name => Inline::ALL.into_iter().find(|inline| inline.name() == name).map(Self::Inline),
        }
    }

    fn parts(self) -> Vec<Part> {
        match self {
            Self::Inline(inline) => vec![Part::Inline(inline)],
            Self::Deliveries => vec![Part::Deliveries],
            Self::Stock => vec![Part::Stock],
            Self::Totals => vec![Part::Totals],
            Self::All => Inline::ALL.into_iter().map(Part::Inline).chain([Part::Deliveries, Part::Totals, Part::Stock]).collect(),
        }
    }
}

/// Result of a rebuild. The differences are those of the replaced tables.
#[derive(Debug, Serialize)]
pub struct Rebuilt {
    pub projections: Vec<&'static str>,
    /// Position in each shard up to which the tables were rebuilt. For an asynchronous projection alone, this is its
    /// checkpoint.
    pub positions: BTreeMap<ShardId, Position>,
    /// Number of attempts that the swap took. An attempt that waits too long for its locks is repeated.
    pub swap_attempts: usize,
    /// Number of rows of each table shortly before the swap.
    pub rows: BTreeMap<&'static str, i64>,
    pub found: u64,
    pub differences: Vec<Difference>,
}

impl fmt::Display for Rebuilt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: rebuilt; ", self.projections.join(", "))?;
        match self.found {
            0 => f.write_str("no row differed"),
            found => write!(f, "{found} differences repaired"),
        }
    }
}

impl Rebuilt {
    /// Returns whether the replaced tables matched the log.
    pub fn was_clean(&self) -> bool {
        self.found == 0
    }
}

/// Rebuilds projections as the role of these options, which must own the tables.
///
/// Returns [`AuditError::Busy`] while a verify or another rebuild runs. Returns [`AuditError::NotLocked`] when other
/// sessions hold the tables until the retries are exhausted.
pub async fn rebuild(options: &PgConnectOptions, which: Rebuild, progress: impl Fn(Progress)) -> Result<Rebuilt, AuditError> {
    let parts = which.parts();
    let mut conn = shadow::connect(options, "rewards-ledger rebuild").await?;
    lock::exclusive(&mut conn).await?;
    shadow::install(&mut conn).await?;
    let tables: Vec<&'static str> = parts.iter().flat_map(|part| part.tables()).copied().collect();
    shadow::prepare(&mut conn, &tables).await?;
    let mut work = Work::begin(&mut conn, parts, tables).await?;
    work.catch_up(options, &mut conn, &progress).await?;
    for table in &work.tables {
        shadow::finish(&mut conn, table).await?;
    }
    work.catch_up(options, &mut conn, &progress).await?;
    work.is_compared = true;
    work.compare_all(&mut conn, &progress).await?;
    let mut rows = BTreeMap::new();
    for name in work.tables.clone() {
        rows.insert(name, find(name)?.count(&mut conn, "shadow").await?);
    }
    work.compare_touched(options, &mut conn, &progress).await?;
    if work.parts.contains(&Part::Deliveries) {
        for shard in work.shards.clone() {
            swap::retype(&mut conn, shard).await?;
            work.strays.extend(swap::strays(&mut conn, shard).await?.into_iter().map(|id| (shard, id)));
        }
    }
    let positions = work.swap_in(options, &mut conn, &progress).await?;
    // The lists are derived from the tables that are now in place. If the rebuild is killed before this, `verify` finds
    // the differences and the next rebuild corrects them.
    if work.parts.iter().any(|part| matches!(part, Part::Deliveries | Part::Inline(Inline::Orders))) {
        for shard in work.shards.clone() {
            maintain::rebuild_lists(&mut conn, shard, delivery_projection::NAME).await?;
        }
    }
    lock::release(&mut conn).await?;
    conn.close().await?;
    let projections = work.parts.iter().map(|part| part.name()).collect();
    let Findings { found, differences, .. } = work.found.findings;
    Ok(Rebuilt { projections, positions, swap_attempts: work.swap_attempts, rows, found, differences })
}

fn find(name: &str) -> Result<&'static Table, AuditError> {
    table(name).ok_or(AuditError::Broken)
}

enum Compare {
    Between(String, Option<String>),
    Keys(Vec<String>),
}

struct Work {
    parts: Vec<Part>,
    tables: Vec<&'static str>,
    shards: Vec<ShardId>,
    reached: Reached,
    found: ComparisonState,
    /// Whether the comparison has begun, so that rows written from now on must be recorded in `touched`.
    is_compared: bool,
    /// Worker's records that seem to have no delivery.
    strays: Vec<(ShardId, i64)>,
    /// Sequence number from which on delivery ids were assigned since the rebuild began, by it or by the projector.
    first_number: i64,
    /// Highest of these ids up to which the worker has records, for each shard.
    adopted: BTreeMap<ShardId, i64>,
    swap_attempts: usize,
}

/// State of the comparisons. A failed attempt to swap restores the previous state.
#[derive(Clone, Default)]
struct ComparisonState {
    /// Rows that were written after they were compared.
    touched: BTreeMap<(&'static str, ShardId), BTreeSet<String>>,
    /// Rows that were reported, so that a row that is compared twice is reported once.
    reported: BTreeSet<(&'static str, ShardId, String)>,
    findings: Findings,
}

impl Work {
    /// Refuses a log that a rebuild would lose rows of: it folds only known shards.
    async fn begin(conn: &mut PgConnection, parts: Vec<Part>, tables: Vec<&'static str>) -> Result<Work, AuditError> {
        let mut found = ComparisonState::default();
        for (shard, table) in shards::headless(conn).await? {
            if table == "events" {
                return Err(AuditError::Headless { shard });
            }
            if tables.contains(&&*table) {
                found.findings.add(Difference::Headless { shard, table });
            }
        }
        let shards = list_shards(&mut *conn).await?;
        let first_number = sqlx::query_scalar("SELECT nextval('public.delivery_ids')").fetch_one(conn).await?;
        Ok(Work {
            parts,
            tables,
            shards,
            reached: Reached::new(),
            found,
            is_compared: false,
            strays: vec![],
            first_number,
            adopted: BTreeMap::new(),
            swap_attempts: 0,
        })
    }

    /// Returns the id of a shard after which all delivery ids were assigned since the rebuild began.
    fn first_id(&self, shard: ShardId) -> i64 {
        id_base(shard) + self.first_number
    }

    /// Returns the position up to which a part can be folded: the one that its public tables have reached.
    async fn target(conn: &mut PgConnection, shard: ShardId, part: Part) -> Result<Position, sqlx::Error> {
        match part {
            Part::Inline(_) => reader::head(conn, shard).await,
            Part::Deliveries => delivery_projection::checkpoint(conn, shard).await,
            Part::Stock => stock::checkpoint(conn, shard).await,
            Part::Totals => totals::checkpoint(conn, shard).await,
        }
    }

    fn reached(&self, part: Part, shard: ShardId) -> Position {
        self.reached.get(&(part.name(), shard)).copied().unwrap_or_default()
    }

    /// Folds all parts until few events are left, and records the rows that these events change.
    async fn catch_up(
        &mut self,
        options: &PgConnectOptions,
        conn: &mut PgConnection,
        progress: &impl Fn(Progress),
    ) -> Result<(), AuditError> {
        self.shards = list_shards(&mut *conn).await?;
        for shard in self.shards.clone() {
            for _ in 0..CATCH_UPS {
                let mut targets = BTreeMap::new();
                for part in &self.parts {
                    targets.insert(part.name(), Work::target(conn, shard, *part).await?);
                }
                let to = |part: Part| targets.get(part.name()).copied().unwrap_or_default();
                let left = self.parts.iter().map(|part| to(*part) - self.reached(*part, shard)).max().unwrap_or_default();
                if self.is_compared {
                    for part in self.parts.clone() {
                        self.touch(conn, shard, part, to(part)).await?;
                    }
                }
                advance(options, shard, &self.parts, to, &mut self.reached, progress).await?;
                if left < NEAR {
                    break;
                }
            }
        }
        Ok(())
    }

    async fn touch(&mut self, conn: &mut PgConnection, shard: ShardId, part: Part, to: Position) -> Result<(), AuditError> {
        let mut at = self.reached(part, shard);
        while at < to {
            let page = reader::after(&mut *conn, shard, at, COMPARED_ROWS.min(to - at)).await?;
            let Some(last) = page.last() else { return Err(AuditError::Gap { shard, position: at + 1 }) };
            at = last.moment.position;
            self.remember(shard, part, &page)?;
        }
        Ok(())
    }

    fn remember(&mut self, shard: ShardId, part: Part, events: &[Recorded]) -> Result<(), AuditError> {
        for name in part.tables() {
            let (table, keys) = (find(name)?, self.found.touched.entry((name, shard)).or_default());
            events.iter().for_each(|recorded| table.keys_of(recorded, keys));
        }
        Ok(())
    }

    async fn compare_all(&mut self, conn: &mut PgConnection, progress: &impl Fn(Progress)) -> Result<(), AuditError> {
        for shard in self.shards.clone() {
            for name in self.tables.clone() {
                let table = find(name)?;
                let (mut after, mut done) = (table.before_all(), 0);
                loop {
                    let to = table.page_end(conn, "shadow", shard, &after, COMPARED_ROWS).await?;
                    self.compare(conn, table, shard, Compare::Between(after, to.clone())).await?;
                    done += COMPARED_ROWS;
                    progress(Progress { stage: "compare", shard, done, total: done });
                    match to {
                        Some(to) => after = to,
                        None => break,
                    }
                }
            }
        }
        Ok(())
    }

    /// Catches up with the log, and compares the rows that it has changed since their comparison, until few are left.
    async fn compare_touched(
        &mut self,
        options: &PgConnectOptions,
        conn: &mut PgConnection,
        progress: &impl Fn(Progress),
    ) -> Result<(), AuditError> {
        for _ in 0..CATCH_UPS {
            self.catch_up(options, conn, progress).await?;
            if self.found.touched.values().map(BTreeSet::len).sum::<usize>() < usize::try_from(NEAR).unwrap_or(usize::MAX) {
                break;
            }
            // Compare these rows now, so that this need not happen under the locks.
            for ((name, shard), keys) in std::mem::take(&mut self.found.touched) {
                self.compare(conn, find(name)?, shard, Compare::Keys(keys.into_iter().collect())).await?;
            }
        }
        Ok(())
    }

    /// Compares rows in a separate snapshot. Excludes rows that events after the shadow tables' position have changed;
    /// these rows are compared again later.
    async fn compare(
        &mut self,
        conn: &mut PgConnection,
        table: &'static Table,
        shard: ShardId,
        which: Compare,
    ) -> Result<(), AuditError> {
        let Some(part) = self.parts.iter().copied().find(|part| part.tables().contains(&table.name)) else { return Ok(()) };
        let mut tx = conn.begin_with("BEGIN ISOLATION LEVEL REPEATABLE READ, READ ONLY").await?;
        let rows = match &which {
            Compare::Between(after, to) => Rows::Between(after, to.as_deref()),
            Compare::Keys(keys) => Rows::Keys(keys),
        };
        let differing = table.differing(&mut tx, "shadow", shard, rows).await?;
        if !differing.is_empty() {
            let to = Work::target(&mut tx, shard, part).await?;
            let (mut at, mut newer) = (self.reached(part, shard), BTreeSet::new());
            while at < to {
                let page = reader::after(&mut *tx, shard, at, COMPARED_ROWS.min(to - at)).await?;
                let Some(last) = page.last() else { break };
                at = last.moment.position;
                page.iter().for_each(|recorded| table.keys_of(recorded, &mut newer));
            }
            self.report(differing.into_iter().filter(|row| !newer.contains(&row.key)));
        }
        tx.commit().await?;
        Ok(())
    }

    fn report(&mut self, differing: impl Iterator<Item = RowDifference>) {
        for row in differing {
            if self.found.reported.insert((row.table, row.shard, row.key.clone())) {
                self.found.findings.add(Difference::Row(row));
            }
        }
    }
}
