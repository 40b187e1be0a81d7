//! The outcomes of a bulk order so far. The pages carry them from one step to the next, because nothing is stored.

use std::fmt::Write;

use maud::{Markup, html};

use crate::pages::call::Refusal;
use crate::pages::parts::table;

/// Largest number of different reasons. Further ones become one.
const MAX_REASONS: usize = 20;
const FURTHER: &str = "Refused for another reason.";

/// Outcome of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The order with this ID was placed, now or by an earlier upload of the same file.
    Placed(i64),
    /// The order was refused, for the reason with this index.
    Refused(usize),
    /// The outcome is not known, or the service could not decide now. The reason has this index.
    Open(usize),
}

/// Outcomes of the lines so far, in their order, with the reasons that occur in them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Outcomes {
    pub of_lines: Vec<Outcome>,
    pub reasons: Vec<String>,
}

impl Outcomes {
    /// Reads outcomes from the fields of a form. A form that was tampered with shows its sender wrong results, and does
    /// nothing else.
    pub fn read<'a>(text: &str, reasons: impl Iterator<Item = &'a str>, lines: usize) -> Outcomes {
        let reasons: Vec<String> = reasons.take(MAX_REASONS + 1).map(ToOwned::to_owned).collect();
        let outcome = |word: &str| {
            let (kind, number) = word.split_at_checked(1)?;
            let reason = |number: &str| number.parse().ok().filter(|index| *index < reasons.len());
            match kind {
                "p" => number.parse().ok().map(Outcome::Placed),
                "r" => reason(number).map(Outcome::Refused),
                "o" => reason(number).map(Outcome::Open),
                _ => None,
            }
        };
        let of_lines: Option<Vec<Outcome>> = text.split_ascii_whitespace().take(lines).map(outcome).collect();
        of_lines.map_or_else(Outcomes::default, |of_lines| Outcomes { of_lines, reasons })
    }

    /// Writes the outcomes as a word per line.
    pub fn text(&self) -> String {
        let mut text = String::new();
        for outcome in &self.of_lines {
            let (kind, number) = match outcome {
                Outcome::Placed(id) => ('p', *id),
                Outcome::Refused(reason) => ('r', i64::try_from(*reason).unwrap_or_default()),
                Outcome::Open(reason) => ('o', i64::try_from(*reason).unwrap_or_default()),
            };
            _ = write!(text, "{kind}{number} "); // a String takes everything
        }
        text
    }

    /// Adds the outcome of the next line.
    pub fn add(&mut self, placed: Result<i64, Refusal>) {
        let outcome = match placed {
            Ok(id) => Outcome::Placed(id),
            Err(refusal) => {
                let is_open = refusal.status.is_server_error() || refusal.code == "E_IDEMPOTENCY_IN_PROGRESS";
                let index = self.reason(reason(&refusal));
                if is_open { Outcome::Open(index) } else { Outcome::Refused(index) }
            }
        };
        self.of_lines.push(outcome);
    }

    /// Returns the index of a reason.
    fn reason(&mut self, reason: String) -> usize {
        if let Some(known) = self.reasons.iter().position(|known| *known == reason) {
            return known;
        }
        let further = self.reasons.len() >= MAX_REASONS;
        if further && self.reasons.len() > MAX_REASONS {
            return MAX_REASONS;
        }
        self.reasons.push(if further { FURTHER.to_owned() } else { reason });
        self.reasons.len() - 1
    }

    pub fn placed(&self) -> usize {
        self.of_lines.iter().filter(|outcome| matches!(outcome, Outcome::Placed(_))).count()
    }

    pub fn refused(&self) -> usize {
        self.of_lines.iter().filter(|outcome| matches!(outcome, Outcome::Refused(_))).count()
    }

    pub fn open(&self) -> usize {
        self.of_lines.iter().filter(|outcome| matches!(outcome, Outcome::Open(_))).count()
    }
}

fn reason(refusal: &Refusal) -> String {
    let problems =
        refusal.messages.iter().flat_map(|(field, problems)| problems.iter().map(move |problem| format!("{field} {problem}")));
    let problems: Vec<String> = problems.collect();
    if problems.is_empty() { refusal.message.clone() } else { format!("{} ({})", refusal.message, problems.join("; ")) }
}

