//! Pipelining: decisions made while the previous batch is in flight, and their outcome.

use std::time::Instant;

use chrono::{DateTime, Utc};
use futures::FutureExt;
use ledger_events::OrderId;
use ledger_events::order::OrderStatus;
use rewards_ledger::audit::verify;
use rewards_ledger::fulfilment::Fulfilment;
use sqlx::PgConnection;
use tokio_util::task::TaskTracker;

use super::*;
use crate::support::shop::Shop;
use crate::support::wait::{until, until_so_many_locked_out};

/// Holds the head lock as another node would, until it is released.
pub async fn hold_head(options: &PgConnectOptions) -> PgConnection {
    let mut holder = options.connect().await.unwrap();
    sqlx::raw_sql("BEGIN; SELECT position FROM log_head FOR UPDATE").execute(&mut holder).await.unwrap();
    holder
}

pub async fn let_go(mut holder: PgConnection) {
    sqlx::raw_sql("COMMIT").execute(&mut holder).await.unwrap();
}

/// Waits until the writer has taken all commands from its queue, to decide them.
pub async fn until_taken(metrics: &Metrics) {
    until("the writer takes the commands", async || metrics.queue_depths() == [(SHARD, 0)]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_statement_that_comes_late_does_not_make_a_503_untrue() {
    a_late_statement_has_no_effect(false).await;
}

/// A failover can lose a raise of the epoch. The next raise must not lead to the epoch that a statement was made for.
#[tokio::test(flavor = "multi_thread")]
async fn a_statement_that_comes_late_has_no_effect_after_a_failover_that_lost_an_epoch() {
    a_late_statement_has_no_effect(true).await;
}

async fn a_late_statement_has_no_effect(loses_epoch: bool) {
    let database = postgres::database().await;
    let options: PgConnectOptions = database.url.parse().unwrap();
    let (ledger, proxy) = behind_a_proxy(&database.url).await;
    sqlx::raw_sql("UPDATE log_head SET epoch = epoch + 1").execute(&mut options.connect().await.unwrap()).await.unwrap();
    let customer = Customer::with(&ledger, "100.00").await;
    ledger::run(&ledger, order(&customer, "warm")).await;

    // The search for the commit waits for the head until the caller times out. The statement itself does not wait
    // there, because it has not arrived.
    let mut holder = hold_head(&options).await;
    if loses_epoch {
        sqlx::raw_sql("UPDATE log_head SET epoch = epoch - 1").execute(&mut holder).await.unwrap();
    }
    proxy.set(NextCommit::IsLate);
    let late = tokio::spawn({
        let (ledger, command) = (ledger.clone(), order(&customer, "late"));
        async move { ledger.execute(SHARD, command, origin()).await }
    });
    until("the statement is under way", async || proxy.cuts() == 1).await;
    // The caller times out ten seconds after it has submitted the command.
    tokio::time::sleep(Duration::from_millis(10_100)).await;
    let_go(holder).await;
    let told = late.await.unwrap();
    // If the machine pauses, the search ends too late for a 503.
    assert!(matches!(told, Err(WriteError::Unavailable | WriteError::OutcomeUnknown)), "{told:?}");
    assert_eq!(proxy.cuts(), 1);
    proxy.deliver_late().await;
    assert_eq!(balance(ledger.pool(), &customer).await, "90.00", "nothing happened");
    ledger::run(&ledger, order(&customer, "next")).await;
    assert_eq!(count(ledger.pool(), "SELECT count(*) FROM orders").await, 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_unsent_batch_gets_503_while_the_previous_commit_is_being_searched() {
    an_unsent_command_gets_503(false).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_command_whose_rows_are_read_gets_503_while_the_previous_commit_is_being_searched() {
    an_unsent_command_gets_503(true).await;
}

/// If `is_read`, the database goes away while the writer reads the rows that the command needs.
async fn an_unsent_command_gets_503(is_read: bool) {
    let database = postgres::database().await;
    let options: PgConnectOptions = database.url.parse().unwrap();
    let (proxy, through) = Proxy::before(&database.url).await;
    let metrics = Metrics::default();
    let ledger = ledger::open_with(&through, metrics.clone()).await;
    let customer = Customer::with(&ledger, "100.00").await;
    ledger::run(&ledger, order(&customer, "warm")).await;

    let holder = hold_head(&options).await;
    let place = |reference| {
        let (ledger, command) = (ledger.clone(), order(&customer, reference));
        let mut placing = Box::pin(async move { ledger.execute(SHARD, command, origin()).await });
        assert!((&mut placing).now_or_never().is_none(), "it is in the queue");
        tokio::spawn(placing)
    };
    let sent = place("sent");
    until_locked_out(&options, "rewards-ledger writer").await;
    if is_read {
        let reads = "rewards-ledger writer reads";
        proxy.silence_new(Some(reads));
        proxy.silence(reads);
    }
    let decided = place("decided");
    until_taken(&metrics).await;
    proxy.set_away(true);
    proxy.silence_new(None);
    let (sent, decided) = (sent.await.unwrap(), decided.await.unwrap());
    assert!(matches!(sent, Err(WriteError::OutcomeUnknown)), "{sent:?}");
    assert!(matches!(decided, Err(WriteError::Unavailable)), "{decided:?}");
    proxy.set_away(false);
    let_go(holder).await;
    let next = loop {
        match ledger.execute(SHARD, order(&customer, "next"), origin()).await {
            Err(WriteError::Unavailable) => {}
            next => break next,
        }
    };
    next.unwrap();
    assert_eq!(count(ledger.pool(), "SELECT count(*) FROM orders WHERE client_reference = 'decided'").await, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn one_key_at_two_nodes_gets_one_response_even_without_an_event() {
    fn render(_: &CommandResult) -> Result<StoredResponse, serde_json::Error> {
        Ok(StoredResponse { status: 200, body: "{}".into(), is_secret: false })
    }
    let database = postgres::database().await;
    let options: PgConnectOptions = database.url.parse().unwrap();
    let nodes = [ledger::open(&options).await, ledger::open(&options).await];
    let customer = Customer::with(&nodes[0], "10.00").await;
    ledger::run(&nodes[0], order(&customer, "once")).await;
    // Both nodes have cached the current state of the log.
    for node in &nodes {
        let refused = ledger::execute(node, order(&customer, "too much"), origin()).await;
        assert!(matches!(refused, Err(WriteError::Rejected(Rejection::InsufficientBalance))), "{refused:?}");
    }
    let holder = hold_head(&options).await;
    // The order exists, so a response is stored and the head does not move.
    let key = Idempotency { key_hash: [7; 32], fingerprint: [1; 32], render, renderer: None };
    let waiting = nodes.each_ref().map(|node| node.enqueue(SHARD, order(&customer, "once"), origin(), Some(key)).unwrap());
    until_so_many_locked_out(2, &options, "rewards-ledger writer").await;
    let_go(holder).await;
    let mut replays = vec![];
    for reply in waiting {
        match reply.await.unwrap() {
            Ok(Reply::Stored { is_replay, .. }) => replays.push(is_replay),
            other => panic!("{other:?}"),
        }
    }
    replays.sort_unstable();
    assert_eq!(replays, [false, true]);
}

// A single thread, so that commands queued together form one batch.
#[tokio::test]
async fn poisoned_orders_fail_alone_also_beside_a_batch_in_flight() {
    let database = postgres::database().await;
    let options: PgConnectOptions = database.url.parse().unwrap();
    let metrics = Metrics::default();
    let ledger = ledger::open_with(&options, metrics.clone()).await;
    let customer = Customer::with(&ledger, "1000.00").await;
    ledger::run(&ledger, order(&customer, "warm")).await;
    for is_beside in [false, true] {
        let holder = if is_beside { Some(hold_head(&options).await) } else { None };
        let put = |reference: &str| ledger.enqueue(SHARD, order(&customer, reference), origin(), None).unwrap();
        let in_flight = put(&format!("{is_beside}-sent"));
        if is_beside {
            until_locked_out(&options, "rewards-ledger writer").await;
        }
        let waiting: Vec<_> = (0..20)
            .map(|n| match n {
                // Postgres accepts no NUL in a text, so it refuses every statement that contains one.
                7 | 13 => put(&format!("poi\0son-{n}")),
                _ => put(&format!("{is_beside}-{n}")),
            })
            .collect();
        if let Some(holder) = holder {
            until_taken(&metrics).await;
            let_go(holder).await;
        }
        in_flight.await.unwrap().unwrap();
        for (n, reply) in waiting.into_iter().enumerate() {
            let reply = reply.await.unwrap();
            match n {
                7 | 13 => assert!(matches!(reply, Err(WriteError::Refused)), "{n}: {reply:?}"),
                _ => assert!(reply.is_ok(), "{n}: {reply:?}"),
            }
        }
    }
    assert_eq!(count(ledger.pool(), "SELECT count(*) FROM orders").await, 1 + 2 * 19);
    assert_eq!(balance(ledger.pool(), &customer).await, "610.00");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_head_hold_time_excludes_waiting_and_includes_checks() {
    let shop = Shop::open().await;
    shop.order(1).await;
    let held = async |of: &str| shown(&shop.metrics, shop.pool(), &format!("ledger_head_lock_seconds_{of}")).await;
    let before = [held("count").await, held("sum").await];
    let holder = hold_head(&shop.options).await;
    let waiting = shop.ledger.enqueue(SHARD, Command::PlaceOrder(shop.customer.order("10.00", 1)), origin(), None).unwrap();
    // The writer waits this long, and the measured time must exclude it.
    until_locked_out(&shop.options, "rewards-ledger writer").await;
    tokio::time::sleep(Duration::from_secs(2)).await;
    let free = Instant::now();
    let_go(holder).await;
    waiting.await.unwrap().unwrap();
    let since = free.elapsed().as_secs_f64();
    let after = [held("count").await, held("sum").await];
    assert_eq!(after[0], before[0] + 1.0);
    assert!(after[1] - before[1] < since + 1.0, "another session held the head until {since} s ago: {before:?} {after:?}");
    let refused = ledger::execute(&shop.ledger, Command::PlaceOrder(shop.customer.order("11.00", 1)), origin()).await;
    assert!(matches!(refused, Err(WriteError::Rejected(_))), "{refused:?}");
    assert_eq!(held("count").await, after[0] + 1.0, "a refused command locks the head, too");
}

// A single thread, so that commands queued together form one batch.
#[tokio::test]
async fn an_order_cancelled_in_its_fulfilment_batch_leaves_its_voucher_to_the_next() {
    let shop = Shop::open().await;
    shop.load("a", 1, None).await;
    let [cancelled, next] = [shop.order(1).await, shop.order(1).await];
    let holder = hold_head(&shop.options).await;
    let put = |command: Command| shop.ledger.enqueue(SHARD, command, origin(), None).unwrap();
    let cancel = put(commands::CancelOrder { account_id: None, order_id: cancelled, reason: None }.into());
    let fulfils = [cancelled, next].map(|order_id| put(commands::FulfilOrder { order_id }.into()));
    until_locked_out(&shop.options, "rewards-ledger writer").await;
    let_go(holder).await;
    cancel.await.unwrap().unwrap();
    for fulfil in fulfils {
        // The fulfilment of the cancelled order may be refused.
        _ = fulfil.await.unwrap();
    }
    let mut fulfilment = Fulfilment::new(shop.ledger.clone(), shop.metrics.clone());
    for _ in 0..2 {
        fulfilment.step(SHARD).await.unwrap();
    }
    let (cancelled, next) = (shop.find(cancelled).await, shop.find(next).await);
    assert_eq!((cancelled.status, cancelled.delivered_quantity), (OrderStatus::Cancelled, 0));
    assert_eq!((next.status, next.delivered_quantity), (OrderStatus::Delivered, 1));
    let given: Vec<Option<OrderId>> =
        sqlx::query_scalar("SELECT order_id FROM vault.vouchers").fetch_all(shop.pool()).await.unwrap();
    assert_eq!(given, [Some(next.id)]);
    let report = verify(&shop.options, |_| {}).await.unwrap();
    assert!(report.is_clean(), "{:#?}", report.differences);
}

// A single thread, so that commands queued together form one batch.
#[tokio::test]
async fn an_order_changed_by_the_batch_in_flight_is_not_read_from_the_table() {
    let shop = Shop::open().await;
    shop.load("a", 1, None).await;
    let first = PlaceOrder { client_reference: Some("first".to_owned()), ..shop.customer.order("10.00", 1) };
    let first_id = shop.place(first.clone()).await;
    // Almost as many orders as the cache holds.
    for _ in 0..5 {
        shop.orders(shop.customer.account_id, 3_980).await;
    }
    let holder = hold_head(&shop.options).await;
    let put = |command: Command| shop.ledger.enqueue(SHARD, command, origin(), None).unwrap();
    let fulfilled = put(commands::FulfilOrder { order_id: first_id }.into());
    let others: Vec<_> = (0..200).map(|_| put(Command::PlaceOrder(shop.customer.order("10.00", 1)))).collect();
    until_locked_out(&shop.options, "rewards-ledger writer").await;
    let again = put(Command::PlaceOrder(first));
    until_taken(&shop.metrics).await;
    let_go(holder).await;
    fulfilled.await.unwrap().unwrap();
    for other in others {
        other.await.unwrap().unwrap();
    }
    let Ok(Reply::Result(again)) = again.await.unwrap() else { panic!("no answer") };
    let CommandResult::Order(again) = *again else { panic!("no order") };
    assert_eq!((again.order.id, again.order.status, again.is_new), (first_id, OrderStatus::Delivered, false));
    let cancel = commands::CancelOrder { account_id: None, order_id: first_id, reason: None };
    let refused = ledger::execute(&shop.ledger, cancel, origin()).await;
    assert!(matches!(refused, Err(WriteError::Rejected(Rejection::OrderNotCancellable))), "{refused:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn accepted_commands_are_written_after_the_last_handle_is_dropped() {
    let database = postgres::database().await;
    let options: PgConnectOptions = database.url.parse().unwrap();
    let tasks = TaskTracker::new();
    let metrics = Metrics::default();
    let ledger = Ledger::open(&options, ledger::keyring(), metrics.clone(), &tasks).await.unwrap();
    let customer = Customer::with(&ledger, "100.00").await;
    ledger::run(&ledger, order(&customer, "warm")).await;
    let pool = ledger.pool().clone();

    // One batch is in flight, one is decided, and one command has to wait for both.
    let holder = hold_head(&options).await;
    let put = |command: Command| ledger.enqueue(SHARD, command, origin(), None).unwrap();
    let mut waiting = vec![put(order(&customer, "sent"))];
    until_locked_out(&options, "rewards-ledger writer").await;
    waiting.push(put(order(&customer, "decided")));
    until_taken(&metrics).await;
    waiting.push(put(commands::CreateAccount { name: "Waits".into() }.into()));
    ledger.wake().stop();
    drop(ledger);
    tasks.close();
    let_go(holder).await;
    for reply in waiting {
        reply.await.unwrap().unwrap();
    }
    tokio::time::timeout(Duration::from_secs(60), tasks.wait()).await.expect("the writer ends");
    assert_eq!(balance(&pool, &customer).await, "70.00");
}

#[tokio::test(flavor = "multi_thread")]
async fn commands_refused_by_a_database_that_becomes_read_only_have_no_effect() {
    let server = postgres::own_server(false).await;
    let options: PgConnectOptions = server.url().parse().unwrap();
    rewards_ledger::ledger::migrate(&options).await.unwrap();
    let ledger = ledger::open(&options).await;
    let customer = Customer::with(&ledger, "100.00").await;
    ledger::run(&ledger, order(&customer, "warm")).await;
    // Existing connections become read-only as well.
    let mut admin = options.connect().await.unwrap();
    let mut set = async |is_read_only: bool| {
        sqlx::raw_sql("SET default_transaction_read_only = off").execute(&mut admin).await.unwrap();
        let set = format!("ALTER SYSTEM SET default_transaction_read_only = {is_read_only}");
        sqlx::raw_sql(sqlx::AssertSqlSafe(set)).execute(&mut admin).await.unwrap();
        let loaded = "SELECT pg_conf_load_time()";
        let before: DateTime<Utc> = sqlx::query_scalar(loaded).fetch_one(&mut admin).await.unwrap();
        sqlx::raw_sql("SELECT pg_reload_conf()").execute(&mut admin).await.unwrap();
        // The server tells all sessions at once, and each one loads the setting before its next statement.
        until("the sessions are told", async || {
            sqlx::query_scalar::<_, DateTime<Utc>>(loaded).fetch_one(&mut admin).await.unwrap() > before
        })
        .await;
    };
    ledger::run(&ledger, order(&customer, "warm still")).await;
    set(true).await;
    let told = ledger.execute(SHARD, order(&customer, "refused"), origin()).await;
    assert!(matches!(told, Err(WriteError::Unavailable)), "{told:?}");
    set(false).await;
    ledger::run(&ledger, order(&customer, "taken")).await;
    assert_eq!(count(ledger.pool(), "SELECT count(*) FROM events WHERE type = 'OrderPlaced'").await, 3);
    server.stop().await.unwrap();
}
