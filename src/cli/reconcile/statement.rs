//! `reconcile statement …`: imports and matches bank statements through the operator API.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, bail};
use clap::{Args, Subcommand};
use reqwest::{Method, Url};
use serde_json::{Value, json};
use url::form_urlencoded::Serializer;

use crate::cli::admin;
use crate::cli::client::{Body, Client};
use crate::cli::output::{Output, with_progress};
use crate::config::OperatorTokenSettings;

/// Lines per request.
const PAGE_LINES: u64 = 1_000;

#[derive(Args, Debug)]
pub struct StatementArgs {
    /// URL of the service
    #[arg(long, env = "LEDGER_URL", value_name = "URL", default_value = "http://127.0.0.1:8080")]
    url: Url,
    #[command(flatten)]
    operator_token: OperatorTokenSettings,
    #[command(subcommand)]
    what: StatementCommand,
}

#[derive(Subcommand, Debug)]
enum StatementCommand {
    /// Import a CSV or camt.053 file and match it; fails while a line or ledger entry needs a decision
    Import(Box<ImportArgs>),
    /// List imported statements, newest first
    List {
        /// Page number, from 1
        #[arg(long, default_value_t = 1)]
        page: u32,
        /// Rows per page
        #[arg(long, default_value_t = 20)]
        limit: u32,
    },
    /// Match an imported statement; fails while a line or ledger entry needs a decision
    Show {
        /// Statement id
        statement: i64,
        #[command(flatten)]
        tolerance: ToleranceArgs,
    },
    /// Decide that a line is a certain funding or payout
    Accept {
        /// Statement id
        statement: i64,
        /// Line number in the statement
        line: i32,
        /// Transaction id of the wallet movement that funded the wallet
        #[arg(long, value_name = "TRANSACTION", required_unless_present = "payout", conflicts_with = "payout")]
        funding: Option<i64>,
        /// Payout id
        #[arg(long, value_name = "PAYOUT")]
        payout: Option<i64>,
        /// Reason for the decision, for the record
        #[arg(long)]
        reason: String,
    },
    /// Decide that a line does not concern the ledger
    Ignore {
        /// Statement id
        statement: i64,
        /// Line number in the statement
        line: i32,
        /// Reason for the decision, for the record
        #[arg(long)]
        reason: String,
    },
    /// Revoke the decision about a line
    Revoke {
        /// Statement id
        statement: i64,
        /// Line number in the statement
        line: i32,
        /// Reason for the revocation, for the record
        #[arg(long)]
        reason: String,
    },
}

#[derive(Args, Debug)]
struct ToleranceArgs {
    /// Maximum number of days between a line and its match
    #[arg(long, value_name = "DAYS", default_value_t = 5)]
    days: i64,
    /// Maximum difference between the amounts of a line and its match
    #[arg(long, value_name = "AMOUNT", default_value = "0.00")]
    amount: String,
}

#[derive(Args, Debug)]
struct ImportArgs {
    /// CSV file with a header line, or camt.053 file; recognised by its content
    file: PathBuf,
    #[command(flatten)]
    tolerance: ToleranceArgs,
    /// CSV: column with the date [default: date]
    #[arg(long, value_name = "NAME")]
    date_column: Option<String>,
    /// CSV: column with the amount [default: amount]
    #[arg(long, value_name = "NAME")]
    amount_column: Option<String>,
    /// CSV: column with the currency [default: currency]
    #[arg(long, value_name = "NAME")]
    currency_column: Option<String>,
    /// CSV: column with the reference [default: reference]
    #[arg(long, value_name = "NAME")]
    reference_column: Option<String>,
    /// CSV: column with CREDIT or DEBIT; if the column is missing, the sign of the amount decides [default: direction]
    #[arg(long, value_name = "NAME")]
    direction_column: Option<String>,
    /// CSV: column with the payer's free text [default: text]
    #[arg(long, value_name = "NAME")]
    text_column: Option<String>,
    /// CSV: column with the bank account on which a line was booked, for example its IBAN [default: none]
    #[arg(long, value_name = "NAME")]
    account_column: Option<String>,
    /// CSV: currency of lines that name none
    #[arg(long, value_name = "CODE")]
    currency: Option<String>,
    /// CSV: bank account of lines that name none
    #[arg(long, value_name = "ACCOUNT")]
    account: Option<String>,
    /// CSV: date format [default: %Y-%m-%d]
    #[arg(long, value_name = "FORMAT")]
    date_format: Option<String>,
    /// CSV: amounts have a decimal comma, for example 1.234,56
    #[arg(long)]
    decimal_comma: bool,
}

impl ImportArgs {
    fn query(&self) -> String {
        let mut query = Serializer::new(String::new());
        let named = [
            ("date_column", &self.date_column),
            ("amount_column", &self.amount_column),
            ("currency_column", &self.currency_column),
            ("reference_column", &self.reference_column),
            ("direction_column", &self.direction_column),
            ("text_column", &self.text_column),
            ("account_column", &self.account_column),
            ("currency", &self.currency),
            ("account", &self.account),
            ("date_format", &self.date_format),
        ];
        for (name, value) in named {
            query.extend_pairs(value.as_ref().map(|value| (name, value)));
        }
        if self.decimal_comma {
            query.append_pair("decimal_comma", "true");
        }
        query.finish()
    }
}

const STATEMENTS: &str = "/admin/v1/reconciliation/statements";

