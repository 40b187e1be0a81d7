//! The attempts of a webhook by day, as plots.

use maud::{Markup, html};
use serde::Deserialize;

use crate::pages::parts::plot::{Label, Series, bars};
use crate::pages::parts::values::grouped;

/// Attempts of one day.
#[derive(Debug, Deserialize)]
struct Day {
    day: String,
    attempts: i64,
    delivered: i64,
    failed: i64,
    average_ms: Option<i64>,
    longest_ms: Option<i64>,
}

/// Attempts of several days together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AttemptTotal {
    pub attempts: i64,
    pub delivered: i64,
    pub failed: i64,
    /// Average duration, and the longest one, in milliseconds.
    pub average_ms: i64,
    pub longest_ms: i64,
}

/// Attempts by day, as `GET /api/v1/webhooks/:id/stats` and `GET /admin/v1/webhooks/:id/stats` return them.
#[derive(Debug, Deserialize)]
pub struct AttemptDays {
    days: Vec<Day>,
}

impl AttemptDays {
    /// Returns the first and the last day.
    pub fn period(&self) -> Option<(&str, &str)> {
        Some((&*self.days.first()?.day, &*self.days.last()?.day))
    }

    /// Adds up the days.
    pub fn total(&self) -> AttemptTotal {
        let sum = |value: fn(&Day) -> i64| self.days.iter().map(value).sum::<i64>();
        let attempts = sum(|day| day.attempts);
        AttemptTotal {
            attempts,
            delivered: sum(|day| day.delivered),
            failed: sum(|day| day.failed),
            average_ms: sum(|day| day.average_ms.unwrap_or_default() * day.attempts).checked_div(attempts).unwrap_or_default(),
            longest_ms: self.days.iter().filter_map(|day| day.longest_ms).max().unwrap_or_default(),
        }
    }

    /// Renders plots of the attempts and their latency. `target` returns the address of the attempts of a day.
    pub fn plots(&self, target: impl Fn(&str) -> String) -> Markup {
        let (days, attempts) = (&self.days, self.total().attempts);
        let (Some(first), Some(last)) = (days.first().filter(|_| attempts > 0), days.last()) else {
            return html! { p.quiet { "No attempts in the last " (days.len()) " days." } };
        };
        let labels: Vec<Label> = days.iter().map(|day| Label::of_day(&day.day, Some(target(&day.day)))).collect();
        let series = |name, counted, value: fn(&Day) -> i64| Series {
            name,
            values: days.iter().map(|day| value(day) as f64).collect(),
            counted,
        };
        let outcomes = [
            series("Delivered", Some("outcome=delivered"), |day| day.delivered),
            series("Failed", Some("outcome=failed"), |day| day.failed),
        ];
        let latency = [
            series("Average", None, |day| day.average_ms.unwrap_or_default()),
            series("Longest", None, |day| day.longest_ms.unwrap_or_default()),
        ];
        html! {
            p.quiet {
                (grouped(&attempts.to_string())) @if attempts == 1 { " attempt" } @else { " attempts" }
                " ended in the last " (days.len()) " days (UTC), from " (first.day) " to " (last.day) "."
            }
            div.grid {
                (bars("Attempts by day", "attempts", &labels, &outcomes))
                (bars("Response time by day, in milliseconds", "ms", &labels, &latency))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn day(day: &str, delivered: i64) -> Day {
        let took = (delivered > 0).then_some(17);
        Day { day: day.to_owned(), attempts: delivered, delivered, failed: 0, average_ms: took, longest_ms: took }
    }

    #[test]
    fn the_days_are_added_up() {
        let of = |attempts, average, longest| Day {
            attempts,
            failed: 1,
            average_ms: Some(average),
            longest_ms: Some(longest),
            ..day("2026-01-31", attempts - 1)
        };
        let days = AttemptDays { days: vec![day("2026-01-29", 0), of(1, 100, 100), of(3, 20, 50)] };
        let total = AttemptTotal { attempts: 4, delivered: 2, failed: 2, average_ms: 40, longest_ms: 100 };
        assert_eq!((days.total(), days.period()), (total, Some(("2026-01-29", "2026-01-31"))));
        assert_eq!(AttemptDays { days: vec![] }.total(), AttemptTotal::default());
    }

    #[test]
    fn plots_say_what_they_cover() {
        let plots = |days| AttemptDays { days }.plots(|day| format!("/attempts?from={day}")).0;
        let none = plots(vec![day("2026-01-31", 0)]);
        assert!(!none.contains("<svg") && none.contains("No attempts in the last 1 days."), "{none}");
        let some = plots(vec![day("2026-01-30", 0), day("2026-01-31", 2)]);
        let covered = "2 attempts ended in the last 2 days (UTC), from 2026-01-30 to 2026-01-31.";
        for text in [covered, "/attempts?from=2026-01-31&amp;outcome=delivered\">2<", ">01-31<", ">17<"] {
            assert!(some.contains(text), "{text}: {some}");
        }
    }
}
