//! Accounts whose events the reconciliation of a long period checked, because their wallets differ.

use maud::{Markup, html};
use serde::Deserialize;

use crate::pages::form::Form;
use crate::pages::parts::table;

/// An account with wallets that differ, as `GET /admin/v1/reconciliation` returns it.
#[derive(Debug, Deserialize)]
pub struct Narrowed {
    account_id: i64,
    checked: String,
    day: Option<String>,
    checked_events: i64,
}

impl Narrowed {
    /// Describes the part of the account's events that was checked.
    fn extent(&self) -> String {
        match (&*self.checked, &self.day) {
            ("PERIOD", _) => "All its events in the period".to_owned(),
            ("DAY", Some(day)) => format!("Its events of {day}, the first day that differs"),
            (_, Some(day)) => format!("Nothing: too many events, also on {day}, the first day that differs"),
            (_, None) => "Nothing: too many events".to_owned(),
        }
    }

    /// Returns the address of the account's own reconciliation: of the day that differs, or of the period.
    fn own(&self, form: &Form) -> String {
        let period = match &self.day {
            Some(day) => format!("from={day}&to={day}"),
            None => form.only(&["from", "to"]),
        };
        format!("/console/reconciliation?{period}{}account_id={}", if period.is_empty() { "" } else { "&" }, self.account_id)
    }
}

/// Renders which events of each account were checked. An account leads to its page, and to its own reconciliation.
pub fn section(accounts: &[Narrowed], left_out: u64, form: &Form) -> Markup {
    let columns = [("Account", false), ("Checked", false), ("Events", true), ("Reconciliation", false)];
    let row = |account: &Narrowed| {
        vec![
            html! { a href={ "/console/accounts/" (account.account_id) } { "Account " (account.account_id) } },
            html! { (account.extent()) },
            html! { (account.checked_events) },
            html! { a href=(account.own(form)) { "Reconcile account " (account.account_id) } },
        ]
    };
    html! {
        h2 { "Accounts with differences" }
        (table::table("Accounts with differences", &columns, &accounts.iter().map(row).collect::<Vec<_>>()))
        @if left_out > 0 {
            p.quiet { "Not checked: " (left_out) " more accounts with wallets that differ. Choose one account or fewer days." }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_account_leads_to_the_day_that_differs_or_to_the_period() {
        let account = |checked: &str, day: Option<&str>| Narrowed {
            account_id: 7,
            checked: checked.to_owned(),
            day: day.map(str::to_owned),
            checked_events: 5,
        };
        let accounts = [account("PERIOD", None), account("DAY", Some("2026-01-05")), account("NOT_CHECKED", None)];
        let markup = section(&accounts, 2, &Form::parse(b"from=2026-01-01&to=2026-01-31")).0;
        for part in [
            "from=2026-01-01&amp;to=2026-01-31&amp;account_id=7",
            "from=2026-01-05&amp;to=2026-01-05&amp;account_id=7",
            "the first day that differs",
            "Nothing: too many events",
            "2 more accounts",
        ] {
            assert!(markup.contains(part), "{part}: {markup}");
        }
        assert_eq!(account("PERIOD", None).own(&Form::default()), "/console/reconciliation?account_id=7");
    }
}
