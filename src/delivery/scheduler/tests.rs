//! Scheduling of claims and sends when capacity is short.

use super::*;
use crate::delivery::claim::LeaseClock;
use chrono::{TimeDelta, Utc};
use uuid::Uuid;

const SHARD: ShardId = 1;
const LIMITS: Limits = Limits { in_flight: 100, per_webhook: 10, new: 1, first: 4, beside: 1, fast_within: FAST_WITHIN };

fn due(webhook: i64, account: i64) -> Due {
    Due { webhook_id: WebhookId(webhook), account_id: AccountId(account), has_first_attempts: true, has_retries: false }
}

fn claimed(webhook_id: WebhookId, attempt: i16, now: Instant) -> Claimed {
    Claimed {
        shard: SHARD,
        delivery_id: 1,
        webhook_id,
        fence: 1,
        attempt,
        request_id: Uuid::nil(),
        event_id: Uuid::nil(),
        event_type: "order.created".to_owned(),
        payload: hyper::body::Bytes::new(),
        target: None,
        position: 1,
        traceparent: None,
        clock: LeaseClock { at: Utc::now() + TimeDelta::zero(), read_at: now, ready: now, lease_ends: now },
    }
}

/// Claims everything that is wanted. Returns the counts by webhook.
fn claim(scheduler: &mut Scheduler, now: Instant) -> HashMap<i64, usize> {
    claim_beside(scheduler, true, now)
}

/// Claims everything that is wanted if the shard is the only one, or beside others.
fn claim_beside(scheduler: &mut Scheduler, is_only_shard: bool, now: Instant) -> HashMap<i64, usize> {
    let wants = scheduler.wanted(SHARD, is_only_shard, now);
    let came = wants.iter().flat_map(|want| {
        let first_attempts = (0..want.first_attempts).map(|_| claimed(want.webhook_id, 1, now));
        first_attempts.chain((0..want.retries).map(|_| claimed(want.webhook_id, 2, now)))
    });
    let came = came.collect();
    scheduler.claimed(&wants, came);
    wants.iter().map(|want| (want.webhook_id.0, want.first_attempts + want.retries)).collect()
}

/// Sends everything that is scheduled. Returns the counts by webhook.
fn send(scheduler: &mut Scheduler, now: Instant) -> HashMap<i64, usize> {
    let mut sent = HashMap::new();
    for claimed in scheduler.next(now) {
        *sent.entry(claimed.webhook_id.0).or_default() += 1;
    }
    sent
}

fn end(scheduler: &mut Scheduler, webhook: i64, count: usize, took: Duration, is_answered: bool, now: Instant) {
    for _ in 0..count {
        scheduler.ended(WebhookId(webhook), Some((took, is_answered)), now);
        scheduler.left(WebhookId(webhook));
    }
}

#[test]
fn a_fast_webhook_is_claimed_ahead_without_more_sends_at_once() {
    let (mut scheduler, now) = (Scheduler::new(LIMITS), Instant::now());
    scheduler.found(SHARD, vec![due(1, 1)], now);
    for round in 0..20 {
        claim(&mut scheduler, now);
        let count = [1, 4, 8].get(round).copied().unwrap_or(10);
        assert_eq!(send(&mut scheduler, now), HashMap::from([(1, count)]));
        assert!(send(&mut scheduler, now).is_empty(), "the webhook's limit is in flight");
        end(&mut scheduler, 1, count, Duration::from_millis(20), true, now);
    }
    claim(&mut scheduler, now);
    assert_eq!(scheduler.held, 40);
}

