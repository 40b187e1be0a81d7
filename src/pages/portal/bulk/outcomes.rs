//! The outcomes of a bulk order so far. The pages carry them from one step to the next, because nothing is stored.

use std::fmt::Write;
use std::io;

use maud::html;

use super::lines::Line;
use super::part::Part;
use crate::pages::call::Refusal;
use crate::pages::form::Form;
use crate::pages::parts::table::Column;
use crate::spreadsheet::{self, inert};

/// Largest size of all different reasons in a page, in bytes. Further ones become one.
const MAX_REASON_BYTES: usize = 45_000;
const FURTHER: &str = "Refused for another reason.";
/// Number of characters that are kept of a reason.
const MAX_REASON: usize = 500;
/// Bytes around a reason in a page, about.
const FIELD_BYTES: usize = 50;
/// Largest number of bytes that the lines of the results take on a page.
const MAX_BYTES: usize = 30_000;
/// Columns of the results on the page.
pub const COLUMNS: [Column; 7] = [
    ("Line", true),
    ("Product", false),
    ("Face value", true),
    ("Units", true),
    ("Your reference", false),
    ("Outcome", false),
    ("Reason", false),
];
/// Columns of the results as CSV.
const CSV_COLUMNS: [&str; 8] =
    ["line", "product_id", "denomination", "quantity", "client_reference", "outcome", "order_id", "reason"];

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
        let reasons: Vec<String> = reasons.take(lines).map(ToOwned::to_owned).collect();
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
        let taken: usize = self.reasons.iter().map(|known| weight(known)).sum();
        let has_room = taken + weight(&reason) <= MAX_REASON_BYTES;
        let kept = if has_room { reason } else { FURTHER.to_owned() };
        self.reasons.iter().position(|known| *known == kept).unwrap_or_else(|| {
            self.reasons.push(kept);
            self.reasons.len() - 1
        })
    }

    /// Returns the reason of an outcome, or an empty text.
    fn reason_of(&self, outcome: Outcome) -> &str {
        match outcome {
            Outcome::Placed(_) => "",
            Outcome::Refused(index) | Outcome::Open(index) => self.reasons.get(index).map_or("", String::as_str),
        }
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
    let whole =
        if problems.is_empty() { refusal.message.clone() } else { format!("{} ({})", refusal.message, problems.join("; ")) };
    whole.chars().take(MAX_REASON).collect()
}

/// Returns the number of bytes that a reason takes in a page, about.
fn weight(reason: &str) -> usize {
    html! { (reason) }.0.len() + FIELD_BYTES
}

/// Returns the part of the results that a form asks for. Lines without an order come first.
pub fn part(outcomes: &Outcomes, lines: &[Line], form: &Form) -> Part {
    let numbered = lines.iter().zip(&outcomes.of_lines).enumerate();
    let mut all: Vec<(usize, &Line, Outcome)> = numbered.map(|(index, (line, outcome))| (index + 1, line, *outcome)).collect();
    all.sort_by_key(|(_, _, outcome)| matches!(outcome, Outcome::Placed(_)));
    Part::of(form, &all, MAX_BYTES, |_, (number, line, outcome)| {
        vec![
            html! { (number) },
            html! { a href={ "/portal/products/" (line.product_id) } { "Product " (line.product_id) } },
            html! { (line.denomination.to_string()) },
            html! { (line.quantity) },
            html! { (line.reference.as_deref().unwrap_or("–")) },
            html! {
                @match outcome {
                    Outcome::Placed(id) => a href={ "/portal/orders/" (id) } { "Order " (id) },
                    Outcome::Refused(_) => "Not placed",
                    Outcome::Open(_) => "Not known",
                }
            },
            html! { (outcomes.reason_of(*outcome)) },
        ]
    })
}