pub async fn run(args: StatementArgs, output: &Output) -> anyhow::Result<ExitCode> {
    let client = admin::client(&args.url, &args.operator_token)?;
    let (method, path, body) = match args.what {
        StatementCommand::Import(import) => {
            let id = self::import(&import, &client, output).await?;
            return show(id, &import.tolerance, &client, output).await;
        }
        StatementCommand::Show { statement, tolerance } => return show(statement, &tolerance, &client, output).await,
        StatementCommand::List { page, limit } => (Method::GET, format!("{STATEMENTS}?page={page}&limit={limit}"), None),
        StatementCommand::Accept { statement, line, funding, payout, reason } => {
            let decision = if funding.is_some() { "FUNDING" } else { "PAYOUT" };
            let body = json!({"decision": decision, "transaction_id": funding, "payout_id": payout, "reason": reason});
            (Method::POST, format!("{STATEMENTS}/{statement}/lines/{line}/decide"), Some(body))
        }
        StatementCommand::Ignore { statement, line, reason } => {
            let body = json!({"decision": "IGNORED", "reason": reason});
            (Method::POST, format!("{STATEMENTS}/{statement}/lines/{line}/decide"), Some(body))
        }
        StatementCommand::Revoke { statement, line, reason } => {
            (Method::POST, format!("{STATEMENTS}/{statement}/lines/{line}/revoke"), Some(json!({"reason": reason})))
        }
    };
    let data = with_progress("waiting for the response", client.json(method, &path, body.as_ref())).await?;
    output.facts(&data)?;
    Ok(ExitCode::SUCCESS)
}

/// Sends a file and returns the id of its statement. A file that was imported before returns the id of the existing
/// statement.
async fn import(args: &ImportArgs, client: &Client, output: &Output) -> anyhow::Result<i64> {
    let text = read(&args.file)?;
    let is_xml = text.trim_start_matches('\u{feff}').trim_start().starts_with('<');
    let body = if is_xml { Body::xml(text) } else { Body::csv(text) };
    let path = format!("{STATEMENTS}?{}", args.query());
    let sent = client.send(Method::POST, &path, Some(body), &[]);
    let reply = with_progress("importing", sent).await?;
    let is_new = reply.status.as_u16() == 201;
    let data = reply.data()?;
    if !is_new && !output.json {
        output.line("the file was imported before")?;
    }
    data["id"].as_i64().context("the service's response has no id")
}

fn read(file: &Path) -> anyhow::Result<String> {
    let bytes = std::fs::read(file).with_context(|| format!("cannot read {}", file.display()))?;
    String::from_utf8(bytes).map_err(|_| anyhow::anyhow!("{} is not UTF-8", file.display()))
}

/// Prints the match of every line. The exit status is 1 while a line is ambiguous or unmatched, or the statement misses a
/// ledger entry.
async fn show(id: i64, tolerance: &ToleranceArgs, client: &Client, output: &Output) -> anyhow::Result<ExitCode> {
    let mut query = Serializer::new(String::new());
    query.append_pair("days", &tolerance.days.to_string()).append_pair("amount", &tolerance.amount);
    let query = query.append_pair("limit", &PAGE_LINES.to_string()).finish();
    let (mut lines, mut page, mut whole) = (vec![], 1, Value::Null);
    loop {
        let path = format!("{STATEMENTS}/{id}?{query}&page={page}");
        let mut data = with_progress("matching", client.json(Method::GET, &path, None)).await?;
        let Some(more) = data["lines"].as_array_mut().map(std::mem::take) else { bail!("the service's response has no lines") };
        let is_last = (more.len() as u64) < PAGE_LINES;
        lines.extend(more);
        whole = if whole.is_null() { data } else { whole };
        if is_last {
            break;
        }
        page += 1;
    }
    let summary = whole["summary"].clone();
    if output.json {
        whole["lines"] = lines.into();
        output.facts(&whole)?;
    } else {
        print(&lines, &whole, output)?;
    }
    let left: i64 = ["ambiguous", "unmatched", "missing"].iter().filter_map(|name| summary[name].as_i64()).sum();
    Ok(if left == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn print(lines: &[Value], whole: &Value, output: &Output) -> anyhow::Result<()> {
    let entry = |entry: &Value| match (&entry["transaction_id"], &entry["payout_id"]) {
        (Value::Null, payout) => format!("payout {payout}"),
        (funding, _) => format!("funding {funding}"),
    };
    let row = |line: &Value| {
        let entries: Vec<String> = line["entries"].as_array().into_iter().flatten().map(entry).collect();
        json!({
            "id": line["line"], "day": line["booked_on"], "direction": line["direction"], "amount": line["amount"],
            "currency": line["currency"], "references": line["references"], "status": line["status"], "is": entries, "why": line["why"],
        })
    };
    let rows: Vec<Value> = lines.iter().map(row).collect();
    output.facts(&json!({"lines": rows}))?;
    let missing = whole["missing"].as_array().cloned().unwrap_or_default();
    if !missing.is_empty() {
        output.line("\nIn the ledger, but in no statement:")?;
        let row = |missing: &Value| {
            json!({"id": entry(missing), "day": missing["day"], "amount": missing["amount"], "currency": missing["currency"],
                "references": missing["references"]})
        };
        output.facts(&json!({"missing": missing.iter().map(row).collect::<Vec<_>>()}))?;
    }
    output.line("")?;
    output.facts(&json!({"statement": whole["statement"]["id"], "matched": whole["summary"]["matched"], "ignored": whole["summary"]["ignored"],
        "reversed": whole["summary"]["reversed"], "duplicate": whole["summary"]["duplicate"], "ambiguous": whole["summary"]["ambiguous"],
        "unmatched": whole["summary"]["unmatched"], "missing": whole["summary"]["missing"]}))?;
    Ok(())
}
