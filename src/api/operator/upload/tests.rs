//! Properties of the CSV reader for arbitrary input: it does not panic, accounts for every row, and echoes no code.

use proptest::prelude::*;

use super::{COLUMNS, Defaults, MAX_NAMED_ROWS, Vouchers, rows};

fn default() -> Defaults {
    Defaults { denomination: "25.00".parse().ok(), cost: None, supplier_reference: None }
}

/// Returns the number of rows in a CSV text, counted by an independent reader.
fn count(text: &str) -> usize {
    csv::ReaderBuilder::new().flexible(true).from_reader(text.trim_start_matches('\u{feff}').as_bytes()).records().count()
}

fn field() -> impl Strategy<Value = String> {
    prop_oneof![
        "[ -~]{0,12}",
        "\\PC{0,8}",
        any::<String>(),
        Just("2027-12-31".to_owned()),
        Just("10.00".to_owned()),
        Just("https://example.com/x".to_owned()),
    ]
}

fn written(rows: &[Vec<String>]) -> String {
    let mut writer = csv::WriterBuilder::new().flexible(true).from_writer(Vec::new());
    for row in rows {
        writer.write_record(row).unwrap();
    }
    String::from_utf8(writer.into_inner().unwrap()).unwrap()
}

proptest! {
    #[test]
    fn no_text_panics(text in any::<String>(), has_default: bool) {
        let _ = rows(&text, if has_default { default() } else { Defaults { denomination: None, ..default() } });
    }

    #[test]
    fn no_near_csv_panics(text in "(card_number|pin|denomination|[,;\"\r\n 0-9.\u{feff}\u{0}a-e-]){0,40}") {
        let _ = rows(&text, default());
    }

    #[test]
    fn every_row_is_accepted_or_rejected(
        columns in prop::sample::subsequence(COLUMNS.to_vec(), 0..=COLUMNS.len()).prop_shuffle(),
        body in prop::collection::vec(prop::collection::vec(field(), 1..8), 0..30),
    ) {
        let mut table = vec![columns.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>()];
        if !columns.contains(&"card_number") {
            table[0].push("card_number".to_owned());
        }
        let text = { table.extend(body); written(&table) };
        let Ok(Vouchers { good, rejected, .. }) = rows(&text, default()) else { return Ok(()) };
        prop_assert_eq!(good.len() + rejected.len(), count(&text));
        prop_assert!(rejected.windows(2).all(|pair| pair[0].0 < pair[1].0), "in order");
        for (row, reason) in &rejected {
            prop_assert!(*row >= 1 && reason.len() < 200, "{}", reason);
        }
        for priced in &good {
            prop_assert!(priced.denomination.is_positive() && !priced.voucher.card_number.expose().is_empty());
        }
    }

    /// Values that need quoting are read unchanged.
    #[test]
    fn quoted_values_are_read_unchanged(codes in prop::collection::vec("[!-~]([ -~]{0,10}[!-~])?", 1..20)) {
        let mut table = vec![vec!["card_number".to_owned(), "denomination".to_owned()]];
        table.extend(codes.iter().map(|code| vec![code.clone(), "10.00".to_owned()]));
        let read = rows(&written(&table), Defaults { denomination: None, ..default() }).unwrap();
        prop_assert!(read.rejected.is_empty(), "{:?}", read.rejected);
        let cards: Vec<String> = read.good.iter().map(|priced| priced.voucher.card_number.expose().to_owned()).collect();
        prop_assert_eq!(cards, codes);
    }

    #[test]
    fn an_error_never_contains_a_code(code in "[A-Z0-9]{12,20}", bad_rows in 1..20_usize) {
        let text = format!("card_number,expires_on\n{}", format!("{code},{code}\n").repeat(bad_rows));
        let read = rows(&text, default()).unwrap();
        prop_assert_eq!(read.rejected.len(), bad_rows);
        prop_assert!(read.rejected.iter().all(|(_, reason)| !reason.contains(&code)));
        // A code in place of the column names is not echoed either.
        let refused = rows(&format!("{code}\n"), default()).err().unwrap();
        let shown = format!("{refused:?}");
        prop_assert!(!shown.contains(&code));
    }
}

#[test]
fn each_row_has_its_cost_or_that_of_the_upload() {
    let defaults = || Defaults { cost: "9.10".parse().ok(), ..default() };
    let read = rows("card_number,cost\na,8.25\nb,\nc,0\nd,-1\ne,free\n", defaults()).unwrap();
    let costs: Vec<String> = read.good.iter().map(|priced| priced.cost.unwrap().to_string()).collect();
    assert_eq!(costs, ["8.25", "9.10", "0.00"]);
    assert_eq!(read.rejected.iter().map(|(row, _)| *row).collect::<Vec<_>>(), [4, 5]);
    assert!(rows("card_number\na\n", default()).unwrap().good[0].cost.is_none());
}

#[test]
fn the_number_of_rejected_rows_is_limited() {
    let text = format!("card_number\n{}", "\"\"\n".repeat(MAX_NAMED_ROWS + 1));
    assert!(rows(&text, default()).is_err());
    let text = format!("card_number\n{}", "\"\"\n".repeat(MAX_NAMED_ROWS));
    assert_eq!(rows(&text, default()).unwrap().rejected.len(), MAX_NAMED_ROWS);
}
