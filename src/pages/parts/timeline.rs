//! A time line: steps in their order, each with its time.

use chrono::{DateTime, Utc};
use maud::{Markup, html};

use super::values::time;

/// Kind of a step, which colours its mark. Its text says everything.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tone {
    Plain,
    Good,
    Bad,
    Wait,
}

impl Tone {
    fn class(self) -> Option<&'static str> {
        match self {
            Self::Plain => None,
            Self::Good => Some("good"),
            Self::Bad => Some("bad"),
            Self::Wait => Some("wait"),
        }
    }
}

/// A step of a time line.
#[derive(Debug)]
pub struct Step {
    pub at: DateTime<Utc>,
    pub tone: Tone,
    pub title: Markup,
    pub detail: Markup,
}

/// Number of steps shown at the beginning of a long time line.
const FIRST: usize = 50;
/// Number of steps shown at the end of a long time line.
const LAST: usize = 200;

/// Address of the page of a time line, and the part of it that the page shows.
#[derive(Clone, Debug)]
pub struct Place {
    /// Address of the page, without `steps`.
    pub address: String,
    /// Number of the first shown step, from 1. Without it, the page shows the beginning and the end.
    pub first: Option<usize>,
}

impl Place {
    /// Returns the address of the page from a step on.
    fn starting_at(&self, first: usize) -> String {
        let separator = if self.address.contains('?') { '&' } else { '?' };
        format!("{}{separator}steps={first}", self.address)
    }
}

/// Steps in the order of their times. Steps of the same time keep their order. A long time line shows its beginning and its
/// end, and says how many steps it leaves out between them.
pub fn timeline(name: &str, steps: Vec<Step>) -> Markup {
    paged(name, steps, None)
}

/// Steps as [`timeline`] shows them. With a place, a long time line links to the steps that it leaves out, a part at a time.
pub fn paged(name: &str, mut steps: Vec<Step>, place: Option<&Place>) -> Markup {
    steps.sort_by_key(|step| step.at);
    let left_out = steps.len().saturating_sub(FIRST + LAST);
    if let Some(place) = place
        && let Some(first) = place.first.filter(|first| left_out > 0 && (1..=steps.len()).contains(first))
    {
        return part(name, &steps, place, first);
    }
    html! {
        ol.timeline aria-label=(name) {
            @for (index, step) in steps.iter().enumerate() {
                @if left_out > 0 && index == FIRST {
                    li.wait {
                        p.quiet {
                            (left_out) " further steps are not shown."
                            @if let Some(place) = place { " " a href=(place.starting_at(FIRST + 1)) { "Show the steps from " (FIRST + 1) } }
                        }
                    }
                }
                @if left_out == 0 || index < FIRST || index >= FIRST + left_out { (rendered(step)) }
            }
        }
    }
}

/// Shows a part of a long time line, with links to its neighbours.
fn part(name: &str, steps: &[Step], place: &Place, first: usize) -> Markup {
    let last = steps.len().min(first.saturating_add(FIRST + LAST - 1));
    html! {
        p.quiet {
            "Steps " (first) " to " (last) " of " (steps.len()) ". "
            a href=(place.address) { "Show the beginning and the end" }
        }
        ol.timeline aria-label=(name) { @for step in &steps[first - 1..last] { (rendered(step)) } }
        p.actions {
            @if first > 1 { a href=(place.starting_at(first.saturating_sub(FIRST + LAST).max(1))) { "Earlier steps" } }
            @if last < steps.len() { a href=(place.starting_at(last + 1)) { "Later steps" } }
        }
    }
}

fn rendered(step: &Step) -> Markup {
    html! {
        li class=[step.tone.class()] {
            div { strong { (step.title) } " " span.quiet { (time(step.at)) } }
            div { (step.detail) }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn step(seconds: i64) -> Step {
        let at = DateTime::from_timestamp(seconds, 0).unwrap_or_default();
        Step { at, tone: Tone::Good, title: html! { "Step " (seconds) }, detail: html! {} }
    }

    #[test]
    fn steps_are_in_the_order_of_their_times() {
        let markup = timeline("Story", vec![step(7), step(3)]).0;
        assert!(markup.find("Step 3") < markup.find("Step 7"), "{markup}");
        assert!(!markup.contains("not shown"));
    }

    #[test]
    fn a_long_time_line_leaves_out_its_middle() {
        let markup = timeline("Story", (0..1_000).map(step).collect()).0;
        assert!(markup.contains("750 further steps"), "{markup}");
        assert!(markup.contains("Step 49<") && !markup.contains("Step 50<") && markup.contains("Step 800<"));
        assert_eq!(markup.matches("<li").count(), 251);
    }

    #[test]
    fn the_parts_of_a_long_time_line_have_all_its_steps() {
        let show = |count: i64, first: Option<usize>| {
            let place = Place { address: "/orders/1?as_of=7".to_owned(), first };
            paged("Story", (0..count).map(step).collect(), Some(&place)).0
        };
        let whole = show(1_000, None);
        assert!(whole.contains("href=\"/orders/1?as_of=7&amp;steps=51\""), "{whole}");
        let middle = show(1_000, Some(51));
        assert!(middle.contains("Steps 51 to 300 of 1000") && middle.contains("Step 50<") && middle.contains("Step 299<"));
        assert!(middle.contains("steps=1\"") && middle.contains("steps=301\""), "{middle}");
        assert_eq!(middle.matches("<li").count(), 250);
        let end = show(1_000, Some(801));
        assert!(end.contains("Step 999<") && end.contains("steps=551\"") && !end.contains("Later steps"), "{end}");
        // A step that does not exist leads to the beginning and the end.
        for first in [0, 1_001, usize::MAX] {
            assert_eq!(show(1_000, Some(first)), whole);
        }
        assert_eq!(show(250, Some(51)), show(250, None));
    }
}
