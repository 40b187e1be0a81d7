//! Renders workbooks (Office Open XML). A report has a sheet for each kind of record.

use ledger_projections::envelope::iso8601;
use rust_decimal::prelude::ToPrimitive;
use rust_xlsxwriter::{Format, Workbook, Worksheet, XlsxError};

use super::{Amount, AsOf, Difference, MovementSums, Report, StockFigures};

/// Number of significant digits that a number in a spreadsheet keeps.
const EXACT_DIGITS: usize = 15;
/// Largest number of characters in a cell.
const MAX_TEXT: usize = 32_767;

/// Value of a cell. A text is never read as a formula.
#[derive(Debug)]
pub enum Cell {
    Text(String),
    Money(Amount),
    Count(i64),
}

impl<T: ToString> From<Option<T>> for Cell {
    fn from(value: Option<T>) -> Cell {
        Cell::Text(value.map(|value| value.to_string()).unwrap_or_default())
    }
}

/// A sheet: its name, its headings, and its rows.
#[derive(Debug)]
pub struct Sheet {
    pub name: &'static str,
    pub headings: Vec<&'static str>,
    pub rows: Vec<Vec<Cell>>,
}

/// Headings of [`moved`].
const MOVED: [&str; 11] = [
    "funding",
    "debits",
    "order_debits",
    "payout_debits",
    "refunds",
    "order_refunds",
    "payout_refunds",
    "adjustments",
    "adjustment_credits",
    "adjustment_debits",
    "movements",
];

fn moved(moved: &MovementSums) -> [Cell; MOVED.len()] {
    [
        Cell::Money(moved.funding),
        Cell::Money(moved.debits),
        Cell::Money(moved.order_debits),
        Cell::Money(moved.payout_debits),
        Cell::Money(moved.refunds),
        Cell::Money(moved.order_refunds),
        Cell::Money(moved.payout_refunds),
        Cell::Money(moved.adjustments),
        Cell::Money(moved.adjustment_credits),
        Cell::Money(moved.adjustment_debits),
        Cell::Count(moved.movements),
    ]
}

/// Headings of [`stock`].
const STOCK: [&str; 24] = [
    "currency",
    "opening_vouchers",
    "opening_unpriced",
    "opening_cost",
    "loaded_vouchers",
    "loaded_unpriced",
    "loaded_cost",
    "allocated_vouchers",
    "allocated_unpriced",
    "allocated_cost",
    "voided_vouchers",
    "voided_unpriced",
    "voided_cost",
    "expired_vouchers",
    "expired_unpriced",
    "expired_cost",
    "closing_vouchers",
    "closing_unpriced",
    "closing_cost",
    "transferred_vouchers",
    "transferred_unpriced",
    "transferred_cost",
    "sales",
    "margin",
];

fn stock(figures: &StockFigures) -> Vec<Cell> {
    let mut row = vec![Cell::Text(figures.currency.clone())];
    for (_, lot) in figures.lots() {
        row.extend([Cell::Count(lot.vouchers), Cell::Count(lot.unpriced), Cell::Money(lot.cost)]);
    }
    row.extend([Cell::Money(figures.sales), Cell::Money(figures.margin)]);
    row
}

/// Returns the sheets of the voucher stock.
fn of_stock(report: &Report) -> [Sheet; 2] {
    let rows = report.stock_days.iter().map(|of| {
        let mut row = vec![Cell::Text(of.day.to_string())];
        row.extend(stock(&of.figures));
        row
    });
    [
        Sheet { name: "Stock", headings: STOCK.to_vec(), rows: report.stock.iter().map(stock).collect() },
        Sheet { name: "Stock by day", headings: [&["day"][..], &STOCK].concat(), rows: rows.collect() },
    ]
}

/// Renders sheets as one workbook.
///
/// # Errors
/// If a sheet is too large for the format.
pub fn render(sheets: impl IntoIterator<Item = Sheet>) -> Result<Vec<u8>, XlsxError> {
    let mut book = Workbook::new();
    for sheet in sheets {
        add(&mut book, sheet)?;
    }
    book.save_to_buffer()
}

/// Returns the sheets of a whole report.
pub fn of_report(report: &Report) -> [Sheet; 7] {
    let headings = [&["currency", "wallets", "opening_balance"][..], &MOVED, &["closing_balance"]].concat();
    let rows = report.currencies.iter().map(|figures| {
        let mut row =
            vec![Cell::Text(figures.currency.clone()), Cell::Count(figures.wallets), Cell::Money(figures.opening_balance)];
        row.extend(moved(&figures.moved));
        row.push(Cell::Money(figures.closing_balance));
        row
    });
    let currencies = Sheet { name: "Currencies", headings, rows: rows.collect() };
    let rows = report.days.iter().map(|figures| {
        let mut row = vec![Cell::Text(figures.day.to_string()), Cell::Text(figures.currency.clone())];
        row.extend(moved(&figures.moved));
        row
    });
    let days = Sheet { name: "Days", headings: [&["day", "currency"][..], &MOVED].concat(), rows: rows.collect() };
    let headings =
        [&["shard_id", "account_id", "wallet_id", "currency", "opening_balance"][..], &MOVED, &["closing_balance"]].concat();
    let rows = report.wallets.iter().map(|figures| {
        let mut row = vec![
            Cell::Count(figures.shard_id.into()),
            figures.account_id.into(),
            Cell::Text(figures.wallet_id.to_string()),
            figures.currency.as_ref().into(),
            Cell::Money(figures.opening_balance),
        ];
        row.extend(moved(&figures.moved));
        row.push(Cell::Money(figures.closing_balance));
        row
    });
    let wallets = Sheet { name: "Wallets", headings, rows: rows.collect() };
    let headings = vec!["kind", "shard_id", "wallet_id", "order_id", "payout_id", "positions", "problem"];
    let rows = report.differences.differences.iter().map(difference).collect();
    let differences = Sheet { name: "Differences", headings, rows };
    let summary = Sheet { name: "Summary", headings: vec!["", "value"], rows: summary(report) };
    let [stock, stock_days] = of_stock(report);
    [summary, currencies, days, stock, stock_days, wallets, differences]
}

