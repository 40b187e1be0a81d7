//! The result of an upload of vouchers: its refused rows with their reasons, and the rows whose vouchers were there before.

use std::collections::BTreeMap;

use maud::{Markup, html};
use poem::Response;
use serde::Deserialize;

use super::{Product, audit_of};
use crate::pages::parts::values::{counted, figure};
use crate::pages::parts::{layout, table};
use crate::pages::visit::Visit;

/// Largest number of refused rows in the table of single rows.
const MAX_ROWS: usize = 500;
/// Largest size of the refused rows in a table, in bytes.
const MAX_TABLE_BYTES: usize = 90_000;
/// Largest size of the text that names the further refused rows, in bytes.
const MAX_FURTHER: usize = 50_000;

/// Result of an upload, as `POST /admin/v1/products/:id/vouchers` returns it.
#[derive(Debug, Deserialize)]
pub struct Loaded {
    accepted: i64,
    duplicates: i64,
    duplicate_rows: Vec<i64>,
    rejected: Vec<Rejected>,
}

#[derive(Debug, Deserialize)]
struct Rejected {
    row: i64,
    reason: String,
}

/// Shows what became of the rows of an upload.
pub fn page(visit: &Visit, product: &Product, loaded: &Loaded) -> Response {
    let path = format!("/console/products/{}", product.id);
    let is_good = loaded.rejected.is_empty();
    let body = html! {
        p.notice.good[is_good].wait[!is_good] role="status" {
            @if is_good { "Every row is in the stock." } @else { "Some rows were refused. Correct them, and send the file again: no voucher is added twice." }
        }
        div.figures {
            (figure("Added", &html! { a href=(audit_of(product.id, "VoucherStockLoaded")) { (loaded.accepted) } }))
            (figure("Already there", &counted(loaded.duplicates, "#duplicates")))
            (figure("Refused", &refused_below(loaded.rejected.len())))
        }
        @if !is_good { (refused_rows(&loaded.rejected)) }
        @if loaded.duplicates > 0 { (duplicates(loaded.duplicates, &loaded.duplicate_rows)) }
        p.actions {
            a.button href={ (path) "/stock" } { "To the stock" }
            a href={ (path) "/vouchers" } { "Load more vouchers" }
        }
    };
    layout::page(visit, &format!("Vouchers of {}", product.name), &body)
}

/// Renders the number of refused rows or vouchers, which leads to their table below.
pub fn refused_below(count: usize) -> Markup {
    counted(count as u64, "#refused")
}

/// Lists the refused rows of an upload: the first ones in a table, and the further ones by their reason.
fn refused_rows(rejected: &[Rejected]) -> Markup {
    let columns = [("Row", true), ("Reason", false)];
    let row = |rejected: &Rejected| vec![html! { (rejected.row) }, html! { (rejected.reason) }];
    let rows = table::fitting(rejected.iter().take(MAX_ROWS).map(row), MAX_TABLE_BYTES);
    let (further, left_out) = by_reason(&rejected[rows.len()..], MAX_FURTHER);
    let further: Vec<Vec<Markup>> =
        further.into_iter().map(|(reason, rows)| vec![html! { (rows) }, html! { (reason) }]).collect();
    html! {
        h2 #refused { "Refused rows" }
        p.quiet { "The header row is not counted." }
        (table::table("Refused rows", &columns, &rows))
        @if !further.is_empty() {
            h3 { "Further refused rows" }
            (table::table("Further refused rows", &[("Rows", false), ("Reason", false)], &further))
        }
        @if left_out > 0 {
            p { "And " (left_out) " more. The next upload of the file names them, once the rows above are correct or left out of it." }
        }
    }
}

/// Names rows by their reason, in at most this many bytes. Returns the number of the rows that are left out, too.
fn by_reason(rejected: &[Rejected], most: usize) -> (Vec<(&str, String)>, usize) {
    let mut rows: BTreeMap<&str, Vec<i64>> = BTreeMap::new();
    for rejected in rejected {
        rows.entry(&rejected.reason).or_default().push(rejected.row);
    }
    let (mut room, mut left_out) = (most, 0);
    let mut named = vec![];
    for (reason, rows) in rows {
        let (text, shown) = ranges(&rows, room);
        left_out += rows.len() - shown;
        room -= text.len();
        if shown > 0 {
            named.push((reason, text));
        }
    }
    (named, left_out)
}

