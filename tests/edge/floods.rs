//! Memory under floods, and regular clients during them.

use std::time::Duration;

use futures::future::join_all;
use tokio::io::AsyncWriteExt;

use super::wire::Wire;
use crate::support::postgres;
use crate::support::program::{Program, peak_memory};
use crate::support::wait::until;

/// In KiB.
const MAX_MEMORY: u64 = 300 * 1024;

/// Sends bytes as long as the node accepts them, without reading an answer. Returns true if the node accepted all of
/// them.
async fn flood(wire: &mut Wire, bytes: &[u8]) -> bool {
    for chunk in bytes.chunks(65_536) {
        // A node that stops reading blocks the client. That limits a flood as well as a closed connection does.
        match tokio::time::timeout(Duration::from_secs(2), wire.stream.write_all(chunk)).await {
            Ok(Ok(())) => {}
            _ => return false,
        }
    }
    true
}

async fn is_served(program: &Program) {
    let fresh = reqwest::Client::builder().pool_max_idle_per_host(0).timeout(Duration::from_secs(60)).build().unwrap();
    assert_eq!(fresh.get(format!("{}/readyz", program.url())).send().await.unwrap().status(), 200);
}

/// Builds an HTTP/2 connection (prior knowledge) with this many requests, each on its own stream.
fn streams(count: u32) -> Vec<u8> {
    // HEADERS block of `GET http://a/readyz`, with END_STREAM.
    let block = [&[0x82, 0x86, 0x44, 0x07][..], b"/readyz", &[0x41, 0x01], b"a"].concat();
    let mut bytes = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec();
    bytes.extend([0, 0, 0, 4, 0, 0, 0, 0, 0]);
    for stream in 0..count {
        bytes.extend([0, 0, u8::try_from(block.len()).unwrap(), 1, 5]);
        bytes.extend((2 * stream + 1).to_be_bytes());
        bytes.extend(&block);
    }
    bytes
}

#[tokio::test(flavor = "multi_thread")]
async fn a_flood_of_http_2_streams_takes_no_memory() {
    let database = postgres::database().await;
    let program = Program::start(&database.url, &["--roles", "api"]).await;
    let url = program.url();
    let bytes = streams(350_000);
    assert!(bytes.len() > 7_000_000);
    let mut wires = join_all((0..4).map(|_| Wire::open(&url))).await;
    join_all(wires.iter_mut().map(|wire| flood(wire, &bytes))).await;
    is_served(&program).await;
    let peak = peak_memory(program.id()).unwrap();
    assert!(peak < MAX_MEMORY, "{peak} KiB");
}

#[tokio::test(flavor = "multi_thread")]
async fn pipelined_requests_take_no_memory_either() {
    let database = postgres::database().await;
    let program = Program::start(&database.url, &["--roles", "api"]).await;
    let url = program.url();
    let bytes = "GET /openapi.json HTTP/1.1\r\nHost: a\r\n\r\n".repeat(200_000);
    let mut wires = join_all((0..50).map(|_| Wire::open(&url))).await;
    let taken = join_all(wires.iter_mut().map(|wire| flood(wire, bytes.as_bytes()))).await;
    assert!(!taken.contains(&true), "the node stops reading from a client that reads no responses");
    is_served(&program).await;
    let peak = peak_memory(program.id()).unwrap();
    assert!(peak < MAX_MEMORY, "{peak} KiB");
}

#[tokio::test(flavor = "multi_thread")]
async fn unfinished_heads_and_refused_bodies_take_no_memory() {
    let database = postgres::database().await;
    let program = Program::start(&database.url, &["--roles", "api"]).await;
    let url = program.url();
    // Almost as large as a request head may be, and never complete.
    let head = format!("GET /healthz HTTP/1.1\r\nX-Long: {}", "a".repeat(16_000));
    let mut heads = join_all((0..250).map(|_| Wire::open(&url))).await;
    join_all(heads.iter_mut().map(|wire| wire.send(&head))).await;
    is_served(&program).await;
    for _ in 0..4 {
        let body = vec![b'a'; 1 << 20];
        join_all((0..50).map(async |_| {
            let mut wire = Wire::open(&url).await;
            wire.send(format!("POST /api/v1/orders HTTP/1.1\r\nHost: a\r\nContent-Length: {}\r\n\r\n", body.len())).await;
            wire.send(&body).await;
            assert!([401, 429].contains(&wire.answer().await.status));
        }))
        .await;
    }
    let peak = peak_memory(program.id()).unwrap();
    assert!(peak < MAX_MEMORY, "{peak} KiB");
    until("the connections of the unfinished heads are closed", async || heads.iter_mut().all(Wire::has_ended)).await;
}
