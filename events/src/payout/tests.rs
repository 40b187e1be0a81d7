//! Tests of the form given a history, when a command, then events or a refusal; and properties of all histories.

use crate::{AccountId, BeneficiaryId, PayoutId, TransactionId, WalletId};
use chrono::{DateTime, Utc};
use proptest::prelude::*;
use uuid::Uuid;

use super::*;
use crate::beneficiary::{BeneficiaryAdded, BeneficiaryDeleted, BeneficiaryKind};
use crate::wallet::{Movement, WalletFunded, WalletOpened};

fn money(text: &str) -> Money {
    text.parse().unwrap()
}

fn moment(version: i64) -> Moment {
    let recorded_at = DateTime::<Utc>::from_timestamp(1_800_000_000 + version, 0).unwrap();
    Moment { position: 100 + version, event_id: Uuid::from_u128(version as u128), version, recorded_at }
}

fn account(status: AccountStatus) -> Account {
    let at = DateTime::UNIX_EPOCH;
    Account { id: AccountId(7), version: 1, name: "Example".into(), status, discounts: vec![], created_at: at, updated_at: at }
}

fn beneficiary(account_id: AccountId, currency: &str) -> Beneficiary {
    let added = BeneficiaryAdded {
        account_id,
        kind: BeneficiaryKind::Bank,
        country: "DE".into(),
        currency: currency.parse().unwrap(),
        profile_hash: "a".into(),
        account_number_hash: "b".into(),
    };
    crate::beneficiary::evolve(None, BeneficiaryId(11), &added.into(), &moment(1)).unwrap()
}

fn wallet(account_id: AccountId, balance: &str) -> Wallet {
    let opened = WalletOpened { account_id, currency: "EUR".parse().unwrap() }.into();
    let funded = WalletFunded {
        transaction_id: TransactionId(1),
        amount: money(balance),
        balance_after: money(balance),
        reference: "f".into(),
        note_hash: None,
    };
    let wallet = wallet::evolve(None, WalletId(5), &opened, &moment(1));
    wallet::evolve(wallet, WalletId(5), &funded.into(), &moment(2)).unwrap()
}

fn asked(amount: &str) -> RequestPayout {
    RequestPayout { amount: money(amount), client_reference: Some("salary".into()) }
}

fn fold(events: &[PayoutEvent]) -> Payout {
    let mut state = None;
    for (version, event) in (1..).zip(events) {
        state = evolve(state, PayoutId(21), event, &moment(version));
    }
    state.unwrap()
}

fn requested() -> PayoutEvent {
    let (account, to, from) = (account(AccountStatus::Active), beneficiary(AccountId(7), "EUR"), wallet(AccountId(7), "100.00"));
    request(&account, Some(&to), Some(&from), PayoutId(21), TransactionId(1001), asked("40.00")).unwrap().0.into()
}

fn fail() -> PayoutCommand {
    PayoutCommand::Fail { refund_transaction_id: TransactionId(1002), reason_hash: Some("h".into()) }
}

const CANCEL: PayoutCommand = PayoutCommand::Cancel { refund_transaction_id: TransactionId(1002) };

#[test]
fn a_payout_debits_the_wallet_in_the_same_append() {
    let (account, to, from) = (account(AccountStatus::Active), beneficiary(AccountId(7), "EUR"), wallet(AccountId(7), "100.00"));
    let (requested, debited) =
        request(&account, Some(&to), Some(&from), PayoutId(21), TransactionId(1001), asked("100.00")).unwrap();
    let movement = Movement::of(&debited).unwrap();
    assert_eq!((movement.category, movement.amount, movement.balance_after), ("PAYOUT", money("100.00"), Money::ZERO));
    assert_eq!((movement.purpose, movement.reference), (Some(Purpose::Payout(PayoutId(21))), Some("PAY-0000000021")));
    assert_eq!(
        (requested.transaction_id, requested.wallet_id, requested.beneficiary_id),
        (movement.transaction_id, WalletId(5), BeneficiaryId(11))
    );
    let payout = fold(&[requested.into()]);
    assert_eq!((payout.status, payout.settled_at), (PayoutStatus::Pending, None));
}

