//! `admin audit-run`: verifications on the service's nodes, and the runs of `verify` and `rebuild`.

use clap::Subcommand;
use reqwest::Method;

use super::{Operation, PageArgs, get, list, post};

#[derive(Subcommand, Debug)]
pub enum AuditRun {
    /// Start a verification on the node that answers
    Start,
    /// Stop a verification, on whichever node or by whichever command it runs
    Stop {
        /// Run id
        run: i64,
    },
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
        AuditRun::Stop { run } => (Method::DELETE, format!("/admin/v1/audit-runs/{run}"), None),
        AuditRun::Start => post("/audit-runs", serde_json::json!({})),
        AuditRun::List(page) => list("/audit-runs", &page),
        AuditRun::Show { run } => get(&format!("/audit-runs/{run}")),
    }
}
