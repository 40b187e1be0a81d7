//! Answers of a supplier, read from JSON by the places that the settings name.

use chrono::NaiveDate;
use ledger_events::{Currency, Money};
use serde_json::Value;

use super::settings::Fields;
use crate::ledger::commands::NewVoucher;
use crate::secrets::seal::Secret;

/// Maximum number of vouchers in an answer: as many as one command adds to the stock.
const MAX_VOUCHERS: usize = 1_000;
const MAX_CODE: usize = 100;
const MAX_CLAIM_URL: usize = 2_048;
const MAX_REFERENCE: usize = 100;
const MAX_REASON: usize = 40;

/// Answer of a supplier that says what became of an order.
#[derive(Debug)]
pub enum Answer {
    /// The codes, the cost of each in the currency of the order if the supplier names one, and the supplier's reference.
    Fulfilled {
        vouchers: Vec<NewVoucher>,
        cost: Option<Money>,
        reference: Option<String>,
    },
    Pending {
        reference: Option<String>,
    },
    Refused {
        reason: String,
        may_succeed_later: bool,
    },
}

/// A fault after which nobody knows what became of an order. The text has nothing that was sent or received.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Unknown(pub &'static str);

/// Reads an answer.
///
/// # Errors
/// [`Unknown`] for anything but an answer with a known status, and for codes that cannot be read.
pub fn read(body: &[u8], fields: &Fields, currency: Currency) -> Result<Answer, Unknown> {
    let answer: Value = serde_json::from_slice(body).map_err(|_| Unknown("the answer is not JSON"))?;
    let text = |place: &str| answer.pointer(place).and_then(plain);
    let status = text(&fields.status).ok_or(Unknown("the answer has no status"))?;
    let is = |values: &[String]| values.contains(&status);
    let reference = text(&fields.reference).map(|text| text.chars().filter(|c| !c.is_control()).take(MAX_REFERENCE).collect());
    if is(&fields.fulfilled) {
        let vouchers = vouchers(answer.pointer(&fields.vouchers), fields)?;
        // Events keep the reference for ever. A wrong place in the settings could lead to a code.
        let is_code = |text: &String| vouchers.iter().any(|voucher| is_secret_of(voucher, text));
        let reference = reference.filter(|text| !is_code(text));
        let of = text(&fields.cost_currency);
        let is_in_currency = of.is_none_or(|of| of == currency.as_str());
        let cost = text(&fields.unit_cost).and_then(|cost| cost.parse::<Money>().ok());
        let cost = cost.filter(|cost| is_in_currency && *cost >= Money::ZERO);
        return Ok(Answer::Fulfilled { vouchers, cost, reference });
    }
    if is(&fields.pending) {
        return Ok(Answer::Pending { reference });
    }
    if is(&fields.refused) {
        let given = text(&fields.reason).unwrap_or_default();
        let may_succeed_later = fields.temporary_reasons.contains(&given);
        return Ok(Answer::Refused { reason: code(&given), may_succeed_later });
    }
    Err(Unknown("the answer has an unknown status"))
}

/// Returns a text or a number as text.
fn plain(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Number(number) => Some(number.to_string()),
        _ => None,
    }
}

/// Returns a reason if it is a code. Free text could contain anything, and events keep it for ever.
fn code(reason: &str) -> String {
    let is_code = |c: char| c.is_ascii_uppercase() || c.is_ascii_digit() || c == '_';
    match !reason.is_empty() && reason.len() <= MAX_REASON && reason.chars().all(is_code) {
        true => reason.to_owned(),
        false => "OTHER".to_owned(),
    }
}

/// Returns whether a text is a secret of a voucher.
fn is_secret_of(voucher: &NewVoucher, text: &str) -> bool {
    let further = voucher.pin.iter().chain(&voucher.claim_url);
    std::iter::once(&voucher.card_number).chain(further).any(|secret| secret.expose() == text)
}

fn vouchers(list: Option<&Value>, fields: &Fields) -> Result<Vec<NewVoucher>, Unknown> {
    let list = list.and_then(Value::as_array).filter(|list| !list.is_empty()).ok_or(Unknown("the answer has no codes"))?;
    if list.len() > MAX_VOUCHERS {
        return Err(Unknown("the answer has too many codes"));
    }
    list.iter().enumerate().map(|(index, item)| voucher(index, item, fields).ok_or(Unknown("a code cannot be read"))).collect()
}

