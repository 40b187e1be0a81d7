//! The low-balance notice of a wallet: its form, and its change.

use ledger_events::Money;
use maud::{Markup, html};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::pages::form::{Form, number};
use crate::pages::parts::fields::Filled;
use crate::pages::parts::values::money;

/// Name of the field with the amount.
pub const BELOW: &str = "below";
/// Path of the notices of all wallets in the API.
pub const ALL: &str = "/client/api/wallets/notices";

/// A notice, as `GET /client/api/wallets/:id/notice` and `GET /client/api/wallets/notices` return it.
#[derive(Debug, Deserialize)]
pub struct Notice {
    wallet_id: i64,
    below: Option<String>,
}

impl Notice {
    /// Returns the path of a wallet's notice in the API.
    pub fn path(wallet: i64) -> String {
        format!("/client/api/wallets/{wallet}/notice")
    }

    /// Returns whether the notice is about a wallet, and the balance is below its amount.
    pub fn concerns(&self, wallet: i64, balance: &str) -> bool {
        let amounts = self.below.as_ref().and_then(|below| Some((balance.parse::<Money>().ok()?, below.parse::<Money>().ok()?)));
        self.wallet_id == wallet && amounts.is_some_and(|(balance, below)| balance < below)
    }
}

/// Builds the body of a change. An empty amount ends the notices.
pub fn body(form: &Form) -> Value {
    json!({ BELOW: form.text(BELOW).map(number) })
}

/// Renders the notice, with its form for those who may change it. `sent` is a form that was refused.
pub fn card(notice: &Notice, currency: &str, may_change: bool, sent: Option<Filled<'_>>) -> Markup {
    let stored = Form::from_pairs(notice.below.iter().map(|below| (BELOW.to_owned(), below.clone())).collect());
    let fields = sent.unwrap_or(Filled { form: &stored, refusal: None });
    html! {
        details.card open[sent.is_some()] {
            summary {
                @match &notice.below {
                    Some(below) => { "Notice when the balance falls below " (money(below, currency)) },
                    None => "Notice of a low balance: none",
                }
            }
            p { "When a movement takes the balance below the amount, the owners of the account are told once." }
            @if may_change {
                form method="post" action={ "/portal/wallets/" (notice.wallet_id) "/notice" } {
                    (fields.input(BELOW, "Notify below", "text", "An amount in the currency of the wallet. Leave it empty for no notices."))
                    button { "Save the notice" }
                }
            } @else { p.quiet { "To change this, you need the role operator or owner." } }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_empty_amount_ends_the_notices() {
        assert_eq!(body(&Form::parse(b"below=")), json!({"below": null}));
        assert_eq!(body(&Form::parse(b"below=10.50")).to_string(), "{\"below\":10.5}");
    }

    #[test]
    fn a_notice_concerns_its_wallet_while_the_balance_is_below() {
        let notice = |below: Option<&str>| Notice { wallet_id: 3, below: below.map(ToOwned::to_owned) };
        let low = notice(Some("1000.00"));
        assert!(low.concerns(3, "999.99") && !low.concerns(3, "1000.00") && !low.concerns(4, "999.99"));
        assert!(!notice(None).concerns(3, "0.00"));
    }

    #[test]
    fn only_those_who_may_see_the_form() {
        let notice: Notice = serde_json::from_value(json!({"wallet_id": 3, "below": "10.00"})).unwrap();
        let (changer, viewer) = (card(&notice, "EUR", true, None).0, card(&notice, "EUR", false, None).0);
        assert!(changer.contains("value=\"10.00\"") && changer.contains("/portal/wallets/3/notice"), "{changer}");
        assert!(!viewer.contains("<form"), "{viewer}");
    }
}