/// Renders the outcomes: reasons with the lines that they concern, and a link to each order.
pub fn render(outcomes: &Outcomes) -> Markup {
    let columns = [("Lines", false), ("Outcome", false), ("Reason", false)];
    let with = |outcome: Outcome| -> Vec<usize> {
        outcomes.of_lines.iter().enumerate().filter(|(_, of_line)| **of_line == outcome).map(|(index, _)| index + 1).collect()
    };
    let all = outcomes.reasons.iter().enumerate().flat_map(|(index, reason)| {
        [(Outcome::Refused(index), "Not placed"), (Outcome::Open(index), "Not known")]
            .map(|(outcome, name)| (with(outcome), name, reason))
    });
    let row = |(lines, name, reason): (Vec<usize>, &str, &String)| {
        (!lines.is_empty()).then(|| vec![html! { (ranges(&lines)) }, html! { (name) }, html! { (reason) }])
    };
    let rows: Vec<Vec<Markup>> = all.filter_map(row).collect();
    html! {
        @if !rows.is_empty() {
            h2 { "Lines without an order" }
            (table::table("Lines without an order", &columns, &rows))
        }
        @if outcomes.placed() > 0 {
            h2 { "Orders" }
            ol.links {
                @for (index, outcome) in outcomes.of_lines.iter().enumerate() {
                    @if let Outcome::Placed(id) = outcome { li { a href={ "/portal/orders/" (id) } { "Line " (index + 1) } } }
                }
            }
        }
    }
}

/// Writes increasing numbers briefly: `1, 3–5`.
fn ranges(numbers: &[usize]) -> String {
    let mut ranges: Vec<(usize, usize)> = vec![];
    for number in numbers {
        match ranges.last_mut() {
            Some((_, last)) if *last + 1 == *number => *last = *number,
            _ => ranges.push((*number, *number)),
        }
    }
    let range = |(first, last): &(usize, usize)| if first == last { first.to_string() } else { format!("{first}–{last}") };
    ranges.iter().map(range).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use poem::http::StatusCode;

    use super::*;

    fn refusal(status: u16, code: &str, message: &str) -> Refusal {
        Refusal::new(StatusCode::from_u16(status).unwrap(), code, message)
    }

    #[test]
    fn outcomes_survive_a_form() {
        let mut outcomes = Outcomes::default();
        outcomes.add(Ok(42));
        outcomes.add(Err(refusal(402, "E_INSUFFICIENT_BALANCE", "Too low.")));
        outcomes.add(Err(refusal(503, "E_UNAVAILABLE", "Not now.")));
        outcomes.add(Err(refusal(402, "E_INSUFFICIENT_BALANCE", "Too low.")));
        assert_eq!(outcomes.text(), "p42 r0 o1 r0 ");
        assert_eq!(Outcomes::read(&outcomes.text(), outcomes.reasons.iter().map(String::as_str), 4), outcomes);
        assert_eq!((outcomes.placed(), outcomes.refused(), outcomes.open()), (1, 2, 1));
    }

    #[test]
    fn tampered_outcomes_are_dropped() {
        for text in ["x1", "r7", "p", "pé", "é1", "p1 zz"] {
            assert_eq!(Outcomes::read(text, ["a"].into_iter(), 10), Outcomes::default(), "{text}");
        }
        assert_eq!(Outcomes::read("p1 p2 p3", std::iter::empty(), 2).of_lines.len(), 2);
    }

    #[test]
    fn the_number_of_reasons_is_bounded() {
        let mut outcomes = Outcomes::default();
        for number in 0..100 {
            outcomes.add(Err(refusal(422, "E", &format!("Reason {number}"))));
        }
        assert_eq!((outcomes.reasons.len(), outcomes.of_lines[99]), (MAX_REASONS + 1, Outcome::Refused(MAX_REASONS)));
        assert_eq!(outcomes.reasons[MAX_REASONS], FURTHER);
    }

    #[test]
    fn results_name_their_lines_and_escape_reasons() {
        let mut outcomes = Outcomes::default();
        outcomes.add(Err(refusal(422, "E", "<b>no</b>")));
        outcomes.add(Err(refusal(422, "E", "<b>no</b>")));
        outcomes.add(Ok(9));
        let markup = render(&outcomes).0;
        assert!(markup.contains(">1–2<") && !markup.contains("<b>") && markup.contains("/portal/orders/9"), "{markup}");
        assert_eq!(ranges(&[1, 3, 4, 5, 9]), "1, 3–5, 9");
    }

    #[test]
    fn the_results_of_the_largest_file_are_a_small_page() {
        let mut outcomes = Outcomes::default();
        (0..1_000).for_each(|id| outcomes.add(Ok(9_000_000 + id)));
        assert!(render(&outcomes).0.len() + outcomes.text().len() < 90_000);
    }
}
