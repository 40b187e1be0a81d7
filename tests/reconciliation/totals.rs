//! Totals of periods, from the projection and from the movements.

use std::collections::BTreeMap;

use chrono::{DateTime, SecondsFormat, TimeDelta, Utc};
use ledger_events::wallet::Direction;
use ledger_events::{Money, TransactionId, WalletId};
use ledger_projections::page::Page;
use ledger_projections::wallets::TransactionFilter;
use rewards_ledger::access::Role;
use rewards_ledger::ledger::projector::ProjectionStep;
use rewards_ledger::ledger::{CommandResult, commands, reader};
use rewards_ledger::secrets::seal::Secret;
use rust_decimal::Decimal;
use serde_json::{Value, json};
use sqlx::AssertSqlSafe;
use transparency_log::checkpoint::Trust;
use transparency_log::merkle::{Frontier, leaf_hash};

use super::report;
use crate::support::node::{Node, Setup};
use crate::support::shop::{SHARD, Shop};
use crate::support::tampering::revealed;
use crate::support::{ledger, tree};

fn decimal(value: &Value) -> Decimal {
    value.as_str().unwrap_or_else(|| panic!("{value}")).parse().unwrap()
}

/// Moves every event and its derived rows to days of their own, two hours apart. The movement that an order or payout
/// makes has the time of its order or payout, as in reality.
pub async fn spread(shop: &Shop) {
    let shift = "recorded_at = date_trunc('milliseconds', '2026-03-01T01:00:00Z'::timestamptz
        + (position - CASE WHEN type IN ('WalletDebited', 'WalletRefunded') THEN 1 ELSE 0 END) * interval '2 hours')";
    let sql = format!(
        "UPDATE events SET {shift};
         UPDATE wallet_transactions t SET created_at = e.recorded_at FROM events e WHERE e.position = t.position;
         UPDATE wallets w SET created_at = e.recorded_at FROM events e WHERE e.type = 'WalletOpened' AND e.stream_id = w.id;
         UPDATE log_head SET recorded_at = (SELECT max(recorded_at) FROM events);
         DELETE FROM daily_totals; UPDATE projection_checkpoints SET position = 0 WHERE projection = 'daily_totals'"
    );
    shop.tamper(&sql).await;
}

/// Computes a period's totals from the movements alone.
async fn expected(shop: &Shop, from: Option<DateTime<Utc>>, to: Option<DateTime<Utc>>) -> Vec<(i64, [Decimal; 6])> {
    sqlx::query_as::<_, (i64, Decimal, Decimal, Decimal, Decimal, Decimal, Decimal)>(
        "SELECT w.id,
            coalesce(sum(CASE type WHEN 'CREDIT' THEN amount ELSE -amount END) FILTER (WHERE t.created_at < $1), 0),
            coalesce(sum(amount) FILTER (WHERE category = 'FUNDING' AND t.created_at >= $1), 0),
            coalesce(sum(amount) FILTER (WHERE category IN ('ORDER', 'PAYOUT') AND t.created_at >= $1), 0),
            coalesce(sum(amount) FILTER (WHERE category IN ('ORDER_REFUND', 'PAYOUT_REFUND') AND t.created_at >= $1), 0),
            coalesce(sum(CASE type WHEN 'CREDIT' THEN amount ELSE -amount END) FILTER (WHERE category = 'ADJUSTMENT' AND t.created_at >= $1), 0),
            coalesce(sum(CASE type WHEN 'CREDIT' THEN amount ELSE -amount END), 0)
         FROM wallets w LEFT JOIN wallet_transactions t ON t.wallet_id = w.id AND t.created_at < $2
         WHERE w.created_at < $2 GROUP BY w.id ORDER BY w.id",
    )
    .bind(from.unwrap_or_default())
    .bind(to.unwrap_or(DateTime::from_timestamp(32_000_000_000, 0).unwrap()))
    .fetch_all(shop.pool())
    .await
    .unwrap()
    .into_iter()
    .map(|(id, a, b, c, d, e, f)| (id, [a, b, c, d, e, f]))
    .collect()
}

