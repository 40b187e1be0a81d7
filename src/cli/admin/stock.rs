//! `admin stock`: loads voucher files in parts that fit into one request, shows the stock of a product, and voids, expires or
//! transfers vouchers.

use std::path::{Path, PathBuf};

use anyhow::Context;
use clap::Subcommand;
use reqwest::Method;
use serde_json::{Value, json};

use crate::cli::client::{Body, Client};
use crate::cli::output::{Output, progress_bar, with_progress};

/// Rows per request, far below the request's limit of 16 MiB.
const PART_ROWS: usize = 4_000;

#[derive(Subcommand, Debug)]
pub enum Stock {
    /// Load vouchers from a CSV file; safe to repeat, because duplicates are skipped
    Load {
        /// Product id
        product: i64,
        /// Face value of the vouchers, for example 25.00
        denomination: String,
        /// CSV file with a header line; columns: card_number, and optionally pin, voucher_reference_number, claim_url,
        /// expires_on, cost
        #[arg(long, value_name = "FILE")]
        csv: PathBuf,
        /// Cost of a voucher without a cost in the file, for example 23.50, in the product's currency
        #[arg(long, value_name = "AMOUNT")]
        cost: Option<String>,
        /// Reference of the load at the supplier, such as the number of an invoice
        #[arg(long, value_name = "TEXT")]
        supplier_reference: Option<String>,
    },
    /// Show the stock of a product for each denomination
    Show {
        /// Product id
        product: i64,
    },
    /// Withdraw vouchers from the stock, so that no order gets them; this cannot be undone
    Void {
        /// Product id
        product: i64,
        /// Reason for the withdrawal, for the record
        reason: String,
        /// Reference numbers of the vouchers
        #[arg(required = true)]
        vouchers: Vec<String>,
    },
    /// Give vouchers an earlier last day, so that no order gets them after it; this cannot be undone
    Expire {
        /// Product id
        product: i64,
        /// Last day (UTC), for example 2026-12-31; a day in the past expires the vouchers at once
        last_day: chrono::NaiveDate,
        /// Reference numbers of the vouchers
        #[arg(required = true)]
        vouchers: Vec<String>,
    },
    /// Move vouchers from the stock of a product to that of another one
    Transfer {
        /// Id of the product that gives the vouchers
        product: i64,
        /// Id of the product that gets them; it has the same currency
        to_product: i64,
        /// Reason for the transfer, for the record
        reason: String,
        /// Reference numbers of the vouchers
        #[arg(required = true)]
        vouchers: Vec<String>,
    },
    /// Set the number of available vouchers below which the stock of a denomination is low
    Threshold {
        /// Product id
        product: i64,
        /// Face value of the vouchers, for example 25.00
        denomination: String,
        /// Number of vouchers [default: removes the threshold]
        least: Option<u32>,
    },
}

pub async fn run(stock: Stock, client: &Client, output: &Output) -> anyhow::Result<()> {
    match stock {
        Stock::Load { product, denomination, csv, cost, supplier_reference } => {
            let mut query = url::form_urlencoded::Serializer::new(String::new());
            query.append_pair("denomination", &denomination);
            query.extend_pairs(cost.map(|cost| ("cost", cost)));
            query.extend_pairs(supplier_reference.map(|reference| ("supplier_reference", reference)));
            load(client, &format!("/admin/v1/products/{product}/vouchers?{}", query.finish()), &csv, output).await
        }
        Stock::Show { product } => ask(client, Method::GET, &format!("/products/{product}/stock"), None, output).await,
        Stock::Void { product, reason, vouchers } => {
            let body = json!({"vouchers": vouchers, "reason": reason});
            ask(client, Method::POST, &format!("/products/{product}/vouchers/void"), Some(body), output).await
        }
        Stock::Expire { product, last_day, vouchers } => {
            let body = json!({"vouchers": vouchers, "expires_on": last_day});
            ask(client, Method::POST, &format!("/products/{product}/vouchers/expiry"), Some(body), output).await
        }
        Stock::Transfer { product, to_product, reason, vouchers } => {
            let body = json!({"vouchers": vouchers, "to_product_id": to_product, "reason": reason});
            ask(client, Method::POST, &format!("/products/{product}/vouchers/transfer"), Some(body), output).await
        }
        Stock::Threshold { product, denomination, least } => {
            let body = json!({"denomination": denomination, "threshold": least});
            ask(client, Method::PUT, &format!("/products/{product}/stock-threshold"), Some(body), output).await
        }
    }
}

/// Sends a request and prints the `data` of the response.
async fn ask(client: &Client, method: Method, path: &str, body: Option<Value>, output: &Output) -> anyhow::Result<()> {
    let path = format!("/admin/v1{path}");
    let data = with_progress("waiting for the response", client.json(method, &path, body.as_ref())).await?;
    Ok(output.facts(&data)?)
}

/// Sends the file in parts and prints the totals. The service reports a part that was sent before as duplicates, so an
/// interrupted load can be repeated. The service validates the rows; no voucher code is ever printed.
async fn load(client: &Client, path: &str, file: &Path, output: &Output) -> anyhow::Result<()> {
    let (header, rows) = read(file).with_context(|| format!("cannot read {}", file.display()))?;
    let (mut accepted, mut duplicates, mut rejected) = (0, 0, Vec::new());
    let bar = progress_bar(rows.len() as u64);
    for (part, rows) in rows.chunks(PART_ROWS).enumerate() {
        let before = (part * PART_ROWS) as i64;
        let reply = client.send(Method::POST, path, Some(Body::csv(text(&header, rows)?)), &[]).await;
        let data = reply.and_then(|reply| reply.data()).with_context(|| format!("after {before} rows"))?;
        accepted += data["accepted"].as_i64().unwrap_or_default();
        duplicates += data["duplicates"].as_i64().unwrap_or_default();
        for row in data["rejected"].as_array().into_iter().flatten() {
            rejected.push(json!({"row": row["row"].as_i64().unwrap_or_default() + before, "reason": row["reason"]}));
        }
        bar.inc(rows.len() as u64);
    }
    bar.finish_and_clear();
    if output.json {
        return Ok(output.facts(&json!({"accepted": accepted, "duplicates": duplicates, "rejected": rejected}))?);
    }
    output.facts(&json!({"accepted": accepted, "duplicates": duplicates, "rejected": rejected.len()}))?;
    if !rejected.is_empty() {
        output.line("")?;
        output.facts(&json!({"rejected": rejected}))?;
    }
    Ok(())
}

/// Reads the header and the rows without validating them.
fn read(file: &Path) -> csv::Result<(csv::StringRecord, Vec<csv::StringRecord>)> {
    let mut reader = csv::ReaderBuilder::new().flexible(true).from_path(file)?;
    let header = reader.headers()?.clone();
    let rows = reader.records().collect::<csv::Result<_>>()?;
    Ok((header, rows))
}

fn text(header: &csv::StringRecord, rows: &[csv::StringRecord]) -> anyhow::Result<String> {
    let mut writer = csv::WriterBuilder::new().flexible(true).from_writer(Vec::new());
    for row in [header].into_iter().chain(rows) {
        writer.write_record(row)?;
    }
    Ok(String::from_utf8(writer.into_inner()?)?)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::io::Write;

    use super::*;

    #[test]
    fn every_part_has_the_header_and_its_rows_unchanged() {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(b"card_number,pin\n1111,22\n\"a,b\",\n4444\n").unwrap();
        let (header, rows) = read(file.path()).unwrap();
        assert_eq!(text(&header, &rows[1..]).unwrap(), "card_number,pin\n\"a,b\",\n4444\n");
    }
}
