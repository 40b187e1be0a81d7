//! Reconciliation of one account. It walks over the account's own events, finds them even if rows are missing, and
//! costs only as much as the period.

use std::sync::Mutex;

use chrono::{NaiveDate, TimeDelta, Utc};
use ledger_events::Position;
use rewards_ledger::ledger::connect;
use rewards_ledger::ledger::reader;
use rewards_ledger::reconciliation::{
    Checked, DifferenceKind, NarrowedTo, Period, Report, narrow, report, walk_account, walk_all,
};
use serde_json::{Value, json};
use sqlx::{AssertSqlSafe, ConnectOptions};

use super::totals::spread;
use crate::support::node::Node;
use crate::support::proxy::Proxy;
use crate::support::shop::{SHARD, Shop};
use crate::support::tampering::revealed;

/// Missing rows are reported. The log's events are found anyway, and nothing sound is reported as wrong.
#[tokio::test(flavor = "multi_thread")]
async fn missing_rows_do_not_make_sound_data_look_wrong() {
    let node = Node::start().await;
    let (first, second) = (node.setup().await, node.setup().await);
    let order = |product_id: i64| json!({"product_id": product_id, "denomination": 10, "quantity": 2});
    let placed = node.client(&first.client, "POST", "/orders", order(first.product_id)).await.data(201)["id"].clone();
    node.client(&first.client, "POST", &format!("/orders/{placed}/cancel"), Value::Null).await.data(200);
    let other = node.client(&second.client, "POST", "/orders", order(second.product_id)).await.data(201)["id"].as_i64().unwrap();
    let mut admin = node.options.connect().await.unwrap();
    sqlx::raw_sql(AssertSqlSafe(revealed(other, 20_001))).execute(&mut admin).await.unwrap();
    let deeds =
        [format!("DELETE FROM orders WHERE id = {placed}"), format!("DELETE FROM wallets WHERE id = {}", first.wallet_id)];
    for (deed, kinds) in deeds.into_iter().zip([vec![], vec!["WALLET_MISSING"]]) {
        sqlx::raw_sql(AssertSqlSafe(deed.clone())).execute(&mut admin).await.unwrap();
        let path = format!("/reconciliation?account_id={}", first.client.account_id);
        let report = node.operator("GET", &path, Value::Null).await.data(200);
        let found: Vec<&Value> = report["differences"].as_array().unwrap().iter().map(|difference| &difference["kind"]).collect();
        assert_eq!(found, kinds, "{deed} {report:#}");
        // Account events: opened and funded. Order events: placed, debited, cancelled and refunded.
        assert_eq!((&report["checked"], &report["checked_events"]), (&json!("MOVEMENTS"), &json!(6)), "{deed}");
    }
    // The log has more events than are checked without a wish for every one.
    let all = "SELECT count(*) FROM events WHERE stream_type IN ('order', 'payout', 'wallet')";
    let all: i64 = sqlx::query_scalar(all).fetch_one(&mut admin).await.unwrap();
    for (query, level, events) in [("", "TOTALS", 6), ("?every_event=true", "MOVEMENTS", all)] {
        let report = node.operator("GET", &format!("/reconciliation{query}"), Value::Null).await.data(200);
        assert_eq!((&report["checked"], &report["checked_events"]), (&json!(level), &json!(events)), "{report:#}");
    }
    sqlx::raw_sql("UPDATE log_head SET position = position + 1000000 WHERE shard_id = 1").execute(&mut admin).await.unwrap();
    let refused = node.operator("GET", "/reconciliation?every_event=true", Value::Null).await;
    let refused = refused.refused(400, "E_VALIDATION_FAILURE");
    assert!(refused["messages"]["every_event"][0].as_str().unwrap().contains("`rewards-ledger reconcile`"), "{refused}");
}

