use proptest::prelude::*;

use super::*;

fn at(version: i64) -> Moment {
    let recorded_at = DateTime::from_timestamp(1_800_000_000 + version, 0).unwrap();
    Moment { position: 100 + version, event_id: Uuid::from_u128(version as u128), version, recorded_at }
}

fn requested() -> ApprovalRequested {
    ApprovalRequested {
        account_id: AccountId(7),
        wallet_id: WalletId(8),
        amount: "2500.00".parse().unwrap(),
        currency: "EUR".parse().unwrap(),
        action: Action::Fund { reference: "transfer-1".into() },
        note_hash: None,
        requested_by: Actor::Operator(1),
        expires_at: at(1).recorded_at + EXPIRES_AFTER,
    }
}

fn pending() -> Approval {
    evolve(None, ApprovalId(5), &requested().into(), &at(1)).unwrap()
}

#[test]
fn only_another_operator_decides_and_only_before_the_expiry() {
    let approval = pending();
    let (now, expiry) = (at(2).recorded_at, approval.requested.expires_at);
    let last = expiry - TimeDelta::milliseconds(1);
    let expired = Err(Rejection::Conflict("the approval has expired"));
    for (actor, time, expected) in [
        (Actor::Operator(2), now, Ok(())),
        (Actor::Operator(0), last, Ok(())),
        (Actor::Operator(1), now, Err(Rejection::SecondOperatorRequired)),
        (Actor::Operator(2), expiry, expired.clone()),
        (Actor::Operator(1), expiry, expired),
    ] {
        assert_eq!(approval.require_decision_by(actor, time), expected, "{actor} at {time}");
    }
}

#[test]
fn only_the_requester_withdraws_and_only_before_the_expiry() {
    let approval = pending();
    let (now, expiry) = (at(2).recorded_at, approval.requested.expires_at);
    for (actor, time, expected) in [
        (Actor::Operator(1), now, Ok(())),
        (Actor::Operator(2), now, Err(Rejection::RequesterRequired)),
        (Actor::Operator(1), expiry, Err(Rejection::Conflict("the approval has expired"))),
    ] {
        assert_eq!(approval.require_withdrawal_by(actor, time), expected, "{actor} at {time}");
    }
}

#[test]
fn a_decision_is_final() {
    let granted = ApprovalGranted { granted_by: Actor::Operator(2), transaction_id: Some(TransactionId(9)) };
    let rejected = ApprovalRejected { rejected_by: Actor::Operator(3), reason_hash: None };
    let withdrawn = ApprovalWithdrawn { withdrawn_by: Actor::Operator(1) };
    for (event, status, transaction_id) in [
        (ApprovalEvent::from(withdrawn), ApprovalStatus::Withdrawn, None),
        (ApprovalEvent::from(granted), ApprovalStatus::Granted, Some(TransactionId(9))),
        (ApprovalEvent::from(rejected), ApprovalStatus::Rejected, None),
    ] {
        let decided = evolve(Some(pending()), ApprovalId(5), &event, &at(2)).unwrap();
        assert_eq!((decided.status, decided.transaction_id, decided.version), (status, transaction_id, 2));
        assert_eq!(decided.decided_at, Some(at(2).recorded_at));
        assert!(!decided.is_pending_at(at(2).recorded_at));
        let again = decided.require_decision_by(Actor::Operator(4), at(3).recorded_at);
        assert!(matches!(again, Err(Rejection::Conflict(_))), "{again:?}");
        let withdrawal = decided.require_withdrawal_by(Actor::Operator(1), at(3).recorded_at);
        assert!(matches!(withdrawal, Err(Rejection::Conflict(_))), "{withdrawal:?}");
        assert_eq!(evolve(None, ApprovalId(5), &event, &at(1)), None);
    }
}

#[test]
fn a_limit_applies_to_its_currency_and_the_bare_one_to_the_others() {
    let (eur, usd, gbp) = ("EUR".parse().unwrap(), "USD".parse().unwrap(), "GBP".parse().unwrap());
    let money = |text: &str| text.parse::<Money>().unwrap();
    let limits: ApprovalLimits = "EUR=1000, USD=0,250.50".parse().unwrap();
    for (currency, amount, is_required) in
        [(eur, "1000.00", false), (eur, "1000.01", true), (usd, "0.01", true), (gbp, "250.50", false), (gbp, "250.51", true)]
    {
        assert_eq!(limits.require(currency, money(amount)), is_required, "{currency} {amount}");
    }
    let only: ApprovalLimits = "EUR=1000".parse().unwrap();
    assert!(!only.require(usd, money("9999999.00")));
    assert!(!ApprovalLimits::default().require(eur, money("9999999.00")));
}

#[test]
fn limits_that_make_no_sense_are_refused() {
    for text in ["", "EUR", "EUR=", "EUR=1.001", "EUR=-1", "XXXX=1", "EUR=1,EUR=2", "1,2"] {
        assert!(text.parse::<ApprovalLimits>().is_err(), "{text:?}");
    }
}

proptest! {
    #[test]
    fn limits_are_read_as_they_are_shown(eur in 0i64..1_000_000, other in prop::option::of(0i64..1_000_000)) {
        let cents = |cents| Money::from_cents(cents).unwrap();
        let text: Vec<String> = [format!("EUR={}", cents(eur))].into_iter().chain(other.map(|other| cents(other).to_string())).collect();
        let limits: ApprovalLimits = text.join(",").parse().unwrap();
        prop_assert_eq!(limits.to_string().parse::<ApprovalLimits>().unwrap(), limits);
    }
}