#[test]
fn a_hanging_webhook_is_throttled_to_one_send_at_a_time() {
    let (mut scheduler, mut now) = (Scheduler::new(LIMITS), Instant::now());
    scheduler.found(SHARD, vec![due(1, 1)], now);
    claim(&mut scheduler, now);
    assert_eq!(send(&mut scheduler, now)[&1], 1);
    end(&mut scheduler, 1, 1, Duration::from_millis(20), true, now);
    let mut sent = vec![];
    for _ in 0..4 {
        claim(&mut scheduler, now);
        sent.push(send(&mut scheduler, now)[&1]);
        now += Duration::from_secs(30);
        end(&mut scheduler, 1, sent[sent.len() - 1], Duration::from_secs(30), false, now);
    }
    assert_eq!(sent, [4, 1, 1, 1]);
    // When it answers again, its allowance grows again.
    for _ in 0..5 {
        claim(&mut scheduler, now);
        let count = send(&mut scheduler, now)[&1];
        end(&mut scheduler, 1, count, Duration::from_millis(20), true, now);
    }
    claim(&mut scheduler, now);
    assert_eq!(send(&mut scheduler, now)[&1], 10);
}

#[test]
fn half_of_the_capacity_stays_for_webhooks_that_answer() {
    let (mut scheduler, mut now) = (Scheduler::new(LIMITS), Instant::now());
    scheduler.found(SHARD, vec![due(1_000, 1_000)], now);
    for _ in 0..3 {
        claim(&mut scheduler, now);
        let count = send(&mut scheduler, now)[&1_000];
        end(&mut scheduler, 1_000, count, Duration::from_millis(20), true, now);
    }
    scheduler.found(SHARD, (0..500).map(|n| due(n, n)).collect(), now);
    let hanging = |sent: &HashMap<i64, usize>| sent.iter().filter(|(id, _)| **id < 500).map(|(_, n)| n).sum::<usize>();
    for _ in 0..5 {
        claim(&mut scheduler, now);
        let sent = send(&mut scheduler, now);
        assert_eq!(sent.get(&1_000), Some(&10), "{sent:?}");
        assert!(hanging(&sent) <= 50);
        end(&mut scheduler, 1_000, 10, Duration::from_millis(20), true, now);
        now += Duration::from_secs(2);
    }
    assert_eq!(scheduler.sending, 50, "hanging webhooks have the other half");
}

#[test]
fn a_webhook_that_stops_answering_is_no_longer_fast_before_its_deadline() {
    let (mut scheduler, mut now) = (Scheduler::new(Limits::new(8, 8)), Instant::now());
    scheduler.found(SHARD, vec![due(1, 1)], now);
    for _ in 0..4 {
        claim(&mut scheduler, now);
        let count = send(&mut scheduler, now)[&1];
        end(&mut scheduler, 1, count, Duration::from_millis(20), true, now);
    }
    claim(&mut scheduler, now);
    assert_eq!(send(&mut scheduler, now)[&1], 6, "a single account leaves a quarter free");
    end(&mut scheduler, 1, 3, Duration::from_millis(20), true, now);
    now += Duration::from_secs(2);
    assert_eq!(send(&mut scheduler, now), HashMap::from([(1, 2)]), "unresponsive webhooks share a quarter");
    now += Duration::from_secs(2);
    assert!(send(&mut scheduler, now).is_empty());
    // Deliveries that it holds but cannot send soon block the claims of others.
    scheduler.found(SHARD, vec![due(2, 2)], now);
    assert_eq!(claim(&mut scheduler, now), HashMap::new());
    let stale = scheduler.stale(FAST_WITHIN, now);
    stale.iter().for_each(|claimed| scheduler.left(claimed.webhook_id));
    assert_eq!(scheduler.held, 5, "the sends in flight");
    assert_eq!(claim(&mut scheduler, now), HashMap::from([(2, 1)]));
    assert_eq!(send(&mut scheduler, now), HashMap::from([(2, 1)]));
    assert!(scheduler.stale(FAST_WITHIN, now).is_empty());
}

