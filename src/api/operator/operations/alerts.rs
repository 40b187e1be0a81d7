//! The alerts of `deploy/alerts.yml` whose condition holds now. Shares of requests and of batches are those of all nodes,
//! by their counts of minutes.

use std::collections::BTreeSet;

use chrono::TimeDelta;
use ledger_events::{Money, ProductId};

use super::answers::AlertSeverity::{self, Page, Warn};
use super::answers::{FiringAlert, ShardState};
use crate::heartbeat::Pulse;
use crate::ledger::nodes::Node;
use crate::telemetry::{Minute, SupplierBacklog};

/// Facts that the alerts are about.
#[derive(Clone, Copy)]
pub struct Facts<'a> {
    pub shards: &'a [ShardState],
    pub pulses: &'a [Pulse],
    /// All nodes that are known.
    pub nodes: &'a [Node],
    /// Counts of this node, with every minute of the last hour.
    pub minutes: &'a [Minute],
    /// Counts of all nodes, without empty minutes.
    pub of_all: &'a [Minute],
    pub low: &'a BTreeSet<(ProductId, Money)>,
    pub suppliers: &'a [SupplierBacklog],
    pub has_key: bool,
}

/// Capacity of a writer's queue at which it counts as filling: a half.
const FILLING: i64 = 2_048;
/// Minutes over which shares are measured.
const MINUTES: usize = 5;
/// Time after its start in which a node must have checked the deliveries.
const TO_CHECK: TimeDelta = TimeDelta::minutes(5);
/// Minutes in which fulfilment takes up waiting orders.
const TO_TAKE_UP: usize = 10;

/// Sums a count over the last minutes of all nodes. `minutes` has every minute of the last hour, so it says when they began.
fn sum(facts: &Facts<'_>, minutes: usize, count: fn(&Minute) -> u64) -> u64 {
    let from = facts.minutes.len().saturating_sub(minutes);
    let Some(first) = facts.minutes.get(from) else { return 0 };
    facts.of_all.iter().filter(|minute| minute.at() >= first.at()).map(count).sum()
}

/// Returns the hosts of lost nodes if no node runs. Prometheus raises LedgerDown only if no node reports the log's head, so
/// a lost node beside others that run is no alert.
fn down(nodes: &[Node]) -> Vec<&str> {
    if nodes.iter().any(Node::is_running) {
        return vec![];
    }
    nodes.iter().filter(|node| node.is_lost()).map(|node| node.host.as_str()).collect()
}

/// Returns the alerts whose condition holds, in the order of the file.
pub fn evaluate(facts: &Facts<'_>) -> Vec<FiringAlert> {
    let mut firing = Firing::default();
    need_a_person(facts, &mut firing);
    clients_notice(facts, &mut firing);
    are_behind(facts, &mut firing);
    firing.0
}

#[derive(Default)]
struct Firing(Vec<FiringAlert>);

impl Firing {
    fn add(&mut self, name: &str, severity: AlertSeverity, is_firing: bool, summary: String) {
        if is_firing {
            self.0.push(FiringAlert { name: name.to_owned(), severity, summary });
        }
    }
}

fn need_a_person(facts: &Facts<'_>, firing: &mut Firing) {
    for shard in facts.shards {
        let id = shard.shard_id;
        let refused = format!("A node refuses to sign the transparency log of shard {id}.");
        firing.add("LedgerTreeRefused", Page, shard.is_signing_refused, refused);
    }
    let key = "This node does not have the current master key, so it delivers and seals nothing.".to_owned();
    firing.add("LedgerMasterKeyUnusable", Page, !facts.has_key, key);
    for shard in facts.shards {
        let (id, missing) = (shard.shard_id, shard.missing_deliveries.unwrap_or_default());
        let text = format!("{missing} deliveries of shard {id} are missing.");
        firing.add("LedgerDeliveryMissing", Page, missing > 0, text);
        let running = || facts.nodes.iter().filter(|node| node.is_running());
        let is_known = shard.missing_deliveries.is_some() || running().any(|node| node.checked.contains(&id));
        // A node needs some time after its start.
        let is_due = running().any(|node| node.beat_at - node.started_at > TO_CHECK);
        let text = format!("No node knows whether every event of shard {id} has its deliveries.");
        firing.add("LedgerDeliveryHealthUnknown", Page, is_due && !is_known, text);
        let text = format!("The last event of shard {id} has a time in the future of the database's clock.");
        firing.add("LedgerHeadAheadOfClock", Page, shard.head_ahead_seconds > 5.0, text);
    }
    let has_jumped = facts.shards.iter().any(|shard| shard.clock_ahead_seconds > 3_600.0);
    firing.add("LedgerClockJumped", Page, has_jumped, "The database's clock has jumped ahead. Vouchers are held.".to_owned());
    let stalled = facts.pulses.iter().filter(|pulse| pulse.is_stalled()).map(|pulse| pulse.name.clone());
    let elsewhere = facts.nodes.iter().filter(|node| node.is_running()).flat_map(|node| node.stalled_loops.clone());
    let stalled: BTreeSet<String> = stalled.chain(elsewhere).collect();
    let text = format!("These loops have stalled: {}.", stalled.iter().map(String::as_str).collect::<Vec<_>>().join(", "));
    firing.add("LedgerLoopStalled", Page, !stalled.is_empty(), text);
}

