//! CSV that spreadsheets take as it is meant.

use std::borrow::Cow;
use std::io::Write;

use csv::{Terminator, WriterBuilder};

/// Writes rows as RFC 4180 says: a comma, quotes where they are needed, and lines that end with CR
/// and LF.
pub fn rows<W: Write>(out: W, write: impl FnOnce(&mut csv::Writer<W>) -> Result<(), csv::Error>) -> Result<(), csv::Error> {
    let mut csv = WriterBuilder::new().terminator(Terminator::CRLF).from_writer(out);
    write(&mut csv)?;
    Ok(csv.flush()?)
}

/// A text that no spreadsheet takes for a formula: it would compute what somebody else wrote.
pub fn inert(text: &str) -> Cow<'_, str> {
    match text.starts_with(['=', '+', '-', '@', '\t', '\r', '\n']) {
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
        assert_eq!(inert("ORD-0000000001"), "ORD-0000000001");
    }
}