#[test]
fn checks_run_in_the_documented_order() {
    let (active, suspended) = (account(AccountStatus::Active), account(AccountStatus::Suspended));
    let (to, from) = (beneficiary(AccountId(7), "EUR"), wallet(AccountId(7), "39.99"));
    let refused = |account: &Account, to: Option<&Beneficiary>, from: Option<&Wallet>| {
        request(account, to, from, PayoutId(21), TransactionId(1001), asked("40.00")).unwrap_err()
    };
    let unknown = |field| Rejection::InvalidField { field, problem: "is unknown" };
    assert_eq!(refused(&suspended, None, None), Rejection::AccountSuspended);
    assert_eq!(refused(&active, None, None), unknown("beneficiary_id"));
    assert_eq!(refused(&active, Some(&beneficiary(AccountId(8), "EUR")), None), unknown("beneficiary_id"));
    let deleted =
        crate::beneficiary::evolve(Some(to.clone()), BeneficiaryId(11), &BeneficiaryDeleted {}.into(), &moment(2)).unwrap();
    assert_eq!(refused(&active, Some(&deleted), Some(&from)), unknown("beneficiary_id"));
    assert_eq!(refused(&active, Some(&to), None), unknown("wallet_id"));
    assert_eq!(refused(&active, Some(&to), Some(&wallet(AccountId(8), "50.00"))), unknown("wallet_id"));
    assert_eq!(refused(&active, Some(&beneficiary(AccountId(7), "USD")), Some(&from)), Rejection::CurrencyMismatch);
    assert_eq!(refused(&active, Some(&to), Some(&from)), Rejection::InsufficientBalance);
}

#[test]
fn a_deleted_beneficiary_cannot_be_deleted_again() {
    let there = beneficiary(AccountId(7), "EUR");
    let event = crate::beneficiary::delete(&there).unwrap();
    let gone = crate::beneficiary::evolve(Some(there), BeneficiaryId(11), &event, &moment(2)).unwrap();
    assert!(gone.is_deleted);
    assert_eq!(crate::beneficiary::delete(&gone), Err(Rejection::NotFound));
}

#[test]
fn paying_a_payout_settles_it_without_a_refund() {
    let given = fold(&[requested()]);
    let (paid, refund) = decide(&given, &wallet(AccountId(7), "60.00"), PayoutCommand::Pay).unwrap();
    assert_eq!((&paid, refund), (&PayoutPaid {}.into(), None));
    let payout = fold(&[requested(), paid]);
    assert_eq!((payout.status, payout.settled_at), (PayoutStatus::Paid, Some(moment(2).recorded_at)));
}

#[test]
fn a_failed_or_cancelled_payout_is_refunded_in_full() {
    for (command, status) in [(fail(), PayoutStatus::Failed), (CANCEL, PayoutStatus::Cancelled)] {
        let (event, refund) = decide(&fold(&[requested()]), &wallet(AccountId(7), "60.00"), command).unwrap();
        let refund = refund.unwrap();
        let movement = Movement::of(&refund).unwrap();
        assert_eq!((movement.category, movement.amount), ("PAYOUT_REFUND", money("40.00")));
        assert_eq!((movement.balance_after, movement.purpose), (money("100.00"), Some(Purpose::Payout(PayoutId(21)))));
        let payout = fold(&[requested(), event]);
        assert_eq!((payout.status, payout.refund_transaction_id), (status, Some(TransactionId(1002))));
    }
}

