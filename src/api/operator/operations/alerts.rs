//! The alerts of `deploy/alerts.yml` whose condition holds now. Rules about rates and quantiles are left to Prometheus,
//! except for the share of failed requests, which this node counts.

use std::collections::BTreeSet;

use ledger_events::{Money, ProductId};

use super::answers::{AlertSeverity, FiringAlert, ShardState};
use crate::heartbeat::Pulse;
use crate::telemetry::Minute;

/// Facts that the alerts are about.
#[derive(Clone, Copy)]
pub struct Facts<'a> {
    pub shards: &'a [ShardState],
    pub pulses: &'a [Pulse],
    pub minutes: &'a [Minute],
    pub low: &'a BTreeSet<(ProductId, Money)>,
    pub has_key: bool,
}

/// Capacity of a writer's queue at which it counts as filling: a half.
const FILLING: i64 = 2_048;
/// Minutes over which the share of failed requests is measured.
const MINUTES: usize = 5;

/// Returns the alerts whose condition holds, in the order of the file.
pub fn evaluate(facts: &Facts<'_>) -> Vec<FiringAlert> {
    use AlertSeverity::{Page, Warn};
    let mut firing = vec![];
    let mut add = |name: &str, severity: AlertSeverity, is_firing: bool, summary: String| {
        if is_firing {
            firing.push(FiringAlert { name: name.to_owned(), severity, summary });
        }
    };
    let stalled: Vec<&str> = facts.pulses.iter().filter(|pulse| pulse.is_stalled()).map(|pulse| &*pulse.name).collect();
    let recent = &facts.minutes[facts.minutes.len().saturating_sub(MINUTES)..];
    let (requests, failures) = recent.iter().fold((0, 0), |(all, bad), minute| (all + minute.requests, bad + minute.failures));
    for shard in facts.shards {
        let id = shard.shard_id;
        let refused = format!("A node refuses to sign the transparency log of shard {id}.");
        add("LedgerTreeRefused", Page, shard.is_signing_refused, refused);
    }
    let key = "This node does not have the current master key, so it delivers and seals nothing.".to_owned();
    add("LedgerMasterKeyUnusable", Page, !facts.has_key, key);
    for shard in facts.shards {
        let (id, missing) = (shard.shard_id, shard.missing_deliveries.unwrap_or_default());
        let text = format!("{missing} deliveries of shard {id} are missing.");
        add("LedgerDeliveryMissing", Page, missing > 0, text);
        let text = format!("The last event of shard {id} has a time in the future of the database's clock.");
        add("LedgerHeadAheadOfClock", Page, shard.head_ahead_seconds > 5.0, text);
    }
    let has_jumped = facts.shards.iter().any(|shard| shard.clock_ahead_seconds > 3_600.0);
    add("LedgerClockJumped", Page, has_jumped, "The database's clock has jumped ahead. Vouchers are held.".to_owned());
    let text = format!("These loops of this node have stalled: {}.", stalled.join(", "));
    add("LedgerLoopStalled", Page, !stalled.is_empty(), text);
    let text = format!("This node has answered {failures} of {requests} requests with a 5xx status in five minutes.");
    add("LedgerRequestsFail", Page, failures * 100 > requests, text);
    for shard in facts.shards {
        let (id, waiting) = (shard.shard_id, shard.waiting_commands);
        add("LedgerQueueFills", Page, waiting > FILLING, format!("{waiting} commands wait for the writer of shard {id}."));
        for projection in shard.projections.iter().filter(|projection| projection.oldest_seconds > 60.0) {
            let text = format!("{} of shard {id} is {:.0} seconds behind the log.", projection.name, projection.oldest_seconds);
            add("LedgerProjectionBehind", Page, true, text);
        }
        let due = shard.due_deliveries;
        add("LedgerDeliveriesPile", Warn, due > 10_000, format!("{due} deliveries of shard {id} are due."));
        let orders = shard.out_of_stock_orders;
        add("LedgerOutOfStock", Warn, orders > 0, format!("{orders} orders of shard {id} wait for stock."));
    }
    let text = format!("Denominations with fewer vouchers than their threshold: {}.", facts.low.len());
    add("LedgerStockLow", Warn, !facts.low.is_empty(), text);
    firing
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::telemetry::{Backlog, Lag, Metrics};

    fn shard(is_bad: bool) -> ShardState {
        let amount = |good: f64, bad: f64| if is_bad { bad } else { good };
        let backlog = Backlog {
            shard_id: 1,
            head: 9,
            head_ahead: amount(0.0, 6.0),
            clock_ahead: amount(9.0, 3_601.0),
            unqueued: 0,
            waiting: i64::from(is_bad),
            due: if is_bad { 10_001 } else { 10_000 },
            is_refused: is_bad,
        };
        let oldest_seconds = amount(60.0, 61.0);
        let lag = Lag { shard_id: 1, projection: "deliveries".to_owned(), checkpoint: 8, behind: 1, oldest_seconds };
        let metrics = Metrics::default();
        metrics.delivery_health(1, 9, 5, i64::from(is_bad));
        let depths = [(1, if is_bad { 2_049 } else { 2_048 })];
        ShardState::of(backlog, &[lag], &[], &[], &depths, &metrics)
    }

    fn firing(is_bad: bool) -> Vec<String> {
        let age = Duration::from_secs(if is_bad { 46 } else { 45 });
        let pulses = [Pulse { name: "writer 1".to_owned(), age, serves_requests: true }];
        let mut minute = Minute::default();
        (minute.requests, minute.failures) = (100, if is_bad { 2 } else { 1 });
        let minutes = [minute];
        let low = if is_bad { BTreeSet::from([(ProductId(1), Money::ZERO)]) } else { BTreeSet::new() };
        let facts = Facts { shards: &[shard(is_bad)], pulses: &pulses, minutes: &minutes, low: &low, has_key: !is_bad };
        evaluate(&facts).into_iter().map(|alert| alert.name).collect()
    }

    #[test]
    fn alerts_fire_beyond_the_thresholds_of_the_file() {
        assert_eq!(firing(false), Vec::<String>::new());
        let file = include_str!("../../../../deploy/alerts.yml");
        let firing = firing(true);
        assert_eq!(firing.len(), 12, "{firing:?}");
        for name in firing {
            assert!(file.contains(&format!("alert: {name}\n")), "{name} is not in the file");
        }
    }
}
