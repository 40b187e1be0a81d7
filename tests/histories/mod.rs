//! Recorded histories. Concurrent clients order, cancel, fund, repeat and read through two and three nodes, while faults
//! strike. A checker says whether what they were told is linearizable: whether some order of the operations, one after the
//! other, explains every answer.
//!
//! A seed determines the load and the order of the faults. It does not determine times.

mod checker;
mod examples;
mod faults;
mod history;
mod kept;
mod load;
mod run;
mod wallet;

use faults::{OF_A_PAIR, OF_ONE_SERVER};
use run::{on_a_pair, on_one_server};

/// Returns the seed of a run: `LEDGER_HISTORY_SEED`, or a new one.
fn seed() -> u64 {
    let given = std::env::var("LEDGER_HISTORY_SEED").ok().map(|seed| seed.parse().expect("a seed is a number"));
    given.unwrap_or_else(rand::random)
}

#[tokio::test(flavor = "multi_thread")]
async fn histories_of_two_nodes_on_one_server_are_linearizable() {
    on_one_server(2, seed(), &OF_ONE_SERVER).await.judged().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn histories_of_three_nodes_across_failovers_are_linearizable() {
    on_a_pair(3, seed(), &OF_A_PAIR).await.judged().await;
}
