//! Known faults, each of which is reported with the positions involved.

use ledger_events::AccountId;
use rewards_ledger::audit::{Difference, verify};
use rewards_ledger::ledger::reader;
use serde_json::json;
use sqlx::Connection;

use super::{reconcile, report, text};
use crate::support::shop::{SHARD, Shop};
use crate::support::tampering::{REFUNDED_AGAIN, revealed};

#[tokio::test(flavor = "multi_thread")]
async fn a_clean_history_adds_up() {
    let shop = Shop::open().await;
    shop.eventful().await;
    let output = reconcile(&shop, &[]).await;
    assert_eq!(output.status.code(), Some(0), "{}", text(&output));
    assert!(text(&output).ends_with("everything adds up\n"), "{}", text(&output));
    // The human-readable form has right-aligned columns, with the figures below them.
    let (whole, _) = report(&shop, &[]).await;
    let said = text(&output);
    let lines: Vec<&str> = said.lines().collect();
    let head =
        lines.iter().position(|line| line.trim_start().starts_with("currency  wallets")).unwrap_or_else(|| panic!("{said}"));
    let (names, figures): (Vec<&str>, Vec<&str>) =
        (lines[head].split_whitespace().collect(), lines[head + 1].split_whitespace().collect());
    for (column, name) in [("funding", "funding"), ("debits", "debits"), ("refunds", "refunds"), ("closing", "closing_balance")] {
        let at = names.iter().position(|name| *name == column).unwrap_or_else(|| panic!("{column}: {said}"));
        assert_eq!(whole["currencies"][0][name], figures[at], "{column}: {said}");
    }
    assert!(lines[head].len() == lines[head + 1].len() && said.contains(whole["days"][0]["day"].as_str().unwrap()), "{said}");
    // The totals alone, wherever the checkpoint of the daily totals is.
    let set_back = "UPDATE projection_checkpoints SET position = 0 WHERE projection = 'daily_totals'; DELETE FROM daily_totals";
    sqlx::raw_sql(set_back).execute(&mut shop.admin().await).await.unwrap();
    let (without, is_content) = report(&shop, &["--totals-only"]).await;
    assert!(is_content, "{without:#}");
    assert_eq!(
        (&whole["currencies"], &whole["wallets"], &whole["days"]),
        (&without["currencies"], &without["wallets"], &without["days"])
    );
    assert_eq!((&whole["checked"], &without["checked"]), (&json!("MOVEMENTS"), &json!("TOTALS")));
    // A command that did not check orders must not claim that they are correct.
    let said = text(&reconcile(&shop, &["--totals-only"]).await);
    assert!(said.ends_with("the totals add up; orders, payouts and movements were not checked\n"), "{said}");
}

/// A script can tell a difference from an unavailable database by the exit status.
#[tokio::test(flavor = "multi_thread")]
async fn each_outcome_has_its_status() {
    let shop = Shop::open().await;
    let status = async |arguments: &[&str]| {
        let output = reconcile(&shop, arguments).await;
        let lines = String::from_utf8_lossy(&output.stderr).lines().count();
        (output.status.code(), if output.status.success() { 1 } else { lines }, text(&output))
    };
    let wrong: [(&[&str], &str); 7] = [
        (&["--from", "2026-02-01", "--to", "2026-01-01"], "--to must not be before --from"),
        (&["--from=-5000-01-01"], "in the years 1 to 9999"),
        (&["--to", "+12000-01-01"], "in the years 1 to 9999"),
        (&["--from", "2026-01-01", "statement", "list"], "--from cannot be used with `reconcile statement`"),
        (&["--format", "csv", "statement", "show", "3"], "--format cannot be used with `reconcile statement`"),
        (&["--totals-only", "statement", "show", "3"], "--totals-only cannot be used with `reconcile statement`"),
        (&["--quorum", "1"], "--quorum is 1, but --witness gives 0"),
    ];
    for (arguments, problem) in wrong {
        let (code, lines, said) = status(arguments).await;
        assert!((code, lines) == (Some(2), 1) && said.contains(problem), "{arguments:?}: {code:?} {said}");
    }
    assert_eq!(status(&[]).await.0, Some(0));
    let (code, lines, said) = status(&["--account", "999"]).await;
    assert!((code, lines) == (Some(3), 1) && said.contains("there is no account 999"), "{code:?} {said}");
    // Nothing listens at this address.
    for away in
        [&["--database-url", "postgres://nobody@127.0.0.1:1/none"][..], &["statement", "--url", "http://127.0.0.1:1", "list"]]
    {
        let (code, _, said) = status(away).await;
        assert_eq!(code, Some(3), "{away:?}: {said}");
    }
    shop.tamper("UPDATE wallets SET balance = balance + 1").await;
    assert_eq!(status(&[]).await.0, Some(1));
    let help = status(&["--help"]).await.2;
    let help = help.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(
        help.contains(
            "0 if nothing differs, 1 if something differs, 2 if the command line is wrong, 3 if the comparison could not run"
        ),
        "{help}"
    );
}