#[test]
fn others_are_served_when_all_fast_webhooks_of_an_account_stop_answering() {
    let (mut scheduler, mut now) = (Scheduler::new(LIMITS), Instant::now());
    let (fast, new, hung) = (1_000, 2_000, 3_000);
    scheduler.found(SHARD, (0..20).map(|n| due(n, 1)).chain([due(fast, 2), due(hung, 3)]).collect(), now);
    // Run until all are known: twenty webhooks of one account and one of another are fast, the third account's hangs.
    for _ in 0..20 {
        claim(&mut scheduler, now);
        for (webhook_id, count) in send(&mut scheduler, now) {
            let (took, is_answered) = if webhook_id == hung { (30, false) } else { (0, true) };
            end(&mut scheduler, webhook_id, count, Duration::from_secs(took), is_answered, now);
        }
    }
    claim(&mut scheduler, now);
    let of_the_account = |sent: &HashMap<i64, usize>| sent.iter().filter(|(id, _)| **id < 20).map(|(_, n)| n).sum::<usize>();
    let sent = send(&mut scheduler, now);
    end(&mut scheduler, fast, sent[&fast], Duration::ZERO, true, now);
    // The first account has what others leave, at most three quarters, and all of it hangs.
    let mut stuck = of_the_account(&sent);
    let sent = send(&mut scheduler, now);
    end(&mut scheduler, fast, sent.get(&fast).copied().unwrap_or_default(), Duration::ZERO, true, now);
    stuck += of_the_account(&sent);
    assert!((60..=75).contains(&stuck), "{stuck}");
    for second in 0..20 {
        now += Duration::from_secs(1);
        scheduler.stale(FAST_WITHIN, now).iter().for_each(|claimed| scheduler.left(claimed.webhook_id));
        scheduler.found(SHARD, (0..20).map(|n| due(n, 1)).chain([due(fast, 2), due(new + second, 4 + second)]).collect(), now);
        claim(&mut scheduler, now);
        let sent = send(&mut scheduler, now);
        stuck += of_the_account(&sent);
        assert!(stuck <= 75, "second {second}: {stuck}");
        // The first two seconds pass before its deliveries claimed ahead are given back.
        if second > 1 {
            assert!(sent.get(&fast).is_some_and(|count| *count > 0), "second {second}: {sent:?}");
            assert_eq!(sent.get(&(new + second)), Some(&1), "second {second}: {sent:?}");
        }
        for (webhook_id, count) in sent.into_iter().filter(|(webhook_id, _)| *webhook_id >= 20 && *webhook_id != hung) {
            end(&mut scheduler, webhook_id, count, Duration::ZERO, true, now);
        }
    }
}

#[test]
fn an_unsent_delivery_does_not_make_an_unresponsive_webhook_fast() {
    let (mut scheduler, mut now) = (Scheduler::new(LIMITS), Instant::now());
    scheduler.found(SHARD, vec![due(1, 1)], now);
    for _ in 0..2 {
        claim(&mut scheduler, now);
        let count = send(&mut scheduler, now)[&1];
        end(&mut scheduler, 1, count, Duration::ZERO, true, now);
    }
    claim(&mut scheduler, now);
    assert!(send(&mut scheduler, now)[&1] > 1);
    now += Duration::from_secs(2);
    assert_eq!(scheduler.endpoints[&WebhookId(1)].responsiveness(now), Responsiveness::Unresponsive);
    scheduler.ended(WebhookId(1), None, now);
    assert_eq!(scheduler.endpoints[&WebhookId(1)].responsiveness(now), Responsiveness::Unresponsive);
}

