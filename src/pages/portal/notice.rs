//! The low-balance notice of a wallet: its form, and its change.

use maud::{Markup, html};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::pages::form::{Form, number};
use crate::pages::parts::fields::Filled;
use crate::pages::parts::values::money;

/// Name of the field with the amount.
pub const BELOW: &str = "below";

/// A notice, as `GET /client/api/wallets/:id/notice` returns it.
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
    fn only_those_who_may_see_the_form() {
        let notice: Notice = serde_json::from_value(json!({"wallet_id": 3, "below": "10.00"})).unwrap();
        let (changer, viewer) = (card(&notice, "EUR", true, None).0, card(&notice, "EUR", false, None).0);
        assert!(changer.contains("value=\"10.00\"") && changer.contains("/portal/wallets/3/notice"), "{changer}");
        assert!(!viewer.contains("<form"), "{viewer}");
    }
}