fn figures(report: &Value) -> Vec<(i64, [Decimal; 6])> {
    let names = ["opening_balance", "funding", "debits", "refunds", "adjustments", "closing_balance"];
    let wallet = |w: &Value| (w["wallet_id"].as_i64().unwrap(), names.map(|name| decimal(&w[name])));
    report["wallets"].as_array().unwrap().iter().map(wallet).collect()
}

/// Directions and categories of movements by which a list is filtered.
const KINDS: [(Option<&str>, Option<&str>); 9] = [
    (None, None),
    (Some("CREDIT"), None),
    (Some("DEBIT"), None),
    (None, Some("ORDER")),
    (Some("DEBIT"), Some("ORDER")),
    (Some("CREDIT"), Some("ORDER")),
    (None, Some("ORDER_REFUND")),
    (Some("CREDIT"), Some("ADJUSTMENT")),
    (Some("DEBIT"), Some("ADJUSTMENT")),
];

/// Asserts that the totals of the lists of a customer's movements in a period match the movements themselves, and so do the first
/// page and some that are far down.
async fn assert_listed(shop: &Shop, wallet_id: Option<WalletId>, from: Option<DateTime<Utc>>, to: Option<DateTime<Utc>>) {
    let moved: Vec<(String, String, TransactionId)> = sqlx::query_as(
        "SELECT type, category, id FROM wallet_transactions WHERE account_id = $1 AND wallet_id = coalesce($2, wallet_id)
            AND created_at >= coalesce($3, '-infinity') AND created_at < coalesce($4, 'infinity') ORDER BY position DESC",
    )
    .bind(shop.customer.account_id)
    .bind(wallet_id)
    .bind(from)
    .bind(to)
    .fetch_all(shop.pool())
    .await
    .unwrap();
    for (direction, category) in KINDS {
        let filter = TransactionFilter {
            account_id: shop.customer.account_id,
            wallet_id,
            direction,
            category,
            amount: None,
            balance_after: None,
            currency: None,
            order_id: None,
            reference: None,
            created_from: from,
            created_to: to,
        };
        let list = reader::list_transactions(shop.pool(), SHARD, &filter, Page { number: 1, size: 100 }).await.unwrap();
        let of_kind = |(d, c, _): &&(String, String, TransactionId)| {
            direction.is_none_or(|of| of == d) && category.is_none_or(|of| of == c)
        };
        let expected: Vec<TransactionId> = moved.iter().filter(of_kind).map(|(_, _, id)| *id).collect();
        assert_eq!((list.total, list.rows.len()), (expected.len() as i64, expected.len().min(100)), "{filter:?}");
        for number in [26, expected.len() / 2, expected.len(), expected.len() + 1].into_iter().filter(|number| *number > 25) {
            let page = Page { number: number as i64, size: 1 };
            let list = reader::list_transactions(shop.pool(), SHARD, &filter, page).await.unwrap();
            let listed: Vec<TransactionId> = list.rows.iter().map(|row| row.id).collect();
            let expected = expected.get(number - 1).copied();
            assert_eq!(listed, expected.into_iter().collect::<Vec<_>>(), "page {number} of {filter:?}");
        }
    }
}

