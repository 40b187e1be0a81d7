//! Bank statements, and the decisions about their lines.

use ledger_events::reconciliation::{BankStatement, Decision};
use ledger_projections::statements;

use super::{Loader, Slot, Stream, StreamRead, projected};
use crate::ledger::erasure::orphans;
use crate::ledger::lookup::Lookup;

#[derive(Debug, Default)]
pub struct Index {
    /// Number of lines in the vault for each imported file, by fingerprint.
    pub kept_lines: Lookup<String, i64>,
}

#[derive(Debug, Default)]
pub struct Query<'a> {
    /// Decisions about lines. A statement with the same decision conflicts.
    pub decisions: Vec<Decision>,
    /// Fingerprints of imported files.
    pub fingerprints: Vec<&'a str>,
}

impl Stream for BankStatement {
    type Index = Index;
    type Query<'a> = Query<'a>;

    const NAME: &'static str = "statement";
    const SEQUENCE: Option<&'static str> = Some("bank_statement_ids");

    projected!(written);

    async fn fetch(slot: &mut Slot<Self>, read: &mut StreamRead<'_, Self>, loader: &mut Loader<'_>) -> Result<(), sqlx::Error> {
        slot.load_missing(read, loader).await?;
        let query = &read.query;
        if !query.decisions.is_empty() {
            slot.keep(statements::load_by_decision(loader.conn, loader.shard, &query.decisions).await?);
        }
        if !query.fingerprints.is_empty() {
            slot.keep(statements::load_by_fingerprint(loader.conn, loader.shard, &query.fingerprints).await?);
            let kept = orphans::kept(loader.conn, loader.shard, &query.fingerprints).await?;
            slot.index.kept_lines.ask(query.fingerprints.iter().map(|fingerprint| (*fingerprint).to_owned()));
            slot.index.kept_lines.extend(kept);
        }
        Ok(())
    }
}
