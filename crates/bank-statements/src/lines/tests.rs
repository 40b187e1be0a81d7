#![allow(clippy::unwrap_used)]

use super::*;

/// Accepts all currencies but one.
fn is_currency(code: &str) -> bool {
    code != "KWD"
}

fn shown(lines: &[BankLine]) -> Vec<String> {
    let shown =
        |l: &BankLine| format!("{} {} {} {} {}", l.number, l.booked_on, l.direction.as_str(), l.amount, l.references.join("/"));
    lines.iter().map(shown).collect()
}

#[test]
fn columns_are_found_by_name_and_the_sign_gives_the_direction() {
    let text = "Reference,Currency,Amount,Date\nA-1,EUR,\"1,000.50\",2026-01-31\n,EUR,0.00,2026-01-31\nB,eur,-7,2026-02-01\n";
    let lines = from_csv(text, &Columns::default(), is_currency).unwrap();
    assert_eq!(shown(&lines), ["1 2026-01-31 CREDIT 1000.50 A-1", "2 2026-02-01 DEBIT 7.00 B"]);
}

#[test]
fn the_notation_of_another_bank_is_configurable() {
    let text = "\u{feff}Buchung;Betrag;Zweck;SollHaben\n31.01.2026;1.000,50;Rechnung 5;C\n01.02.2026;7,00;x;D\n";
    let columns = Columns {
        date: "Buchung".into(),
        amount: "Betrag".into(),
        reference: "zweck".into(),
        direction: "SollHaben".into(),
        default_currency: Some("EUR".to_owned()),
        date_format: "%d.%m.%Y".into(),
        is_decimal_comma: true,
        ..Columns::default()
    };
    let lines = from_csv(text, &columns, is_currency).unwrap();
    assert_eq!(shown(&lines), ["1 2026-01-31 CREDIT 1000.50 Rechnung 5", "2 2026-02-01 DEBIT 7.00 x"]);
}

#[test]
fn errors_name_the_row_without_repeating_its_content() {
    let read = |text: &str| from_csv(text, &Columns::default(), is_currency).unwrap_err().to_string();
    assert_eq!(read("date,amount,currency\n"), "has no column \"reference\"");
    assert_eq!(read("date,amount,currency,reference\n"), "has no booked lines");
    for (names, twice) in
        [("date,amount,currency,reference,Amount", "amount"), ("text,date,amount,currency,reference,text", "text")]
    {
        assert_eq!(read(&format!("{names}\n")), format!("has more than one column {twice:?}"));
    }
    assert_eq!(read("date,x,amount,currency,reference,x\n"), "has no booked lines", "columns that are not read");
    let rows = |row: &str| read(&format!("date,amount,currency,reference,direction\n2026-01-31,1,EUR,a,C\n{row}\n"));
    assert_eq!(rows("31.01.2026,1,EUR,a,C"), "row 2 has a date that does not match the date format");
    assert_eq!(rows("2026-01-31,secret,EUR,a,C"), format!("row 2 {}", amount("secret", false).unwrap_err()));
    assert_eq!(rows("2026-01-31,1,KWD,a,C"), "row 2 has a currency that is not accepted");
    assert_eq!(rows("2026-01-31,-1,EUR,a,C"), "row 2 has an amount below zero beside a direction");
    assert_eq!(rows("2026-01-31,1,EUR,a,B"), "row 2 has a direction other than CREDIT and DEBIT");
    assert_eq!(rows("2026-01-31,1"), "row 2 has another number of columns than the first line, or is not CSV");
    let many = "2026-01-31,1,EUR,a\n".repeat(MAX_LINES + 1);
    assert!(read(&format!("date,amount,currency,reference\n{many}")).contains("more than 50,000 lines"));
}

