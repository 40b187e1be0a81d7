//! Markdown tables, and the figures in their cells.

use std::time::Duration;

/// Formats rows as a Markdown table with aligned columns.
pub fn markdown(header: &[&str], rows: &[Vec<String>]) -> String {
    let cells = |column: usize| rows.iter().map(move |row| row[column].as_str()).chain([header[column]]);
    let widths: Vec<usize> =
        (0..header.len()).map(|column| cells(column).map(|cell| cell.chars().count()).max().unwrap_or_default()).collect();
    let line = |cells: Vec<&str>| {
        let cells: Vec<String> = cells.iter().zip(&widths).map(|(cell, width)| format!("{cell:<width$}")).collect();
        format!("| {} |", cells.join(" | "))
    };
    let rule = format!("|{}|", widths.iter().map(|width| "-".repeat(width + 2)).collect::<Vec<_>>().join("|"));
    let rows = rows.iter().map(|row| line(row.iter().map(String::as_str).collect()));
    [line(header.to_vec()), rule].into_iter().chain(rows).collect::<Vec<_>>().join("\n")
}

pub fn millis(time: Duration) -> String {
    format!("{:.1} ms", in_millis(time))
}

/// Returns milliseconds, for a plot.
pub fn in_millis(time: Duration) -> f64 {
    time.as_secs_f64() * 1000.0
}

pub fn mebibytes(bytes: u64) -> String {
    format!("{:.0} MiB", bytes as f64 / f64::from(1 << 20))
}

pub fn thousands(value: f64) -> String {
    let text = format!("{:.0}", value);
    let mut out = String::new();
    for (i, digit) in text.chars().enumerate() {
        if i > 0 && (text.len() - i).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

/// Formats the median of the rounds' ratios, and their range.
pub fn of_rounds(ratios: impl Iterator<Item = f64>) -> String {
    let all: Vec<f64> = ratios.collect();
    let (least, most) = all.iter().fold((f64::MAX, f64::MIN), |(least, most), ratio| (least.min(*ratio), most.max(*ratio)));
    format!("{:.2}× ({least:.2} to {most:.2})", median(all.into_iter()))
}

pub fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut all: Vec<f64> = values.collect();
    all.sort_unstable_by(f64::total_cmp);
    let middle = all.len() / 2;
    if all.len().is_multiple_of(2) { (all[middle - 1] + all[middle]) / 2.0 } else { all[middle] }
}