/// For any period and any checkpoint of the projection, the totals equal the movements. Days and currencies add up to
/// the wallets' sums.
#[tokio::test(flavor = "multi_thread")]
async fn totals_are_exact_for_any_period_and_checkpoint() {
    let shop = Shop::open().await;
    shop.account("Second").await;
    shop.history().await;
    for name in ["Later", "Later still", "Last but one", "Last"] {
        shop.account(name).await;
    }
    spread(&shop).await;
    let head = reader::head(shop.pool(), SHARD).await.unwrap();
    let beginning: DateTime<Utc> = "2026-03-01T00:00:00Z".parse().unwrap();
    let days = head * 2 / 24 + 2;
    let at = |hours: i64| beginning + TimeDelta::hours(hours);
    // In the afternoon, the row of the day on which a wallet is opened belongs to the period, but the wallet does not
    // yet.
    let opened: Option<DateTime<Utc>> = sqlx::query_scalar(
        "SELECT max(created_at) FROM wallets WHERE extract(hour FROM created_at AT TIME ZONE 'UTC') BETWEEN 14 AND 21",
    )
    .fetch_one(shop.pool())
    .await
    .unwrap();
    let opened = opened.expect("four wallets are opened six hours apart");
    let periods = [
        (None, None),
        (None, Some(opened - TimeDelta::hours(1))),
        (Some(at(24)), None),
        (None, Some(at(48))),
        (Some(at(24)), Some(at(72))),
        (Some(at(30)), Some(at(77))),
        (Some(at(25)), Some(at(31))),
        (Some(at(47)), Some(at(50))),
        (Some(at(38)), Some(at(70))),
        (Some(at(37)), Some(at(41))),
        (Some(at(28)), Some(at(44))),
        (Some(at(31)), Some(at(31))),
        (Some(at(days * 24 / 2 + 3)), None),
        (Some(at(-100)), Some(at(-50))),
        (Some(at(days * 24)), Some(at(days * 24 + 100))),
    ];
    let projector = shop.projector();
    for checkpoint in [0, head / 3, head / 2, head] {
        sqlx::raw_sql(AssertSqlSafe(format!(
            "DELETE FROM daily_totals; UPDATE projection_checkpoints SET position = 0 WHERE projection = 'daily_totals';
             UPDATE log_head SET position = {}",
            checkpoint.max(1)
        )))
        .execute(&mut shop.admin().await)
        .await
        .unwrap();
        while matches!(projector.total(SHARD).await.unwrap(), ProjectionStep::Applied { .. }) {}
        sqlx::raw_sql(AssertSqlSafe(format!("UPDATE log_head SET position = {head}")))
            .execute(&mut shop.admin().await)
            .await
            .unwrap();
        for (from, to) in periods {
            let time = |time: DateTime<Utc>| time.to_rfc3339_opts(SecondsFormat::Millis, true);
            let (from_text, to_text) = (from.map(time), to.map(time));
            let mut arguments = vec![];
            if let Some(from) = &from_text {
                arguments.extend(["--from", from]);
            }
            if let Some(to) = &to_text {
                arguments.extend(["--to", to]);
            }
            let (report, is_content) = report(&shop, &arguments).await;
            assert!(is_content, "{checkpoint} {arguments:?} {report:#}");
            assert_eq!(figures(&report), expected(&shop, from, to).await, "{checkpoint} {arguments:?} {report:#}");
            for wallet in [None, Some(shop.customer.wallet_id)] {
                assert_listed(&shop, wallet, from, to).await;
            }
            for name in ["funding", "debits", "refunds", "adjustments", "order_debits", "payout_refunds"] {
                let sum = |list: &str| report[list].as_array().unwrap().iter().map(|row| decimal(&row[name])).sum::<Decimal>();
                assert_eq!(sum("days"), sum("wallets"), "{name} {report:#}");
                assert_eq!(sum("currencies"), sum("wallets"), "{name} {report:#}");
            }
        }
    }
}