#[test]
fn a_final_payout_stays_final() {
    let from = wallet(AccountId(7), "60.00");
    for command in [PayoutCommand::Pay, fail(), CANCEL] {
        let (event, _) = decide(&fold(&[requested()]), &from, command).unwrap();
        let payout = fold(&[requested(), event]);
        assert_eq!(decide(&payout, &from, CANCEL), Err(Rejection::PayoutNotCancellable));
        assert!(matches!(decide(&payout, &from, PayoutCommand::Pay), Err(Rejection::Conflict(_))));
        assert!(matches!(decide(&payout, &from, fail()), Err(Rejection::Conflict(_))));
    }
}

proptest! {
    /// Applies any commands in any order. The wallet never falls below zero, and its net outflow equals the sum of
    /// the paid and pending payouts.
    #[test]
    fn no_cent_is_lost_or_created(funds in 0i64..20_000, steps in prop::collection::vec((0u8..4, 1i64..8_000, 0usize..12), 0..60)) {
        let cents = |amount: i64| Money::from_cents(amount).unwrap();
        let total = |payouts: &[Payout], of: &[PayoutStatus]| {
            let amounts = payouts.iter().filter(|p| of.contains(&p.status)).map(|p| p.requested.amount);
            amounts.fold(Money::ZERO, |sum, amount| sum.checked_add(amount).unwrap())
        };
        let (account, to) = (account(AccountStatus::Active), beneficiary(AccountId(7), "EUR"));
        let mut wallet = wallet(AccountId(7), &cents(funds).to_string());
        let mut payouts: Vec<Payout> = vec![];
        let (mut debits, mut refunds) = (Money::ZERO, Money::ZERO);
        for (transaction_id, (kind, amount, which)) in (1000..).zip(steps) {
            let movement = if kind == 0 {
                let id = 1 + payouts.len() as i64;
                let asked = RequestPayout { amount: cents(amount), client_reference: None };
                match request(&account, Some(&to), Some(&wallet), PayoutId(id), TransactionId(transaction_id), asked) {
                    Ok((requested, debited)) => {
                        payouts.extend(evolve(None, PayoutId(id), &requested.into(), &moment(1)));
                        Some(debited)
                    }
                    Err(refused) => {
                        prop_assert_eq!(refused, Rejection::InsufficientBalance);
                        prop_assert!(wallet.balance < cents(amount));
                        None
                    }
                }
            } else if let Some(payout) = payouts.get_mut(which) {
                let command = match kind {
                    1 => PayoutCommand::Pay,
                    2 => PayoutCommand::Fail { refund_transaction_id: TransactionId(transaction_id), reason_hash: None },
                    _ => PayoutCommand::Cancel { refund_transaction_id: TransactionId(transaction_id) },
                };
                match decide(payout, &wallet, command) {
                    Ok((event, refund)) => {
                        prop_assert_eq!(payout.status, PayoutStatus::Pending);
                        *payout = evolve(Some(payout.clone()), payout.id, &event, &moment(2)).unwrap();
                        prop_assert_eq!(payout.refund_transaction_id.is_some(), refund.is_some());
                        refund
                    }
                    Err(_) => {
                        prop_assert_ne!(payout.status, PayoutStatus::Pending);
                        None
                    }
                }
            } else {
                None
            };
            if let Some(event) = movement {
                let movement = Movement::of(&event).unwrap();
                let sum = if movement.category == "PAYOUT" { &mut debits } else { &mut refunds };
                *sum = sum.checked_add(movement.amount).unwrap();
                wallet = wallet::evolve(Some(wallet.clone()), WalletId(5), &event, &moment(wallet.version + 1)).unwrap();
                prop_assert_eq!(wallet.balance, movement.balance_after);
            }
            prop_assert!(wallet.balance >= Money::ZERO);
            let gone = debits.checked_sub(refunds).unwrap();
            prop_assert_eq!(gone, total(&payouts, &[PayoutStatus::Paid, PayoutStatus::Pending]));
            prop_assert_eq!(refunds, total(&payouts, &[PayoutStatus::Failed, PayoutStatus::Cancelled]));
            prop_assert_eq!(wallet.balance, cents(funds).checked_sub(gone).unwrap());
        }
    }
}
