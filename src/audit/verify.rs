//! Verifies, while the service runs, that every derived row matches the log and that the log follows its own rules.

use std::fmt;

use ledger_database::{Connector, PgConnectOptions, PgConnection};
use ledger_events::{Position, ShardId, StreamType};
use serde::Serialize;

use ledger_projections::listing::maintain;
use ledger_projections::{deliveries as delivery_projection, stock, totals};

use super::deliveries::Deliveries;
use super::positions::{self, Log};
use super::stock::Stock;
use super::tree::Tree;
use super::walk::Visitors;
use super::{
    AuditError, Difference, Findings, Progress, lists, lock, moves, operator_users, second_factors, secrets, shards, streams,
};
use crate::ledger::connect::RUNTIME_ROLE;
use crate::ledger::health::Health;
use crate::ledger::{half_imported, list_shards, reader};
use crate::secrets::seal::Keyring;

/// Numbers of verified items.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Counts {
    pub shards: u64,
    pub events: u64,
    pub streams: u64,
    pub transactions: u64,
    pub vouchers: u64,
    pub deliveries: u64,
}

/// Checkpoint of an asynchronous projection when it was verified. A projection that is far behind, or does not advance
/// between two verifications, is correct up to its checkpoint, but stuck.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Reach {
    pub shard: ShardId,
    pub projection: &'static str,
    pub checkpoint: Position,
    /// Position of the log's head.
    pub head: Position,
}

impl Reach {
    /// Returns the number of events that the projection has not processed.
    pub fn behind(&self) -> Position {
        (self.head - self.checkpoint).max(0)
    }
}

/// Result of a verification.
#[derive(Debug, Serialize)]
pub struct Report {
    #[serde(flatten)]
    pub counts: Counts,
    /// Whether all required deliveries are final or scheduled, up to the position that the projection has reached or
    /// should have reached by now.
    pub delivery_health: Health,
    /// Whether keys, passwords, sessions and secrets were compared too. That requires the master key.
    pub secrets_compared: bool,
    /// Four entries for each shard: deliveries, daily totals, the stock by day and the transparency log.
    pub reached: Vec<Reach>,
    /// Number of differences.
    pub found: u64,
    /// The first [`Findings::KEPT`] differences.
    pub differences: Vec<Difference>,
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Counts { events, streams, transactions, vouchers, deliveries, .. } = self.counts;
        write!(
            f,
            "{events} events in {streams} streams, {transactions} movements, {vouchers} vouchers, {deliveries} deliveries: "
        )?;
        match self.found {
            0 => f.write_str("everything matches the log"),
            found => write!(f, "{found} differences"),
        }
    }
}

impl Report {
    pub fn is_clean(&self) -> bool {
        self.found == 0
    }
}

