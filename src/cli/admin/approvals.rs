//! `admin approval …`: movements of money that wait for a second operator.

use clap::{Subcommand, ValueEnum};
use serde_json::{Value, json};

use super::{Operation, PageArgs, filled, get, list, post};

#[derive(Subcommand, Debug)]
pub(super) enum Approval {
    /// List the approvals of all accounts
    List {
        #[command(flatten)]
        page: PageArgs,
        /// List only approvals in this status
        #[arg(long, value_enum)]
        status: Option<Status>,
        /// List only approvals of movements of this wallet, and of payouts from it
        #[arg(long)]
        wallet: Option<i64>,
        /// List only approvals of the settlement of this payout
        #[arg(long)]
        payout: Option<i64>,
    },
    /// Show one approval
    Show {
        /// Approval id
        approval: i64,
    },
    /// Approve what another operator requested; the money moves at once
    Approve {
        /// Approval id
        approval: i64,
    },
    /// Reject what another operator requested
    Reject {
        /// Approval id
        approval: i64,
        /// Reason for the rejection, for the record
        #[arg(long)]
        reason: Option<String>,
    },
    /// Withdraw what you requested
    Withdraw {
        /// Approval id
        approval: i64,
    },
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub(super) enum Status {
    Pending,
    Granted,
    Rejected,
    Expired,
    Withdrawn,
}

pub(super) fn operation(approval: Approval) -> Operation {
    match approval {
        Approval::List { page, status, wallet, payout } => {
            let (method, mut path, body) = list("/approvals", &page);
            if let Some(status) = status {
                let status = match status {
                    Status::Pending => "PENDING",
                    Status::Granted => "GRANTED",
                    Status::Rejected => "REJECTED",
                    Status::Expired => "EXPIRED",
                    Status::Withdrawn => "WITHDRAWN",
                };
                path.push_str(&format!("&status={status}"));
            }
            for (name, id) in [("wallet_id", wallet), ("payout_id", payout)] {
                path.extend(id.map(|id| format!("&{name}={id}")));
            }
            (method, path, body)
        }
        Approval::Show { approval } => get(&format!("/approvals/{approval}")),
        Approval::Approve { approval } => post(&format!("/approvals/{approval}/approve"), json!({})),
        Approval::Reject { approval, reason } => {
            post(&format!("/approvals/{approval}/reject"), filled([("reason", reason.map(Value::from))]))
        }
        Approval::Withdraw { approval } => post(&format!("/approvals/{approval}/withdraw"), json!({})),
    }
}
