//! The invariants that hold after any faults.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use rust_decimal::Decimal;
use sqlx::PgPool;
use webhook_client::receiver::{Certificate, Receiver, ReceiverResponse, ReceiverSettings};

use super::cluster::Cluster;
use super::load::Lane;
use super::network::address;

/// Event types that the webhooks subscribe to, by the event in the log.
pub const HEARD: [(&str, &str); 4] = [
    ("OrderPlaced", "order.created"),
    ("OrderQueued", "order.pending"),
    ("OrderDelivered", "order.delivered"),
    ("OrderCancelled", "order.cancelled"),
];
/// Longest time for the last deliveries to arrive.
const SETTLED: Duration = Duration::from_secs(180);
/// Exit status of a `verify` that could not run.
const NOT_COMPARED: i32 = 3;

/// Event types that arrived, by `X-Webhook-ID` and `event_id`.
pub type Arrivals = Arc<Mutex<HashMap<(String, String), HashSet<String>>>>;

/// Starts a receiver at the bridge.
pub async fn receiver() -> (Receiver, Arrivals) {
    let arrivals = Arrivals::default();
    let kept = arrivals.clone();
    let settings = ReceiverSettings {
        listen: format!("{}:0", address(1)).parse().unwrap(),
        service_name: "SERVICE".into(),
        certificate: Certificate::generate_for(&[&address(1)], 2020, 2120).unwrap(),
        respond: Arc::new(move |received| {
            let text = |header: Option<&str>| header.unwrap().to_owned();
            let key = (text(received.webhook_id()), text(received.event_id()));
            kept.lock().unwrap().entry(key).or_default().insert(text(received.event_type()));
            ReceiverResponse::Status(200)
        }),
    };
    let (receiver, channel) = Receiver::start(settings).await.unwrap();
    drop(channel);
    (receiver, arrivals)
}

