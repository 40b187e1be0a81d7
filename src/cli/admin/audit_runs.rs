//! `admin audit-run`: verifications on the service's nodes, and the runs of `verify` and `rebuild`.

use clap::Subcommand;

use super::{Operation, PageArgs, get, list, post};

#[derive(Subcommand, Debug)]
pub enum AuditRun {
    /// Start a verification on the node that answers
    Start,
    /// List the runs of verify and rebuild, with their progress
    List(PageArgs),
    /// Show a run with its result
    Show {
        /// Run id
        run: i64,
    },
}

pub fn operation(run: AuditRun) -> Operation {
    match run {
        AuditRun::Start => post("/audit-runs", serde_json::json!({})),
        AuditRun::List(page) => list("/audit-runs", &page),
        AuditRun::Show { run } => get(&format!("/audit-runs/{run}")),
    }
}