/// Writes the outcomes of all lines as CSV, in the order of the file.
///
/// # Errors
/// A failure to write the CSV.
pub fn to_csv(outcomes: &Outcomes, lines: &[Line]) -> io::Result<Vec<u8>> {
    let mut text = vec![];
    spreadsheet::rows(&mut text, |csv| {
        csv.write_record(CSV_COLUMNS)?;
        lines.iter().zip(&outcomes.of_lines).enumerate().try_for_each(|(index, (line, outcome))| {
            let (result, order) = match outcome {
                Outcome::Placed(id) => ("placed", id.to_string()),
                Outcome::Refused(_) => ("refused", String::new()),
                Outcome::Open(_) => ("unknown", String::new()),
            };
            csv.write_record([
                &*(index + 1).to_string(),
                &*line.product_id.to_string(),
                &*line.denomination.to_string(),
                &*line.quantity.to_string(),
                &*inert(line.reference.as_deref().unwrap_or_default()),
                result,
                &*order,
                &*inert(outcomes.reason_of(*outcome)),
            ])
        })
    })?;
    Ok(text)
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

    fn lines(count: usize) -> Vec<Line> {
        let line = |number| Line {
            product_id: 7,
            denomination: "10.00".parse().unwrap(),
            quantity: 1,
            reference: Some(format!("=<i>{number}")),
        };
        (1..=count).map(line).collect()
    }

    #[test]
    fn each_line_has_its_own_reason_as_far_as_a_page_can_carry_them() {
        let mut outcomes = Outcomes::default();
        for number in 0..1_000 {
            outcomes.add(Err(refusal(500, "E_INTERNAL", &format!("Failed {number}"))));
        }
        assert!(outcomes.reasons.len() > 500, "{}", outcomes.reasons.len());
        assert_eq!(outcomes.reason_of(outcomes.of_lines[400]), "Failed 400");
        assert_eq!(outcomes.reason_of(outcomes.of_lines[999]), FURTHER);
        let carried: usize = outcomes.reasons.iter().map(|reason| weight(reason)).sum();
        assert!(carried <= MAX_REASON_BYTES + weight(FURTHER), "{carried}");
    }

    #[test]
    fn results_begin_with_the_lines_without_an_order_and_escape_texts() {
        let mut outcomes = Outcomes::default();
        outcomes.add(Ok(9));
        outcomes.add(Err(refusal(422, "E", "<b>no</b>")));
        let markup = part(&outcomes, &lines(3), &Form::default()).table("Lines", &COLUMNS).0;
        let place = |text: &str| markup.find(text).unwrap_or_else(|| panic!("{text}: {markup}"));
        assert!(place("Not placed") < place("/portal/orders/9"), "{markup}");
        assert!(!markup.contains("<b>") && !markup.contains("<i>") && markup.matches("<tr>").count() == 3, "{markup}");
    }

    #[test]
    fn a_csv_has_the_outcome_of_each_line() {
        let mut outcomes = Outcomes::default();
        outcomes.add(Ok(9));
        outcomes.add(Err(refusal(402, "E_INSUFFICIENT_BALANCE", "Too low.")));
        outcomes.add(Err(refusal(503, "E_UNAVAILABLE", "Not now.")));
        let csv = String::from_utf8(to_csv(&outcomes, &lines(3)).unwrap()).unwrap();
        let rows: Vec<&str> = csv.lines().skip(1).collect();
        let expected =
            ["1,7,10.00,1,'=<i>1,placed,9,", "2,7,10.00,1,'=<i>2,refused,,Too low.", "3,7,10.00,1,'=<i>3,unknown,,Not now."];
        assert_eq!(rows, expected);
    }

    #[test]
    fn the_results_of_the_largest_file_are_a_small_page() {
        let mut outcomes = Outcomes::default();
        (0..1_000).for_each(|id| outcomes.add(Ok(9_000_000 + id)));
        let markup = part(&outcomes, &lines(1_000), &Form::default()).table("Lines", &COLUMNS).0;
        assert!(markup.len() + outcomes.text().len() < 45_000, "{}", markup.len());
    }
}
