//! Conditions that the alerts depend on, as far as the database knows them.

use std::collections::BTreeSet;

use ledger_database::PgConnection;
use ledger_events::{Money, ProductId};

use crate::delivery::queue::MAX_OF_SHARD;
use crate::ledger::activity::{self, Progress};
use crate::ledger::nodes::{self, Node};
use crate::ledger::{Ledger, backlog, stock};
use crate::telemetry::{Backlog, Lag, Minute, SupplierBacklog};

/// Results of the reads that the alerts depend on.
#[derive(Debug)]
pub struct Conditions {
    pub backlogs: Vec<Backlog>,
    pub lags: Vec<Lag>,
    pub progress: Vec<Progress>,
    /// All nodes that are known.
    pub nodes: Vec<Node>,
    /// Counts of all nodes, without empty minutes.
    pub minutes: Vec<Minute>,
    /// Denominations with fewer available vouchers than their threshold.
    pub low: BTreeSet<(ProductId, Money)>,
    pub suppliers: Vec<SupplierBacklog>,
}

impl Conditions {
    /// Reads the conditions, one statement after the other.
    ///
    /// # Errors
    /// Any error of the database.
    pub async fn read(ledger: &Ledger, conn: &mut PgConnection) -> Result<Conditions, sqlx::Error> {
        let ids = ledger.shards();
        Ok(Conditions {
            backlogs: backlog::sample(&mut *conn, MAX_OF_SHARD).await?,
            lags: backlog::lags(&mut *conn).await?,
            progress: activity::progress(&mut *conn).await?,
            nodes: nodes::list(&mut *conn).await?,
            minutes: nodes::minutes(&mut *conn).await?,
            low: stock::low(&mut *conn, &ids).await?,
            suppliers: backlog::suppliers(&mut *conn).await?,
        })
    }
}
