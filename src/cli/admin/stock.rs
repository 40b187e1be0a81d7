//! `admin stock`: voucher files, sent in parts that the service takes at once.

use std::path::{Path, PathBuf};

use anyhow::Context;
use clap::Subcommand;
use reqwest::Method;
use serde_json::json;

use crate::cli::client::{Body, Client};
use crate::cli::output::{Output, progress_bar, with_progress};

/// Rows in one request: far below its 16 MiB.
const PART_ROWS: usize = 4_000;

#[derive(Subcommand, Debug)]
pub enum Stock {
    /// Add vouchers from a CSV file with a header line: card_number, and if known pin, voucher_reference_number, claim_url, expires_on
    Load {
        product: i64,
        denomination: String,
        #[arg(long, value_name = "FILE")]
        csv: PathBuf,
    },
    /// What is there, by denomination
    Show { product: i64 },
}

pub async fn run(stock: Stock, client: &Client, output: &Output) -> anyhow::Result<()> {
    match stock {
        Stock::Load { product, denomination, csv } => load(client, product, &denomination, &csv, output).await,
        Stock::Show { product } => {
            let path = format!("/admin/v1/products/{product}/stock");
            let data = with_progress("waiting for the answer", client.json(Method::GET, &path, None)).await?;
            Ok(output.facts(&data)?)
        }
    }
}

/// A part that was sent before is answered as duplicates, so a load that broke off can be
/// repeated. Which rows are vouchers is the service's to judge; none of them is ever shown.
async fn load(client: &Client, product: i64, denomination: &str, file: &Path, output: &Output) -> anyhow::Result<()> {
    let denomination: String = url::form_urlencoded::byte_serialize(denomination.as_bytes()).collect();
    let path = format!("/admin/v1/products/{product}/vouchers?denomination={denomination}");
    let (header, rows) = read(file).with_context(|| format!("cannot read {}", file.display()))?;
    let (mut accepted, mut duplicates, mut rejected) = (0, 0, Vec::new());
    let bar = progress_bar(rows.len() as u64);
    for (part, rows) in rows.chunks(PART_ROWS).enumerate() {
        let before = (part * PART_ROWS) as i64;
        let reply = client.send(Method::POST, &path, Some(Body::csv(text(&header, rows)?)), &[]).await;
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

/// Header and rows, whatever they hold.
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
    fn rows_go_on_as_they_came_each_part_with_the_header() {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(b"card_number,pin\n1111,22\n\"a,b\",\n4444\n").unwrap();
        let (header, rows) = read(file.path()).unwrap();
        assert_eq!(text(&header, &rows[1..]).unwrap(), "card_number,pin\n\"a,b\",\n4444\n");
    }
}