#[test]
fn across_nodes_only_webhooks_that_are_given_not_fast_are_limited() {
    let (mut scheduler, mut now) = (Scheduler::new(LIMITS), Instant::now());
    scheduler.found(SHARD, vec![due(1, 1)], now);
    let wanted = |scheduler: &mut Scheduler, now: Instant| {
        let wants = scheduler.wanted(SHARD, true, now);
        (wants[0].first_attempts, wants[0].least, wants[0].most)
    };
    assert_eq!(wanted(&mut scheduler, now), (1, 1, 10), "a new webhook");
    claim(&mut scheduler, now);
    send(&mut scheduler, now);
    end(&mut scheduler, 1, 1, Duration::ZERO, true, now);
    assert_eq!(wanted(&mut scheduler, now), (4, 1, usize::MAX), "a fast webhook");
    claim(&mut scheduler, now);
    let sent = send(&mut scheduler, now)[&1];
    now += Duration::from_secs(30);
    end(&mut scheduler, 1, sent - 1, Duration::from_secs(30), true, now);
    scheduler.found(SHARD, vec![due(1, 1)], now);
    assert_eq!(wanted(&mut scheduler, now), (3, 0, 10), "a late webhook of which this node holds one");
    end(&mut scheduler, 1, 1, Duration::from_secs(30), false, now);
    assert_eq!(wanted(&mut scheduler, now), (2, 1, 2), "an unresponsive webhook");
}

#[test]
fn a_new_webhook_is_served_beside_hanging_and_slow_ones() {
    let (mut scheduler, mut now) = (Scheduler::new(LIMITS), Instant::now());
    scheduler.found(SHARD, vec![due(1, 1), due(2, 1), due(3, 1)], now);
    for _ in 0..20 {
        claim(&mut scheduler, now);
        for (webhook_id, count) in send(&mut scheduler, now) {
            end(&mut scheduler, webhook_id, count, Duration::from_millis(20), true, now);
        }
    }
    // All three were fast. Now two hang, and the third answers after 29 seconds each time.
    for round in 0..5 {
        claim(&mut scheduler, now);
        let sent = send(&mut scheduler, now);
        let end_of_others = |scheduler: &mut Scheduler, sent: &HashMap<i64, usize>, now: Instant| {
            for (webhook_id, count) in sent.iter().filter(|(webhook_id, _)| **webhook_id >= 100) {
                end(scheduler, *webhook_id, *count, Duration::from_millis(20), true, now);
            }
        };
        end_of_others(&mut scheduler, &sent, now);
        now += Duration::from_secs(29);
        let new = 100 + round;
        scheduler.found(SHARD, vec![due(1, 1), due(2, 1), due(3, 1), due(new, 1)], now);
        scheduler.stale(FAST_WITHIN, now).iter().for_each(|claimed| scheduler.left(claimed.webhook_id));
        claim(&mut scheduler, now);
        let beside = send(&mut scheduler, now);
        assert_eq!(beside.get(&new), Some(&1), "{sent:?} {beside:?}");
        end_of_others(&mut scheduler, &beside, now);
        end(&mut scheduler, 3, sent.get(&3).copied().unwrap_or_default(), Duration::from_secs(29), true, now);
    }
}

#[test]
fn a_new_webhook_is_served_beside_hundreds_known_to_hang() {
    let (mut scheduler, mut now) = (Scheduler::new(LIMITS), Instant::now());
    let hanging: Vec<Due> = (0..300).map(|n| due(n, n)).collect();
    scheduler.found(SHARD, hanging.clone(), now);
    // Run until each has hung once. Then they take turns within a quarter of the capacity.
    let mut hung = HashMap::new();
    while hung.len() < 300 {
        claim(&mut scheduler, now);
        let sent = send(&mut scheduler, now);
        now += Duration::from_secs(30);
        for (webhook_id, count) in sent {
            end(&mut scheduler, webhook_id, count, Duration::from_secs(30), false, now);
            *hung.entry(webhook_id).or_insert(0) += count;
        }
        scheduler.stale(FAST_WITHIN, now).iter().for_each(|claimed| scheduler.left(claimed.webhook_id));
    }
    scheduler.found(SHARD, hanging, now);
    claim(&mut scheduler, now);
    assert_eq!(send(&mut scheduler, now).values().sum::<usize>(), 25);
    scheduler.found(SHARD, vec![due(1_000, 1_000)], now);
    assert_eq!(claim(&mut scheduler, now), HashMap::from([(1_000, 1)]));
    assert_eq!(send(&mut scheduler, now), HashMap::from([(1_000, 1)]));
}

