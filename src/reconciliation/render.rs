//! Renders a report as CSV, and as tables for a terminal.

use chrono::NaiveDate;
use ledger_projections::envelope::iso8601;

use super::{DayFigures, Difference, MovementSums, NarrowedAccount, Report, StockFigures, WalletFigures};
use crate::spreadsheet::{inert, rows};

/// Columns of the CSV. The value of `record` is `REPORT`, `AS_OF`, `NARROWED`, `CURRENCY`, `DAY`, `STOCK`,
/// `STOCK_DAY`, `WALLET` or `DIFFERENCE`.
const COLUMNS: [&str; 60] = [
    "record",
    "shard_id",
    "account_id",
    "wallet_id",
    "day",
    "currency",
    "opening_balance",
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
    "closing_balance",
    "movements",
    "order_id",
    "payout_id",
    "positions",
    "kind",
    "problem",
    // Columns of `REPORT`: the period, the level of detail, and the number of differences, of which not all may be
    // listed.
    "from",
    "to",
    "checked",
    "found",
    // Columns of `AS_OF`: the log's signed checkpoint. Its position is in `positions`.
    "checkpoint_size",
    "checkpoint_root",
    // Number of events that were checked one by one.
    "checked_events",
    // Number of wallets that are not listed.
    "wallets_left_out",
    // Number of wallets of a currency.
    "wallets",
    // Position of the log's head, and the position up to which the daily totals were projected.
    "head",
    "projected",
    // Position up to which the stock was projected, a column of `AS_OF`.
    "stock_projected",
    // Columns of `STOCK` and `STOCK_DAY`: numbers of vouchers, of those without a known cost, and their cost.
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
    "sales",
    "margin",
    "transferred_vouchers",
    "transferred_unpriced",
    "transferred_cost",
    // Number of accounts with wallets that differ, beyond those of the records `NARROWED`.
    "narrowed_left_out",
];

fn text(value: Option<impl ToString>) -> String {
    value.map(|value| value.to_string()).unwrap_or_default()
}

/// Returns one record of the CSV. Columns that are not in `cells` stay empty.
fn line(cells: &[(&str, String)]) -> [String; COLUMNS.len()] {
    COLUMNS.map(|column| cells.iter().find(|(name, _)| *name == column).map(|(_, cell)| cell.clone()).unwrap_or_default())
}

fn moved(moved: &MovementSums) -> Vec<(&'static str, String)> {
    vec![
        ("funding", moved.funding.to_string()),
        ("debits", moved.debits.to_string()),
        ("order_debits", moved.order_debits.to_string()),
        ("payout_debits", moved.payout_debits.to_string()),
        ("refunds", moved.refunds.to_string()),
        ("order_refunds", moved.order_refunds.to_string()),
        ("payout_refunds", moved.payout_refunds.to_string()),
        ("adjustments", moved.adjustments.to_string()),
        ("adjustment_credits", moved.adjustment_credits.to_string()),
        ("adjustment_debits", moved.adjustment_debits.to_string()),
        ("movements", moved.movements.to_string()),
    ]
}

