//! Escapes text for terminals. Names, reasons, and response bodies come from clients and from the network. Characters
//! that a terminal would interpret are printed as escapes, such as `\u001b` for ESC. JSON uses the same escapes, so a line
//! of JSON keeps its value.

use std::borrow::Cow;
use std::fmt::Write as _;
use std::io::{self, Write};

/// Returns whether a terminal interprets a character instead of showing it: C0, DEL, C1, and the marks that change the text
/// direction.
fn is_acted_on(c: char) -> bool {
    let is_bidirectional = matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    c.is_control() || is_bidirectional
}

fn push_escaped(out: &mut String, c: char) {
    _ = write!(out, "\\u{:04x}", u32::from(c)); // writing to a String cannot fail
}

/// Escapes text from an external source, and keeps it on one line.
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

/// Escapes whole lines of our own output, which may contain external text. Line ends, tabs, and the styles that commands
/// and logs use (bold, dim, colours) stay.
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

/// Returns the length of the escape sequence at the start of the text. Returns none unless it only switches bold, dim,
/// italic, underline, or a colour on or off.
fn style(text: &str) -> Option<usize> {
    let parameters = text.strip_prefix("\u{1b}[")?.split_once('m')?.0;
    let is_known = |parameter: &str| matches!(parameter.parse(), Ok(0_u8..=4 | 22..=24 | 31..=37 | 39 | 90..=97));
    parameters.split(';').all(is_known).then_some(parameters.len() + 3)
}

/// Writer that escapes with [`lines`]. Each write must contain whole characters, as those of loggers and printers do.
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

    /// Escape sequences for a title, a cleared screen, and a colour, their C1 equivalents, and a name written backwards.
    const HOSTILE: &str = "\u{1b}]0;title\u{7}\u{1b}[2J\u{1b}[31mred\u{9b}2J\u{90}x\u{202e}eman\u{2066}\u{200f}\u{61c}\u{7f}\r";

    #[test]
    fn characters_that_a_terminal_interprets_are_escaped() {
        let shown = value(HOSTILE);
        assert!(!shown.contains(is_acted_on), "{shown}");
        assert_eq!(value("\u{1b}[31mred\n\t"), "\\u001b[31mred\\n\\t");
        assert_eq!(value("Ünïcode — ✓ 日本語"), "Ünïcode — ✓ 日本語");
    }

    #[test]
    fn lines_keep_only_styles() {
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
    fn escaped_json_has_the_same_value() {
        let value = serde_json::json!({ "name": HOSTILE });
        let line = lines(&value.to_string()).into_owned();
        assert!(!line.contains(is_acted_on), "{line}");
        assert_eq!(serde_json::from_str::<serde_json::Value>(&line).unwrap(), value);
    }

    #[test]
    fn the_writer_escapes_its_input() {
        let mut written = Escaping(vec![]);
        written.write_all("plain\n".as_bytes()).unwrap();
        write!(written, "{HOSTILE}").unwrap();
        let text = String::from_utf8(written.0).unwrap();
        assert!(text.starts_with("plain\n") && text.contains("\\u202e") && !text.contains('\u{202e}'), "{text:?}");
    }
}
