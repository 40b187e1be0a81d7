//! `admin stock`: voucher files, sent in parts that the service takes at once.

use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use clap::Subcommand;
use reqwest::Method;
use serde_json::{Value, json};

use crate::cli::client::Client;
use crate::cli::output::{Output, progress_bar, with_progress};

/// Vouchers in one request: far below its 16 MiB.
const PART_VOUCHERS: usize = 5_000;

/// The columns that a file may have; the first is required.
const COLUMNS: [&str; 5] = ["card_number", "pin", "voucher_reference_number", "claim_url", "expires_on"];

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
    let data = match stock {
        Stock::Load { product, denomination, csv } => load(client, product, &denomination, &csv).await?,
        Stock::Show { product } => {
            let path = format!("/admin/v1/products/{product}/stock");
            with_progress("waiting for the answer", client.json(Method::GET, &path, None)).await?
        }
    };
    output.facts(&data)?;
    Ok(())
}

/// A part that was sent before is answered as duplicates, so a load that broke off can be repeated.
async fn load(client: &Client, product: i64, denomination: &str, file: &Path) -> anyhow::Result<Value> {
    let vouchers = read(file)?;
    let (mut accepted, mut duplicates, mut rejected) = (0, 0, Vec::new());
    let bar = progress_bar(vouchers.len() as u64);
    for (part, vouchers) in vouchers.chunks(PART_VOUCHERS).enumerate() {
        let before = (part * PART_VOUCHERS) as i64;
        let body = json!({"denomination": denomination, "vouchers": vouchers});
        let sent = client.json(Method::POST, &format!("/admin/v1/products/{product}/vouchers"), Some(&body)).await;
        let data = sent.with_context(|| format!("after {before} vouchers"))?;
        accepted += data["accepted"].as_i64().unwrap_or_default();
        duplicates += data["duplicates"].as_i64().unwrap_or_default();
        for row in data["rejected"].as_array().into_iter().flatten() {
            rejected.push(json!({"row": row["row"].as_i64().unwrap_or_default() + before, "reason": row["reason"]}));
        }
        bar.inc(vouchers.len() as u64);
    }
    bar.finish_and_clear();
    Ok(json!({"accepted": accepted, "duplicates": duplicates, "rejected": rejected}))
}

fn read(file: &Path) -> anyhow::Result<Vec<Value>> {
    let cannot = || format!("cannot read {}", file.display());
    let mut reader = csv::ReaderBuilder::new().trim(csv::Trim::All).from_path(file).with_context(cannot)?;
    let columns = reader.headers().with_context(cannot)?.clone();
    if let Some(unknown) = columns.iter().find(|column| !COLUMNS.contains(column)) {
        bail!("{}: the column {unknown:?} is not one of {}", file.display(), COLUMNS.join(", "));
    }
    if !columns.iter().any(|column| column == COLUMNS[0]) {
        bail!("{}: the column card_number is missing", file.display());
    }
    let mut vouchers = Vec::new();
    for row in reader.records() {
        // The row's number, never the row: it holds codes.
        let row =
            row.map_err(|_| anyhow::anyhow!("{}: row {} is not CSV like the header", file.display(), vouchers.len() + 1))?;
        let given = columns.iter().zip(row.iter()).filter(|(_, value)| !value.is_empty());
        vouchers.push(Value::Object(given.map(|(name, value)| (name.to_owned(), value.into())).collect()));
    }
    Ok(vouchers)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::io::Write;

    use super::*;

    #[test]
    fn a_file_is_read_by_its_header() {
        let read_text = |text: &str| {
            let mut file = tempfile::NamedTempFile::new().unwrap();
            file.write_all(text.as_bytes()).unwrap();
            read(file.path()).map_err(|error| error.to_string())
        };
        let vouchers = read_text("card_number,pin\n1111,22\n3333,\n").unwrap();
        assert_eq!(vouchers, [json!({"card_number": "1111", "pin": "22"}), json!({"card_number": "3333"})]);
        assert!(
            read_text("card,pin\n")
                .unwrap_err()
                .ends_with("the column \"card\" is not one of card_number, pin, voucher_reference_number, claim_url, expires_on")
        );
        assert!(read_text("pin\n1\n").unwrap_err().ends_with("the column card_number is missing"));
        let ragged = read_text("card_number,pin\n1,2\n4444444\n").unwrap_err();
        assert!(ragged.ends_with("row 2 is not CSV like the header") && !ragged.contains("4444444"));
    }
}