fn summary(report: &Report) -> Vec<Vec<Cell>> {
    let fact = |name: &str, value: Cell| vec![Cell::Text(name.to_owned()), value];
    let number = |count: u64| Cell::Count(i64::try_from(count).unwrap_or(i64::MAX));
    let mut rows = vec![
        fact("from", report.from.map(iso8601).into()),
        fact("to", report.to.map(iso8601).into()),
        fact("account_id", report.account_id.into()),
        fact("checked", Cell::Text(report.checked.name().to_owned())),
        fact("checked_events", Cell::Count(report.checked_events)),
        fact("differences_found", number(report.differences.found)),
        fact("wallets_left_out", number(u64::try_from(report.wallets_left_out).unwrap_or(u64::MAX))),
    ];
    rows.extend(report.as_of.iter().flat_map(as_of));
    for account in &report.narrowed {
        let day = account.day.map(|day| format!(" {day}")).unwrap_or_default();
        let name = format!("account {}: checked", account.account_id);
        rows.push(fact(&name, Cell::Text(format!("{}{day}", account.checked.name()))));
    }
    rows.push(fact("narrowed_left_out", number(u64::try_from(report.narrowed_left_out).unwrap_or(u64::MAX))));
    rows
}

fn as_of(as_of: &AsOf) -> [Vec<Cell>; 6] {
    let fact = |name: &str, value: Cell| vec![Cell::Text(format!("shard {}: {name}", as_of.shard_id)), value];
    let checkpoint = as_of.log_checkpoint.as_ref();
    [
        fact("position", Cell::Count(as_of.position)),
        fact("head", Cell::Count(as_of.head)),
        fact("projected", Cell::Count(as_of.projected)),
        fact("stock_projected", Cell::Count(as_of.stock_projected)),
        fact("checkpoint_size", checkpoint.map(|checkpoint| checkpoint.size).into()),
        fact("checkpoint_root", checkpoint.map(|checkpoint| &checkpoint.root).into()),
    ]
}

fn difference(found: &Difference) -> Vec<Cell> {
    let positions: Vec<String> = found.positions.iter().map(ToString::to_string).collect();
    vec![
        Cell::Text(found.kind.name().to_owned()),
        Cell::Count(found.shard_id.into()),
        found.wallet_id.into(),
        found.order_id.into(),
        found.payout_id.into(),
        Cell::Text(positions.join(" ")),
        Cell::Text(found.problem.clone()),
    ]
}

fn add(book: &mut Workbook, Sheet { name, headings, rows }: Sheet) -> Result<(), XlsxError> {
    let (bold, money) = (Format::new().set_bold(), Format::new().set_num_format("#,##0.00"));
    let sheet = book.add_worksheet().set_name(name)?;
    sheet.set_freeze_panes(1, 0)?;
    for (column, heading) in (0..).zip(headings) {
        sheet.set_column_width(column, 18)?;
        sheet.write_string_with_format(0, column, heading, &bold)?;
    }
    for (row, cells) in (1..).zip(rows) {
        for (column, cell) in (0..).zip(cells) {
            write(sheet, (row, column), cell, &money)?;
        }
    }
    Ok(())
}

/// Writes a cell. A number with more digits than a spreadsheet keeps becomes a text.
fn write(sheet: &mut Worksheet, (row, column): (u32, u16), cell: Cell, money: &Format) -> Result<(), XlsxError> {
    let digits = |text: &str| text.chars().filter(char::is_ascii_digit).count();
    match cell {
        Cell::Money(amount) => match amount.0.to_f64().filter(|_| digits(&amount.to_string()) <= EXACT_DIGITS) {
            Some(number) => sheet.write_number_with_format(row, column, number, money)?,
            None => sheet.write_string(row, column, amount.to_string())?,
        },
        Cell::Count(count) => match digits(&count.to_string()) <= EXACT_DIGITS {
            true => sheet.write_number(row, column, count as f64)?,
            false => sheet.write_string(row, column, count.to_string())?,
        },
        Cell::Text(text) if text.is_empty() => return Ok(()),
        Cell::Text(text) => sheet.write_string(row, column, text.chars().take(MAX_TEXT).collect::<String>())?,
    };
    Ok(())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn a_number_that_a_spreadsheet_would_round_is_a_text() {
        let mut book = Workbook::new();
        let sheet = book.add_worksheet();
        for (row, amount) in [(0, "1234567890123.45"), (1, "12345678901234.56")] {
            let cell = Cell::Money(Amount(amount.parse().unwrap()));
            write(sheet, (row, 0), cell, &Format::new()).unwrap();
        }
        write(sheet, (2, 0), Cell::Text("=1+1".repeat(10_000)), &Format::new()).unwrap();
        assert!(book.save_to_buffer().unwrap().starts_with(b"PK"));
    }
}
