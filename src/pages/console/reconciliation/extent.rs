//! Extent of a comparison: the events that it covers, and the way to the comparison of every event.

use maud::{Markup, html};

use crate::pages::call::Refusal;
use crate::pages::form::{Form, address};
use crate::pages::progress::Work;

/// The comparison of events, as its page names it.
pub static CHECKING: Work = Work {
    title: "Reconciliation",
    to_do: "Events to read",
    done: "Events read",
    advice: "The comparison stops if you close this page. It changes nothing, so you can start it again.",
};

/// Describes which events were compared. If only totals were, a link leads to the comparison of every event.
pub fn section(checked: &str, events: i64, has_narrowed: bool, form: &Form) -> Markup {
    const TOTALS: &str = "Only totals were compared, because the period has many events.";
    let text = match checked {
        "MOVEMENTS" => format!("Each movement, order and payout was compared: {events} events."),
        _ if has_narrowed => format!("{TOTALS} Of accounts that differ, {events} events were compared one by one."),
        _ => format!("{TOTALS} A wrong order shows only if each movement is compared. Choose fewer days, or check every event."),
    };
    let [from, to, account] = ["from", "to", "account_id"].map(|name| (name, form.value(name)));
    let every_event = address("/console/reconciliation", &[from, to, account, ("every_event", "true")]);
    html! {
        p.quiet { (text) }
        @if checked == "TOTALS" {
            p.actions { a.button.plain href=(every_event) { "Check every event" } }
        }
    }
}

/// Puts the problems of `every_event` above the form, which has no field for it.
pub fn above_form(mut refusal: Refusal) -> Refusal {
    let problems = refusal.messages.remove("every_event").unwrap_or_default();
    if !problems.is_empty() {
        let problems = problems.into_iter().map(|problem| format!("Every event cannot be checked: {problem}."));
        refusal.messages.entry("body".to_owned()).or_default().extend(problems);
    }
    refusal
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_comparison_of_totals_leads_to_that_of_every_event() {
        let form = Form::parse(b"from=2026-01-01&to=2026-01-31&account_id=7");
        let link = "href=\"/console/reconciliation?from=2026-01-01&amp;to=2026-01-31&amp;account_id=7&amp;every_event=true\"";
        assert!(section("TOTALS", 0, false, &form).0.contains(link));
        assert!(section("TOTALS", 5, true, &form).0.contains(link));
        assert!(!section("MOVEMENTS", 5, false, &form).0.contains("every_event"));
    }

    #[test]
    fn a_period_that_is_too_long_is_told_above_the_form() {
        let refusal = above_form(Refusal::of_field("every_event", "the period has too many events"));
        assert_eq!(refusal.messages["body"], ["Every event cannot be checked: the period has too many events."]);
        assert_eq!(above_form(Refusal::of_field("from", "is wrong")).messages["from"], ["is wrong"]);
    }
}