/// A change to the database that bypasses its triggers. The other fields are the kind of the difference, a part of
/// the message, and the positions involved, which SQL finds before the change.
struct Fault {
    deed: &'static str,
    kind: &'static str,
    problem: &'static str,
    positions: &'static str,
}

const ORDER_1: &str = "SELECT position FROM events WHERE type = 'OrderPlaced' AND stream_id = 1
     UNION SELECT position FROM events WHERE type = 'WalletDebited' AND data->>'order_id' = '1'";

const FAULTS: &[Fault] = &[
    Fault {
        deed: "UPDATE wallets SET balance = balance + 1 WHERE id = 1",
        kind: "WALLET_BALANCE",
        problem: "its row has the balance",
        positions: "SELECT max(position) FROM wallet_transactions WHERE wallet_id = 1",
    },
    Fault {
        deed: "UPDATE wallets SET currency = 'USD' WHERE id = 1",
        kind: "WALLET_DIFFERS",
        problem: "its row says USD, its last movement EUR",
        positions: "SELECT max(position) FROM wallet_transactions WHERE wallet_id = 1",
    },
    Fault {
        deed: "UPDATE wallets SET account_id = 2 WHERE id = 1",
        kind: "WALLET_DIFFERS",
        problem: "its row says account 2, its last movement account 1",
        positions: "SELECT max(position) FROM wallet_transactions WHERE wallet_id = 1",
    },
    Fault {
        deed: "UPDATE wallets SET created_at = '2999-01-01' WHERE id = 1",
        kind: "WALLET_DIFFERS",
        problem: "its row says that it was opened at 2999-01-01T00:00:00+00:00",
        positions: "SELECT max(position) FROM wallet_transactions WHERE wallet_id = 1",
    },
    Fault {
        deed: "DELETE FROM wallet_transactions WHERE order_id = 1 AND category = 'ORDER'",
        kind: "MOVEMENT_MISSING",
        problem: "of 20.00 has no row",
        positions: "SELECT position FROM events WHERE type = 'WalletDebited' AND data->>'order_id' = '1'",
    },
    Fault {
        deed: "DELETE FROM wallet_transactions WHERE position = (SELECT max(position) FROM wallet_transactions WHERE wallet_id = 1)",
        kind: "WALLET_CLOSING",
        problem: "its last movement left",
        positions: "SELECT max(position) FROM wallet_transactions WHERE wallet_id = 1
            AND position < (SELECT max(position) FROM wallet_transactions WHERE wallet_id = 1)",
    },
    Fault {
        deed: "UPDATE wallet_transactions SET amount = amount + 1 WHERE order_id = 1 AND category = 'ORDER'",
        kind: "MOVEMENT_DIFFERS",
        problem: "amount is 21.00, the log says 20.00",
        positions: "SELECT position FROM events WHERE type = 'WalletDebited' AND data->>'order_id' = '1'",
    },
    Fault {
        deed: "INSERT INTO wallet_transactions SELECT shard_id, id + 100000, position + 1, wallet_id, account_id, type, category, amount,
                balance_after, currency, order_id, 'other', created_at FROM wallet_transactions WHERE order_id = 1 AND category = 'ORDER'",
        kind: "MOVEMENT_EXTRA",
        problem: "is not in the log",
        positions: "SELECT position + 1 FROM events WHERE type = 'WalletDebited' AND data->>'order_id' = '1'",
    },
    Fault {
        // Append the refund of an order to the log once more, unchanged.
        deed: "INSERT INTO events SELECT shard_id, (SELECT max(position) + 1 FROM events), gen_random_uuid(), stream_type, stream_id,
                (SELECT max(version) + 1 FROM events WHERE stream_type = 'wallet' AND stream_id = e.stream_id), type, schema_version, data,
                metadata, (SELECT max(recorded_at) FROM events) FROM events e WHERE type = 'WalletRefunded' AND data->>'order_id' = '2';
             UPDATE log_head SET position = position + 1",
        kind: "ORDER_REFUND",
        problem: "for order 2, which was not cancelled by the preceding event",
        positions: "SELECT position FROM events WHERE type = 'OrderPlaced' AND stream_id = 2
            UNION SELECT position FROM events WHERE type = 'WalletDebited' AND data->>'order_id' = '2'
            UNION SELECT position FROM events WHERE type = 'OrderCancelled' AND stream_id = 2
            UNION SELECT position FROM events WHERE type = 'WalletRefunded' AND data->>'order_id' = '2'
            UNION SELECT max(position) + 1 FROM events",
    },
    Fault {
        deed: r#"UPDATE events SET data = regexp_replace(data::text, '"amount":"[^"]*"', '"amount":"19.00"')::json
             WHERE type = 'WalletDebited' AND data->>'order_id' = '1'"#,
        kind: "ORDER_DEBIT",
        problem: "its payment is 19.00 instead of 20.00",
        positions: ORDER_1,
    },
    Fault {
        deed: r#"UPDATE events SET data = regexp_replace(data::text, '"amount":"[^"]*"', '"amount":"19.00"')::json
             WHERE type = 'OrderPlaced' AND stream_id = 1"#,
        kind: "ORDER_PRICE",
        problem: "its amount is 19.00, but its price is 20.00",
        positions: "SELECT position FROM events WHERE type = 'OrderPlaced' AND stream_id = 1",
    },
    Fault {
        deed: "DELETE FROM events WHERE type = 'WalletDebited' AND data->>'order_id' = '1'",
        kind: "ORDER_DEBIT",
        problem: "its payment of 20.00 is not the next event",
        positions: ORDER_1,
    },
    Fault {
        deed: r#"UPDATE events SET data = regexp_replace(data::text, '"refunded_amount":"[^"]*"', '"refunded_amount":"0.01"')::json
             WHERE type = 'OrderCancelled' AND stream_id = 2"#,
        kind: "ORDER_REFUND",
        problem: "its refund is 0.01 instead of",
        positions: "SELECT position FROM events WHERE type IN ('OrderPlaced', 'OrderCancelled') AND stream_id = 2",
    },
    Fault {
        deed: r#"UPDATE events SET data = regexp_replace(data::text, '"refunded_amount":"[^"]*"', '"refunded_amount":"99.00"')::json
             WHERE type = 'PayoutFailed'"#,
        kind: "PAYOUT_REFUND",
        problem: "its refund is 99.00 instead of 40.00",
        positions: "SELECT position FROM events WHERE type = 'PayoutFailed'",
    },
    Fault {
        deed: r#"UPDATE events SET data = regexp_replace(data::text, '"balance_after":"[^"]*"', '"balance_after":"5.00"')::json
             WHERE type = 'WalletDebited' AND data->>'order_id' = '1'"#,
        kind: "BALANCE_AFTER",
        problem: "says the balance after",
        positions: "SELECT position FROM events WHERE type = 'WalletDebited' AND data->>'order_id' = '1'",
    },
    Fault {
        deed: "UPDATE daily_totals SET order_debits = order_debits + 1 WHERE wallet_id = 1",
        kind: "DAILY_TOTAL",
        problem: "the log says",
        positions: "SELECT unnest(ARRAY[min(position), max(position)]) FROM events WHERE stream_type = 'wallet' AND stream_id = 1",
    },
    Fault {
        deed: "UPDATE daily_totals SET closing_balance = closing_balance + 100 WHERE wallet_id = 1",
        kind: "DAILY_TOTAL",
        problem: "closing balance",
        positions: "SELECT unnest(ARRAY[min(position), max(position)]) FROM events WHERE stream_type = 'wallet' AND stream_id = 1",
    },
    Fault {
        deed: "UPDATE daily_totals SET currency = 'USD' WHERE wallet_id = 1",
        kind: "DAILY_TOTAL",
        problem: "currency USD, the log says EUR",
        positions: "SELECT unnest(ARRAY[min(position), max(position)]) FROM events WHERE stream_type = 'wallet' AND stream_id = 1",
    },
    Fault {
        deed: "INSERT INTO daily_totals SELECT shard_id, wallet_id, day - 1, account_id, currency, 5, 5, 0, 0, 0, 0, 0, 2, 0, first_position,
                last_position FROM daily_totals WHERE wallet_id = 1",
        kind: "DAILY_TOTAL",
        problem: "there is a row and no event",
        positions: "SELECT unnest(ARRAY[min(position), max(position)]) FROM events WHERE stream_type = 'wallet' AND stream_id = 1",
    },
    Fault {
        deed: "UPDATE daily_totals SET funding = funding + 1, adjustment_debits = adjustment_debits + 1, first_position = 0 WHERE wallet_id = 1",
        kind: "DAILY_TOTAL",
        problem: "adjustment debits 1.00, the log says 0.00",
        positions: "SELECT unnest(ARRAY[min(position), max(position)]) FROM events WHERE stream_type = 'wallet' AND stream_id = 1",
    },
    Fault {
        deed: "UPDATE events SET data = '{}' WHERE type = 'WalletDebited' AND data->>'order_id' = '1'",
        kind: "UNREADABLE",
        problem: "is not readable",
        positions: "SELECT position FROM events WHERE type = 'WalletDebited' AND data->>'order_id' = '1'",
    },
];

