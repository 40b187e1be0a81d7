//! Prints results: aligned text for people, JSON and CSV for programs.

use std::fmt::Display;
use std::future::Future;
use std::io::{IsTerminal, Write};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use clap::ValueEnum;
use indicatif::{ProgressBar, ProgressStyle};
use owo_colors::OwoColorize;
use serde_json::Value;

use super::escape::{self, Escaping};
use crate::audit::{Difference, Progress};
use crate::spreadsheet::inert;

/// Delay before a terminal shows what the command is waiting for.
const PATIENCE: Duration = Duration::from_secs(1);

/// Format of results. The values have no help of their own: it would spread the help of every command over more lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Format {
    Table,
    Json,
    Csv,
}

/// Columns of differences as CSV. `position` is the first one that is concerned, and `difference` the line for people.
const DIFFERENCE_COLUMNS: [&str; 6] = ["kind", "shard", "table", "key", "position", "difference"];

/// Writer of the results to stdout.
#[derive(Clone, Copy, Debug)]
pub struct Output {
    pub json: bool,
    format: Format,
}

impl Output {
    pub fn new(format: Format) -> Output {
        Output { json: format == Format::Json, format }
    }

    pub fn format(&self) -> Format {
        self.format
    }

    /// Prints one line to stdout. Colours are stripped where stdout does not show them, and everything else that a
    /// terminal would interpret is escaped.
    pub fn line(&self, text: impl Display) -> std::io::Result<()> {
        writeln!(anstream::stdout(), "{}", escape::lines(&text.to_string()))
    }

    /// Prints external text: escaped on a terminal, byte for byte to a pipe or file.
    pub fn verbatim(&self, text: &str) -> std::io::Result<()> {
        let mut out = std::io::stdout().lock();
        if out.is_terminal() {
            return writeln!(Escaping(out), "{text}");
        }
        writeln!(out, "{text}")
    }

    /// Prints one record of a CSV. A reader gets it at once, because stdout ends each line with a flush.
    pub fn record<T: AsRef<[u8]>>(&self, cells: impl IntoIterator<Item = T>) -> std::io::Result<()> {
        self.verbatim(record(cells)?.trim_end_matches('\n'))
    }

    /// Prints a line about a list: to stdout after a table, and to stderr beside a CSV, which has only the list.
    pub fn remark(&self, text: impl Display) -> std::io::Result<()> {
        match self.format {
            Format::Csv => writeln!(anstream::stderr(), "{}", escape::lines(&text.to_string())),
            Format::Table | Format::Json => self.line(text),
        }
    }

    /// Prints a JSON value on one line.
    pub fn json_line(&self, value: &Value) -> std::io::Result<()> {
        self.line(value)
    }

    /// Prints the `data` of an operation as JSON or CSV, or for people: a list as a table, an object as aligned lines.
    pub fn facts(&self, data: &Value) -> std::io::Result<()> {
        if self.json {
            return self.line(format!("{data:#}"));
        }
        let rows = data.as_object().filter(|fields| fields.len() == 1).and_then(|fields| fields.values().next()?.as_array());
        if self.format == Format::Csv {
            let csv = csv(rows.map_or(std::slice::from_ref(data), Vec::as_slice)).map_err(std::io::Error::other)?;
            return self.verbatim(csv.trim_end());
        }
        let text = match (rows, data) {
            (Some(rows), _) if rows.is_empty() => "none".to_owned(),
            (Some(rows), _) => table(rows),
            (None, Value::Object(_)) => fields(data),
            (None, other) => shown(other),
        };
        self.line(text)
    }
}

/// Formats a JSON value for people.
pub fn shown(value: &Value) -> String {
    match value {
        Value::Null => "-".to_owned(),
        Value::String(text) if text.is_empty() => "-".to_owned(),
        Value::String(text) => escape::value(text).into_owned(),
        Value::Array(items) if items.is_empty() => "-".to_owned(),
        Value::Array(items) if items.iter().all(|item| !item.is_object()) => {
            items.iter().map(shown).collect::<Vec<_>>().join(", ")
        }
        other => escape::value(&other.to_string()).into_owned(),
    }
}

/// Returns the field names of an object: identifying fields first, times last.
fn names(object: &Value) -> Vec<String> {
    let mut names: Vec<String> = object.as_object().into_iter().flatten().map(|(name, _)| name.clone()).collect();
    names.sort_by_key(|name| match name.as_str() {
        "id" => 0,
        "name" => 1,
        name if name.ends_with("_at") || name.ends_with("_on") => 3,
        _ => 2,
    });
    names
}

fn fields(object: &Value) -> String {
    let names = names(object);
    let width = names.iter().map(String::len).max().unwrap_or_default();
    let lines = names.iter().map(|name| format!("{}  {}", format!("{name:<width$}").dimmed(), shown(&object[name])));
    lines.collect::<Vec<_>>().join("\n")
}

