//! Plots of throughput and latency.

use maud::{Markup, html};

use super::{Day, Minute};
use crate::pages::console::attempts;
use crate::pages::parts::period::during;
use crate::pages::parts::plot::{Label, Series, bars, bars_by};

/// Renders the last hour of all nodes.
pub fn minutes(minutes: &[Minute]) -> Markup {
    let labels = |target: fn(&Minute) -> Option<String>| -> Vec<Label> {
        minutes.iter().map(|minute| Label::of_minute(minute.minute, target(minute))).collect()
    };
    let audited = labels(|minute| {
        let at = minute.minute.format("%Y-%m-%dT%H:%M").to_string();
        Some(during("/console/audit", &at, &at))
    });
    let attempted = labels(|minute| {
        let at = minute.minute.format("%Y-%m-%dT%H:%M").to_string();
        Some(attempts::ended(&at, &at))
    });
    // The counts of a node are those of the minute in which it reports them, so the heading of each row leads to the list.
    let series = |name, value: fn(&Minute) -> i64| Series {
        name,
        values: minutes.iter().map(|minute| value(minute) as f64).collect(),
        counted: None,
    };
    let outcomes = [series("Delivered", |minute| minute.delivered_attempts), series("Failed", |minute| minute.failed_attempts)];
    let latency = [
        series("Average", |minute| minute.average_ms.unwrap_or_default()),
        series("Longest", |minute| minute.longest_ms.unwrap_or_default()),
    ];
    let requests = [
        series("Requests", |minute| minute.requests),
        series("Failed requests", |minute| minute.failed_requests),
        series("Events", |minute| minute.events),
    ];
    let has_attempts = minutes.iter().any(|minute| minute.delivered_attempts + minute.failed_attempts > 0);
    html! {
        p.quiet { "The last hour of all nodes. A node reports every five seconds." }
        div.grid {
            (bars_by("Requests and events by minute", "Minute", "in a minute", &audited, &requests))
            @if has_attempts {
                (bars_by("Delivery attempts by minute", "Minute", "attempts", &attempted, &outcomes))
                (bars_by("Response time by minute, in milliseconds", "Minute", "ms", &attempted, &latency))
            } @else { p.quiet { "No node has attempted a delivery in the last hour." } }
        }
    }
}

/// Renders the attempts of all nodes by day.
pub fn days(days: &[Day]) -> Markup {
    let attempted = |day: &str| attempts::ended(&format!("{day}T00:00"), &format!("{day}T23:59"));
    let labels: Vec<Label> = days.iter().map(|day| Label::of_day(&day.day, Some(attempted(&day.day)))).collect();
    let series = |name, counted, value: fn(&Day) -> i64| Series {
        name,
        values: days.iter().map(|day| value(day) as f64).collect(),
        counted,
    };
    let outcomes = [
        series("Delivered", Some("outcome=delivered"), |day| day.delivered),
        series("Failed", Some("outcome=failed"), |day| day.attempts - day.delivered),
    ];
    let latency =
        [series("Average", None, |day| day.average_ms.unwrap_or_default()), series("Longest", None, |day| day.longest_ms)];
    html! {
        @if days.is_empty() { p.quiet { "No node has attempted a delivery in the last 14 days." } }
        @else {
            div.grid {
                (bars("Delivery attempts of all nodes by day", "attempts", &labels, &outcomes))
                (bars("Response time of all nodes by day, in milliseconds", "ms", &labels, &latency))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use chrono::{DateTime, Utc};

    use super::*;

    fn minute(delivered_attempts: i64) -> Minute {
        Minute {
            minute: DateTime::<Utc>::UNIX_EPOCH,
            requests: 7,
            failed_requests: 0,
            events: 2,
            delivered_attempts,
            failed_attempts: 0,
            average_ms: None,
            longest_ms: None,
        }
    }

    #[test]
    fn attempts_are_drawn_if_there_were_any() {
        let (none, some) = (minutes(&[minute(0)]).0, minutes(&[minute(3)]).0);
        assert!(none.contains("No node has attempted a delivery") && !none.contains("Response time"), "{none}");
        assert!(some.contains("Response time") && some.contains("00:00"), "{some}");
        assert!(some.contains("/console/audit?from=1970-01-01T00%3A00&amp;to=1970-01-01T00%3A00"), "{some}");
        assert!(some.contains("/console/attempts?from=1970-01-01T00%3A00&amp;to=1970-01-01T00%3A00"), "{some}");
        assert!(days(&[]).0.contains("No node"));
        let day = Day { day: "2026-01-31".to_owned(), attempts: 3, delivered: 1, average_ms: Some(17), longest_ms: 31 };
        let plots = days(&[day]).0;
        for text in [
            "01-31",
            ">17<",
            ">31<",
            "T23%3A59&amp;outcome=failed\">2<",
            "/console/attempts?from=2026-01-31T00%3A00&amp;to=2026-01-31T23%3A59",
        ] {
            assert!(plots.contains(text), "{plots}");
        }
    }
}