#[tokio::test(flavor = "multi_thread")]
async fn every_fault_is_named_with_its_positions() {
    for fault in FAULTS {
        let shop = Shop::open().await;
        shop.history().await;
        let mut admin = shop.admin().await;
        let mut positions: Vec<i64> = sqlx::query_scalar(fault.positions).fetch_all(&mut admin).await.unwrap();
        positions.sort_unstable();
        admin.close().await.unwrap();
        shop.tamper(fault.deed).await;
        let (report, is_content) = report(&shop, &[]).await;
        assert!(!is_content, "{}", fault.deed);
        let found = report["differences"].as_array().unwrap();
        assert_eq!(report["found"], found.len(), "{report:#}");
        let is_named = |difference: &&serde_json::Value| {
            difference["kind"] == fault.kind
                && difference["problem"].as_str().unwrap().contains(fault.problem)
                && difference["positions"] == json!(positions)
                && difference["shard_id"] == SHARD
        };
        assert!(found.iter().any(|d| is_named(&d)), "{}\nshould be {} at {positions:?}\n{found:#?}", fault.deed, fault.kind);
    }
}

/// An attacker duplicated a refund and made everything else consistent. The only fault is that the refund was not
/// due.
#[tokio::test(flavor = "multi_thread")]
async fn a_duplicate_refund_with_matching_rows_is_the_only_difference() {
    let shop = Shop::open().await;
    shop.history().await;
    shop.tamper(REFUNDED_AGAIN).await;
    shop.project().await;
    let positions: Vec<i64> = sqlx::query_scalar(
        "SELECT position FROM events WHERE (type IN ('OrderPlaced', 'OrderCancelled') AND stream_id = 2)
            OR (type IN ('WalletDebited', 'WalletRefunded') AND data->>'order_id' = '2') ORDER BY position",
    )
    .fetch_all(shop.pool())
    .await
    .unwrap();
    let head = reader::head(shop.pool(), SHARD).await.unwrap();
    assert!(positions.len() == 5 && positions[4] == head, "{positions:?}");
    for of in [&[][..], &["--account", &shop.customer.account_id.to_string()]] {
        let (report, _) = report(&shop, of).await;
        let [found] = &report["differences"].as_array().unwrap()[..] else { panic!("{report:#}") };
        assert_eq!((&found["kind"], &found["order_id"]), (&json!("ORDER_REFUND"), &json!(2)), "{found:#}");
        assert_eq!(found["positions"], json!(positions), "{found:#}");
        assert!(found["problem"].as_str().unwrap().contains("which was not cancelled by the preceding event"), "{found:#}");
    }
    // All derived data agrees with the log, but the log breaks its own rule.
    let found = verify(&shop.options, |_| {}).await.unwrap().differences;
    let [Difference::Rule { stream: "wallet", id, position, problem, .. }] = &found[..] else { panic!("{found:#?}") };
    assert_eq!((*id, *position), (shop.customer.wallet_id.0, head));
    assert!(problem.contains("for order 2, which was not cancelled by the preceding event"), "{problem}");
}