/// Formats objects as a table, one line per row. It omits columns that are empty in all rows and truncates long texts;
/// the JSON output has everything.
fn table(rows: &[Value]) -> String {
    const CELL_CHARACTERS: usize = 40;
    let cell = |value: &Value| {
        let text = shown(value);
        if text.chars().count() <= CELL_CHARACTERS {
            text
        } else {
            text.chars().take(CELL_CHARACTERS - 1).chain(['…']).collect()
        }
    };
    let tells = |value: &Value| match value {
        Value::Null | Value::Object(_) => false,
        Value::String(text) => !text.is_empty(),
        Value::Array(items) => items.first().is_some_and(|item| !item.is_object()),
        Value::Bool(_) | Value::Number(_) => true,
    };
    let mut columns = rows.first().map(names).unwrap_or_default();
    columns.retain(|name| rows.iter().any(|row| tells(&row[name])));
    if columns.is_empty() {
        return rows.iter().map(shown).collect::<Vec<_>>().join("\n");
    }
    let cells: Vec<Vec<String>> = rows.iter().map(|row| columns.iter().map(|name| cell(&row[name])).collect()).collect();
    let width = |at: usize| {
        let all = cells.iter().map(|row| row[at].chars().count());
        all.chain([columns[at].len()]).max().unwrap_or_default()
    };
    let widths: Vec<usize> = (0..columns.len()).map(width).collect();
    let line = |cells: &[String]| {
        let padded = cells.iter().zip(&widths).map(|(cell, width)| format!("{cell:<width$}"));
        padded.collect::<Vec<_>>().join("  ").trim_end().to_owned()
    };
    let head = line(&columns).dimmed().to_string();
    [head].into_iter().chain(cells.iter().map(|row| line(row))).collect::<Vec<_>>().join("\n")
}

/// Formats objects as CSV: a head with every field name, and one record per object. Lists and objects stand as JSON.
fn csv(rows: &[Value]) -> anyhow::Result<String> {
    let mut columns: Vec<String> = vec![];
    for row in rows {
        let unknown: Vec<String> = names(row).into_iter().filter(|name| !columns.contains(name)).collect();
        columns.extend(unknown);
    }
    let mut writer = csv::Writer::from_writer(vec![]);
    writer.write_record(&columns)?;
    for row in rows {
        writer.write_record(columns.iter().map(|name| cell(&row[name])))?;
    }
    Ok(String::from_utf8(writer.into_inner()?)?)
}

/// Formats one record as CSV, with its line end.
fn record<T: AsRef<[u8]>>(cells: impl IntoIterator<Item = T>) -> std::io::Result<String> {
    let mut text = vec![];
    let mut writer = csv::Writer::from_writer(&mut text);
    writer.write_record(cells).map_err(std::io::Error::other)?;
    writer.flush()?;
    drop(writer);
    String::from_utf8(text).map_err(std::io::Error::other)
}