#[tokio::test]
async fn an_accounts_events_are_found_in_any_stretch_of_the_log() {
    let shop = Shop::open().await;
    let (account, other) = (shop.customer.account_id, shop.account("Second").await.0);
    shop.orders(account, 3).await;
    shop.orders(other, 2).await;
    let cancelled = shop.order(1).await;
    shop.cancel(cancelled).await;
    let to = shop.beneficiary().await;
    shop.payout(to, "5.00").await;
    let head = reader::head(shop.pool(), SHARD).await.unwrap();
    let mut conn = shop.pool().acquire().await.unwrap();
    for after in 0..head {
        for upto in after..=head {
            let expected: Vec<Position> = sqlx::query_scalar(
                "SELECT position FROM events WHERE stream_type IN ('order', 'payout', 'wallet') AND metadata->>'account_id' = $1
                    AND position > $2 AND position <= $3 ORDER BY position",
            )
            .bind(account.to_string())
            .bind(after)
            .bind(upto)
            .fetch_all(&mut *conn)
            .await
            .unwrap();
            let found = reader::money_positions(&mut conn, SHARD, &[(account, (after, upto))], 100).await.unwrap();
            assert_eq!(found.get(&account), Some(&expected), "{after} {upto}");
        }
    }
    // All its orders and payouts moved something.
    let wanted = [(account, (0, head)), (other, (1, head))];
    let all = reader::money_positions(&mut conn, SHARD, &wanted, 100).await.unwrap();
    assert_eq!(reader::movement_positions(&mut conn, SHARD, &wanted, 100).await.unwrap(), all);
    // An account that does not fit beside the one before it is left out.
    assert_eq!(all.len(), 2);
    let few = reader::money_positions(&mut conn, SHARD, &wanted, all[&account].len()).await.unwrap();
    assert_eq!(few.keys().collect::<Vec<_>>(), [&account]);
}

/// The number of statements does not grow with the accounts and wallets that differ.
#[tokio::test(flavor = "multi_thread")]
async fn many_accounts_that_differ_are_checked_with_as_many_statements_as_one() {
    let shop = Shop::open().await;
    let first = shop.customer.account_id;
    shop.orders(first, 1).await;
    for number in 0..5 {
        let (account, _) = shop.account(&format!("Account {number}")).await;
        shop.orders(account, 2).await;
    }
    shop.project().await;
    let (proxy, through) = Proxy::before(shop.options.hosts()[0].to_url_lossy().as_str()).await;
    let pool = connect::without_timeout(&through);
    let mut counted = vec![];
    for accounts in [format!("= {first}"), format!("<> {first}")] {
        shop.tamper(&format!("UPDATE wallets SET balance = balance + 1 WHERE account_id {accounts}")).await;
        let (mut report, bounds) = report(&pool, &[SHARD], Period::default(), 100).await.unwrap();
        let before = proxy.statements(&[pool.name()]);
        narrow(&pool, &mut report, &bounds, (10, 1_000), |_| {}).await.unwrap();
        assert!(report.narrowed.iter().all(|account| account.checked == NarrowedTo::Period), "{:?}", report.narrowed);
        counted.push((report.narrowed.len(), report.checked_events, proxy.statements(&[pool.name()]) - before));
    }
    // Every account has an event for its wallet and one for the funding, and two for each order.
    let [(1, 4, one), (6, 34, six)] = counted[..] else { panic!("{counted:?}") };
    assert!(one > 0 && six <= one, "{counted:?}");
}

/// However far apart the account's events are, no statement reads more than a short stretch of the log. None of the
/// command's statements exceeds its timeout.
#[tokio::test]
async fn one_account_is_walked_in_short_stretches_of_a_long_log() {
    let shop = Shop::open().await;
    let (account, other) = (shop.customer.account_id, shop.account("Second").await.0);
    shop.orders(other, 1).await;
    let order: i64 = sqlx::query_scalar("SELECT id FROM orders").fetch_one(shop.pool()).await.unwrap();
    sqlx::raw_sql(AssertSqlSafe(revealed(order, 50_000))).execute(&mut shop.admin().await).await.unwrap();
    shop.orders(account, 2).await;
    let head = reader::head(shop.pool(), SHARD).await.unwrap();
    let pool = connect::without_timeout(&shop.options);
    let limit: String = sqlx::query_scalar("SHOW statement_timeout").fetch_one(&pool).await.unwrap();
    assert_eq!(limit, "0");
    let period = Period { account_id: Some(account), ..Period::default() };
    let (mut report, bounds) = report(&pool, &[SHARD], period, 10).await.unwrap();
    let reached = Mutex::new(vec![0]);
    walk_all(&pool, &mut report, &bounds, |progress| reached.lock().unwrap().push(progress.done)).await.unwrap();
    let reached = reached.into_inner().unwrap();
    assert!(reached.windows(2).all(|step| (1..=20_000).contains(&(step[1] - step[0]))), "{reached:?}");
    assert_eq!(reached.last(), Some(&head));
    assert_eq!((report.checked_events, report.differences.found), (2 + 2 * 2, 0), "{:#?}", report.differences.differences);
}