/// Each read of the codes is an event of the order, so the cancellation can follow thousands of them.
#[tokio::test(flavor = "multi_thread")]
async fn a_difference_names_every_movement_of_an_order_whose_codes_were_read_often() {
    let shop = Shop::open().await;
    shop.load("a", 2, None).await;
    let order = shop.order(3).await;
    shop.fulfil(order).await;
    let reads = 1_010;
    shop.tamper(&format!("{}; UPDATE orders SET version = version + {reads} WHERE id = {order}", revealed(order, reads))).await;
    shop.cancel(order).await;
    shop.tamper(REFUNDED_AGAIN).await;
    shop.project().await;
    let positions: Vec<i64> = sqlx::query_scalar(
        "SELECT position FROM events WHERE type IN ('OrderPlaced', 'OrderCancelled') OR type IN ('WalletDebited', 'WalletRefunded')
         ORDER BY position",
    )
    .fetch_all(shop.pool())
    .await
    .unwrap();
    assert_eq!(positions.len(), 5, "an order, its payment, its cancellation, its refund and another refund");
    let (report, _) = report(&shop, &[]).await;
    let [found] = &report["differences"].as_array().unwrap()[..] else { panic!("{report:#}") };
    assert_eq!((&found["kind"], &found["positions"]), (&json!("ORDER_REFUND"), &json!(positions)), "{found:#}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_difference_is_printed_as_a_line_and_as_a_csv_row() {
    let shop = Shop::open().await;
    shop.history().await;
    shop.tamper("UPDATE wallets SET balance = balance + 1 WHERE id = 1").await;
    let output = reconcile(&shop, &[]).await;
    assert_eq!(output.status.code(), Some(1));
    let lines = text(&output);
    assert!(
        lines.lines().any(|l| l.contains("wallet 1: its row has the balance") && l.starts_with("shard 1, position ")),
        "{lines}"
    );
    assert!(lines.ends_with("1 difference\n"), "{lines}");
    let output = reconcile(&shop, &["--format", "csv"]).await;
    assert_eq!(output.status.code(), Some(1));
    let mut csv = csv::Reader::from_reader(&*output.stdout);
    let names = csv.headers().unwrap().clone();
    let rows: Vec<csv::StringRecord> = csv.records().collect::<Result<_, _>>().unwrap();
    let cell = |row: &csv::StringRecord, name: &str| row[names.iter().position(|n| n == name).unwrap()].to_owned();
    let of = |record: &str| rows.iter().filter(|row| cell(row, "record") == record).collect::<Vec<_>>();
    assert_eq!(of("DIFFERENCE").len(), 1);
    assert_eq!(cell(of("DIFFERENCE")[0], "kind"), "WALLET_BALANCE");
    assert!(!of("WALLET").is_empty() && !of("DAY").is_empty() && of("CURRENCY").len() == 1 && of("AS_OF").len() == 1);
    let report = of("REPORT");
    assert_eq!((cell(report[0], "checked"), cell(report[0], "found")), ("MOVEMENTS".to_owned(), "1".to_owned()));
}

/// The report of one account contains its wallet and its fault, and nothing of the other account.
#[tokio::test(flavor = "multi_thread")]
async fn one_accounts_report_has_nothing_of_another() {
    let shop = Shop::open().await;
    shop.history().await;
    let (account, wallet) = (shop.customer.account_id, shop.customer.wallet_id);
    let (other, others_wallet) = shop.account("Second").await;
    shop.orders(other, 3).await;
    shop.project().await;
    let of = async |account: AccountId| report(&shop, &["--account", &account.to_string()]).await;
    for (account, wallet) in [(account, wallet), (other, others_wallet)] {
        let (report, is_content) = of(account).await;
        assert!(is_content && report["account_id"] == account.0, "{report:#}");
        let found: Vec<i64> = report["wallets"].as_array().unwrap().iter().map(|w| w["wallet_id"].as_i64().unwrap()).collect();
        assert_eq!(found, [wallet.0], "{report:#}");
        let (total, figures) = (&report["currencies"][0], &report["wallets"][0]);
        for name in ["opening_balance", "funding", "debits", "refunds", "movements", "closing_balance"] {
            assert_eq!(total[name], figures[name], "{name} contains only this account: {report:#}");
        }
        let moved: i64 = report["days"].as_array().unwrap().iter().map(|day| day["movements"].as_i64().unwrap()).sum();
        assert_eq!(figures["movements"], moved, "{report:#}");
    }

    // A fault of each kind of row, all of them in the second account.
    shop.tamper(&format!(
        "UPDATE wallets SET balance = balance + 1 WHERE id = {others_wallet};
         UPDATE daily_totals SET order_debits = order_debits + 1 WHERE wallet_id = {others_wallet};
         DELETE FROM wallet_transactions WHERE position = (SELECT min(position) FROM wallet_transactions WHERE wallet_id = {others_wallet} AND category = 'ORDER');
         UPDATE events SET data = regexp_replace(data::text, '\"amount\":\"[^\"]*\"', '\"amount\":\"9.00\"')::json
             WHERE position = (SELECT max(position) FROM events WHERE type = 'OrderPlaced')"
    ))
    .await;
    let (report, is_content) = of(account).await;
    assert!(is_content && report["found"] == 0, "the first account's is sound: {report:#}");
    let (report, is_content) = of(other).await;
    assert!(!is_content, "{report:#}");
    let found = report["differences"].as_array().unwrap();
    let kinds: Vec<&str> = found.iter().map(|difference| difference["kind"].as_str().unwrap()).collect();
    for kind in ["WALLET_BALANCE", "DAILY_TOTAL", "MOVEMENT_MISSING", "ORDER_PRICE"] {
        assert!(kinds.contains(&kind), "{kind} is not among {kinds:?}");
    }
    assert!(found.iter().all(|difference| difference["wallet_id"] != wallet.0), "{report:#}");

    // The other way round: a fault in the first account.
    shop.tamper(&format!("UPDATE wallets SET balance = balance + 1 WHERE id = {wallet}")).await;
    let (report, _) = of(account).await;
    let found: Vec<_> = report["differences"]
        .as_array()
        .unwrap()
        .iter()
        .map(|d| (d["kind"].as_str().unwrap(), d["wallet_id"].as_i64()))
        .collect();
    assert_eq!(found, [("WALLET_BALANCE", Some(wallet.0))], "{report:#}");
}

/// The shell command prints every difference, however many there are.
#[tokio::test(flavor = "multi_thread")]
async fn the_command_lists_every_difference() {
    let shop = Shop::open().await;
    shop.orders(shop.customer.account_id, 1_010).await;
    shop.project().await;
    shop.tamper("UPDATE wallet_transactions SET reference = 'other' WHERE category = 'ORDER'").await;
    let (report, is_content) = report(&shop, &[]).await;
    assert!(!is_content);
    let listed = report["differences"].as_array().unwrap();
    assert_eq!((&report["found"], listed.len()), (&json!(1_010), 1_010));
    assert!(listed.iter().all(|difference| difference["kind"] == "MOVEMENT_DIFFERS"));
    let table = reconcile(&shop, &[]).await;
    let lines = text(&table);
    assert_eq!(lines.lines().filter(|line| line.ends_with("(MOVEMENT_DIFFERS)")).count(), 1_010);
    let csv = reconcile(&shop, &["--format", "csv"]).await;
    assert_eq!(text(&csv).lines().filter(|line| line.starts_with("DIFFERENCE")).count(), 1_010);
}
