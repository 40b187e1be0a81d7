//! The group-committing writer under adverse conditions: cut connections, poisoned commands, two nodes.

mod clock;
mod connections;
mod keys;
mod mixes;
mod pipeline;

use std::sync::Arc;
use std::time::Duration;

use ledger_database::{PgConnectOptions, PgPool};
use ledger_events::{Money, Rejection};
use rewards_ledger::ledger::commands::PlaceOrder;
use rewards_ledger::ledger::connect;
use rewards_ledger::ledger::{Command, CommandResult, Idempotency, Ledger, Reply, StoredResponse, WriteError, commands};
use rewards_ledger::telemetry::Metrics;

use crate::support::ledger::{self, Customer, SHARD, origin};
use crate::support::postgres;
use crate::support::proxy::{NextCommit, Proxy};
use crate::support::wait::until_locked_out;

fn order(customer: &Customer, reference: &str) -> Command {
    Command::PlaceOrder(PlaceOrder { client_reference: Some(reference.to_owned()), ..customer.order("10.00", 1) })
}

async fn count(pool: &PgPool, sql: &'static str) -> i64 {
    sqlx::query_scalar(sql).fetch_one(pool).await.unwrap()
}

async fn balance(pool: &PgPool, customer: &Customer) -> String {
    let balance: rust_decimal::Decimal = sqlx::query_scalar("SELECT balance FROM wallets WHERE shard_id = 1 AND id = $1")
        .bind(customer.wallet_id)
        .fetch_one(pool)
        .await
        .unwrap();
    format!("{balance:.2}")
}

/// Returns the value of a metric.
async fn shown(metrics: &Metrics, pool: &PgPool, name: &str) -> f64 {
    let text = metrics.scrape(rewards_ledger::ledger::backlog::query(pool)).await.unwrap();
    let line = text.lines().find(|line| line.starts_with(name)).unwrap_or_else(|| panic!("{name} is missing in:\n{text}"));
    line.rsplit_once(' ').unwrap().1.parse().unwrap()
}

/// The writer's guarantees do not depend on the settings of the database.
#[tokio::test]
async fn the_writer_sets_its_own_session_settings() {
    let database = postgres::database().await;
    let options: PgConnectOptions = database.url.parse().unwrap();
    let name = options.get_database().unwrap().to_owned();
    let mut admin = options.connect().await.unwrap();
    let expected = [
        ("synchronous_commit", "off", "on"),
        ("default_transaction_isolation", "serializable", "read committed"),
        ("idle_in_transaction_session_timeout", "0", "2s"),
        ("lock_timeout", "0", "4s"),
        ("statement_timeout", "0", "4500ms"),
        ("plan_cache_mode", "auto", "force_generic_plan"),
        ("jit", "on", "off"),
        ("timezone", "Asia/Tokyo", "UTC"),
        ("role", "none", connect::RUNTIME_ROLE),
    ];
    for (setting, theirs, _) in expected {
        let sql = format!("ALTER DATABASE \"{name}\" SET {setting} = '{theirs}'");
        sqlx::raw_sql(sqlx::AssertSqlSafe(sql)).execute(&mut admin).await.unwrap();
    }
    let mut writer = connect::writer(&options, SHARD).connect().await.unwrap();
    for (setting, _, ours) in expected {
        let set: String = sqlx::query_scalar("SELECT current_setting($1)").bind(setting).fetch_one(&mut writer).await.unwrap();
        assert_eq!(set, ours, "{setting}");
    }
}