/// Checks everything, once the clients have stopped. Patroni may still restart a primary that was without etcd in the last fault, so
/// a lost connection repeats the check.
pub async fn check(cluster: &Cluster, lanes: &[Lane], webhooks: &[(i64, String)], arrivals: &Arrivals) {
    let deadline = Instant::now() + SETTLED;
    while let Err(error) = attempt(cluster, lanes, webhooks, arrivals, deadline).await {
        assert!(Instant::now() < deadline, "the check reaches no primary: {error}");
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}

/// Checks everything. Fails if the primary goes away meanwhile.
async fn attempt(
    cluster: &Cluster,
    lanes: &[Lane],
    webhooks: &[(i64, String)],
    arrivals: &Arrivals,
    deadline: Instant,
) -> Result<(), sqlx::Error> {
    let options: ledger_database::PgConnectOptions = cluster.database_url("postgres", false).parse().unwrap();
    let (_, host) = options.find().await?;
    let pool = PgPool::connect_with(host.clone()).await?;
    for lane in lanes {
        check_lane(&pool, lane).await?;
    }
    while let Err(missing) = have_all_arrived(&pool, webhooks, arrivals).await? {
        assert!(Instant::now() < deadline, "{missing}");
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    let verified = cluster.command(&["verify"]).await;
    let output = format!("{}{}", String::from_utf8_lossy(&verified.stdout), String::from_utf8_lossy(&verified.stderr));
    if verified.status.code() == Some(NOT_COMPARED) {
        return Err(sqlx::Error::Protocol(output));
    }
    assert!(verified.status.success(), "{output}");
    check_transparency_log(&pool, deadline).await?;
    pool.close().await;
    Ok(())
}

/// Checks the orders and the money of an account. Every request got a definite answer, so the log has exactly the
/// acknowledged orders: neither one more, which would be doubled or refused, nor one less.
async fn check_lane(pool: &PgPool, lane: &Lane) -> Result<(), sqlx::Error> {
    let account = lane.client.account_id;
    let acknowledged: HashSet<i64> = lane.orders.iter().copied().collect();
    assert_eq!(acknowledged.len(), lane.orders.len(), "account {account}: no two keys got the same order");
    let placed: Vec<i64> = sqlx::query_scalar(
        "SELECT e.stream_id FROM events e JOIN orders o ON o.id = e.stream_id WHERE e.type = 'OrderPlaced' AND o.account_id = $1",
    )
    .bind(account)
    .fetch_all(pool)
    .await?;
    assert_eq!(placed.len(), acknowledged.len(), "account {account}: as many orders were placed as acknowledged");
    assert_eq!(placed.into_iter().collect::<HashSet<_>>(), acknowledged, "account {account}");
    let (balance, moved): (Decimal, Decimal) = sqlx::query_as(
        "SELECT w.balance, (SELECT sum(CASE type WHEN 'CREDIT' THEN amount ELSE -amount END) FROM wallet_transactions t
            WHERE t.wallet_id = w.id) FROM wallets w WHERE w.account_id = $1",
    )
    .bind(account)
    .fetch_one(pool)
    .await?;
    assert_eq!((balance, moved), (Decimal::from(lane.rest()), Decimal::from(lane.rest())), "account {account}");
    Ok(())
}

/// Checks that each event of each account has arrived at its webhook, and nothing else has. Returns what is missing.
async fn have_all_arrived(
    pool: &PgPool,
    webhooks: &[(i64, String)],
    arrivals: &Arrivals,
) -> Result<Result<(), String>, sqlx::Error> {
    let events: Vec<(i64, String, uuid::Uuid)> = sqlx::query_as(
        "SELECT o.account_id, e.type, e.event_id FROM events e JOIN orders o ON o.id = e.stream_id WHERE e.stream_type = 'order'",
    )
    .fetch_all(pool)
    .await?;
    let webhook_of: HashMap<i64, &String> = webhooks.iter().map(|(account, webhook)| (*account, webhook)).collect();
    let mut expected = HashMap::new();
    for (account, name, id) in events {
        if let Some((_, heard)) = HEARD.iter().find(|(of, _)| *of == name) {
            expected.insert((webhook_of[&account].clone(), id.to_string()), *heard);
        }
    }
    let arrivals = arrivals.lock().unwrap();
    for (key, types) in arrivals.iter() {
        let heard = expected.get(key).unwrap_or_else(|| panic!("{key:?} arrived, which the log does not have: {types:?}"));
        assert_eq!(types.iter().collect::<Vec<_>>(), [heard], "{key:?}");
    }
    let missing = expected.iter().find(|(key, _)| !arrivals.contains_key(*key));
    Ok(missing
        .map_or(Ok(()), |(key, heard)| Err(format!("{heard} did not arrive: {key:?}; {} of {}", arrivals.len(), expected.len()))))
}

/// Checks that no node refuses to sign, that there was no incident, and that each node serves one checkpoint of the whole
/// log.
async fn check_transparency_log(pool: &PgPool, deadline: Instant) -> Result<(), sqlx::Error> {
    let http = reqwest::Client::new();
    loop {
        let mut seen = HashSet::new();
        for index in 0..3 {
            let url = Cluster::node_url(index);
            let metrics = http.get(format!("{url}/metrics")).send().await.unwrap().text().await.unwrap();
            let refused = metrics.lines().find_map(|line| line.strip_prefix("ledger_transparency_refused")).unwrap_or_default();
            assert!(!refused.trim_end().ends_with(" 1"), "node {index} refuses to sign");
            let note = http.get(format!("{url}/log/1/checkpoint")).send().await.unwrap().text().await.unwrap();
            // Origin, size and root. Signatures may differ.
            seen.insert(note.lines().take(3).map(str::to_owned).collect::<Vec<_>>());
        }
        let position: i64 = sqlx::query_scalar("SELECT position FROM log_head").fetch_one(pool).await?;
        if seen.len() == 1 && seen.iter().all(|note| note[1] == position.to_string()) {
            break;
        }
        assert!(Instant::now() < deadline, "the nodes do not serve one checkpoint at {position}: {seen:?}");
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    let incidents: i64 = sqlx::query_scalar("SELECT count(*) FROM events WHERE type LIKE 'LogIncident%'").fetch_one(pool).await?;
    assert_eq!(incidents, 0);
    let forked: i64 =
        sqlx::query_scalar("SELECT count(*) - count(DISTINCT (shard_id, size)) FROM log_checkpoints").fetch_one(pool).await?;
    assert_eq!(forked, 0, "no size was signed with two roots");
    Ok(())
}
