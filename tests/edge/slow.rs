//! Slow clients, and regular clients beside them.

use std::time::Duration;

use futures::future::join_all;
use reqwest::StatusCode;
use serde_json::json;
use tokio::io::AsyncWriteExt;

use super::wire::Wire;
use crate::support::postgres;
use crate::support::program::{DEADLINE, OPERATOR_TOKEN, Program};
use crate::support::wait::{until, until_locked_out};

/// Sends a byte of a request head on every connection, repeatedly, as long as this is polled.
async fn drip(wires: &mut [Wire]) {
    loop {
        for wire in wires.iter_mut() {
            _ = wire.stream.write(b"a").await; // fails on a connection that the node has closed
        }
        tokio::time::sleep(Duration::from_millis(500)).await; // the pace of a slow client
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn new_clients_are_served_while_slow_clients_hold_every_place() {
    let database = postgres::database().await;
    let program = Program::with_descriptors(450, &database.url, &["--roles", "api"]).await;
    let url = program.url();
    // More connections than the node has places: 153 in total, of which one address may hold half.
    let mut slow = join_all((0..250).map(|_| Wire::open(&url))).await;
    for n in 0..50 {
        slow.push(Wire::from(&format!("127.0.1.{}", n % 4 + 1), &url).await);
    }
    for wire in &mut slow {
        _ = wire.stream.write(b"GET /healthz HTTP/1.1\r\nX-Slow: ").await; // some are closed by now
    }
    let newcomers = async {
        for n in 0..50 {
            // From the address that most of them share, and from others.
            let mut wire = Wire::from(&format!("127.0.0.{}", n % 5 + 1), &url).await;
            wire.send("GET /healthz HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n").await;
            assert_eq!(wire.answer().await.status, 200, "newcomer {n}");
        }
    };
    tokio::select! {
        () = newcomers => {}
        () = drip(&mut slow) => {}
    }
    let all_ended = until("every unfinished head is refused in the end", async || {
        for wire in slow.iter_mut() {
            _ = wire.stream.write(b"a").await;
        }
        slow.iter_mut().all(Wire::has_ended)
    });
    all_ended.await;
    let metrics = reqwest::get(format!("{url}/metrics")).await.unwrap().text().await.unwrap();
    assert!(metrics.contains("ledger_client_connections_ended_total{reason=\"evicted\"}"), "{metrics}");
    assert!(!metrics.contains("ledger_client_connections_ended_total{reason=\"slow_head\"} 0\n"), "{metrics}");
}

#[tokio::test]
async fn a_body_that_comes_too_slowly_is_refused() {
    let database = postgres::database().await;
    let program = Program::start(&database.url, &["--roles", "api"]).await;
    let client = program.client("10.00").await;
    let mut wire = Wire::open(&program.url()).await;
    let (key, secret) = (&client.key, &client.secret);
    let head = format!(
        "POST /api/v1/orders HTTP/1.1\r\nHost: a\r\nX-API-Key: {key}\r\nX-API-Secret: {secret}\r\nContent-Type: application/json\r\nContent-Length: 100000\r\n\r\n"
    );
    wire.send(head).await;
    let (stream, answer) = {
        let Wire { stream, .. } = wire;
        let (mut reader, mut writer) = stream.into_split();
        let dripping = tokio::spawn(async move {
            while writer.write_all(b" ").await.is_ok() {
                tokio::time::sleep(Duration::from_millis(200)).await; // the pace of a slow client
            }
        });
        let mut answer = vec![];
        let reading = async { while tokio::io::AsyncReadExt::read_buf(&mut reader, &mut answer).await.unwrap_or(0) > 0 {} };
        tokio::time::timeout(DEADLINE, reading).await.expect("the body is refused in time");
        (dripping, String::from_utf8(answer).unwrap())
    };
    assert!(answer.starts_with("HTTP/1.1 400 ") && answer.contains("The request body is incomplete."), "{answer}");
    stream.await.unwrap();
    let metrics = reqwest::get(format!("{}/metrics", program.url())).await.unwrap().text().await.unwrap();
    assert!(metrics.contains("ledger_client_connections_ended_total{reason=\"slow_body\"} 1\n"), "{metrics}");
}

#[tokio::test]
async fn connections_per_address_are_limited_except_for_a_trusted_proxy() {
    let database = postgres::database().await;
    let arguments = ["--roles", "api", "--connections-per-address", "4", "--trusted-proxies", "127.0.2.9"];
    let program = Program::start(&database.url, &arguments).await;
    let url = program.url();
    let idle = async |source: &str| {
        let mut wires = vec![];
        for _ in 0..10 {
            let mut wire = Wire::from(source, &url).await;
            wire.send("GET /healthz HTTP/1.1\r\nHost: a\r\n\r\n").await;
            assert_eq!(wire.answer().await.status, 200, "the newest connection is served");
            wires.push(wire);
        }
        wires
    };
    let (mut one, mut other, mut proxy) = (idle("127.0.2.1").await, idle("127.0.2.2").await, idle("127.0.2.9").await);
    let open = |wires: &mut Vec<Wire>| wires.iter_mut().filter_map(|wire| (!wire.has_ended()).then_some(())).count();
    until("the oldest connections are closed", async || (open(&mut one), open(&mut other)) == (4, 4)).await;
    assert_eq!(open(&mut proxy), 10);
    for wires in [&mut one, &mut other] {
        // A connection is idle once the node has noted its response as written, which may be after the client has read it.
        // The order of two neighbours may therefore differ from the client's: src/http/slots.rs tests the exact order.
        let kept: Vec<usize> = (0..10).filter(|n| !wires[*n].has_ended()).collect();
        assert!(kept.contains(&9), "the newest connection is kept: {kept:?}");
        for n in kept {
            wires[n].send("GET /healthz HTTP/1.1\r\nHost: a\r\n\r\n").await;
            assert_eq!(wires[n].answer().await.status, 200, "connection {n} is still served");
        }
    }
}

/// A connection whose request is being answered is never closed to make room for another one.
#[tokio::test(flavor = "multi_thread")]
async fn a_connection_being_answered_is_never_evicted() {
    let database = postgres::database().await;
    let program = Program::start(&database.url, &["--roles", "api", "--connections-per-address", "4"]).await;
    let options: ledger_database::PgConnectOptions = database.url.parse().unwrap();
    let mut connection = options.connect().await.unwrap();
    let mut lock = sqlx::Connection::begin(&mut connection).await.unwrap();
    sqlx::query("SELECT position FROM log_head FOR UPDATE").execute(&mut *lock).await.unwrap();
    let accounts = format!("{}/admin/v1/accounts", program.url());
    let create = |n: usize| {
        let request = reqwest::Client::new().post(&accounts).bearer_auth(OPERATOR_TOKEN);
        let body = json!({"name": format!("Account {n}")}).to_string();
        tokio::spawn(request.header("Content-Type", "application/json").body(body).send())
    };
    let mut creating = vec![create(0)];
    until_locked_out(&options, "rewards-ledger writer").await;
    creating.extend((1..4).map(create));
    let beside = async |path: &str| {
        let mut wire = Wire::from("127.0.3.1", &program.url()).await;
        wire.send(format!("GET {path} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")).await;
        wire.answer().await
    };
    until("all four requests wait for the writer", async || {
        beside("/metrics").await.text.contains("\nledger_writer_queue_depth{shard=\"1\"} 3\n")
    })
    .await;
    for _ in 0..20 {
        let mut wire = Wire::open(&program.url()).await;
        _ = wire.stream.write(b"GET /healthz HTTP/1.1\r\nHost: a\r\n\r\n").await; // the connection may be closed by now
        assert!(wire.try_answer().await.is_none(), "there is no place for a fifth connection of the address");
    }
    assert_eq!(beside("/healthz").await.status, 200, "another address is served");
    lock.rollback().await.unwrap();
    for created in creating {
        // After a pause of the machine the node refuses a command that has waited for too long.
        let status = created.await.unwrap().unwrap().status();
        assert!([StatusCode::CREATED, StatusCode::SERVICE_UNAVAILABLE].contains(&status), "each one is answered: {status}");
    }
}
