//! The progress of a replay.

use maud::{Markup, html};

/// Renders the share of its part of the log that a replay has examined. A replay that runs has a bar, too.
pub fn progress(id: i64, status: &str, percent: i64) -> Markup {
    html! {
        @if status == "RUNNING" { progress max="100" value=(percent) aria-label={ "Progress of replay " (id) } { (percent) " %" } " " }
        (percent) " %"
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_replay_that_runs_has_a_bar() {
        let running = progress(9, "RUNNING", 40).0;
        let bar = "<progress max=\"100\" value=\"40\" aria-label=\"Progress of replay 9\">40 %</progress> 40 %";
        assert_eq!(running, bar);
        assert_eq!(progress(9, "CANCELLED", 40).0, "40 %");
    }
}