/// Renders the whole report as one CSV: the positions and narrowed accounts, then currencies, days, wallets and differences.
pub fn csv(report: &Report) -> Result<Vec<u8>, csv::Error> {
    let mut out = Vec::new();
    rows(&mut out, |csv| {
        csv.write_record(COLUMNS)?;
        csv.write_record(line(&[
            ("record", "REPORT".into()),
            ("account_id", text(report.account_id)),
            ("from", text(report.from.map(iso8601))),
            ("to", text(report.to.map(iso8601))),
            ("checked", report.checked.name().to_owned()),
            ("checked_events", report.checked_events.to_string()),
            ("wallets_left_out", report.wallets_left_out.to_string()),
            ("narrowed_left_out", report.narrowed_left_out.to_string()),
            ("found", report.differences.found.to_string()),
        ]))?;
        for as_of in &report.as_of {
            let checkpoint = as_of.log_checkpoint.as_ref();
            csv.write_record(line(&[
                ("record", "AS_OF".into()),
                ("shard_id", as_of.shard_id.to_string()),
                ("positions", as_of.position.to_string()),
                ("head", as_of.head.to_string()),
                ("projected", as_of.projected.to_string()),
                ("stock_projected", as_of.stock_projected.to_string()),
                ("checkpoint_size", text(checkpoint.map(|checkpoint| checkpoint.size))),
                ("checkpoint_root", text(checkpoint.map(|checkpoint| &checkpoint.root))),
            ]))?;
        }
        report.narrowed.iter().try_for_each(|account| csv.write_record(line(&narrowed(account))))?;
        for figures in &report.currencies {
            let mut cells = moved(&figures.moved);
            cells.extend([
                ("record", "CURRENCY".into()),
                ("currency", figures.currency.clone()),
                ("wallets", figures.wallets.to_string()),
                ("opening_balance", figures.opening_balance.to_string()),
                ("closing_balance", figures.closing_balance.to_string()),
            ]);
            csv.write_record(line(&cells))?;
        }
        report.days.iter().try_for_each(|figures| csv.write_record(line(&day(figures))))?;
        report.stock.iter().try_for_each(|figures| csv.write_record(line(&stock("STOCK", None, figures))))?;
        report.stock_days.iter().try_for_each(|of| csv.write_record(line(&stock("STOCK_DAY", Some(of.day), &of.figures))))?;
        report.wallets.iter().try_for_each(|figures| csv.write_record(line(&wallet(figures))))?;
        report.differences.differences.iter().try_for_each(|found| csv.write_record(line(&difference(found))))
    })?;
    Ok(out)
}

