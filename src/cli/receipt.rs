//! `receipt`: fetches a receipt, a file that anyone can verify.

use std::path::PathBuf;

use anyhow::Context;
use clap::{Args, Subcommand};
use reqwest::{Method, Url};

use super::admin;
use super::output::{Output, with_progress};
use super::quorum::{QuorumArgs, asking};
use crate::config::OperatorTokenSettings;
use crate::transparency::receipt::Receipt;

#[derive(Args, Debug)]
pub struct ReceiptArgs {
    /// URL of the service
    #[arg(long, env = "LEDGER_URL", value_name = "URL", default_value = "http://127.0.0.1:8080")]
    url: Url,
    #[command(flatten)]
    operator_token: OperatorTokenSettings,
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand, Debug)]
enum What {
    /// Get the events and money movements of an order, each with the proof that it is in the log
    Order {
        /// Order id
        order: i64,
        /// Output file [default: standard output]
        #[arg(long, value_name = "FILE")]
        out: Option<PathBuf>,
        #[command(flatten)]
        quorum: QuorumArgs,
    },
}

pub async fn run(args: ReceiptArgs, output: &Output) -> anyhow::Result<()> {
    let client = admin::client(&args.url, &args.operator_token)?;
    let What::Order { order, out, quorum } = args.what;
    let path = asking(&format!("/admin/v1/orders/{order}/receipt"), &quorum.quorum());
    let data = with_progress("waiting for the proofs", client.json(Method::GET, &path, None)).await?;
    let receipt: Receipt = serde_json::from_value(data).context("the service returned something other than a receipt")?;
    let text = serde_json::to_string_pretty(&receipt)?;
    let Some(file) = out else { return Ok(output.line(text)?) };
    std::fs::write(&file, format!("{text}\n")).with_context(|| format!("cannot write {}", file.display()))?;
    if output.json {
        let facts = serde_json::json!({"order_id": receipt.order_id, "events": receipt.events.len(), "file": file});
        return Ok(output.json_line(&facts)?);
    }
    output.line(format!("{}: {} events of order {order}", file.display(), receipt.events.len()))?;
    Ok(())
}
