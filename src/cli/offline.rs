//! `verify` without a database: verifies an export, a copy of the tiles, or a receipt with the log's public key.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, bail};
use serde_json::json;
use transparency_log::checkpoint::Trust;
use transparency_log::note::VerifierKey;

use super::WrongUse;
use super::output::{Bar, Output, print_differences};
use crate::export::offline::{self, ExportInputs, Outcome, Report};
use crate::transparency::receipt::Receipt;

#[derive(clap::Args, Debug)]
#[command(group = clap::ArgGroup::new("files").args(["export", "tiles", "receipt"]).multiple(true))]
pub struct OfflineArgs {
    /// Verify an export instead of the database; needs only --key, and compares it with further files if given
    #[arg(long, value_name = "FILE", requires = "keys", conflicts_with = "receipt", help_heading = "Without a database")]
    export: Option<PathBuf>,
    /// Verify a copy of the log's tiles; with --export, compare the export with it and report every difference
    #[arg(long, value_name = "DIRECTORY", requires = "keys", conflicts_with = "receipt", help_heading = "Without a database")]
    tiles: Option<PathBuf>,
    /// Verify the receipt of an order
    #[arg(long, value_name = "FILE", requires = "keys", help_heading = "Without a database")]
    receipt: Option<PathBuf>,
    /// Public key of the log as <name>+<id>+<base64>, or a file with one key per line; may be repeated
    #[arg(long = "key", value_name = "KEY", requires = "files", help_heading = "Without a database")]
    keys: Vec<String>,
    /// File with a signed checkpoint that you kept; may be repeated
    #[arg(
        long = "checkpoint",
        value_name = "FILE",
        requires = "files",
        conflicts_with = "receipt",
        help_heading = "Without a database"
    )]
    checkpoints: Vec<PathBuf>,
    /// Earlier export of the whole log; reports every difference from it
    #[arg(long, value_name = "FILE", requires = "export", help_heading = "Without a database")]
    earlier: Option<PathBuf>,
    /// Accept that the export is only a part of the log, although it has no manifest that says so
    #[arg(long, requires = "tiles", requires = "export", help_heading = "Without a database")]
    part: bool,
    /// Do not fail because of events after the last checkpoint, which no checkpoint proves
    #[arg(long, requires = "export", help_heading = "Without a database")]
    allow_unproven: bool,
    /// Public key of a witness, in the format of --key; may be repeated
    #[arg(long = "witness", value_name = "KEY", requires = "files", help_heading = "Without a database")]
    witnesses: Vec<String>,
    /// Number of witnesses that must have cosigned each checkpoint
    #[arg(long, value_name = "COUNT", default_value_t = 0, requires = "files", help_heading = "Without a database")]
    quorum: usize,
}

impl OfflineArgs {
    pub fn is_wanted(&self) -> bool {
        self.export.is_some() || self.tiles.is_some() || self.is_about_receipt()
    }

    /// Returns whether the command verifies a receipt. It then prints one result, and no differences.
    pub fn is_about_receipt(&self) -> bool {
        self.receipt.is_some()
    }

    fn trust(&self) -> anyhow::Result<Trust> {
        let witnesses = read_keys(&self.witnesses)?;
        if witnesses.len() < self.quorum {
            let problem = format!("--quorum is {}, but --witness gives {}", self.quorum, witnesses.len());
            return Err(WrongUse(problem).into());
        }
        Ok(Trust { keys: read_keys(&self.keys)?, witnesses, quorum: self.quorum })
    }
}

/// Parses keys. Each argument is a key or a file with one key per line. Empty lines and lines that start with `#` are
/// skipped.
fn read_keys(given: &[String]) -> anyhow::Result<Vec<VerifierKey>> {
    let mut keys = vec![];
    for text in given {
        if let Ok(key) = text.parse() {
            keys.push(key);
            continue;
        }
        let lines = std::fs::read_to_string(text).with_context(|| format!("{text} is neither a key nor a file of keys"))?;
        for line in lines.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#')) {
            keys.push(line.parse().with_context(|| format!("{text}: {line:?}"))?);
        }
    }
    Ok(keys)
}

