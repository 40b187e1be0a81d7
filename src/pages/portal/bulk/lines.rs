//! The lines of a bulk order: read from a CSV, and written again in one canonical form.

use csv::{ReaderBuilder, StringRecord, Trim};
use ledger_events::Money;
use maud::html;
use sha2::{Digest, Sha256};
use std::collections::HashSet;

/// Largest number of lines.
pub const MAX_LINES: usize = 1_000;
/// Largest size of the canonical form in a page, in bytes. The pages carry it, and a page is small.
const MAX_BYTES: usize = 90_000;
/// Largest number of problems that are named.
pub const MAX_PROBLEMS: usize = 100;
/// Columns, in the canonical order. The last one is optional.
pub const COLUMNS: [&str; 4] = ["product_id", "denomination", "quantity", "client_reference"];
const MAX_REFERENCE: usize = 100;

/// An order to place.
#[derive(Clone, Debug, PartialEq)]
pub struct Line {
    pub product_id: i64,
    pub denomination: Money,
    pub quantity: i32,
    pub reference: Option<String>,
}

/// A problem with a line, or with the whole file.
#[derive(Clone, Debug, PartialEq)]
pub struct Problem {
    /// Number of the line, from 1 below the header; none for the whole file.
    pub line: Option<usize>,
    pub text: String,
}

impl Problem {
    pub fn of_line(index: usize, text: impl Into<String>) -> Problem {
        Problem { line: Some(index + 1), text: text.into() }
    }

    fn of_file(text: impl Into<String>) -> Vec<Problem> {
        vec![Problem { line: None, text: text.into() }]
    }
}

/// Reads the lines of a CSV with a header row. A spreadsheet may separate columns by semicolons.
///
/// # Errors
/// The problems of the lines, in their order, or of the whole file.
pub fn read(bytes: &[u8]) -> Result<Vec<Line>, Vec<Problem>> {
    let text = std::str::from_utf8(bytes).map_err(|_| Problem::of_file("is not UTF-8 text"))?;
    let text = text.trim_start_matches('\u{feff}');
    let header = text.lines().next().unwrap_or_default();
    let delimiter = if header.contains(';') && !header.contains(',') { b';' } else { b',' };
    let mut reader = ReaderBuilder::new().trim(Trim::All).delimiter(delimiter).from_reader(text.as_bytes());
    let names = reader.headers().map_err(|_| Problem::of_file("is not CSV"))?.clone();
    let places = places(&names)?;
    let (mut lines, mut problems) = (vec![], vec![]);
    let mut references = HashSet::new();
    for (index, record) in reader.records().enumerate() {
        if index >= MAX_LINES {
            return Err(Problem::of_file(format!("has more than {MAX_LINES} lines")));
        }
        let read = record.map_err(|_| "has a different number of columns than the header".to_owned());
        match read.and_then(|record| line(&record, places)) {
            Ok(line) if line.reference.as_ref().is_some_and(|reference| !references.insert(reference.clone())) => {
                problems.push(Problem::of_line(index, "has the client_reference of an earlier line"));
            }
            Ok(line) => lines.push(line),
            Err(problem) => problems.push(Problem::of_line(index, problem)),
        }
    }
    if !problems.is_empty() {
        return Err(problems);
    }
    if lines.is_empty() {
        return Err(Problem::of_file("has no line below its header"));
    }
    Ok(lines)
}

/// Finds the columns.
fn places(names: &StringRecord) -> Result<[Option<usize>; 4], Vec<Problem>> {
    let wrong = names.iter().any(|name| !COLUMNS.contains(&name));
    let twice = COLUMNS.iter().any(|column| names.iter().filter(|name| name == column).count() > 1);
    let places = COLUMNS.map(|column| names.iter().position(|name| name == column));
    match wrong || twice || places[..3].contains(&None) {
        true => Err(Problem::of_file(format!(
            "must name the columns {} in its first line. The last column is optional",
            COLUMNS.join(", ")
        ))),
        false => Ok(places),
    }
}

fn line(record: &StringRecord, places: [Option<usize>; 4]) -> Result<Line, String> {
    let value = |column: usize| places[column].and_then(|place| record.get(place)).unwrap_or_default();
    let reference = Some(value(3)).filter(|text| !text.is_empty());
    if reference.is_some_and(|text| text.chars().count() > MAX_REFERENCE || text.chars().any(char::is_control)) {
        return Err(format!("client_reference must be at most {MAX_REFERENCE} characters, without control characters"));
    }
    let product_id = value(0).parse().ok().filter(|id: &i64| *id > 0);
    let denomination = value(1).parse().ok().filter(|amount: &Money| amount.is_positive());
    let quantity = value(2).parse().ok().filter(|quantity: &i32| *quantity > 0);
    Ok(Line {
        product_id: product_id.ok_or("product_id must be the number of a product")?,
        denomination: denomination.ok_or("denomination must be an amount such as 25.00")?,
        quantity: quantity.ok_or("quantity must be a whole number of at least 1")?,
        reference: reference.map(ToOwned::to_owned),
    })
}