fn voucher(index: usize, item: &Value, fields: &Fields) -> Option<NewVoucher> {
    let line = |place: &str, most: usize| match item.pointer(place) {
        None | Some(Value::Null) => Some(None),
        Some(value) => {
            let text = plain(value).filter(|text| text.chars().count() <= most && !text.chars().any(char::is_control))?;
            Some(Some(text).filter(|text| !text.is_empty()))
        }
    };
    let claim_url = line(&fields.claim_url, MAX_CLAIM_URL)?;
    if let Some(url) = &claim_url {
        url::Url::parse(url).ok().filter(|url| url.scheme() == "https")?;
    }
    let expires_on = match line(&fields.expires_on, MAX_CODE)? {
        Some(day) => Some(NaiveDate::parse_from_str(&day, "%Y-%m-%d").ok()?),
        None => None,
    };
    Some(NewVoucher {
        row: i64::try_from(index + 1).unwrap_or(i64::MAX),
        card_number: Secret::new(line(&fields.card_number, MAX_CODE)??),
        pin: line(&fields.pin, MAX_CODE)?.map(Secret::new),
        claim_url: claim_url.map(Secret::new),
        reference: None,
        expires_on,
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn read(answer: &Value) -> Result<Answer, Unknown> {
        super::read(answer.to_string().as_bytes(), &Fields::default(), "EUR".parse().unwrap())
    }

    #[test]
    fn an_answer_has_codes_or_is_pending_or_refused_and_anything_else_is_unknown() {
        let codes = json!([{"card_number": "C-1", "pin": 1234, "expires_on": "2030-01-31"}, {"card_number": "C-2"}]);
        let answer = json!({"status": "FULFILLED", "id": 7, "unit_cost": "9.50", "currency": "EUR", "vouchers": codes});
        let Answer::Fulfilled { vouchers, cost, reference } = read(&answer).unwrap() else { panic!() };
        assert_eq!((vouchers.len(), cost.unwrap().to_string(), reference.as_deref()), (2, "9.50".into(), Some("7")));
        assert_eq!((vouchers[0].pin.as_ref().unwrap().expose(), vouchers[1].pin.is_none()), ("1234", true));
        let other = json!({"status": "FULFILLED", "unit_cost": "9.50", "currency": "USD", "vouchers": codes});
        assert!(matches!(read(&other).unwrap(), Answer::Fulfilled { cost: None, .. }), "a cost in another currency");
        let own = json!({"status": "FULFILLED", "id": 1234, "vouchers": codes});
        assert!(matches!(read(&own).unwrap(), Answer::Fulfilled { reference: None, .. }), "a code is no reference");
        assert!(matches!(read(&json!({"status": "PENDING"})).unwrap(), Answer::Pending { reference: None }));
        for (reason, code, later) in
            [("OUT_OF_STOCK", "OUT_OF_STOCK", true), ("no <b>", "OTHER", false), ("NO_CREDIT", "NO_CREDIT", false)]
        {
            let Answer::Refused { reason, may_succeed_later } = read(&json!({"status": "REFUSED", "reason": reason})).unwrap()
            else {
                panic!()
            };
            assert_eq!((&*reason, may_succeed_later), (code, later));
        }
        let without = |vouchers: Value| json!({"status": "FULFILLED", "vouchers": vouchers});
        for unknown in [
            json!({}),
            json!([]),
            json!({"status": "LOST"}),
            without(json!([])),
            without(json!("C-1")),
            without(json!([{"pin": "1"}])),
            without(json!([{"card_number": ""}])),
            without(json!([{"card_number": "C-1", "claim_url": "http://claim.example"}])),
            without(json!([{"card_number": "C-1", "expires_on": "tomorrow"}])),
            without(vec![json!({"card_number": "C-1"}); MAX_VOUCHERS + 1].into()),
        ] {
            assert!(read(&unknown).is_err(), "{unknown}");
        }
    }

    proptest! {
        #[test]
        fn no_answer_panics(body in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = super::read(&body, &Fields::default(), "EUR".parse().unwrap());
        }
    }
}