/// Verifies the given files. The exit status is 1 if anything differs or remains unproven.
pub fn verify(args: &OfflineArgs, output: &Output) -> anyhow::Result<ExitCode> {
    let trust = args.trust()?;
    if let Some(path) = &args.receipt {
        return receipt(path, &trust, output);
    }
    let bar = Bar::new();
    let report = match (&args.export, &args.tiles) {
        (Some(export), tiles) => {
            let inputs = ExportInputs {
                export: export.clone(),
                checkpoints: args.checkpoints.clone(),
                tiles: tiles.clone(),
                earlier: args.earlier.clone(),
                is_part: args.part,
            };
            offline::verify_export(&inputs, &trust, &|progress| bar.show(progress))
        }
        (None, Some(tiles)) => offline::verify_tiles(tiles, &args.checkpoints, &trust, &|progress| bar.show(progress)),
        (None, None) => bail!("nothing to verify"),
    };
    bar.end();
    let report = report?;
    match output.json {
        true => output.line(serde_json::to_string_pretty(&report)?)?,
        false => print(&report, output)?,
    }
    Ok(if report.holds(args.allow_unproven) { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn print(report: &Report, output: &Output) -> std::io::Result<()> {
    print_differences(output, &report.differences, report.found)?;
    for compared in &report.checkpoints {
        let outcome = match compared.outcome {
            Outcome::Agrees => "agrees",
            Outcome::Differs => "differs",
            Outcome::Beyond => "is not reached",
        };
        output.remark(format!("the checkpoint of {} events in {} {outcome}", compared.size, compared.checkpoint))?;
    }
    match report.first_bad {
        Some((first, last)) if first == last => output.remark(format!("the first bad position is {first}"))?,
        Some((first, last)) => output.remark(format!("the first bad position is one of {first} to {last}"))?,
        None => {}
    }
    for unchecked in &report.unchecked {
        output.remark(format!("not checked: {unchecked}"))?;
    }
    let verdict = match report.unproven {
        _ if !report.is_clean() => format!("{} differences", report.found),
        Some((first, last)) => format!("nothing differs, but positions {first} to {last} are not proven"),
        None if report.unchecked.is_empty() => "everything matches what was signed".to_owned(),
        None => "everything that was checked matches what was signed".to_owned(),
    };
    let proven = if report.proven > 0 { format!(", positions 1 to {} are proven", report.proven) } else { String::new() };
    output.remark(format!("{} events{proven}: {verdict}", report.events))
}

fn receipt(path: &Path, trust: &Trust, output: &Output) -> anyhow::Result<ExitCode> {
    let named = || path.display().to_string();
    let text = std::fs::read(path).with_context(named)?;
    let receipt: Receipt = serde_json::from_slice(&text).with_context(|| format!("{} is not a receipt", named()))?;
    let checked = receipt.check(trust);
    if output.json {
        let facts = match &checked {
            Ok(proved) => json!({
                "order_id": proved.order_id, "events": proved.events, "last_position": proved.last, "is_proven": true, "problem": null,
                "origin": proved.opened.checkpoint.origin, "size": proved.opened.checkpoint.size,
            }),
            Err(error) => json!({"order_id": receipt.order_id, "is_proven": false, "problem": error.to_string()}),
        };
        output.json_line(&facts)?;
    } else {
        match &checked {
            Ok(proved) => output.line(format!(
                "order {}: {} events up to position {} are proven by a checkpoint of {} events, signed by {}",
                proved.order_id, proved.events, proved.last, proved.opened.checkpoint.size, proved.opened.checkpoint.origin
            ))?,
            Err(error) => output.line(format!("order {}: {error}", receipt.order_id))?,
        }
    }
    Ok(if checked.is_ok() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