/// Writes the lines in their canonical form. Two files with the same orders have the same form, however they are written.
///
/// # Errors
/// A problem of the whole file, if the form is too long.
pub fn canonical(lines: &[Line]) -> Result<String, Vec<Problem>> {
    let write = || -> Result<String, csv::Error> {
        let mut writer = csv::Writer::from_writer(vec![]);
        writer.write_record(COLUMNS)?;
        for line in lines {
            let (id, quantity) = (line.product_id.to_string(), line.quantity.to_string());
            writer.write_record([
                &*id,
                &*line.denomination.to_string(),
                &*quantity,
                line.reference.as_deref().unwrap_or_default(),
            ])?;
        }
        let bytes = writer.into_inner().map_err(|error| error.into_error())?;
        String::from_utf8(bytes).map_err(|error| csv::Error::from(std::io::Error::other(error)))
    };
    match write() {
        Ok(text) if html! { (text) }.0.len() <= MAX_BYTES => Ok(text),
        Ok(_) => Err(Problem::of_file("is too long. Split it, or use shorter references")),
        Err(error) => Err(Problem::of_file(format!("cannot be written: {error}"))),
    }
}

/// Returns the idempotency key of each line. It depends on the whole file, the line's number and its reference, so a file
/// that is sent again places nothing twice.
pub fn keys(canonical: &str, lines: &[Line]) -> Vec<String> {
    let file = Sha256::digest(canonical);
    let key = |(index, line): (usize, &Line)| {
        let mut hash = Sha256::new_with_prefix(file);
        hash.update((index as u64).to_be_bytes());
        hash.update(line.reference.as_deref().unwrap_or_default());
        format!("bulk-{}", hex::encode(hash.finalize()))
    };
    lines.iter().enumerate().map(key).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const FILE: &str = "product_id,denomination,quantity,client_reference\n7,10,2,a\n8,5.50,1,\n";

    fn problems(text: &str) -> Vec<String> {
        let line = |line: Option<usize>| line.map_or("file".to_owned(), |line| line.to_string());
        read(text.as_bytes())
            .unwrap_err()
            .into_iter()
            .map(|problem| format!("{}: {}", line(problem.line), problem.text))
            .collect()
    }

    #[test]
    fn files_of_spreadsheets_are_read() {
        let lines = read(FILE.as_bytes()).unwrap();
        assert_eq!(
            lines[0],
            Line { product_id: 7, denomination: "10.00".parse().unwrap(), quantity: 2, reference: Some("a".into()) }
        );
        let other = "\u{feff}client_reference;quantity;product_id;denomination\r\na; 2;7;10.0\r\n\r\n;1;8;5.5\r\n";
        assert_eq!(read(other.as_bytes()).unwrap(), lines);
        assert_eq!(read(b"product_id,denomination,quantity\n7,10,2").unwrap()[0].reference, None);
    }

    #[test]
    fn every_wrong_line_is_named() {
        let text = "product_id,denomination,quantity,client_reference\n0,10,1,\n7,ten,1,\n7,10,0,\n7,10,1,a\n7,10,1,a\n7,10\n";
        let found = problems(text);
        assert_eq!(
            found,
            [
                "1: product_id must be the number of a product",
                "2: denomination must be an amount such as 25.00",
                "3: quantity must be a whole number of at least 1",
                "5: has the client_reference of an earlier line",
                "6: has a different number of columns than the header",
            ]
        );
    }

    #[test]
    fn a_file_without_columns_or_lines_is_refused() {
        for text in ["", "7,10,1\n", "product_id,quantity\n7,1\n", "product_id,product_id,denomination,quantity\n"] {
            assert!(problems(text)[0].contains("must name the columns"), "{text}");
        }
        assert_eq!(problems("product_id,denomination,quantity\n"), ["file: has no line below its header"]);
        let long = "product_id,denomination,quantity\n".to_owned() + &"7,10,1\n".repeat(MAX_LINES + 1);
        assert_eq!(problems(&long), ["file: has more than 1000 lines"]);
    }

    #[test]
    fn a_file_that_a_page_cannot_carry_is_refused() {
        let line = |n: usize, reference: String| Line {
            product_id: 7,
            denomination: "1.00".parse().unwrap(),
            quantity: 1,
            reference: Some(format!("{n}{reference}")),
        };
        let lines = |of: &str| (0..MAX_LINES).map(|n| line(n, of.repeat(60))).collect::<Vec<_>>();
        assert!(canonical(&lines("a")).is_ok());
        // A quote takes twelve characters in a page: it is doubled in CSV, and escaped in HTML.
        assert!(canonical(&lines("\"")).unwrap_err()[0].text.contains("too long"));
    }

    #[test]
    fn keys_depend_on_the_file_the_line_and_the_reference() {
        let lines = read(FILE.as_bytes()).unwrap();
        let text = canonical(&lines).unwrap();
        let all = keys(&text, &lines);
        assert_eq!(keys(&text, &lines), all);
        assert_ne!(all[0], all[1]);
        assert_ne!(keys(&canonical(&lines[..1]).unwrap(), &lines[..1])[0], all[0]);
        assert!(all.iter().all(|key| key.len() == 69 && key.is_ascii()));
    }

    proptest! {
        #[test]
        fn any_text_is_read_or_refused(text in ".{0,300}") {
            let with_header = format!("product_id,denomination,quantity,client_reference\n{text}");
            if let Ok(lines) = read(with_header.as_bytes()) {
                let canonical = canonical(&lines).unwrap();
                prop_assert_eq!(read(canonical.as_bytes()).unwrap(), lines);
            }
        }

        #[test]
        fn references_survive_the_canonical_form(reference in "[ -~äß\"',;]{1,40}") {
            let line = Line { product_id: 7, denomination: "1.00".parse().unwrap(), quantity: 1, reference: Some(reference.trim().to_owned()) };
            prop_assume!(line.reference.as_deref() != Some(""));
            let text = canonical(std::slice::from_ref(&line)).unwrap();
            prop_assert_eq!(read(text.as_bytes()).unwrap(), vec![line]);
        }
    }
}