/// Temporary tables with the names of the projections' tables, which they hide from the statements of the folds. They
/// have no checks, and only the keys that upserts need, so that any result of a damaged log can be written and compared.
const SCRATCH: &str = "
    CREATE TEMP TABLE accounts (LIKE public.accounts, PRIMARY KEY (id));
    CREATE TEMP TABLE credentials (LIKE public.credentials, PRIMARY KEY (id));
    CREATE TEMP TABLE credential_restrictions (LIKE public.credential_restrictions, PRIMARY KEY (id));
    CREATE TEMP TABLE users (LIKE public.users, PRIMARY KEY (id));
    CREATE TEMP TABLE categories (LIKE public.categories, PRIMARY KEY (id));
    CREATE TEMP TABLE products (LIKE public.products, PRIMARY KEY (id));
    CREATE TEMP TABLE wallets (LIKE public.wallets, PRIMARY KEY (shard_id, id));
    CREATE TEMP TABLE wallet_transactions (LIKE public.wallet_transactions);
    CREATE TEMP TABLE orders (LIKE public.orders, PRIMARY KEY (shard_id, id));
    CREATE TEMP TABLE webhooks (LIKE public.webhooks, PRIMARY KEY (shard_id, id));
    CREATE TEMP TABLE webhook_subscriptions (LIKE public.webhook_subscriptions, PRIMARY KEY (shard_id, id));
    CREATE TEMP TABLE webhook_deactivations (LIKE public.webhook_deactivations, PRIMARY KEY (shard_id, id));
    CREATE TEMP TABLE webhook_replays (LIKE public.webhook_replays, PRIMARY KEY (shard_id, id));
    CREATE TEMP TABLE beneficiaries (LIKE public.beneficiaries, PRIMARY KEY (shard_id, id));
    CREATE TEMP TABLE payouts (LIKE public.payouts, PRIMARY KEY (shard_id, id));
    CREATE TEMP TABLE purchases (LIKE public.purchases, PRIMARY KEY (shard_id, id));
    CREATE TEMP TABLE shards (LIKE public.shards, PRIMARY KEY (shard_id, id));
    CREATE TEMP TABLE approvals (LIKE public.approvals, PRIMARY KEY (shard_id, id));
    CREATE TEMP TABLE bank_statements (LIKE public.bank_statements, PRIMARY KEY (shard_id, id));
    CREATE TEMP TABLE daily_totals (LIKE public.daily_totals, PRIMARY KEY (shard_id, wallet_id, day));
    CREATE TEMP TABLE stock_days (LIKE public.stock_days, PRIMARY KEY (shard_id, day, product_id));
    CREATE TEMP TABLE stock_costs (LIKE public.stock_costs, PRIMARY KEY (shard_id, reference));
    CREATE TEMP TABLE moved_vouchers (reference text PRIMARY KEY, product_id bigint, position bigint, is_here boolean);
    CREATE TEMP TABLE webhook_audience (LIKE public.webhook_audience, PRIMARY KEY (shard_id, webhook_id));
    CREATE TEMP TABLE webhook_envelopes (LIKE public.webhook_envelopes, PRIMARY KEY (shard_id, event_id));
    CREATE TEMP TABLE deliveries (LIKE public.deliveries INCLUDING DEFAULTS);
    CREATE TEMP TABLE kept_envelopes (LIKE public.webhook_envelopes, PRIMARY KEY (shard_id, event_id));
    CREATE TEMP TABLE kept_deliveries (LIKE public.deliveries)";

/// Reads the whole log twice. The first pass reads in the order of positions, for every check that follows that order. The
/// second reads stream by stream, so that memory holds one stream and not all of them
/// (`docs/decisions/0021-verify-reads-the-log-twice.md`). Reads every derived row once. Returns an error only when it cannot
/// read the data; differences are in the report.
///
/// Writes only to temporary tables. Returns [`AuditError::Busy`] while a rebuild runs, because its swap would remove the
/// rows during the comparison.
pub async fn verify(options: &PgConnectOptions, progress: impl Fn(Progress)) -> Result<Report, AuditError> {
    verify_with(options, None, progress).await
}

/// Verifies like [`verify`], and also compares values that grant access with the log and their MACs: keys, passwords,
/// sessions, signing secrets and data keys.
pub async fn verify_with(
    options: &PgConnectOptions,
    keyring: Option<&Keyring>,
    progress: impl Fn(Progress),
) -> Result<Report, AuditError> {
    let mut conn = connect(options).await?;
    if sqlx::query_scalar("SELECT pg_is_in_recovery()").fetch_one(&mut conn).await? {
        return Err(AuditError::OnStandby);
    }
    lock::shared(&mut conn).await?;
    sqlx::raw_sql(SCRATCH).execute(&mut conn).await?;
    sqlx::raw_sql(maintain::UNCOUNTED).execute(&mut conn).await?;
    let mut findings = Findings::default();
    let keyring = match keyring {
        Some(keyring) if secrets::adopt(&mut conn, keyring, &mut findings).await? => Some(keyring),
        _ => None,
    };
    for (shard, position, total) in half_imported(&mut conn).await? {
        findings.add(Difference::HalfImported { shard, position, total });
    }
    for (shard, table) in shards::headless(&mut conn).await? {
        findings.add(Difference::Headless { shard, table });
    }
    shards::unannounced(&mut conn, &mut findings).await?;
    let shards = list_shards(&mut conn).await?;
    let mut verified = Verified { findings, ..Verified::default() };
    for shard in shards {
        verified.shard(&mut conn, shard, keyring, &progress).await?;
    }
    let Verified { counts, health, reached, mut findings } = verified;
    secrets::data_keys(&mut conn, keyring, &mut findings).await?;
    if let Some(keyring) = keyring {
        secrets::sessions(&mut conn, keyring, &mut findings).await?;
        operator_users::sessions(&mut conn, keyring, &mut findings).await?;
        second_factors::one_time_tokens(&mut conn, keyring, &mut findings).await?;
    }
    lock::release(&mut conn).await?;
    conn.close().await?;
    Ok(Report {
        counts,
        delivery_health: health,
        secrets_compared: keyring.is_some(),
        reached,
        found: findings.found,
        differences: findings.differences,
    })
}