/// Names rows in ascending order, as many as fit into this number of bytes. Consecutive ones become a range. Returns the number
/// of the rows that are named, too.
fn ranges(rows: &[i64], most: usize) -> (String, usize) {
    let (mut text, mut named) = (String::new(), 0);
    for range in rows.chunk_by(|row, next| *next == row + 1) {
        let separator = if text.is_empty() { "" } else { ", " };
        let next = match range {
            [first, .., last] => format!("{separator}{first}–{last}"),
            [only] => format!("{separator}{only}"),
            [] => continue,
        };
        if next.len() > most - text.len() {
            break;
        }
        text.push_str(&next);
        named += range.len();
    }
    (text, named)
}

/// Lists the rows of an upload whose vouchers the product already has.
fn duplicates(count: i64, rows: &[i64]) -> Markup {
    let further = count.saturating_sub(i64::try_from(rows.len()).unwrap_or(i64::MAX));
    html! {
        h2 #duplicates { "Rows already there" }
        p { (ranges(rows, usize::MAX).0) }
        p.quiet { "The product already has these vouchers, so they are not added again. The header row is not counted." }
        @if further > 0 { p { "And " (further) " more." } }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn duplicates_are_named_by_their_rows() {
        let markup = duplicates(7, &[1, 2, 3, 5]).0;
        assert!(markup.contains("1–3, 5") && markup.contains("And 3 more."), "{markup}");
        assert!(!duplicates(1, &[4]).0.contains("more."));
    }

    #[test]
    fn every_refused_row_that_the_api_names_is_on_a_small_page() {
        let reason = |row: i64| match row % 2 {
            0 => "voucher_reference_number must be at most 100 characters, without control characters",
            _ => "has a different number of columns than the first line, or is not CSV",
        };
        let rejected = |last: i64| -> Vec<Rejected> {
            (1..=last).map(|row| Rejected { row: 900_000 + row, reason: reason(row).to_owned() }).collect()
        };
        let markup = refused_rows(&rejected(1_000)).0;
        assert!(markup.len() < 150_000 && !markup.contains(" more."), "{} bytes", markup.len());
        for row in 1..=1_000 {
            assert!(markup.contains(&(900_000 + row).to_string()), "row {row}");
        }
        // Rows without a valid face value have no limit.
        let many = refused_rows(&rejected(50_000)).0;
        assert!(many.len() < 150_000 && many.contains(" more."), "{} bytes", many.len());
        let alike: Vec<Rejected> = (1..=500_000).map(|row| Rejected { row, reason: reason(0).to_owned() }).collect();
        let alike = refused_rows(&alike).0;
        assert!(alike.contains("–500000</td>") && !alike.contains(" more."), "{} bytes", alike.len());
    }

    #[test]
    fn further_rows_are_named_by_their_reason() {
        let rejected: Vec<Rejected> =
            [1, 2, 3, 5].map(|row| Rejected { row, reason: if row == 2 { "<b>" } else { "late" }.to_owned() }).into();
        let named = |most: usize| {
            let (named, left_out) = by_reason(&rejected, most);
            (named.into_iter().map(|(reason, rows)| format!("{reason}: {rows}")).collect::<Vec<_>>(), left_out)
        };
        assert_eq!(named(100), (vec!["<b>: 2".to_owned(), "late: 1, 3, 5".to_owned()], 0));
        assert_eq!(named(5), (vec!["<b>: 2".to_owned(), "late: 1, 3".to_owned()], 1));
        assert_eq!(ranges(&[1, 2, 3, 5], 100), ("1–3, 5".to_owned(), 4));
        assert_eq!(ranges(&[1, 2, 3, 5], 4), (String::new(), 0));
    }
}
