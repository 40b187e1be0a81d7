//! Text on a terminal. Names, reasons, answers and the like come from clients and from the network: what a terminal
//! would act on is shown instead, as `\u001b` for ESC. That is also how JSON writes it, so a line of JSON stays the same
//! value.

use std::borrow::Cow;
use std::fmt::Write as _;
use std::io::{self, Write};

/// Whether a terminal acts on a character instead of showing it: C0, DEL and C1, and the marks that change the direction
/// of what follows.
fn is_acted_on(c: char) -> bool {
    let is_bidirectional = matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    c.is_control() || is_bidirectional
}

fn push_escaped(out: &mut String, c: char) {
    _ = write!(out, "\\u{:04x}", u32::from(c)); // a String takes anything
}

/// A text from elsewhere, in one line.
pub fn value(text: &str) -> Cow<'_, str> {
    if !text.contains(is_acted_on) {
        return text.into();
    }
    let mut out = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        match c {
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            c if is_acted_on(c) => push_escaped(&mut out, c),
            c => out.push(c),
        }
    }
    out.into()
}

/// Whole lines of ours, whatever is in them: line ends, tabs, and the bold, dim and coloured text of commands and logs stay.
pub fn lines(text: &str) -> Cow<'_, str> {
    if !text.contains(|c| is_acted_on(c) && !matches!(c, '\n' | '\t')) {
        return text.into();
    }
    let mut out = String::with_capacity(text.len() + 16);
    let mut rest = text;
    while let Some(c) = rest.chars().next() {
        let taken = match c {
            '\u{1b}' => style(rest),
            '\n' | '\t' => Some(c.len_utf8()),
            c if is_acted_on(c) => None,
            c => Some(c.len_utf8()),
        };
        match taken {
            Some(length) => out.push_str(&rest[..length]),
            None => push_escaped(&mut out, c),
        }
        rest = &rest[taken.unwrap_or(c.len_utf8())..];
    }
    out.into()
}

/// The length of the sequence that a text begins with, if it only makes what follows bold, dim, italic, underlined or
/// coloured, or ends that.
fn style(text: &str) -> Option<usize> {
    let parameters = text.strip_prefix("\u{1b}[")?.split_once('m')?.0;
    let is_known = |parameter: &str| matches!(parameter.parse(), Ok(0_u8..=4 | 22..=24 | 31..=37 | 39 | 90..=97));
    parameters.split(';').all(is_known).then_some(parameters.len() + 3)
}

/// Writes [`lines`]. Each write is taken for whole characters, as loggers and printers do it.
#[derive(Debug)]
pub struct Escaping<W>(pub W);

impl<W: Write> Write for Escaping<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.write_all(bytes)?;
        Ok(bytes.len())
    }

    fn write_all(&mut self, bytes: &[u8]) -> io::Result<()> {
        if bytes.iter().all(|byte| matches!(byte, b'\n' | b'\t' | b' '..=b'~')) {
            return self.0.write_all(bytes);
        }
        self.0.write_all(lines(&String::from_utf8_lossy(bytes)).as_bytes())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use owo_colors::OwoColorize;

    use super::*;

    /// A title, a cleared screen, a colour, what C1 does the same with, and a name written backwards.
    const HOSTILE: &str = "\u{1b}]0;title\u{7}\u{1b}[2J\u{1b}[31mred\u{9b}2J\u{90}x\u{202e}eman\u{2066}\u{200f}\u{61c}\u{7f}\r";

    #[test]
    fn what_a_terminal_acts_on_is_shown() {
        let shown = value(HOSTILE);
        assert!(!shown.contains(is_acted_on), "{shown}");
        assert_eq!(value("\u{1b}[31mred\n\t"), "\\u001b[31mred\\n\\t");
        assert_eq!(value("Ünïcode — ✓ 日本語"), "Ünïcode — ✓ 日本語");
    }

    #[test]
    fn lines_keep_styles_alone() {
        let ours = format!("{}\n\t{} {}", "head".bold(), "good".green(), "dim".dimmed());
        assert_eq!(lines(&ours), ours);
        let shown = lines(HOSTILE).into_owned();
        let others = anstream::adapter::strip_str(&shown).to_string();
        assert!(!others.contains(is_acted_on), "{others:?}");
        assert!(shown.contains("\\u001b]0;title\\u0007\\u001b[2J") && shown.contains("\\u009b2J"), "{shown:?}");
        for hidden in ["\u{1b}[8mhidden", "\u{1b}[7m", "\u{1b}[1;8m", "\u{1b}[m\u{1b}[", "\u{1b}[38;5;1m\u{1b}"] {
            assert!(lines(hidden).contains("\\u001b"), "{hidden:?}");
        }
    }

    #[test]
    fn escaped_json_is_the_same_value() {
        let value = serde_json::json!({ "name": HOSTILE });
        let line = lines(&value.to_string()).into_owned();
        assert!(!line.contains(is_acted_on), "{line}");
        assert_eq!(serde_json::from_str::<serde_json::Value>(&line).unwrap(), value);
    }

    #[test]
    fn a_writer_escapes_what_is_written() {
        let mut written = Escaping(vec![]);
        written.write_all("plain\n".as_bytes()).unwrap();
        write!(written, "{HOSTILE}").unwrap();
        let text = String::from_utf8(written.0).unwrap();
        assert!(text.starts_with("plain\n") && text.contains("\\u202e") && !text.contains('\u{202e}'), "{text:?}");
    }
}
