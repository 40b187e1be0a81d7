//! The restrictions of an API key: their fields in the form of a new key, and how a key shows them.

use chrono::{DateTime, Utc};
use maud::{Markup, html};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::pages::call::Refusal;
use crate::pages::form::{Form, Kind, MOMENT_HINT};
use crate::pages::parts::fields::Filled;
use crate::pages::parts::period::zone_field;
use crate::pages::parts::values::time;
use crate::pages::parts::zone::Zone;

/// Groups of operations that a key may use, with their meanings.
const SCOPES: [(&str, &str); 4] = [
    ("read", "Read everything but voucher codes, and quote prices"),
    ("orders", "Place and cancel orders, and read voucher codes"),
    ("webhooks", "Manage webhooks, and repeat deliveries"),
    ("payouts", "Manage beneficiaries and payouts"),
];

/// Restrictions of a key, as `GET /client/api/api-keys` returns them.
#[derive(Debug, Deserialize)]
pub struct Restricted {
    scopes: Option<Vec<String>>,
    expires_at: Option<DateTime<Utc>>,
    allowed_networks: Option<Vec<String>>,
}

impl Restricted {
    pub fn has_expired(&self, now: DateTime<Utc>) -> bool {
        self.expires_at.is_some_and(|end| end <= now)
    }

    pub fn shown(&self) -> Markup {
        html! {
            @match &self.scopes { Some(scopes) => (scopes.join(", ")), None => "All operations" }
            @if let Some(end) = self.expires_at { ", until " (time(end)) }
            @if let Some(networks) = &self.allowed_networks { ", from " (networks.join(", ")) }
        }
    }
}

/// The fields of a new key's restrictions.
pub fn inputs(fields: &Filled<'_>) -> Markup {
    html! {
        (fields.ticks("scopes", "Operations", "Without a choice, the key may use all of them.", &SCOPES))
        (fields.input("expires_at", "Expires", "text", &format!("Optional. {MOMENT_HINT}")))
        (zone_field(fields))
        (fields.area("allowed_networks", "Allowed networks", "Optional, one per line, such as 203.0.113.0/24. Requests from elsewhere are refused."))
        p.hint { "Restrictions cannot be changed later." }
    }
}

/// Builds the body of a new key. Restrictions that are not filled in are left out.
///
/// # Errors
/// A refusal of the time zone.
pub fn body(form: &Form) -> Result<Value, Refusal> {
    let zone = Zone::of(form)?;
    let mut body = form.json(&[("name", Kind::Text)]);
    let scopes: Vec<&str> = form.all("scopes").collect();
    if !scopes.is_empty() {
        body["scopes"] = json!(scopes);
    }
    if let Some(end) = form.text("expires_at") {
        body["expires_at"] = json!(zone.moment(end));
    }
    let networks: Vec<&str> =
        form.value("allowed_networks").split([',', '\n']).map(str::trim).filter(|one| !one.is_empty()).collect();
    if !networks.is_empty() {
        body["allowed_networks"] = json!(networks);
    }
    Ok(body)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_form_becomes_a_key_with_its_restrictions() {
        assert_eq!(body(&Form::parse(b"name=Shop&expires_at=&allowed_networks=")).unwrap(), json!({"name": "Shop"}));
        let form =
            b"name=Shop&scopes=read&scopes=orders&expires_at=2027-01-31&allowed_networks=203.0.113.0%2F24%0D%0A+192.0.2.1%0D%0A";
        let expected = json!({"name": "Shop", "scopes": ["read", "orders"], "expires_at": "2027-01-31T00:00:00.000Z",
            "allowed_networks": ["203.0.113.0/24", "192.0.2.1"]});
        assert_eq!(body(&Form::parse(form)).unwrap(), expected);
    }

    #[test]
    fn a_key_shows_its_restrictions() {
        let key = |json: Value| serde_json::from_value::<Restricted>(json).unwrap();
        assert_eq!(key(json!({})).shown().0, "All operations");
        let restricted = key(json!({"scopes": ["read"], "expires_at": "2026-01-31T12:00:00Z", "allowed_networks": ["<b>"]}));
        assert!(restricted.shown().0.starts_with("read, until <time") && !restricted.shown().0.contains("<b>"));
        assert!(restricted.has_expired(Utc::now()) && !key(json!({})).has_expired(Utc::now()));
    }
}