fn clients_notice(facts: &Facts<'_>, firing: &mut Firing) {
    let of = |count| sum(facts, MINUTES, count);
    let (requests, failures, slow) = (of(|one| one.requests), of(|one| one.failures), of(|one| one.slow));
    let text = format!("The nodes have answered {failures} of {requests} requests with a 5xx status in five minutes.");
    firing.add("LedgerRequestsFail", Page, failures * 100 > requests, text);
    let text = format!("{slow} of {requests} requests took longer than a second in five minutes.");
    firing.add("LedgerRequestsSlow", Warn, slow * 100 > requests, text);
    for shard in facts.shards {
        let (id, waiting) = (shard.shard_id, shard.waiting_commands);
        firing.add("LedgerQueueFills", Page, waiting > FILLING, format!("{waiting} commands wait for the writer of shard {id}."));
    }
    let (batches, held) = (of(|one| one.batches), of(|one| one.held));
    let text = format!("{held} of {batches} batches held the log head longer than half a second in five minutes.");
    firing.add("LedgerHeadHeld", Warn, held * 100 > batches, text);
}

fn are_behind(facts: &Facts<'_>, firing: &mut Firing) {
    let is_fulfilling = sum(facts, TO_TAKE_UP, |minute| minute.taken_up) > 0;
    for shard in facts.shards {
        let id = shard.shard_id;
        for projection in shard.projections.iter().filter(|projection| projection.oldest_seconds > 60.0) {
            let text = format!("{} of shard {id} is {:.0} seconds behind the log.", projection.name, projection.oldest_seconds);
            firing.add("LedgerProjectionBehind", Page, true, text);
        }
        let waits = shard.unqueued_seconds > 60.0 * TO_TAKE_UP as f64 && !is_fulfilling;
        let text = format!("{} orders of shard {id} are waiting, but fulfilment takes up none.", shard.unqueued_orders);
        firing.add("LedgerOrdersWait", Page, waits, text);
        let due = shard.due_deliveries;
        firing.add("LedgerDeliveriesPile", Warn, due > 10_000, format!("{due} deliveries of shard {id} are due."));
        let orders = shard.out_of_stock_orders;
        firing.add("LedgerOutOfStock", Warn, orders > 0, format!("{orders} orders of shard {id} wait for stock."));
    }
    let text = format!("Denominations with fewer vouchers than their threshold: {}.", facts.low.len());
    firing.add("LedgerStockLow", Warn, !facts.low.is_empty(), text);
    for supplier in facts.suppliers {
        let text = format!("The last {} calls of the supplier {} have failed.", supplier.failures, supplier.supplier);
        firing.add("LedgerSupplierFails", Warn, supplier.is_failing(), text);
    }
    for supplier in facts.suppliers {
        let minutes = supplier.oldest_seconds / 60.0;
        let text = format!("A purchase from the supplier {} has been open for {minutes:.0} minutes.", supplier.supplier);
        firing.add("LedgerSupplierOverdue", Warn, supplier.is_overdue(), text);
    }
    let down = down(facts.nodes);
    let text = format!("No node has a heartbeat. The hosts of those that have not stopped in order: {}.", down.join(", "));
    firing.add("LedgerDown", Page, !down.is_empty(), text);
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use chrono::Utc;
    use uuid::Uuid;

    use super::*;
    use crate::ledger::activity::Progress;
    use crate::telemetry::{Backlog, Lag, Metrics};

    fn shard(is_bad: bool, missing: Option<i64>) -> ShardState {
        let amount = |good: f64, bad: f64| if is_bad { bad } else { good };
        let backlog = Backlog {
            shard_id: 1,
            head: 9,
            head_ahead: amount(0.0, 6.0),
            clock_ahead: amount(9.0, 3_601.0),
            unqueued: 1,
            waiting: i64::from(is_bad),
            due: if is_bad { 10_001 } else { 10_000 },
            is_refused: is_bad,
        };
        let oldest_seconds = amount(60.0, 61.0);
        let lag = Lag { shard_id: 1, projection: "deliveries".to_owned(), checkpoint: 8, behind: 1, oldest_seconds };
        let now = Utc::now();
        let unqueued_since = Some(now - TimeDelta::seconds(if is_bad { 601 } else { 599 }));
        let progress = Progress { shard_id: 1, now, appended_at: now, signed_at: None, unqueued_since, projected_at: None };
        let metrics = Metrics::default();
        if let Some(missing) = missing {
            metrics.delivery_health(1, 9, 5, missing);
        }
        let depths = [(1, if is_bad { 2_049 } else { 2_048 })];
        ShardState::of(backlog, &[lag], &[progress], &[], &depths, &metrics)
    }

    fn node(host: &str, beat_age: f64, started_before: i64) -> Node {
        let started_at = Utc::now() - TimeDelta::seconds(started_before);
        let host = host.to_owned();
        let (version, roles, stalled_loops) = ("1".to_owned(), vec![], vec![]);
        let (id, beat_at, checked) = (Uuid::nil(), Utc::now(), vec![]);
        Node { id, host, version, roles, stalled_loops, checked, started_at, beat_at, beat_age, stopped_at: None }
    }

    fn names(facts: &Facts<'_>) -> Vec<String> {
        evaluate(facts).into_iter().map(|alert| alert.name).collect()
    }

    fn firing(is_bad: bool) -> Vec<String> {
        let age = Duration::from_secs(if is_bad { 46 } else { 45 });
        let pulses = [Pulse { name: "writer 1".to_owned(), age, serves_requests: true }];
        let mut minute = Minute::starting_at(Utc::now());
        let bad = if is_bad { 2 } else { 1 };
        (minute.requests, minute.failures, minute.slow, minute.batches, minute.held) = (100, bad, bad, 100, bad);
        let minutes = [minute];
        let low = if is_bad { BTreeSet::from([(ProductId(1), Money::ZERO)]) } else { BTreeSet::new() };
        let nodes = [node("a", if is_bad { 31.0 } else { 30.0 }, 99)];
        let shards = [shard(is_bad, Some(i64::from(is_bad)))];
        let (oldest_seconds, failures) = if is_bad { (3_601.0, 5) } else { (3_600.0, 4) };
        let named = |supplier: &str| SupplierBacklog {
            supplier: supplier.to_owned(),
            open: 1,
            oldest_seconds,
            failures,
            is_broken: is_bad,
        };
        // Without an open purchase, nobody calls a supplier that has failed.
        let idle = SupplierBacklog { open: 0, oldest_seconds: 0.0, failures: 5, ..named("idle") };
        let facts = Facts {
            shards: &shards,
            pulses: &pulses,
            nodes: &nodes,
            minutes: &minutes,
            of_all: &minutes,
            low: &low,
            suppliers: &[named("acme"), idle],
            has_key: !is_bad,
        };
        names(&facts)
    }

    #[test]
    fn alerts_fire_beyond_the_thresholds_of_the_file() {
        assert_eq!(firing(false), Vec::<String>::new());
        let file = include_str!("../../../../deploy/alerts.yml");
        let firing = firing(true);
        for name in &firing {
            assert!(file.contains(&format!("alert: {name}\n")), "{name} is not in the file");
        }
        // One of them excludes another. Handovers are counted by each node alone, so no node knows those of all.
        let in_file = file.lines().filter_map(|line| line.trim().strip_prefix("- alert: "));
        let others: Vec<&str> = in_file.filter(|name| !firing.iter().any(|firing| firing == name)).collect();
        assert_eq!(others, ["LedgerDeliveryHealthUnknown", "LedgerHandoversUnknown"]);
    }

    #[test]
    fn the_health_of_deliveries_is_known_if_any_node_knows_it() {
        let facts = |shards: &[ShardState], nodes: &[Node]| {
            let low = BTreeSet::new();
            names(&Facts { shards, pulses: &[], nodes, minutes: &[], of_all: &[], low: &low, suppliers: &[], has_key: true })
        };
        let shards = [shard(false, None)];
        assert_eq!(facts(&shards, &[node("a", 1.0, 301)]), ["LedgerDeliveryHealthUnknown"]);
        assert!(facts(&shards, &[node("a", 1.0, 299)]).is_empty(), "the node has just started");
        let checking = Node { checked: vec![1], ..node("b", 1.0, 301) };
        assert!(facts(&shards, &[node("a", 1.0, 301), checking.clone()]).is_empty());
        let stopped = Node { stopped_at: Some(Utc::now()), ..checking };
        assert_eq!(facts(&shards, &[node("a", 1.0, 301), stopped]), ["LedgerDeliveryHealthUnknown"]);
    }

    #[test]
    fn the_service_is_down_if_no_node_runs_as_in_the_file() {
        let file = include_str!("../../../../deploy/alerts.yml");
        assert!(
            file.contains("- alert: LedgerDown\n        expr: absent(ledger_log_head_position)\n"),
            "the file has another condition"
        );
        let (lost, running) = (node("a", 31.0, 99), node("b", 1.0, 99));
        let stopped = Node { stopped_at: Some(Utc::now()), ..node("c", 31.0, 99) };
        assert_eq!(down(&[lost.clone(), stopped.clone()]), ["a"]);
        assert!(down(&[lost, running]).is_empty(), "another node reports the head");
        assert!(down(&[stopped]).is_empty() && down(&[]).is_empty(), "the node that answers has not written a heartbeat yet");
    }
}
