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

/// Steps in the order of their times. Steps of the same time keep their order. A long time line shows its beginning and its
/// end, and says how many steps it leaves out between them.
pub fn timeline(name: &str, mut steps: Vec<Step>) -> Markup {
    steps.sort_by_key(|step| step.at);
    let left_out = steps.len().saturating_sub(FIRST + LAST);
    html! {
        ol.timeline aria-label=(name) {
            @for (index, step) in steps.iter().enumerate() {
                @if left_out > 0 && index == FIRST {
                    li.wait { p.quiet { (left_out) " further steps are not shown." } }
                }
                @if left_out == 0 || index < FIRST || index >= FIRST + left_out { (rendered(step)) }
            }
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
}