#[test]
fn a_new_webhook_is_served_beside_dozens_of_new_ones_that_hang() {
    let (mut scheduler, mut now) = (Scheduler::new(LIMITS), Instant::now());
    let hanging: Vec<Due> = (0..40).map(|n| due(n, n)).collect();
    scheduler.found(SHARD, hanging.clone(), now);
    claim(&mut scheduler, now);
    assert_eq!(send(&mut scheduler, now).values().sum::<usize>(), 40, "one delivery each");
    // None of them answers, and none gets more before its first answer.
    now += Duration::from_secs(5);
    scheduler.found(SHARD, hanging.iter().copied().chain([due(1_000, 1_000)]).collect(), now);
    assert_eq!(claim(&mut scheduler, now), HashMap::from([(1_000, 1)]));
    assert_eq!(send(&mut scheduler, now), HashMap::from([(1_000, 1)]));
    end(&mut scheduler, 1_000, 1, Duration::from_millis(20), true, now);
    assert_eq!(claim(&mut scheduler, now), HashMap::from([(1_000, 4)]));
    assert_eq!(send(&mut scheduler, now), HashMap::from([(1_000, 4)]));
}

#[test]
fn a_slow_webhook_is_served_beside_hundreds_that_hang() {
    let (mut scheduler, mut now) = (Scheduler::new(LIMITS), Instant::now());
    let hanging: Vec<Due> = (0..300).map(|n| due(n, n)).collect();
    let patient = 1_000;
    scheduler.found(SHARD, vec![due(patient, patient)], now);
    claim(&mut scheduler, now);
    let count = send(&mut scheduler, now)[&patient];
    end(&mut scheduler, patient, count, Duration::from_secs(2), true, now);
    let mut answered = 0;
    let mut until = HashMap::new();
    for second in 0..300u64 {
        scheduler.found(SHARD, hanging.iter().copied().chain([due(patient, patient)]).collect(), now);
        scheduler.stale(FAST_WITHIN, now).iter().for_each(|claimed| scheduler.left(claimed.webhook_id));
        claim(&mut scheduler, now);
        for (webhook_id, count) in send(&mut scheduler, now) {
            let took = if webhook_id == patient { 2 } else { 30 };
            until.entry(second + took).or_insert_with(Vec::new).push((webhook_id, count, took));
        }
        now += Duration::from_secs(1);
        for (webhook_id, count, took) in until.remove(&(second + 1)).unwrap_or_default() {
            end(&mut scheduler, webhook_id, count, Duration::from_secs(took), webhook_id == patient, now);
            if webhook_id == patient {
                answered += count;
            }
        }
    }
    // Each send takes two seconds. If it took turns with the hanging webhooks, it would have had one or two.
    assert!(answered > 150, "{answered}");
}

#[test]
fn a_flood_of_one_account_does_not_delay_another() {
    let (mut scheduler, now) = (Scheduler::new(LIMITS), Instant::now());
    scheduler.found(SHARD, (0..50).map(|n| due(n, 1)).collect(), now);
    for _ in 0..20 {
        claim(&mut scheduler, now);
        for (webhook_id, count) in send(&mut scheduler, now) {
            end(&mut scheduler, webhook_id, count, Duration::from_millis(20), true, now);
        }
    }
    claim(&mut scheduler, now);
    assert_eq!(scheduler.held, 300, "the limit of a single account");
    // The limit is in flight and hundreds wait. Then a delivery of another account becomes due.
    let flood: HashMap<_, _> = send(&mut scheduler, now);
    scheduler.found(SHARD, vec![due(1_000, 2)], now);
    end(&mut scheduler, *flood.keys().next().unwrap(), 1, Duration::from_millis(20), true, now);
    assert_eq!(claim(&mut scheduler, now)[&1_000], 1);
    assert_eq!(send(&mut scheduler, now)[&1_000], 1);
}

