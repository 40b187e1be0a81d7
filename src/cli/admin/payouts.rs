//! `admin payout …`: the payouts of all accounts, and their settlement.

use clap::Subcommand;
use serde_json::{Value, json};

use super::{Operation, PageArgs, filled, get, list, put};

#[derive(Subcommand, Debug)]
pub(super) enum Payout {
    /// List the payouts of all accounts
    List {
        #[command(flatten)]
        page: PageArgs,
        /// List only payouts in this status: PENDING, PAID, FAILED or CANCELLED
        #[arg(long)]
        status: Option<String>,
    },
    /// Show one payout
    Show {
        /// Payout id
        payout: i64,
    },
    /// Record that the money has been sent
    Paid {
        /// Payout id
        payout: i64,
    },
    /// Record that the money could not be sent; it returns to the wallet
    Failed {
        /// Payout id
        payout: i64,
        /// Reason for the failure, for the record
        #[arg(long)]
        reason: Option<String>,
    },
}

pub(super) fn operation(payout: Payout) -> Operation {
    let settle = |payout: i64, status: &str, reason: Option<String>| {
        let body = filled([("status", Some(json!(status))), ("failure_reason", reason.map(Value::from))]);
        put(&format!("/payouts/{payout}"), body)
    };
    match payout {
        Payout::List { page, status } => {
            let (method, mut path, body) = list("/payouts", &page);
            if let Some(status) = status {
                let status: String = url::form_urlencoded::byte_serialize(status.as_bytes()).collect();
                path.push_str(&format!("&status={status}"));
            }
            (method, path, body)
        }
        Payout::Show { payout } => get(&format!("/payouts/{payout}")),
        Payout::Paid { payout } => settle(payout, "PAID", None),
        Payout::Failed { payout, reason } => settle(payout, "FAILED", reason),
    }
}