#[tokio::test]
async fn the_api_returns_json_and_csv_that_name_a_log_position() {
    let node = Node::start().await;
    let setup = node.setup().await;
    let order = json!({"product_id": setup.product_id, "denomination": 10, "quantity": 2});
    let placed = node.client(&setup.client, "POST", "/orders", order).await.data(201);
    node.client(&setup.client, "POST", &format!("/orders/{}/cancel", placed["id"]), Value::Null).await.data(200);
    let auditor = node.token(Role::Auditor).await;
    let report = node.operator_with(&auditor, "GET", "/reconciliation", Value::Null).await.data(200);
    let wallet = &report["wallets"][0];
    assert_eq!(
        (&wallet["opening_balance"], &wallet["funding"], &wallet["closing_balance"]),
        (&json!("0.00"), &json!("1000.00"), &json!("1000.00"))
    );
    assert_eq!((&wallet["debits"], &wallet["refunds"], &wallet["movements"]), (&json!("20.00"), &json!("20.00"), &json!(3)));
    assert_eq!((&report["found"], &report["checked"]), (&json!(0), &json!("MOVEMENTS")));
    assert_eq!(report["as_of"][0]["position"], node.head().await);
    assert_eq!(report["as_of"][0]["log_checkpoint"], Value::Null, "nobody has signed the log");
    let signed = "INSERT INTO log_checkpoints (shard_id, size, origin, root, note)
        SELECT 1, position + n, 'test', sha256('root'), 'note' FROM log_head, generate_series(-1, 1) AS n";
    sqlx::raw_sql(signed).execute(&mut node.options.connect().await.unwrap()).await.unwrap();
    let tied = node.operator("GET", "/reconciliation", Value::Null).await.data(200)["as_of"][0]["log_checkpoint"].clone();
    assert_eq!(
        (&tied["size"], &tied["note"]),
        (&json!(node.head().await), &json!("note")),
        "the first checkpoint that covers the position"
    );
    let none =
        node.operator("GET", "/reconciliation?from=2000-01-01T00:00:00Z&to=2001-01-01T00:00:00Z", Value::Null).await.data(200);
    assert_eq!((&none["wallets"], &none["as_of"][0]["position"]), (&json!([]), &json!(0)));

    sqlx::raw_sql("UPDATE wallets SET balance = 7").execute(&mut node.options.connect().await.unwrap()).await.unwrap();
    let path = format!("/reconciliation?account_id={}", setup.client.account_id);
    let report = node.operator("GET", &path, Value::Null).await.data(200);
    assert_eq!((&report["found"], &report["differences"][0]["kind"]), (&json!(1), &json!("WALLET_BALANCE")));
    let csv = node.send(node.by_operator("GET", "/reconciliation").header("Accept", "text/csv")).await;
    assert_eq!((csv.status, csv.header("vary")), (200, "Accept"));
    assert!(csv.header("content-disposition").contains("reconciliation-") && csv.text.contains("WALLET_BALANCE"), "{}", csv.text);

    node.operator("GET", "/reconciliation?account_id=999999", Value::Null).await.refused(404, "E_NOT_FOUND");
    let wrong = node.operator("GET", "/reconciliation?from=2026-02-01T00:00:00Z&to=2026-01-01T00:00:00Z", Value::Null).await;
    assert!(wrong.refused(400, "E_VALIDATION_FAILURE")["messages"]["to"].is_array());
}

/// Over the API as well, the report of one account contains nothing of another.
#[tokio::test]
async fn the_api_reports_one_account_alone() {
    let node = Node::start().await;
    let (first, second) = (node.setup().await, node.setup().await);
    for setup in [&first, &second] {
        let order = json!({"product_id": setup.product_id, "denomination": 10, "quantity": 1});
        node.client(&setup.client, "POST", "/orders", order).await.data(201);
    }
    sqlx::query("UPDATE wallets SET balance = 7 WHERE id = $1")
        .bind(second.wallet_id)
        .execute(&mut node.options.connect().await.unwrap())
        .await
        .unwrap();
    for (setup, found) in [(&first, 0), (&second, 1)] {
        let path = format!("/reconciliation?account_id={}", setup.client.account_id);
        let report = node.operator("GET", &path, Value::Null).await.data(200);
        let wallets = report["wallets"].as_array().unwrap();
        assert_eq!((wallets.len(), &wallets[0]["wallet_id"]), (1, &json!(setup.wallet_id)), "{report:#}");
        assert_eq!(report["currencies"][0]["closing_balance"], "990.00", "{report:#}");
        assert_eq!(report["found"], found, "{report:#}");
        let all_its_own = report["differences"].as_array().unwrap().iter().all(|d| d["wallet_id"] == setup.wallet_id);
        assert!(all_its_own, "{report:#}");
    }
}