/// For a short period of an account with a long history, walking over the whole history is not worthwhile. If its totals differ,
/// the first day that differs is checked.
#[tokio::test(flavor = "multi_thread")]
async fn an_account_with_too_many_orders_to_walk_has_its_totals_compared_and_the_first_day_that_differs() {
    let shop = Shop::open().await;
    let account = shop.customer.account_id;
    shop.orders(account, 3).await;
    let checked = async |period: Period, most: usize| {
        let (mut report, bounds) = report(shop.pool(), &[SHARD], period, 10).await.unwrap();
        walk_account(shop.pool(), &mut report, &bounds[0], account, most, |_| {}).await.unwrap();
        (report.checked, report.checked_events)
    };
    let whole = Period { account_id: Some(account), ..Period::default() };
    let nothing = Period { from: Some(Utc::now() + TimeDelta::hours(1)), ..whole };
    assert_eq!(checked(nothing, 3).await, (Checked::Movements, 0));
    assert_eq!(checked(nothing, 2).await, (Checked::Totals, 0), "it has three orders");
    assert_eq!(checked(whole, 8).await, (Checked::Movements, 2 + 3 * 2));
    assert_eq!(checked(whole, 7).await, (Checked::Totals, 0));

    shop.orders(account, 12).await;
    spread(&shop).await;
    shop.project().await;
    let days = "SELECT day, first_position, last_position FROM daily_totals WHERE wallet_id = $1 ORDER BY day";
    let days: Vec<(NaiveDate, Position, Position)> =
        sqlx::query_as(days).bind(shop.customer.wallet_id).fetch_all(shop.pool()).await.unwrap();
    let [(first, ..), (second, first_position, last_position), (third, ..), ..] = days[..] else { panic!("{days:?}") };
    let narrowed = async |accounts: usize, events: usize| {
        let (mut report, bounds) = report(shop.pool(), &[SHARD], Period::default(), 10).await.unwrap();
        narrow(shop.pool(), &mut report, &bounds, (accounts, events), |_| {}).await.unwrap();
        assert_eq!(report.checked, Checked::Totals);
        report
    };
    let extent = |report: &Report| (report.narrowed[0].account_id, report.narrowed[0].checked, report.narrowed[0].day);
    let sound = narrowed(10, 100).await;
    assert_eq!((sound.differences.found, sound.narrowed.len(), sound.narrowed_left_out), (0, 0, 0));
    shop.tamper(&format!("UPDATE daily_totals SET order_debits = order_debits + 1 WHERE day = '{second}'")).await;
    // The day has at most 12 events, and the account 32 events and 15 orders.
    let of_day = narrowed(10, 14).await;
    assert_eq!(extent(&of_day), (account, NarrowedTo::Day, Some(second)));
    let found = &of_day.differences.differences;
    let kinds: Vec<DifferenceKind> = found.iter().map(|found| found.kind).collect();
    assert_eq!(kinds, [DifferenceKind::DailyTotal, DifferenceKind::WalletBalance, DifferenceKind::WalletClosing]);
    assert_eq!(found[0].positions, [first_position, last_position]);
    assert_eq!((of_day.narrowed[0].checked_events, of_day.narrowed_left_out), (of_day.checked_events, 0));
    assert_eq!(extent(&narrowed(10, 5).await), (account, NarrowedTo::NotChecked, Some(second)));
    assert_eq!(extent(&narrowed(10, 32).await), (account, NarrowedTo::Period, None));
    let none = narrowed(0, 100).await;
    assert_eq!((none.narrowed.len(), none.narrowed_left_out, none.checked_events), (0, 1, 0));
    // A missing row shows at the next one, and the days since the row before are checked: all days before it, if there is none.
    let first_row = format!("daily_totals WHERE day = '{first}'");
    shop.tamper(&format!("CREATE TABLE first_row AS SELECT * FROM {first_row}; DELETE FROM {first_row}")).await;
    let of_start = narrowed(10, 26).await;
    assert_eq!(extent(&of_start), (account, NarrowedTo::Day, Some(second)));
    let problem = format!("the totals of {first}: there is no row");
    assert!(of_start.differences.differences.iter().any(|found| found.problem == problem), "{:?}", of_start.differences);
    shop.tamper("INSERT INTO daily_totals SELECT * FROM first_row").await;
    shop.tamper(&format!("DELETE FROM daily_totals WHERE day = '{second}'")).await;
    let of_gap = narrowed(10, 26).await;
    assert_eq!(extent(&of_gap), (account, NarrowedTo::Day, Some(third)));
    let problem = format!("the totals of {second}: there is no row");
    assert_eq!(of_gap.differences.differences[0].problem, problem);
}