/// Results so far, of the shards that are verified.
#[derive(Default)]
struct Verified {
    counts: Counts,
    health: Health,
    reached: Vec<Reach>,
    findings: Findings,
}

impl Verified {
    async fn shard(
        &mut self,
        conn: &mut PgConnection,
        shard: ShardId,
        keyring: Option<&Keyring>,
        progress: &impl Fn(Progress),
    ) -> Result<(), AuditError> {
        let Verified { counts, health, findings, .. } = self;
        counts.shards += 1;
        // The tree first: what it covers is in the log before the log's head is read.
        let (tree, of_tree) = Tree::start(conn, shard, findings).await?;
        let log = Log::new(shard, positions::head(conn, shard, findings).await?);
        let deliveries = Deliveries::start(conn, shard).await?;
        let stock = Stock::start(conn, shard).await?;
        let mut visitors = Visitors { log, tree, deliveries, stock };
        visitors.walk(conn, shard, findings, progress).await?;
        let Visitors { log, tree, deliveries, .. } = visitors;
        counts.events += log.end(findings);
        tree.end(findings);
        *health += deliveries.end(conn, counts, findings).await?;
        for stream in StreamType::ALL {
            streams::check(conn, (shard, *stream), keyring, counts, findings, progress).await?;
        }
        streams::extra_transactions(conn, shard, findings).await?;
        lists::check(conn, shard, findings).await?;
        moves::check(conn, shard, findings).await?;
        self.reach(conn, shard).await?;
        self.reached.push(of_tree);
        Ok(())
    }

    /// Compares the checkpoints of the asynchronous projections with the log's head.
    async fn reach(&mut self, conn: &mut PgConnection, shard: ShardId) -> Result<(), AuditError> {
        // Read the head after the checkpoints: the head only grows, so it cannot seem too small.
        let checkpoints = [
            (delivery_projection::NAME, delivery_projection::checkpoint(&mut *conn, shard).await?),
            (totals::NAME, totals::checkpoint(&mut *conn, shard).await?),
            (stock::NAME, stock::checkpoint(&mut *conn, shard).await?),
        ];
        let head = reader::head(&mut *conn, shard).await?;
        for (projection, checkpoint) in checkpoints {
            if checkpoint > head {
                self.findings.add(Difference::Checkpoint { shard, projection, checkpoint, head });
            }
            self.reached.push(Reach { shard, projection, checkpoint, head });
        }
        Ok(())
    }
}

async fn connect(options: &PgConnectOptions) -> Result<PgConnection, sqlx::Error> {
    let options = options.clone().application_name("rewards-ledger verify").options([
        ("role", RUNTIME_ROLE),
        ("timezone", "UTC"),
        ("statement_timeout", "0"), // a long log takes a long time
        // A generic plan would read each page's thousands of keys again for every row.
        ("plan_cache_mode", "force_custom_plan"),
        ("idle_in_transaction_session_timeout", "60000"),
        ("temp_buffers", "64MB"),
        ("work_mem", "64MB"),
    ]);
    Connector::patient(options).connect().await
}