/// Opens a ledger whose connections all go through a proxy.
async fn behind_a_proxy(url: &str) -> (Ledger, Proxy) {
    let (proxy, through) = Proxy::before(url).await;
    (ledger::open(&through).await, proxy)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_commit_whose_answer_is_lost_is_found_and_answered() {
    let database = postgres::database().await;
    let (proxy, through) = Proxy::before(&database.url).await;
    let metrics = Metrics::default();
    let ledger = ledger::open_with(&through, metrics.clone()).await;
    let customer = Customer::with(&ledger, "100.00").await;
    let counted = async || {
        let names = ["ledger_commands_total ", "ledger_events_total ", "ledger_batch_commands_count "];
        let [commands, events, batches] = names.map(|name| shown(&metrics, ledger.pool(), name));
        [commands.await, events.await, batches.await]
    };
    let before = counted().await;

    proxy.set(NextCommit::LosesItsAnswer);
    let answer = ledger.execute(SHARD, order(&customer, "once"), origin()).await;
    assert!(matches!(answer, Ok(CommandResult::Order(view)) if view.is_new), "the success is answered");
    assert_eq!(proxy.cuts(), 1, "the connection was cut between COMMIT and its answer");
    assert_eq!(count(ledger.pool(), "SELECT count(*) FROM events WHERE type = 'OrderPlaced'").await, 1);
    assert_eq!(balance(ledger.pool(), &customer).await, "90.00");
    assert_eq!(counted().await, [before[0] + 1.0, before[1] + 2.0, before[2] + 1.0], "the cut is counted");

    // Now with the head locked first.
    proxy.set(NextCommit::LosesItsAnswer);
    ledger::run(&ledger, commands::CreateAccount { name: "Other".into() }).await;
    assert_eq!(proxy.cuts(), 2);
    assert_eq!(counted().await, [before[0] + 2.0, before[1] + 3.0, before[2] + 2.0]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_commit_that_never_arrived_is_run_again_once() {
    let database = postgres::database().await;
    let (ledger, proxy) = behind_a_proxy(&database.url).await;
    let customer = Customer::with(&ledger, "100.00").await;

    proxy.set(NextCommit::IsLost);
    let answer = ledger.execute(SHARD, order(&customer, "once"), origin()).await;
    assert!(matches!(answer, Ok(CommandResult::Order(view)) if view.is_new));
    assert_eq!(proxy.cuts(), 1);
    assert_eq!(count(ledger.pool(), "SELECT count(*) FROM events WHERE type = 'OrderPlaced'").await, 1);
    assert_eq!(balance(ledger.pool(), &customer).await, "90.00");
}

#[tokio::test(flavor = "multi_thread")]
async fn lost_answers_under_load_duplicate_and_lose_nothing() {
    let database = postgres::database().await;
    let (ledger, proxy) = behind_a_proxy(&database.url).await;
    let customer = Customer::with(&ledger, "100000.00").await;
    let clients: Vec<_> = (0..8)
        .map(|client| {
            let (ledger, customer) = (ledger.clone(), customer);
            tokio::spawn(async move {
                let mut placed = 0;
                for n in 0..40 {
                    let answer = ledger.execute(SHARD, order(&customer, &format!("{client}-{n}")), origin()).await;
                    placed += i64::from(matches!(answer, Ok(CommandResult::Order(view)) if view.is_new));
                }
                placed
            })
        })
        .collect();
    let cutter = tokio::spawn({
        let proxy = proxy.clone();
        async move {
            for n in 0..8 {
                proxy.set(if n % 2 == 0 { NextCommit::LosesItsAnswer } else { NextCommit::IsLost });
                // The task is spawned, and the future of `until` with a borrowed closure is not `Send`.
                while proxy.cuts() <= n {
                    tokio::time::sleep(Duration::from_millis(5)).await;
                }
            }
        }
    });
    let mut placed = 0;
    for client in clients {
        placed += client.await.unwrap();
    }
    tokio::time::timeout(Duration::from_secs(60), cutter).await.expect("each commit was cut").unwrap();
    assert_eq!(proxy.cuts(), 8, "there were forty commits or more");
    assert_eq!(placed, 320, "every caller got a success that is not a replay");
    assert_eq!(count(ledger.pool(), "SELECT count(*) FROM events WHERE type = 'OrderPlaced'").await, 320);
    assert_eq!(balance(ledger.pool(), &customer).await, "96800.00");
    assert_eq!(count(ledger.pool(), "SELECT max(position) - count(*) FROM events").await, 0, "no gaps");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_poisoned_command_fails_alone() {
    let database = postgres::database().await;
    let options: PgConnectOptions = database.url.parse().unwrap();
    let ledger = ledger::open(&options).await;
    let customer = Customer::with(&ledger, "1000.00").await;

    // All commands form one batch: the head is held until they are all in the queue.
    let mut holder = options.connect().await.unwrap();
    sqlx::raw_sql("BEGIN; SELECT position FROM log_head FOR UPDATE").execute(&mut holder).await.unwrap();
    let mut waiting = Vec::new();
    for n in 0..20 {
        // Postgres accepts no NUL in a text, so it refuses the whole statement.
        let poison = commands::CreateAccount { name: "poi\0son".into() }.into();
        let command = if n == 7 || n == 13 { poison } else { order(&customer, &format!("order-{n}")) };
        waiting.push(ledger.enqueue(SHARD, command, origin(), None).unwrap());
    }
    sqlx::raw_sql("COMMIT").execute(&mut holder).await.unwrap();
    for (n, reply) in waiting.into_iter().enumerate() {
        let reply = reply.await.unwrap();
        if n == 7 || n == 13 {
            assert!(matches!(reply, Err(WriteError::Refused)), "{n}: {reply:?}");
        } else {
            assert!(reply.is_ok(), "{n}: {reply:?}");
        }
    }
    assert_eq!(balance(ledger.pool(), &customer).await, "820.00");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rejected_command_leaves_its_neighbours_alone() {
    let database = postgres::database().await;
    let ledger = ledger::open(&database.url.parse().unwrap()).await;
    let customer = Customer::with(&ledger, "30.00").await;
    let replies =
        futures::future::join_all((0..10).map(|n| ledger::execute(&ledger, order(&customer, &format!("{n}")), origin()))).await;
    let placed = replies.iter().filter(|r| r.is_ok()).count();
    assert_eq!(placed, 3);
    assert!(
        replies
            .iter()
            .filter_map(|r| r.as_ref().err())
            .all(|e| matches!(e, WriteError::Rejected(Rejection::InsufficientBalance)))
    );
    assert_eq!(balance(ledger.pool(), &customer).await, "0.00");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_full_queue_refuses_and_loses_nothing() {
    let database = postgres::database().await;
    let options: PgConnectOptions = database.url.parse().unwrap();
    let ledger = ledger::open(&options).await;
    let customer = Customer::with(&ledger, "1000000.00").await;
    let mut holder = options.connect().await.unwrap();
    sqlx::raw_sql("BEGIN; SELECT position FROM log_head FOR UPDATE").execute(&mut holder).await.unwrap();
    let mut accepted = Vec::new();
    let mut refused = 0;
    for n in 0..6_000 {
        match ledger.enqueue(SHARD, order(&customer, &format!("order-{n}")), origin(), None) {
            Ok(reply) => accepted.push(reply),
            Err(WriteError::Unavailable) => refused += 1,
            Err(other) => panic!("{other:?}"),
        }
    }
    assert!(refused > 0, "the queue is bounded");
    sqlx::raw_sql("COMMIT").execute(&mut holder).await.unwrap();
    let mut placed = 0;
    for reply in accepted {
        match reply.await.unwrap() {
            Ok(_) => placed += 1,
            Err(WriteError::Unavailable) => {} // on a slow machine it waited for too long, and nothing happened
            Err(other) => panic!("{other:?}"),
        }
    }
    assert!(placed > 0);
    assert_eq!(count(ledger.pool(), "SELECT count(*) FROM orders").await, placed);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_caller_that_goes_away_does_not_undo_its_command() {
    let database = postgres::database().await;
    let ledger = ledger::open(&database.url.parse().unwrap()).await;
    let customer = Customer::with(&ledger, "100.00").await;
    drop(ledger.enqueue(SHARD, order(&customer, "gone"), origin(), None).unwrap());
    // The next command commits after it.
    ledger::execute(&ledger, order(&customer, "next"), origin()).await.unwrap();
    assert_eq!(balance(ledger.pool(), &customer).await, "80.00");
}

#[tokio::test(flavor = "multi_thread")]
async fn two_nodes_and_many_clients_spend_a_wallet_to_exactly_zero() {
    let database = postgres::database().await;
    let options: PgConnectOptions = database.url.parse().unwrap();
    let nodes = [ledger::open(&options).await, ledger::open(&options).await];
    let customer = Customer::with(&nodes[0], "2000.00").await;
    let clients: Vec<_> = (0..40)
        .map(|client| {
            let (ledger, customer) = (nodes[client % 2].clone(), customer);
            tokio::spawn(async move {
                let mut placed = 0;
                for n in 0..20 {
                    match ledger.execute(SHARD, order(&customer, &format!("{client}-{n}")), origin()).await {
                        Ok(_) => placed += 1,
                        Err(WriteError::Rejected(Rejection::InsufficientBalance)) => {}
                        Err(other) => panic!("{other:?}"),
                    }
                }
                placed
            })
        })
        .collect();
    let mut placed = 0;
    for client in clients {
        placed += client.await.unwrap();
    }
    assert_eq!(placed, 200, "800 orders were requested, and the wallet could pay for 200");
    let pool = nodes[0].pool();
    assert_eq!(balance(pool, &customer).await, "0.00");
    assert_eq!(count(pool, "SELECT max(position) - count(*) FROM events").await, 0, "no gaps");
    assert_eq!(count(pool, "SELECT count(*) FROM orders").await, 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_same_client_reference_is_one_order() {
    let database = postgres::database().await;
    let options: PgConnectOptions = database.url.parse().unwrap();
    let nodes = [ledger::open(&options).await, ledger::open(&options).await];
    let customer = Arc::new(Customer::with(&nodes[0], "1000.00").await);
    let replies = futures::future::join_all((0..50).map(|n| {
        let (ledger, customer) = (nodes[n % 2].clone(), customer.clone());
        async move { ledger::execute(&ledger, order(&customer, "same"), origin()).await }
    }))
    .await;
    let new = replies.iter().filter(|r| matches!(r, Ok(CommandResult::Order(view)) if view.is_new)).count();
    assert_eq!((new, replies.iter().filter(|r| r.is_ok()).count()), (1, 50));
    let two = PlaceOrder { client_reference: Some("same".into()), ..customer.order("10.00", 2) };
    let other = Command::PlaceOrder(two);
    assert!(matches!(
        ledger::execute(&nodes[0], other, origin()).await,
        Err(WriteError::Rejected(Rejection::DuplicateReference))
    ));
    assert_eq!(balance(nodes[0].pool(), &customer).await, "990.00");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_funding_reference_counts_once() {
    let database = postgres::database().await;
    let ledger = ledger::open(&database.url.parse().unwrap()).await;
    let customer = Customer::with(&ledger, "10.00").await;
    let fund = |amount: &str| commands::FundWallet {
        account_id: None,
        wallet_id: customer.wallet_id,
        amount: amount.parse::<Money>().unwrap(),
        reference: "bank-1".into(),
        note: None,
    };
    let (first, again) =
        tokio::join!(ledger::execute(&ledger, fund("5.00"), origin()), ledger::execute(&ledger, fund("5.00"), origin()));
    let is_new = |answer: Result<CommandResult, WriteError>| matches!(answer, Ok(CommandResult::Funding { is_new: true, .. }));
    assert_eq!([is_new(first), is_new(again)].into_iter().filter(|new| *new).count(), 1);
    assert!(matches!(ledger::execute(&ledger, fund("6.00"), origin()).await, Err(WriteError::Rejected(Rejection::Conflict(_)))));
    assert_eq!(balance(ledger.pool(), &customer).await, "15.00");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_without_an_event_is_kept_under_its_key() {
    fn render(_: &CommandResult) -> Result<StoredResponse, serde_json::Error> {
        Ok(StoredResponse { status: 200, body: "{}".into(), is_secret: false })
    }
    let database = postgres::database().await;
    let ledger = ledger::open(&database.url.parse().unwrap()).await;
    let customer = Customer::with(&ledger, "100.00").await;
    ledger.execute(SHARD, order(&customer, "once"), origin()).await.unwrap();
    let under_key = |reference: &'static str, fingerprint: [u8; 32]| {
        let key = Idempotency { key_hash: [7; 32], fingerprint, render, renderer: None };
        ledger.submit(SHARD, order(&customer, reference), origin(), Some(key))
    };
    // The order exists, so nothing is appended, but the key is stored all the same.
    assert!(matches!(under_key("once", [1; 32]).await, Ok(Reply::Stored { is_replay: false, .. })));
    assert!(matches!(under_key("once", [1; 32]).await, Ok(Reply::Stored { is_replay: true, .. })));
    assert!(matches!(under_key("other", [2; 32]).await, Err(WriteError::Rejected(Rejection::IdempotencyKeyReused))));
    assert_eq!(balance(ledger.pool(), &customer).await, "90.00");
}

#[tokio::test(flavor = "multi_thread")]
async fn writes_of_another_node_count_at_once() {
    let database = postgres::database().await;
    let options: PgConnectOptions = database.url.parse().unwrap();
    let (one, other) = (ledger::open(&options).await, ledger::open(&options).await);
    let customer = Customer::with(&one, "10.00").await;
    // The first node has cached a wallet with a zero balance, and decides on that.
    ledger::run(&one, order(&customer, "all of it")).await;
    for n in 0..20 {
        let refused = ledger::execute(&one, order(&customer, &format!("too much {n}")), origin()).await;
        assert!(matches!(refused, Err(WriteError::Rejected(Rejection::InsufficientBalance))), "{refused:?}");
        let funding = commands::FundWallet {
            account_id: None,
            wallet_id: customer.wallet_id,
            amount: "10.00".parse().unwrap(),
            reference: format!("funding {n}"),
            note: None,
        };
        ledger::run(&other, funding).await;
        ledger::run(&one, order(&customer, &format!("funded {n}"))).await;
    }
    assert_eq!(balance(one.pool(), &customer).await, "0.00");
}

#[tokio::test(flavor = "multi_thread")]
async fn keys_and_references_in_the_previous_batch_are_known() {
    let database = postgres::database().await;
    let options: PgConnectOptions = database.url.parse().unwrap();
    let metrics = Metrics::default();
    let ledger = ledger::open_with(&options, metrics.clone()).await;
    let customer = Customer::with(&ledger, "1000.00").await;
    ledger::run(&ledger, order(&customer, "warm")).await;

    // The first order is being written and waits for the head. The others are decided in the meantime.
    let mut holder = options.connect().await.unwrap();
    sqlx::raw_sql("BEGIN; SELECT position FROM log_head FOR UPDATE").execute(&mut holder).await.unwrap();
    let mut waiting = vec![ledger.enqueue(SHARD, order(&customer, "one"), origin(), None).unwrap()];
    until_locked_out(&options, "rewards-ledger writer").await;
    waiting.extend((0..5).map(|_| ledger.enqueue(SHARD, order(&customer, "one"), origin(), None).unwrap()));
    pipeline::until_taken(&metrics).await;
    sqlx::raw_sql("COMMIT").execute(&mut holder).await.unwrap();
    let mut new = 0;
    for reply in waiting {
        match reply.await.unwrap() {
            Ok(Reply::Result(answer)) => match *answer {
                CommandResult::Order(view) => new += usize::from(view.is_new),
                other => panic!("{other:?}"),
            },
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(new, 1);
    assert_eq!(balance(ledger.pool(), &customer).await, "980.00");
}