/// Figures of a list by the names of its rows: funding, debits, refunds and adjustments, and the number of movements.
type MovementFigures = BTreeMap<String, ([Decimal; 4], i64)>;

fn moved(report: &Value, list: &str, names: &[&str]) -> MovementFigures {
    let row = |row: &Value| {
        let name: Vec<&str> = names.iter().map(|name| row[name].as_str().unwrap()).collect();
        let figures = ["funding", "debits", "refunds", "adjustments"].map(|figure| decimal(&row[figure]));
        (name.join(" "), (figures, row["movements"].as_i64().unwrap()))
    };
    report[list].as_array().unwrap().iter().map(row).collect()
}

/// Computes these figures from the movements alone, grouped by an expression over them.
async fn grouped(shop: &Shop, by: &str) -> MovementFigures {
    let sql = format!(
        "SELECT {by},
            coalesce(sum(amount) FILTER (WHERE category = 'FUNDING'), 0),
            coalesce(sum(amount) FILTER (WHERE category IN ('ORDER', 'PAYOUT')), 0),
            coalesce(sum(amount) FILTER (WHERE category IN ('ORDER_REFUND', 'PAYOUT_REFUND')), 0),
            coalesce(sum(CASE type WHEN 'CREDIT' THEN amount ELSE -amount END) FILTER (WHERE category = 'ADJUSTMENT'), 0),
            count(*)
         FROM wallet_transactions GROUP BY 1"
    );
    let rows: Vec<(String, Decimal, Decimal, Decimal, Decimal, i64)> =
        sqlx::query_as(AssertSqlSafe(sql)).fetch_all(shop.pool()).await.unwrap();
    rows.into_iter().map(|(name, a, b, c, d, count)| (name, ([a, b, c, d], count))).collect()
}

