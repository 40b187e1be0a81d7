//! Payouts in the ledger: commands from two nodes at once, with exact balances in every case.

use futures::future::join_all;
use ledger_events::payout::PayoutStatus;
use ledger_events::{Money, PayoutId, Rejection};
use rewards_ledger::audit::verify;
use rewards_ledger::ledger::commands::{PayoutOutcome, RequestPayout};
use rewards_ledger::ledger::{Command, CommandResult, WriteError, commands};

use crate::support::ledger::{SHARD, execute, open, origin};
use crate::support::shop::Shop;

fn status(answer: Result<CommandResult, WriteError>) -> Result<PayoutStatus, Rejection> {
    match answer {
        Ok(CommandResult::Payout(view)) => Ok(view.payout.status),
        Err(WriteError::Rejected(rejection)) => Err(rejection),
        other => panic!("{other:?}"),
    }
}

/// Returns the balance and four sums: payout debits, payout refunds, paid and pending payouts, failed and cancelled
/// payouts.
async fn money(shop: &Shop) -> [Money; 5] {
    let sums: (rust_decimal::Decimal, rust_decimal::Decimal, rust_decimal::Decimal, rust_decimal::Decimal, rust_decimal::Decimal) =
        sqlx::query_as(
            "SELECT (SELECT balance FROM wallets WHERE id = $1),
                    (SELECT coalesce(sum(amount), 0) FROM wallet_transactions WHERE category = 'PAYOUT' AND type = 'DEBIT'),
                    (SELECT coalesce(sum(amount), 0) FROM wallet_transactions WHERE category = 'PAYOUT_REFUND' AND type = 'CREDIT'),
                    (SELECT coalesce(sum(amount), 0) FROM payouts WHERE status IN ('PENDING', 'PAID')),
                    (SELECT coalesce(sum(amount), 0) FROM payouts WHERE status IN ('FAILED', 'CANCELLED'))",
        )
        .bind(shop.customer.wallet_id)
        .fetch_one(shop.pool())
        .await
        .unwrap();
    [sums.0, sums.1, sums.2, sums.3, sums.4].map(|sum| sum.try_into().unwrap())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_concurrent_cancel_and_settle_on_two_nodes_have_exactly_one_winner() {
    let shop = Shop::open().await;
    let other = open(&shop.options).await;
    let to = shop.beneficiary().await;
    let mut won = [0, 0];
    for round in 0..40 {
        let payout_id = shop.payout(to, "7.00").await;
        let cancel = commands::CancelPayout { account_id: shop.customer.account_id, payout_id };
        let outcome = match round % 2 {
            0 => PayoutOutcome::Paid,
            _ => PayoutOutcome::Failed { reason: None },
        };
        let settle = commands::SettlePayout { payout_id, outcome };
        // Each command is submitted first in some rounds.
        let (cancelled, settled) = match round % 4 {
            0 | 1 => tokio::join!(execute(&shop.ledger, cancel, origin()), execute(&other, settle, origin())),
            _ => {
                let (settled, cancelled) =
                    tokio::join!(execute(&other, settle, origin()), execute(&shop.ledger, cancel, origin()));
                (cancelled, settled)
            }
        };
        match (status(cancelled), status(settled)) {
            (Ok(PayoutStatus::Cancelled), Err(Rejection::Conflict(_))) => won[0] += 1,
            (Err(Rejection::PayoutNotCancellable), Ok(PayoutStatus::Paid | PayoutStatus::Failed)) => won[1] += 1,
            both => panic!("{both:?}"),
        }
    }
    assert_eq!(won[0] + won[1], 40);
    let [balance, debits, refunds, gone, back] = money(&shop).await;
    assert_eq!((debits, refunds), ("280.00".parse().unwrap(), back));
    assert_eq!(debits.checked_sub(refunds).unwrap(), gone);
    assert_eq!(balance, "1000000.00".parse::<Money>().unwrap().checked_sub(gone).unwrap());
    assert!(verify(&shop.options, |_| {}).await.unwrap().is_clean());
}

#[tokio::test(flavor = "multi_thread")]
async fn concurrent_payouts_do_not_overdraw_the_wallet() {
    let shop = Shop::open().await;
    let other = open(&shop.options).await;
    let to = shop.beneficiary().await;
    // Enough money for 10 of 60 payouts, requested at two nodes while other payouts are refunded.
    let requests = join_all((0..60).map(|n| {
        let node = if n % 2 == 0 { &shop.ledger } else { &other };
        execute(node, Command::RequestPayout(shop.payout_of(to, "100000.00")), origin())
    }))
    .await;
    let (made, refused): (Vec<_>, Vec<_>) = requests.into_iter().map(status).partition(Result::is_ok);
    assert_eq!(made.len(), 10);
    assert!(refused.iter().all(|answer| answer == &Err(Rejection::InsufficientBalance)));
    assert_eq!(money(&shop).await[0], Money::ZERO);
    let settled = join_all((1..=10).map(|payout_id| {
        let node = if payout_id % 2 == 0 { &shop.ledger } else { &other };
        let outcome = if payout_id <= 3 { PayoutOutcome::Failed { reason: None } } else { PayoutOutcome::Paid };
        execute(node, commands::SettlePayout { payout_id: PayoutId(payout_id), outcome }, origin())
    }))
    .await;
    assert!(settled.into_iter().map(status).all(|answer| answer.is_ok()));
    let [balance, debits, refunds, gone, _] = money(&shop).await;
    assert_eq!((balance, debits.checked_sub(refunds).unwrap()), (refunds, gone));
    assert_eq!(refunds, "300000.00".parse().unwrap());
}

#[tokio::test(flavor = "multi_thread")]
async fn one_reference_makes_one_payout_on_two_nodes() {
    let shop = Shop::open().await;
    let other = open(&shop.options).await;
    let to = shop.beneficiary().await;
    let asked = RequestPayout { client_reference: Some("salary".into()), ..shop.payout_of(to, "5.00") };
    let answers = join_all((0..40).map(|n| {
        let node = if n % 2 == 0 { &shop.ledger } else { &other };
        execute(node, Command::RequestPayout(asked.clone()), origin())
    }))
    .await;
    let views: Vec<_> = answers
        .into_iter()
        .map(|answer| match answer {
            Ok(CommandResult::Payout(view)) => view,
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(views.iter().filter(|view| view.is_new).count(), 1);
    assert!(views.iter().all(|view| view.payout.id == views[0].payout.id));
    assert_eq!(money(&shop).await[1], "5.00".parse().unwrap());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_command_sees_the_earlier_commands_of_its_batch() {
    let shop = Shop::open().await;
    let to = shop.beneficiary().await;
    let (account_id, payout_id) = (shop.customer.account_id, shop.payout(to, "5.00").await);
    let paid: Command = commands::SettlePayout { payout_id, outcome: PayoutOutcome::Paid }.into();
    let submitted = [
        Command::RequestPayout(shop.payout_of(to, "1.00")),
        paid.clone(),
        commands::CancelPayout { account_id, payout_id }.into(),
        paid,
        commands::DeleteBeneficiary { account_id, beneficiary_id: to }.into(),
        Command::RequestPayout(shop.payout_of(to, "1.00")),
        commands::DeleteBeneficiary { account_id, beneficiary_id: to }.into(),
    ];
    let waiting: Vec<_> =
        submitted.into_iter().map(|command| shop.ledger.enqueue(SHARD, command, origin(), None).unwrap()).collect();
    let mut outcomes = vec![];
    for reply in waiting {
        outcomes.push(reply.await.unwrap().map(|_| ()).map_err(|error| error.to_string()));
    }
    let refused = |why: &str| Err(why.to_owned());
    let expected = [
        Ok(()),
        Ok(()),
        refused("the payout is no longer pending"),
        Ok(()), // a repetition of the same outcome
        Ok(()),
        refused("beneficiary_id is unknown"),
        refused("not found"),
    ];
    assert_eq!(outcomes, expected);
    let events: i64 =
        sqlx::query_scalar("SELECT count(*) FROM events WHERE type = 'PayoutPaid'").fetch_one(shop.pool()).await.unwrap();
    assert_eq!(events, 1);
}