/// An amount in the other notation is refused, never read as another amount.
#[test]
fn separators_stand_between_groups_of_three_digits() {
    let read = |text: &str, is_decimal_comma| amount(text, is_decimal_comma).map(|money| money.to_string()).ok();
    let either_way = [("7", "7.00"), ("1000", "1000.00"), ("1'000", "1000.00"), ("12 345 678", "12345678.00"), ("-5", "-5.00")];
    let by_point =
        [("1,000.50", "1000.50"), ("1'000.50", "1000.50"), ("1 000.50", "1000.50"), ("+7.5", "7.50"), ("1,000", "1000.00")];
    let by_comma = [
        ("1.000,50", "1000.50"),
        ("7,00", "7.00"),
        ("1'000,50", "1000.50"),
        ("- 1.234.567,89", "-1234567.89"),
        ("1.000", "1000.00"),
    ];
    for (text, expected) in either_way.iter().chain(&by_point) {
        assert_eq!(read(text, false).as_deref(), Some(*expected), "{text}");
    }
    for (text, expected) in either_way.iter().chain(&by_comma) {
        assert_eq!(read(text, true).as_deref(), Some(*expected), "{text}");
    }
    let never = ["1_0", "1'0000", "1 00", "'100", "100'", "1'000 000", "1e3", "--1", "-", "٣", "0x1"];
    let no_point =
        ["7,00", "1000,50", "1.000,50", "1,00,000", ",5", ".5", "5.", "1,0000", "1,,000", "1000,000", "1.001", "1.2.3"];
    let no_comma = ["7.00", "1000.50", "1,000.50", "1.00.000", ".5", ",5", "5,", "1.0000", "1.000.5", "1,001", "1,2,3"];
    for text in never.iter().chain(&no_point) {
        assert_eq!(read(text, false), None, "{text}");
    }
    for text in never.iter().chain(&no_comma) {
        assert_eq!(read(text, true), None, "{text}");
    }
}

/// Callers store this form, and may hash it.
#[test]
fn the_json_form_is_stable() {
    let text = "date,amount,currency,reference,text\n2026-01-31,-1000.5,eur,a,b\n";
    let lines = from_csv(text, &Columns::default(), is_currency).unwrap();
    let json = r#"{"number":1,"booked_on":"2026-01-31","amount":"1000.50","currency":"EUR","direction":"DEBIT","is_reversal":false,"references":["a"],"text":"b"}"#;
    assert_eq!(serde_json::to_string(&lines[0]).unwrap(), json);
    assert_eq!(serde_json::from_str::<BankLine>(json).unwrap(), lines[0]);
}

#[test]
fn equal_lines_of_one_file_are_distinct_and_have_the_same_identities_in_another_file() {
    let text = "date,amount,currency,reference\n2026-01-31,1,EUR,a\n2026-01-31,1,EUR,a\n2026-01-31,1,EUR,b\n";
    let lines = from_csv(text, &Columns::default(), is_currency).unwrap();
    let first = identities(&lines);
    assert_ne!(first[0], first[1]);
    assert_eq!(first[..1], identities(&lines[1..2])[..]);
}

#[test]
fn a_csv_takes_accounts_from_its_column_or_from_the_default() {
    let text = "date,amount,currency,reference,account\n2026-01-31,1,EUR,,de89 3704\n2026-01-31,1,EUR,,\n2026-01-31,1,EUR,,\n";
    let read = |account: Option<&str>, default_account: Option<&str>| {
        let columns = Columns {
            account: account.map(str::to_owned),
            default_account: default_account.map(str::to_owned),
            ..Columns::default()
        };
        from_csv(text, &columns, is_currency)
    };
    let accounts = |lines: &[BankLine]| lines.iter().map(|line| line.account.clone().unwrap_or_default()).collect::<Vec<_>>();
    assert_eq!(accounts(&read(None, None).unwrap()), ["", "", ""]);
    assert_eq!(accounts(&read(Some("Account"), None).unwrap()), ["DE893704", "", ""]);
    let both = read(Some("account"), Some("x 1")).unwrap();
    assert_eq!(accounts(&both), ["DE893704", "X1", "X1"]);
    assert_eq!(read(Some("iban"), None), Err(LineError::Column("iban".to_owned())));
    // Each account has its own counter. The identity excludes the account, as it did before accounts were read.
    let [one, first, second] = &*identities(&both) else { panic!("three lines") };
    assert!(one == first && first != second);
    assert_eq!(one, &identities(&read(None, None).unwrap())[0]);
}