/// Opens a wallet in another currency, with movements on days of its own.
async fn dollars(shop: &Shop) {
    let open = commands::OpenWallet { account_id: shop.customer.account_id, currency: "USD".parse().unwrap() };
    let CommandResult::Wallet(wallet) = shop.run(open).await else { panic!("no wallet") };
    for (n, amount) in ["100.10", "0.01", "3.33"].into_iter().enumerate() {
        let (amount, reference) = (ledger::money(amount), format!("dollars {n}"));
        shop.run(commands::FundWallet { account_id: None, wallet_id: wallet.id, amount, reference, note: None }).await;
        shop.orders(shop.customer.account_id, 4).await; // some hours pass
        let direction = if n == 1 { Direction::Credit } else { Direction::Debit };
        let reason = Secret::new("rounding");
        shop.run(commands::AdjustWallet { wallet_id: wallet.id, direction, amount: ledger::money("0.07"), reason }).await;
        shop.orders(shop.customer.account_id, 4).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn totals_by_day_and_currency_equal_the_grouped_movements() {
    let shop = Shop::open().await;
    shop.history().await;
    dollars(&shop).await;
    spread(&shop).await;
    let projector = shop.projector();
    // First all figures come from the movements, then all from the daily rows.
    for is_projected in [false, true] {
        while is_projected && matches!(projector.total(SHARD).await.unwrap(), ProjectionStep::Applied { .. }) {}
        let (report, is_content) = report(&shop, &[]).await;
        assert!(is_content, "{report:#}");
        let currencies = grouped(&shop, "currency::text").await;
        assert_eq!(currencies.keys().collect::<Vec<_>>(), ["EUR", "USD"]);
        assert_eq!(moved(&report, "currencies", &["currency"]), currencies, "{is_projected}");
        let days = grouped(&shop, "to_char(created_at AT TIME ZONE 'UTC', 'YYYY-MM-DD') || ' ' || currency").await;
        let of = |currency: &str| days.keys().filter(|name| name.ends_with(currency)).count();
        assert!(of("EUR") > 2 && of("USD") > 2, "both currencies have several days: {days:?}");
        assert_eq!(moved(&report, "days", &["day", "currency"]), days, "{is_projected}");
    }
}

/// Two projectors run at once, one event at a time, and every movement counts once.
#[tokio::test(flavor = "multi_thread")]
async fn totals_are_kept_exactly_once() {
    let shop = Shop::open().await;
    let (one, other) = (shop.projector(), shop.projector());
    for _ in 0..5 {
        shop.order(1).await;
        let (a, b) = tokio::join!(one.total(SHARD), other.total(SHARD));
        a.unwrap();
        b.unwrap();
    }
    while matches!(one.total(SHARD).await.unwrap(), ProjectionStep::Applied { .. }) {}
    let (debits, movements, closing): (Decimal, i64, Decimal) = sqlx::query_as(
        "SELECT sum(order_debits), sum(movements)::bigint, (array_agg(closing_balance ORDER BY day DESC))[1] FROM daily_totals WHERE wallet_id = $1",
    )
    .bind(shop.customer.wallet_id)
    .fetch_one(shop.pool())
    .await
    .unwrap();
    let money = |text: &str| text.parse::<Money>().unwrap().decimal();
    assert_eq!((debits, movements, closing), (money("50.00"), 6, money("999950.00")));
}

/// The figures name a signed head of the tree over the log, so that anyone with the key and the events can verify
/// them.
#[tokio::test(flavor = "multi_thread")]
async fn figures_name_a_tree_head_that_the_log_has_signed() {
    let node = Node::start().await;
    let setup = node.setup().await;
    let order = json!({"product_id": setup.product_id, "denomination": 10, "quantity": 2});
    node.client(&setup.client, "POST", "/orders", order.clone()).await.data(201);
    let tree = node.publish().await;
    let tied = async || node.operator("GET", "/reconciliation", Value::Null).await.data(200)["as_of"][0].clone();
    let checked = async |as_of: &Value| {
        let head = &as_of["log_checkpoint"];
        let opened = Trust::in_keys(vec![tree::key()]).open(head["note"].as_str().unwrap()).unwrap().checkpoint;
        assert_eq!((head["size"].as_u64(), &head["root"]), (Some(opened.size), &json!(hex::encode(opened.root))));
        let mut events = Frontier::default();
        let size = i64::try_from(opened.size).unwrap();
        for stored in reader::stored_after(node.ledger.pool(), SHARD, 0, size).await.unwrap() {
            events.append(leaf_hash(&stored.leaf().to_bytes()));
        }
        assert_eq!((events.size(), events.root()), (opened.size, opened.root));
        size
    };
    let first = tied().await;
    assert_eq!((checked(&first).await, &first["position"]), (node.head().await, &json!(node.head().await)));
    // While the tree lacks the new events, the newest checkpoint is named, later the first one that covers them.
    node.client(&setup.client, "POST", "/orders", order).await.data(201);
    let between = tied().await;
    assert!(checked(&between).await < between["position"].as_i64().unwrap(), "{between}");
    tree.grow().await;
    node.operator("POST", "/accounts", json!({"name": "More"})).await.data(201);
    let covered = node.head().await - 1;
    tree.grow().await;
    assert_eq!(checked(&tied().await).await, node.head().await);
    let time: DateTime<Utc> = reader::stored_at(node.ledger.pool(), SHARD, &[covered + 1]).await.unwrap()[0].recorded_at;
    let path = format!("/reconciliation?to={}", time.to_rfc3339_opts(SecondsFormat::Millis, true));
    let before = node.operator("GET", &path, Value::Null).await.data(200)["as_of"][0].clone();
    assert_eq!(checked(&before).await, covered);
}

/// The movements of one account are checked individually however long the log is, and the response says so.
#[tokio::test(flavor = "multi_thread")]
async fn one_account_is_checked_in_full_in_a_long_log() {
    let node = Node::start().await;
    let (first, second) = (node.setup().await, node.setup().await);
    let order = |setup: &Setup| json!({"product_id": setup.product_id, "denomination": 10, "quantity": 2});
    let cancelled = node.client(&first.client, "POST", "/orders", order(&first)).await.data(201)["id"].clone();
    node.client(&first.client, "POST", &format!("/orders/{cancelled}/cancel"), Value::Null).await.data(200);
    let other = node.client(&second.client, "POST", "/orders", order(&second)).await.data(201)["id"].as_i64().unwrap();
    let mut admin = node.options.connect().await.unwrap();
    sqlx::raw_sql(AssertSqlSafe(revealed(other, 20_001))).execute(&mut admin).await.unwrap();
    let report = async |query: String| node.operator("GET", &format!("/reconciliation{query}"), Value::Null).await.data(200);
    let of = |setup: &Setup| format!("?account_id={}", setup.client.account_id);
    let all = report(String::new()).await;
    assert_eq!((&all["checked"], &all["checked_events"], &all["found"]), (&json!("TOTALS"), &json!(0), &json!(0)));
    // Account events: opened and funded. Order events: placed, debited, cancelled and refunded.
    let own = report(of(&first)).await;
    assert_eq!((&own["checked"], &own["checked_events"], &own["found"]), (&json!("MOVEMENTS"), &json!(6), &json!(0)), "{own:#}");
    let theirs = report(of(&second)).await;
    assert_eq!((&theirs["checked"], &theirs["checked_events"]), (&json!("MOVEMENTS"), &json!(4 + 20_001)), "{theirs:#}");

    // A fault in the one account that no total shows, and a row without an event, are found.
    let deed = format!(
        "UPDATE wallet_transactions SET reference = 'another' WHERE wallet_id = {} AND category = 'FUNDING'",
        first.wallet_id
    );
    sqlx::raw_sql(AssertSqlSafe(deed)).execute(&mut admin).await.unwrap();
    let found = report(of(&first)).await;
    assert_eq!((&found["found"], &found["differences"][0]["kind"]), (&json!(1), &json!("MOVEMENT_DIFFERS")), "{found:#}");
    assert_eq!(report(of(&second)).await["found"], 0);
    let csv = node.send(node.by_operator("GET", &format!("/reconciliation{}", of(&first))).header("Accept", "text/csv")).await;
    let cells = |record: &str, name: &str| super::cells(&csv.text, record, name);
    assert_eq!((cells("REPORT", "checked_events"), cells("REPORT", "wallets_left_out")), (vec!["6".into()], vec!["0".into()]));

    // In the report of all accounts, the totals of a wallet lead to the events of its account.
    let last = format!("SELECT max(position) FROM wallet_transactions WHERE wallet_id = {}", first.wallet_id);
    let deed = format!("UPDATE wallet_transactions SET balance_after = balance_after + 1 WHERE position = ({last})");
    sqlx::raw_sql(AssertSqlSafe(deed)).execute(&mut admin).await.unwrap();
    let last: i64 = sqlx::query_scalar(AssertSqlSafe(last)).fetch_one(&mut admin).await.unwrap();
    let all = report(String::new()).await;
    assert_eq!((&all["checked"], &all["checked_events"], &all["found"]), (&json!("TOTALS"), &json!(6), &json!(3)), "{all:#}");
    let account = first.client.account_id;
    let account = json!({"shard_id": SHARD, "account_id": account, "checked": "PERIOD", "day": null, "checked_events": 6});
    assert_eq!((&all["narrowed"], &all["narrowed_left_out"]), (&json!([account]), &json!(0)));
    let kinds: Vec<&Value> = all["differences"].as_array().unwrap().iter().map(|difference| &difference["kind"]).collect();
    assert_eq!(kinds, ["MOVEMENT_DIFFERS", "MOVEMENT_DIFFERS", "WALLET_CLOSING"], "{all:#}");
    assert_eq!(all["differences"][1]["positions"], json!([last]));
    let csv = node.send(node.by_operator("GET", "/reconciliation").header("Accept", "text/csv")).await;
    assert_eq!(super::cells(&csv.text, "NARROWED", "account_id"), [first.client.account_id.to_string()]);
}
