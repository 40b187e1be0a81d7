//! Wallets whose rows contradict their movements, in periods in which they did not move.

use chrono::{DateTime, SecondsFormat, TimeDelta, Utc};
use ledger_events::{AccountId, WalletId};
use rewards_ledger::ledger::projector::ProjectionStep;
use rewards_ledger::ledger::{CommandResult, commands, reader};
use serde_json::{Value, json};
use sqlx::AssertSqlSafe;

use super::report;
use super::totals::spread;
use crate::support::shop::{SHARD, Shop};

/// Moves the daily totals back to their state at a position.
async fn projected_up_to(shop: &Shop, position: i64) {
    let head = reader::head(shop.pool(), SHARD).await.unwrap();
    let set_back = "DELETE FROM daily_totals; UPDATE projection_checkpoints SET position = 0 WHERE projection = 'daily_totals'";
    let end = |position: i64| format!("UPDATE log_head SET position = {position}");
    let run = async |sql: String| sqlx::raw_sql(AssertSqlSafe(sql)).execute(&mut shop.admin().await).await.unwrap();
    run(format!("{set_back}; {}", end(position.max(1)))).await;
    let projector = shop.projector();
    while position > 0 && matches!(projector.total(SHARD).await.unwrap(), ProjectionStep::Applied { .. }) {}
    run(end(head)).await;
}

/// A wallet that moved, and then does not move for days while others do.
struct Quiet {
    wallet: WalletId,
    account: AccountId,
    /// A time within those days.
    time: DateTime<Utc>,
    /// Id of an account without a wallet.
    other: AccountId,
}

async fn quiet(shop: &Shop) -> Quiet {
    let (account, wallet) = shop.account("Quiet").await;
    let CommandResult::Account(other) = shop.run(commands::CreateAccount { name: "Other".into() }).await else {
        panic!("no account")
    };
    shop.orders(account, 2).await;
    shop.orders(shop.customer.account_id, 40).await;
    spread(shop).await;
    let last: DateTime<Utc> = sqlx::query_scalar("SELECT max(created_at) FROM wallet_transactions WHERE wallet_id = $1")
        .bind(wallet)
        .fetch_one(shop.pool())
        .await
        .unwrap();
    Quiet { wallet, account, time: last + TimeDelta::days(1), other: other.id }
}

fn of_wallet(report: &Value, wallet: WalletId) -> Vec<&str> {
    let differences = report["differences"].as_array().unwrap();
    differences.iter().filter(|found| found["wallet_id"] == wallet.0).map(|found| found["kind"].as_str().unwrap()).collect()
}

