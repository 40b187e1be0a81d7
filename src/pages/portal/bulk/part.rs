//! Parts of a list of lines. Buttons of the form that carries the file lead from one part to the next.

use maud::{Markup, html};

use crate::pages::form::Form;
use crate::pages::parts::table::{self, Column};

/// Field with the place of the first entry to show, from 0.
pub const FROM: &str = "from";
/// Largest number of entries in a part.
const SHOWN: usize = 50;

/// A part of a list.
#[derive(Debug)]
pub struct Part {
    rows: Vec<Vec<Markup>>,
    from: usize,
    total: usize,
}

impl Part {
    /// Returns the part that a form asks for, as far as it takes at most this many bytes. `row` gets each entry with its place.
    pub fn of<T>(form: &Form, all: &[T], most: usize, row: impl Fn(usize, &T) -> Vec<Markup>) -> Part {
        let from = form.value(FROM).parse::<usize>().unwrap_or_default().min(all.len().saturating_sub(1));
        let entries = all.iter().enumerate().skip(from).take(SHOWN);
        let rows = table::fitting(entries.map(|(place, entry)| row(place, entry)), most);
        Part { rows, from, total: all.len() }
    }

    pub fn table(&self, caption: &str, columns: &[Column]) -> Markup {
        let end = self.from + self.rows.len();
        html! {
            (table::table(caption, columns, &self.rows))
            @if self.rows.len() < self.total { p.quiet { "Entries " (self.from + 1) " to " (end) " of " (self.total) "." } }
        }
    }

    /// Buttons that send their form to `path`, which shows the part before or after this one.
    pub fn buttons(&self, path: &str) -> Markup {
        let next = self.from + self.rows.len();
        html! {
            @if self.from > 0 {
                button.plain formaction=(path) name=(FROM) value=(self.from.saturating_sub(SHOWN)) { "Previous lines" }
            }
            @if next > self.from && next < self.total {
                button.plain formaction=(path) name=(FROM) value=(next) { "Next lines" }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_parts_have_every_entry() {
        let all: Vec<usize> = (0..120).collect();
        let part = |from: &str, most| Part::of(&Form::parse(from.as_bytes()), &all, most, |_, entry| vec![html! { (entry) }]);
        let first = part("", 10_000);
        assert!(first.table("Lines", &[("Line", true)]).0.contains("Entries 1 to 50 of 120."));
        let buttons = first.buttons("/a").0;
        assert!(buttons.contains("formaction=\"/a\" name=\"from\" value=\"50\"") && !buttons.contains("Previous"), "{buttons}");
        let last = part("from=100", 10_000);
        assert!(last.table("Lines", &[("Line", true)]).0.contains("Entries 101 to 120 of 120."));
        let buttons = last.buttons("/a").0;
        assert!(buttons.contains("value=\"50\"") && !buttons.contains("Next"), "{buttons}");
        // Longer rows make shorter parts, and the next one begins where this one ends.
        assert!(part("from=10", 200).buttons("/a").0.contains("value=\"13\""));
        assert_eq!((part("from=999", 10_000).from, part("from=x", 10_000).from), (119, 0));
    }
}
