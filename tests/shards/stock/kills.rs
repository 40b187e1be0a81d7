//! The sessions that move vouchers are killed a thousand times, and those of the writers beside them a few times.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use rewards_ledger::ledger::FIRST_SHARD;
use rewards_ledger::ledger::connect::{self, DedicatedConnection};
use rewards_ledger::ledger::moves::{Move, move_vouchers, pick};
use serde_json::json;
use sqlx::PgConnection;
use tokio_util::sync::CancellationToken;

use super::{SECOND, TwoShards};
use crate::support::ledger::{self, keyring};
use crate::support::random::Random;

const KILLS: usize = 1_000;
/// Number of kills of a mover after which the writers' sessions are killed once.
const KILLS_PER_WRITER: usize = 50;
const VOUCHERS: usize = 400;
/// Largest number of vouchers of one move.
const MAX_MOVED: usize = 40;

/// Outcomes of the attempts to move vouchers whose transactions had begun.
#[derive(Debug, Default)]
struct Attempts {
    done: AtomicUsize,
    failed: AtomicUsize,
}

impl Attempts {
    fn done(&self) -> usize {
        self.done.load(Ordering::Relaxed)
    }

    fn failed(&self) -> usize {
        self.failed.load(Ordering::Relaxed)
    }

    /// Tries to move vouchers. A kill before the transaction begins interrupts no move, and does not count.
    async fn make(&self, connection: &DedicatedConnection, wanted: &Move) {
        let Ok(mut connection) = connection.acquire().await else { return };
        let Ok(Some(picked)) = pick(&mut connection, wanted).await else { return };
        let Ok(mut tx) = connection.begin().await else { return };
        let moved = async {
            let moved = move_vouchers(&mut tx, &keyring(), &picked).await.ok()?;
            tx.commit().await.ok()?;
            Some(moved.vouchers)
        };
        match moved.await {
            Some(0) => {} // the shard has no free voucher
            Some(_) => _ = self.done.fetch_add(1, Ordering::Relaxed),
            None => {
                self.failed.fetch_add(1, Ordering::Relaxed);
                return;
            }
        }
        connection.keep();
    }
}

/// Moves vouchers back and forth until stopped, whatever becomes of each attempt.
async fn shuffle(shards: Arc<TwoShards>, attempts: Arc<Attempts>, stop: CancellationToken) {
    let (connection, mut random) = (connect::mover(&shards.node.options), Random(7));
    while !stop.is_cancelled() {
        let (from, to) = if random.percent(50) { (FIRST_SHARD, SECOND) } else { (SECOND, FIRST_SHARD) };
        let vouchers = i64::try_from(1 + random.below(MAX_MOVED)).unwrap();
        attempts.make(&connection, &shards.to_move(from, to, vouchers)).await;
    }
}

/// Returns how long a move takes on a new session.
async fn length_of_a_move(shards: &TwoShards) -> Duration {
    let mut longest = Duration::ZERO;
    for _ in 0..3 {
        let began = Instant::now();
        assert_eq!(ledger::move_vouchers(&shards.node.options, &shards.to_move(FIRST_SHARD, SECOND, 1)).await, 1);
        longest = longest.max(began.elapsed());
    }
    longest
}

/// Places orders in both shards until stopped, whatever becomes of each.
async fn trade(shards: Arc<TwoShards>, stop: CancellationToken) {
    let mut fulfilment = shards.fulfilment();
    while !stop.is_cancelled() {
        for shard in [FIRST_SHARD, SECOND] {
            let order = json!({"product_id": shards.product, "denomination": 10, "quantity": 1});
            _ = shards.node.client(shards.client(shard), "POST", "/orders", order).await;
            _ = fulfilment.step(shard).await;
        }
        stop.run_until_cancelled(tokio::time::sleep(Duration::from_millis(200))).await; // the stock lasts for all kills
    }
}

/// Ends the sessions of this name. Returns their number.
async fn kill(admin: &mut PgConnection, name: &str) -> usize {
    let ended = "SELECT count(*) FILTER (WHERE pg_terminate_backend(pid)) FROM pg_stat_activity
        WHERE datname = current_database() AND application_name = $1";
    let ended: i64 = sqlx::query_scalar(ended).bind(name).fetch_one(admin).await.unwrap();
    usize::try_from(ended).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_thousand_kills_lose_no_voucher_and_double_none() {
    let shards = Arc::new(TwoShards::start().await);
    let names: Vec<String> = (0..VOUCHERS).map(|number| format!("v-{number}")).collect();
    shards.load(&names.iter().map(String::as_str).collect::<Vec<_>>()).await;
    // At first, as many moves are interrupted as are not, and each of their steps is.
    let mut longest_pause = usize::try_from((2 * length_of_a_move(&shards).await).as_micros()).unwrap();
    let (attempts, stop) = (Arc::<Attempts>::default(), CancellationToken::new());
    let shuffling = tokio::spawn(shuffle(shards.clone(), attempts.clone(), stop.clone()));
    let trading = tokio::spawn(trade(shards.clone(), stop.clone()));
    let (mut admin, mut random, mut kills, mut of_writers) = (shards.node.admin().await, Random(11), 0, 0);
    while kills < KILLS {
        // The moments are random. No condition is waited for.
        tokio::time::sleep(Duration::from_micros(u64::try_from(random.below(longest_pause)).unwrap())).await;
        kills += kill(&mut admin, "rewards-ledger moves").await;
        if kills / KILLS_PER_WRITER > of_writers {
            of_writers += 1;
            kill(&mut admin, "rewards-ledger writer").await;
            if attempts.done() * 4 < attempts.failed() {
                longest_pause = (longest_pause * 2).min(2_000_000); // the machine has become slower
            }
        }
    }
    stop.cancel();
    shuffling.await.unwrap();
    trading.await.unwrap();
    let (done, failed) = (attempts.done(), attempts.failed());
    assert!(done > 50 && failed > 50, "the kills leave moves and interrupt moves: {done} done, {failed} failed");

    let expected = i64::try_from(VOUCHERS + 3).unwrap(); // with those that the product has from the start
    let counted: (i64, i64, i64, i64) = sqlx::query_as(
        "SELECT count(*), count(DISTINCT v.id), count(DISTINCT v.reference), count(k.id) FROM vault.vouchers v
         LEFT JOIN vault.data_keys k ON k.shard_id = v.shard_id AND k.id = v.key_id AND k.subject_id = v.id",
    )
    .fetch_one(&mut admin)
    .await
    .unwrap();
    assert_eq!(counted, (expected, expected, expected, expected), "each voucher is there once, with its key");
    let keys: i64 =
        sqlx::query_scalar("SELECT count(*) FROM vault.data_keys WHERE subject = 'voucher'").fetch_one(&mut admin).await.unwrap();
    assert_eq!(keys, expected, "no key is left behind");
    let told = "SELECT
            (SELECT array_agg((shard_id, data->>'to_shard', position, data->>'position')::text ORDER BY shard_id, position)
             FROM events WHERE type = 'VouchersMovedOut'),
            (SELECT array_agg((data->>'from_shard', shard_id, data->>'position', position)::text
                ORDER BY data->>'from_shard', (data->>'position')::bigint) FROM events WHERE type = 'VouchersMovedIn')";
    let (left, arrived): (Vec<String>, Vec<String>) = sqlx::query_as(told).fetch_one(&mut admin).await.unwrap();
    assert_eq!(left, arrived, "both logs tell the same moves");
    assert!(left.len() >= done, "{} moves in the logs", left.len());
    shards.is_sound().await;
}