/// Formats a JSON value as a cell of a CSV.
fn cell(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

/// Awaits `work`. On a terminal, a spinner shows `what` after one second.
pub async fn with_progress<T>(what: &'static str, work: impl Future<Output = T>) -> T {
    if !std::io::stderr().is_terminal() {
        return work.await;
    }
    tokio::pin!(work);
    if let Ok(done) = tokio::time::timeout(PATIENCE, &mut work).await {
        return done;
    }
    let spinner = ProgressBar::new_spinner().with_message(what);
    spinner.enable_steady_tick(Duration::from_millis(100));
    let done = work.await;
    spinner.finish_and_clear();
    done
}

/// Creates a progress bar for countable work. Only a terminal shows it.
pub fn progress_bar(total: u64) -> ProgressBar {
    let style = ProgressStyle::with_template("{bar:40} {pos}/{len}  {eta}").unwrap_or_else(|_| ProgressStyle::default_bar());
    ProgressBar::new(total).with_style(style)
}

/// Formats an error and its causes as one line, without repeating a cause.
pub fn error_line(error: &anyhow::Error) -> String {
    let mut line = String::new();
    for cause in error.chain() {
        let cause = cause.to_string().split_whitespace().collect::<Vec<_>>().join(" ");
        if line.is_empty() {
            line = cause;
        } else if !line.contains(&cause) {
            line = format!("{line}: {cause}");
        }
    }
    line
}

/// Prints differences as lines or as CSV, and how many more there are.
pub fn print_differences(output: &Output, differences: &[Difference], found: u64) -> std::io::Result<()> {
    let is_csv = output.format() == Format::Csv;
    if is_csv {
        output.record(DIFFERENCE_COLUMNS)?;
    }
    for difference in differences {
        match is_csv {
            true => output.record(difference_cells(difference)?)?,
            false => output.line(escape::value(&difference.to_string()))?,
        }
    }
    let more = found.saturating_sub(u64::try_from(differences.len()).unwrap_or(u64::MAX));
    if more > 0 {
        output.remark(format!("and {more} more"))?;
    }
    Ok(())
}

/// Returns the cells of a difference, in the order of [`DIFFERENCE_COLUMNS`]. A cell without a value is empty.
fn difference_cells(difference: &Difference) -> std::io::Result<[String; 6]> {
    let fields = serde_json::to_value(difference)?;
    let first = |names: &[&str]| names.iter().map(|name| cell(&fields[*name])).find(|text| !text.is_empty()).unwrap_or_default();
    let position = difference.positions().map_or_else(|| first(&["position"]), |(position, _)| position.to_string());
    Ok([
        first(&["kind"]),
        first(&["shard"]),
        first(&["table"]),
        first(&["key", "row"]),
        position,
        inert(&difference.to_string()).into_owned(),
    ])
}

/// A progress bar on a terminal, once it has taken more than a second.
pub struct Bar {
    started: Instant,
    is_wanted: bool,
    bar: Mutex<Option<ProgressBar>>,
}

impl Bar {
    const PATIENCE: Duration = Duration::from_secs(1);

    pub fn new() -> Bar {
        Bar { started: Instant::now(), is_wanted: std::io::stderr().is_terminal(), bar: Mutex::new(None) }
    }

    pub fn show(&self, progress: Progress) {
        if !self.is_wanted || self.started.elapsed() < Self::PATIENCE {
            return;
        }
        let Ok(mut bar) = self.bar.lock() else { return };
        let bar = bar.get_or_insert_with(|| {
            let style = ProgressStyle::with_template("{prefix:24} {wide_bar} {human_pos}/{human_len}");
            ProgressBar::new(0).with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
        });
        bar.set_prefix(format!("shard {} {}", progress.shard, progress.stage));
        bar.set_length(u64::try_from(progress.total).unwrap_or_default());
        bar.set_position(u64::try_from(progress.done).unwrap_or_default());
    }

    pub fn end(&self) {
        if let Ok(mut bar) = self.bar.lock()
            && let Some(bar) = bar.take()
        {
            bar.finish_and_clear();
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use serde_json::json;

    use super::*;
    use crate::audit::{FieldDifference, RowDifference, RowProblem};

    fn plain(text: &str) -> String {
        anstream::adapter::strip_str(text).to_string()
    }

    #[test]
    fn a_list_prints_as_a_table_and_an_object_as_its_fields() {
        let rows = [json!({"id": 1, "name": "One"}), json!({"id": 22, "name": null})];
        assert_eq!(plain(&table(&rows)), "id  name\n1   One\n22  -");
        assert_eq!(plain(&fields(&json!({"id": 1, "events": ["a", "b"]}))), "id      1\nevents  a, b");
        assert!(table(&[json!({"t": "x".repeat(50)})]).contains('…'));
    }

    #[test]
    fn a_list_as_csv_has_every_field_of_every_row() {
        let rows = [json!({"id": 1, "name": "One, \"1\""}), json!({"id": 2, "events": ["a"], "name": null})];
        assert_eq!(csv(&rows).unwrap(), "id,name,events\n1,\"One, \"\"1\"\"\",\n2,,\"[\"\"a\"\"]\"\n");
    }

    #[test]
    fn a_difference_as_csv_is_one_record_with_its_place_and_its_line() {
        let csv = |difference: Difference| record(difference_cells(&difference).unwrap()).unwrap();
        let fields = vec![FieldDifference { field: "balance".to_owned(), stored: json!("6.00"), folded: json!("5.00") }];
        let (key, part, problem) = ("7".to_owned(), String::new(), RowProblem::Differs { fields });
        let row = Difference::Row(RowDifference { table: "wallets", shard: 1, key, part, problem });
        let expected = "row,1,wallets,7,,\"shard 1: wallets 7: balance is \"\"6.00\"\", the log says \"\"5.00\"\"\"\n";
        assert_eq!(csv(row), expected);
        let gap = Difference::Gap { shard: 1, after: 4, next: 6 };
        assert_eq!(csv(gap), "gap,1,,,5,shard 1: position 5 is missing\n");
        let note = Difference::Note { source: "=1+1".to_owned(), problem: "no\nsignature".to_owned() };
        assert_eq!(csv(note), "note,,,,,\"'=1+1: no\nsignature\"\n");
    }

    #[test]
    fn what_a_client_wrote_does_nothing_to_a_terminal() {
        let name = "\u{1b}[2Jname\n\u{202e}eman\u{9b}";
        let expected = "\\u001b[2Jname\\n\\u202eeman\\u009b";
        assert_eq!(shown(&json!(name)), expected);
        assert_eq!(shown(&json!([name])), expected);
        assert_eq!(plain(&table(&[json!({"name": name})])), format!("name\n{expected}"));
        assert!(!shown(&json!({ "name": name })).contains(['\u{202e}', '\u{9b}']));
    }

    #[test]
    fn an_error_prints_as_one_line_without_repetition() {
        let inner = std::io::Error::other("the disk\nis full");
        let error = anyhow::Error::new(inner).context("cannot write x: the disk is full").context("demo");
        assert_eq!(error_line(&error), "demo: cannot write x: the disk is full");
    }
}
