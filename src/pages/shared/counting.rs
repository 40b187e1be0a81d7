//! The count of the events of a replay, before it starts. Each call counts a part of the log, and the page shows the progress.

use maud::{Markup, html};
use poem::http::Method;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::pages::call::Refusal;
use crate::pages::form::Form;
use crate::pages::visit::Visit;

/// Fields that carry a count from one part of the log to the next.
const FROM: &str = "from_position";
const FOUND: &str = "found";

/// Result of a dry run.
#[derive(Debug, Deserialize)]
struct Part {
    found: i64,
    next_position: Option<i64>,
    until_position: i64,
}

/// Events that were counted so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Count {
    pub found: i64,
    /// Position at which the count goes on; `None` if it is complete.
    next: Option<i64>,
    /// Position at which it will be complete.
    until: i64,
}

/// Returns the position at which a form goes on with a count.
pub fn begin(form: &Form) -> Option<i64> {
    form.text(FROM).and_then(|position| position.parse().ok())
}

impl Count {
    /// Counts the next part of the log. `body` is that of the replay at `path`.
    pub async fn step(visit: &Visit, path: &str, mut body: Value) -> Result<Count, Refusal> {
        body["dry_run"] = json!(true);
        let Part { found, next_position: next, until_position: until } = visit.change(Method::POST, path, &body).await?;
        let earlier: i64 = visit.form.value(FOUND).parse().unwrap_or_default();
        Ok(Count { found: found.saturating_add(earlier.max(0)), next, until })
    }

    pub fn is_complete(&self) -> bool {
        self.next.is_none()
    }

    /// Renders the number of events, as far as it is known.
    pub fn events(&self) -> Markup {
        let Count { found, .. } = *self;
        html! { @if !self.is_complete() { "At least " } (found) @if found == 1 { " event" } @else { " events" } }
    }

    /// Renders the progress of a count that is not complete, with the form for the next part. `action` takes the form with
    /// these fields. Scripts send it.
    pub fn progress(&self, action: &str, form: &Form, fields: &[&str]) -> Markup {
        let Count { found, until, .. } = *self;
        html! {
            @if let Some(next) = self.next {
                p { "The count goes on: it has reached position " (next) " of " (until) " in the log. You can start the replay before it ends." }
                progress max=(until) value=(next) aria-label="Progress of the count" { (next) " of " (until) }
                form.actions method="post" action=(action) data-proceed {
                    (hidden(form, fields))
                    input type="hidden" name=(FROM) value=(next);
                    input type="hidden" name=(FOUND) value=(found);
                    button.plain { "Count further" }
                    button.plain type="button" data-stop hidden { "Pause" }
                }
            }
        }
    }
}

/// Renders fields of a form that the person does not see again.
pub fn hidden(form: &Form, fields: &[&str]) -> Markup {
    html! { @for name in fields { input type="hidden" name=(name) value=(form.value(name)); } }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_count_goes_on_until_it_is_complete() {
        let form = Form::parse(b"since=2026-01-31&only=%22%3E%3Cb%3E");
        let part = Count { found: 3, next: Some(500_001), until: 900_000 };
        let shown = part.progress("/path/count", &form, &["since", "only"]).0;
        for expected in ["data-proceed", "value=\"500001\"", "name=\"found\" value=\"3\"", "value=\"2026-01-31\""] {
            assert!(shown.contains(expected), "{shown}");
        }
        assert!(!shown.contains("<b>"));
        assert_eq!((part.events().0.as_str(), part.is_complete()), ("At least 3 events", false));
        let whole = Count { found: 1, next: None, until: 900_000 };
        assert_eq!((whole.events().0.as_str(), whole.progress("/path/count", &form, &[]).0.as_str()), ("1 event", ""));
    }

    #[test]
    fn a_form_names_the_position_at_which_it_goes_on() {
        assert_eq!(begin(&Form::parse(b"from_position=500001")), Some(500_001));
        assert_eq!([&b"from_position=x"[..], b""].map(|form| begin(&Form::parse(form))), [None, None]);
    }
}
