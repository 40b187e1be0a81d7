//! CSV output that is safe to open in a spreadsheet.

use std::borrow::Cow;
use std::io::Write;

use csv::{Terminator, WriterBuilder};

/// Writes rows according to RFC 4180: commas, quotes where necessary, and lines that end with CR and LF.
pub fn rows<W: Write>(out: W, write: impl FnOnce(&mut csv::Writer<W>) -> Result<(), csv::Error>) -> Result<(), csv::Error> {
    let mut csv = WriterBuilder::new().terminator(Terminator::CRLF).from_writer(out);
    write(&mut csv)?;
    Ok(csv.flush()?)
}

/// First characters of a formula. Spreadsheets accept the full-width and small forms of East Asian text too.
const FORMULA: [char; 13] = [
    '=', '+', '-', '@', '\u{ff1d}', '\u{ff0b}', '\u{ff0d}', '\u{ff20}', '\u{fe66}', '\u{fe62}', '\u{fe63}', '\u{fe6b}',
    '\u{2212}',
];

/// Returns a text that no spreadsheet executes as a formula, by putting an apostrophe before texts that look like one. A
/// spreadsheet may skip spaces, control characters and invisible marks before a formula, so this function skips them too.
pub fn inert(text: &str) -> Cow<'_, str> {
    let is_passed_over = |c: char| {
        c.is_whitespace()
            || c.is_control()
            || matches!(c, '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2060}'..='\u{2069}' | '\u{feff}')
    };
    match text.starts_with(['\t', '\r', '\n']) || text.trim_start_matches(is_passed_over).starts_with(FORMULA) {
        true => Cow::Owned(format!("'{text}")),
        false => Cow::Borrowed(text),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_text_is_a_formula() {
        for formula in ["=1+1", "+1", "-1", "@SUM(A1)", "\t=1", "\r=1"] {
            assert_eq!(inert(formula), format!("'{formula}"));
        }
        for formula in [
            "\u{ff1d}1+1",
            "\u{ff0b}1",
            "\u{ff0d}1",
            "\u{ff20}SUM(A1)",
            "\u{fe66}1",
            "\u{2212}1",
            " =1",
            "\u{feff}=1",
            "\u{202e}=1",
        ] {
            assert_eq!(inert(formula), format!("'{formula}"));
        }
        for text in ["ORD-0000000001", " 1 = 1", "", " ", "a=1"] {
            assert_eq!(inert(text), text);
        }
    }
}
