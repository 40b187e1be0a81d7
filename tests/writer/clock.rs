//! The recording time of a batch when the clocks of the node and the database diverge.

use chrono::{DateTime, Utc};

use super::*;
use crate::support::clock::skewed;

#[tokio::test(flavor = "multi_thread")]
async fn a_node_whose_clock_stood_still_records_nothing_in_the_past() {
    let database = postgres::database().await;
    let options: PgConnectOptions = database.url.parse().unwrap();
    let mut admin = options.connect().await.unwrap();
    let ledger = ledger::open(&skewed(&options).await).await;
    let customer = Customer::with(&ledger, "100.00").await;
    ledger::run(&ledger, order(&customer, "before")).await;
    // From the node's point of view, after it was suspended for an hour.
    sqlx::raw_sql("UPDATE skewed.clock SET ahead = interval '1 hour'").execute(&mut admin).await.unwrap();
    ledger::run(&ledger, order(&customer, "after")).await;
    let mut recorded_at: Vec<DateTime<Utc>> =
        sqlx::query_scalar("SELECT recorded_at FROM events WHERE type = 'OrderPlaced' ORDER BY position")
            .fetch_all(&mut admin)
            .await
            .unwrap();
    let after = recorded_at.pop().unwrap();
    assert!(after - recorded_at[0] > chrono::TimeDelta::minutes(59), "{after}");
    // The writer continues from there.
    ledger::run(&ledger, order(&customer, "next")).await;
    assert_eq!(balance(ledger.pool(), &customer).await, "70.00");
}