fn narrowed(account: &NarrowedAccount) -> [(&'static str, String); 6] {
    [
        ("record", "NARROWED".to_owned()),
        ("shard_id", account.shard_id.to_string()),
        ("account_id", account.account_id.to_string()),
        ("checked", account.checked.name().to_owned()),
        ("day", text(account.day)),
        ("checked_events", account.checked_events.to_string()),
    ]
}

fn day(figures: &DayFigures) -> Vec<(&'static str, String)> {
    let mut cells = moved(&figures.moved);
    cells.extend([("record", "DAY".into()), ("day", figures.day.to_string()), ("currency", figures.currency.clone())]);
    cells
}

/// Names of the columns of [`StockFigures::lots`].
const LOTS: [[&str; 3]; 7] = [
    ["opening_vouchers", "opening_unpriced", "opening_cost"],
    ["loaded_vouchers", "loaded_unpriced", "loaded_cost"],
    ["allocated_vouchers", "allocated_unpriced", "allocated_cost"],
    ["voided_vouchers", "voided_unpriced", "voided_cost"],
    ["expired_vouchers", "expired_unpriced", "expired_cost"],
    ["closing_vouchers", "closing_unpriced", "closing_cost"],
    ["transferred_vouchers", "transferred_unpriced", "transferred_cost"],
];

fn stock(record: &'static str, day: Option<NaiveDate>, figures: &StockFigures) -> Vec<(&'static str, String)> {
    let mut cells = vec![
        ("record", record.to_owned()),
        ("day", text(day)),
        ("currency", figures.currency.clone()),
        ("sales", figures.sales.to_string()),
        ("margin", figures.margin.to_string()),
    ];
    for ([vouchers, unpriced, cost], (_, lot)) in LOTS.into_iter().zip(figures.lots()) {
        cells.extend([(vouchers, lot.vouchers.to_string()), (unpriced, lot.unpriced.to_string()), (cost, lot.cost.to_string())]);
    }
    cells
}

fn wallet(figures: &WalletFigures) -> Vec<(&'static str, String)> {
    let mut cells = moved(&figures.moved);
    cells.extend([
        ("record", "WALLET".into()),
        ("shard_id", figures.shard_id.to_string()),
        ("account_id", text(figures.account_id)),
        ("wallet_id", figures.wallet_id.to_string()),
        ("currency", text(figures.currency.as_ref())),
        ("opening_balance", figures.opening_balance.to_string()),
        ("closing_balance", figures.closing_balance.to_string()),
    ]);
    cells
}

fn difference(found: &Difference) -> Vec<(&'static str, String)> {
    let positions: Vec<String> = found.positions.iter().map(ToString::to_string).collect();
    vec![
        ("record", "DIFFERENCE".into()),
        ("shard_id", found.shard_id.to_string()),
        ("wallet_id", text(found.wallet_id)),
        ("order_id", text(found.order_id)),
        ("payout_id", text(found.payout_id)),
        ("positions", positions.join(" ")),
        ("kind", found.kind.name().to_owned()),
        ("problem", inert(&found.problem).into_owned()),
    ]
}

const FIGURES: [&str; 5] = ["funding", "debits", "refunds", "adjustments", "movements"];

/// Renders the tables for a terminal: currencies, wallets, days and the stock by day.
pub fn tables(report: &Report) -> String {
    let figures = |moved: &MovementSums| {
        [
            moved.funding.to_string(),
            moved.debits.to_string(),
            moved.refunds.to_string(),
            moved.adjustments.to_string(),
            moved.movements.to_string(),
        ]
    };
    let mut parts = vec![];
    let rows = report.currencies.iter().map(|c| {
        let mut row = vec![c.currency.clone(), c.wallets.to_string(), c.opening_balance.to_string()];
        row.extend(figures(&c.moved));
        row.push(c.closing_balance.to_string());
        row
    });
    parts.push(table(&[&["currency", "wallets", "opening"][..], &FIGURES, &["closing"]].concat(), rows.collect()));
    let rows = report.wallets.iter().map(|w| {
        let mut row = vec![
            w.wallet_id.to_string(),
            w.account_id.map_or_else(|| "-".to_owned(), |id| id.to_string()),
            w.currency.clone().unwrap_or_else(|| "-".to_owned()),
            w.opening_balance.to_string(),
        ];
        row.extend(figures(&w.moved));
        row.push(w.closing_balance.to_string());
        row
    });
    parts.push(table(&[&["wallet", "account", "currency", "opening"][..], &FIGURES, &["closing"]].concat(), rows.collect()));
    let rows = report.days.iter().map(|d| {
        let mut row = vec![d.day.to_string(), d.currency.clone()];
        row.extend(figures(&d.moved));
        row
    });
    parts.push(table(&[&["day", "currency"][..], &FIGURES].concat(), rows.collect()));
    let rows = report.stock_days.iter().map(|of| {
        let mut row = vec![of.day.to_string(), of.figures.currency.clone()];
        row.extend(of.figures.lots().map(|(_, lot)| lot.vouchers.to_string()));
        row.extend([of.figures.closing.cost, of.figures.sales, of.figures.margin].map(|amount| amount.to_string()));
        row
    });
    let of_stock = ["opening", "loaded", "allocated", "voided", "expired", "closing", "transferred", "cost", "sales", "margin"];
    parts.push(table(&[&["stock of", "currency"][..], &of_stock].concat(), rows.collect()));
    parts.retain(|part| !part.is_empty());
    parts.join("\n\n")
}

/// Renders a right-aligned table. Returns an empty text if there are no rows.
fn table(head: &[&str], rows: Vec<Vec<String>>) -> String {
    if rows.is_empty() {
        return String::new();
    }
    let width = |at: usize| rows.iter().map(|row| row[at].chars().count()).chain([head[at].len()]).max().unwrap_or_default();
    let widths: Vec<usize> = (0..head.len()).map(width).collect();
    let line = |cells: Vec<&str>| {
        let padded = cells.into_iter().zip(&widths).map(|(cell, width)| format!("{cell:>width$}"));
        padded.collect::<Vec<_>>().join("  ")
    };
    let lines = rows.iter().map(|row| line(row.iter().map(String::as_str).collect()));
    [line(head.to_vec())].into_iter().chain(lines).collect::<Vec<_>>().join("\n")
}