/// Whatever is wrong with its row, the wallet is reported and its money counts, for any period and any checkpoint of
/// the daily totals.
#[tokio::test(flavor = "multi_thread")]
async fn an_idle_wallet_with_a_wrong_row_is_reported_and_counted() {
    for (deed, kind) in [
        ("DELETE FROM wallets WHERE id = {wallet}", "WALLET_MISSING"),
        ("UPDATE wallets SET created_at = '2999-01-01' WHERE id = {wallet}", "WALLET_DIFFERS"),
        ("UPDATE wallets SET account_id = {other} WHERE id = {wallet}", "WALLET_DIFFERS"),
        ("UPDATE wallets SET currency = 'USD' WHERE id = {wallet}", "WALLET_DIFFERS"),
    ] {
        let shop = Shop::open().await;
        let Quiet { wallet, account, time, other } = quiet(&shop).await;
        let head = reader::head(shop.pool(), SHARD).await.unwrap();
        let time = |hours: i64| (time + TimeDelta::hours(hours)).to_rfc3339_opts(SecondsFormat::Millis, true);
        let account = account.to_string();
        // Whole and partial days without a movement, an afternoon, a period up to the end, and one with all
        // movements.
        let periods = [
            vec!["--from".to_owned(), time(0), "--to".to_owned(), time(30)],
            vec!["--from".to_owned(), time(13), "--to".to_owned(), time(15)],
            vec!["--from".to_owned(), time(5)],
            vec!["--to".to_owned(), time(1)],
            vec![],
        ];
        let mut sound = vec![];
        for period in &periods {
            let arguments: Vec<&str> = period.iter().map(String::as_str).collect();
            sound.push(report(&shop, &[&arguments[..], &["--totals-only"]].concat()).await.0);
            assert_eq!(sound.last().unwrap()["found"], 0);
        }
        let deed = deed.replace("{wallet}", &wallet.to_string()).replace("{other}", &other.to_string());
        shop.tamper(&deed).await;
        for checkpoint in [0, head / 2, head] {
            projected_up_to(&shop, checkpoint).await;
            for (period, sound) in periods.iter().zip(&sound) {
                for mut more in [vec!["--totals-only"], vec!["--account", &account, "--totals-only"], vec![]] {
                    let is_of_account = more.contains(&"--account");
                    more.extend(period.iter().map(String::as_str));
                    let (report, is_content) = report(&shop, &more).await;
                    assert!(!is_content, "{deed} {checkpoint} {more:?} {report:#}");
                    assert_eq!(of_wallet(&report, wallet), [kind], "{deed} {checkpoint} {more:?} {report:#}");
                    let found = &report["differences"][0];
                    assert!(report["found"] == 1 && found["positions"].as_array().unwrap().len() == 1, "{report:#}");
                    if !is_of_account {
                        assert_eq!(
                            (&report["currencies"], &report["days"]),
                            (&sound["currencies"], &sound["days"]),
                            "{deed} {more:?}"
                        );
                        assert_eq!(report["wallets"], sound["wallets"], "{deed} {checkpoint} {more:?}");
                    } else {
                        let [listed] = &report["wallets"].as_array().unwrap()[..] else { panic!("{report:#}") };
                        assert_eq!(
                            (&listed["wallet_id"], &listed["account_id"]),
                            (&json!(wallet), &json!(account.parse::<i64>().unwrap()))
                        );
                    }
                }
            }
        }
        // The account that the row wrongly names gets none of the money, and its report names the difference.
        if deed.contains("account_id") {
            let (report, _) = report(&shop, &["--account", &other.to_string()]).await;
            assert_eq!(of_wallet(&report, wallet), [kind], "{report:#}");
            assert_eq!((&report["wallets"], &report["currencies"], &report["found"]), (&json!([]), &json!([]), &json!(1)));
        }
    }
}

/// A wallet opened after a period is not part of it, because it had not moved. It does not matter whether it was
/// opened on the same day or later, with or without a row.
#[tokio::test(flavor = "multi_thread")]
async fn a_wallet_that_is_opened_later_is_not_in_a_period() {
    let shop = Shop::open().await;
    shop.orders(shop.customer.account_id, 4).await;
    let (_, later) = shop.account("Later").await;
    shop.orders(shop.customer.account_id, 4).await;
    spread(&shop).await;
    let head = reader::head(shop.pool(), SHARD).await.unwrap();
    let opened: DateTime<Utc> =
        sqlx::query_scalar("SELECT created_at FROM wallets WHERE id = $1").bind(later).fetch_one(shop.pool()).await.unwrap();
    for is_gone in [false, true] {
        if is_gone {
            shop.tamper(&format!("DELETE FROM wallets WHERE id = {later}")).await;
        }
        for checkpoint in [0, head / 2, head] {
            projected_up_to(&shop, checkpoint).await;
            for hours in 0..24 {
                for length in [1, 11, 25] {
                    let to = opened - TimeDelta::hours(hours);
                    let text = |time: DateTime<Utc>| time.to_rfc3339_opts(SecondsFormat::Millis, true);
                    let (from, to) = (text(to - TimeDelta::hours(length)), text(to));
                    let (report, is_content) = totals(&shop, &from, &to).await;
                    assert!(is_content, "{checkpoint} {from} {to} {report:#?}");
                }
            }
        }
    }
}

/// Computes the totals of a period directly, without running the command each time.
async fn totals(shop: &Shop, from: &str, to: &str) -> (rewards_ledger::reconciliation::Report, bool) {
    use rewards_ledger::reconciliation::{Period, report};
    let time = |text: &str| Some(text.parse::<DateTime<Utc>>().unwrap());
    let period = Period { from: time(from), to: time(to), account_id: None };
    let (report, _) = report(shop.pool(), &[SHARD], period, 10).await.unwrap();
    let is_content = report.is_clean() && report.wallets.len() == 1;
    (report, is_content)
}
