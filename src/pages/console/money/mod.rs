//! Money: wallets, payouts, and the approvals of large movements.

mod approvals;
mod movement;
mod payouts;
mod transaction;
mod wallet;

use poem::Response;
use serde_json::Value;

use crate::access::Role;
use crate::pages::outcome::redirect;
use crate::pages::site::Site;
use crate::pages::visit::Visit;

pub fn add(site: Site) -> Site {
    approvals::add(payouts::add(movement::add(transaction::add(wallet::add(site)))))
}

/// Returns whether the visitor may move money.
fn may_move(visit: &Visit) -> bool {
    visit.operator().is_ok_and(|operator| operator.may(Role::Finance))
}

/// Leads to the outcome of a movement: to `done`, or to the approval that it waits for.
fn supervised(answer: &Value, done: &str) -> Response {
    // Only an approval names the operator who requested it.
    let approval = answer["id"].as_i64().filter(|_| answer["requested_by"].is_string());
    match approval {
        Some(id) => redirect(&format!("/console/approvals/{id}?done=approval-needed")),
        None => redirect(done),
    }
}

#[cfg(test)]
mod tests {
    use poem::http::header;
    use serde_json::json;

    use super::*;

    #[test]
    fn a_movement_leads_to_its_approval_if_it_needs_one() {
        let place = |answer: Value| supervised(&answer, "/done").headers()[header::LOCATION].to_str().unwrap().to_owned();
        assert_eq!(place(json!({"id": 4, "requested_by": "operator 3"})), "/console/approvals/4?done=approval-needed");
        assert_eq!(place(json!({"id": 4})), "/done");
    }
}