#[test]
fn retries_get_exactly_their_share() {
    let (mut scheduler, now) = (Scheduler::new(Limits { new: 4, ..LIMITS }), Instant::now());
    scheduler.found(SHARD, vec![Due { has_retries: true, ..due(1, 1) }], now);
    let (mut first_attempts, mut retries) = (0, 0);
    for _ in 0..40 {
        let wants = scheduler.wanted(SHARD, true, now);
        first_attempts += wants[0].first_attempts;
        retries += wants[0].retries;
    }
    assert_eq!((first_attempts, retries), (120, 40));
    // Without first attempts, retries get everything.
    let wants = scheduler.wanted(SHARD, true, now);
    scheduler.claimed(&wants, vec![]);
    scheduler.found(SHARD, vec![Due { has_first_attempts: false, has_retries: true, ..due(1, 1) }], now);
    assert_eq!(scheduler.wanted(SHARD, true, now)[0].retries, 4);
}

#[test]
fn missing_deliveries_are_not_wanted_again_until_they_are_due() {
    let (mut scheduler, now) = (Scheduler::new(Limits { new: 4, ..LIMITS }), Instant::now());
    scheduler.found(SHARD, vec![due(1, 1)], now);
    let wants = scheduler.wanted(SHARD, true, now);
    scheduler.claimed(&wants, vec![claimed(WebhookId(1), 1, now)]);
    assert!(scheduler.wanted(SHARD, true, now).is_empty());
    scheduler.found(SHARD, vec![due(1, 1)], now);
    assert_eq!(scheduler.wanted(SHARD, true, now)[0].first_attempts, 3);
    assert!(scheduler.wanted(2, true, now).is_empty(), "another shard");
    assert_eq!(scheduler.into_waiting().len(), 1);
}

#[test]
fn a_claim_in_progress_counts_for_other_shards_and_leaves_them_half_of_what_is_free() {
    let (mut scheduler, now) = (Scheduler::new(LIMITS), Instant::now());
    scheduler.found(SHARD, (0..100).map(|n| due(n, n)).collect(), now);
    scheduler.found(2, (100..200).map(|n| due(n, n)).collect(), now);
    let wants = scheduler.wanted(SHARD, false, now);
    assert_eq!(wants.len(), 25, "half of the share of webhooks that are not known to be fast");
    scheduler.claim_begun(&wants);
    assert_eq!(scheduler.wanted(2, false, now).len(), 13, "half of what the claim leaves");
    scheduler.claim_ended(&wants);
    assert_eq!(scheduler.wanted(2, false, now).len(), 25, "the claim brought nothing");
    scheduler.claimed(&wants, wants[..20].iter().map(|want| claimed(want.webhook_id, 1, now)).collect());
    assert_eq!((scheduler.held, scheduler.claiming), (20, 0));
    assert_eq!(scheduler.wanted(2, false, now).len(), 15, "half of what the deliveries of the first shard leave");
}

#[test]
fn a_shard_holds_no_more_than_half_beside_others() {
    let (mut scheduler, now) = (Scheduler::new(LIMITS), Instant::now());
    scheduler.found(SHARD, (0..50).map(|n| due(n, n)).collect(), now);
    for _ in 0..20 {
        claim_beside(&mut scheduler, false, now);
        for (webhook_id, count) in send(&mut scheduler, now) {
            end(&mut scheduler, webhook_id, count, Duration::from_millis(20), true, now);
        }
    }
    for _ in 0..20 {
        claim_beside(&mut scheduler, false, now);
    }
    assert!((180..=200).contains(&scheduler.held), "{}", scheduler.held);
    // The only shard may have all.
    claim(&mut scheduler, now);
    assert!(scheduler.held > 300, "{}", scheduler.held);
}
