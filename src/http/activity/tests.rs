//! Time limits of a connection, on a clock that the tests advance.

use super::*;

fn activity() -> (Clock, Activity) {
    let clock = Clock::new(AtomicU64::new(100));
    (clock.clone(), Activity::new(clock))
}

/// Reads `bytes` in each tick and checks the limits after it. Returns the number of ticks and the reason at the end.
fn after(clock: &Clock, activity: &Activity, bytes: usize) -> Option<(u64, Overdue)> {
    (1..=200).find_map(|tick| {
        clock.fetch_add(1, Ordering::Relaxed);
        activity.read(bytes);
        activity.look().map(|overdue| (tick, overdue))
    })
}

#[test]
fn a_head_has_a_deadline_of_ten_seconds_in_total() {
    let (clock, activity) = activity();
    assert_eq!(after(&clock, &activity, 1), Some((11, Overdue::SlowHead)));
    assert_eq!(activity.phase(), Phase::Cut);
    assert!(!activity.begin_answer(), "a cut connection gets no response");
}

#[test]
fn the_deadline_of_the_next_head_starts_at_its_first_byte() {
    let (clock, activity) = activity();
    assert!(activity.begin_answer());
    assert_eq!(activity.eviction_rank(), None);
    assert!(!activity.evict(), "a request is in progress");
    activity.flushed();
    assert_eq!(activity.phase(), Phase::Respond, "part of a response was written");
    activity.answer_ends();
    activity.flushed();
    clock.fetch_add(50, Ordering::Relaxed);
    assert_eq!(activity.look(), None, "an idle connection is kept");
    assert_eq!(after(&clock, &activity, 1).map(|(_, overdue)| overdue), Some(Overdue::SlowHead));
}

#[test]
fn an_idle_connection_is_cut_after_its_time() {
    let (clock, activity) = activity();
    activity.begin_answer();
    activity.answer_ends();
    activity.flushed();
    let idle = (1..=200).find_map(|tick| {
        clock.fetch_add(1, Ordering::Relaxed);
        activity.look().map(|overdue| (tick, overdue))
    });
    assert_eq!(idle, Some((IDLE + 1, Overdue::Idle)));
}

#[test]
fn a_body_has_a_minimum_rate() {
    let (clock, activity) = activity();
    activity.begin_answer();
    activity.wait_for_body(true);
    assert_eq!(after(&clock, &activity, 4_096), None);
    let (clock, activity) = self::activity();
    activity.begin_answer();
    activity.wait_for_body(true);
    assert_eq!(after(&clock, &activity, 100), Some((11, Overdue::SlowBody)));
    assert!(activity.is_reading_ended());
    assert_eq!(activity.phase(), Phase::Body, "the application has time to respond");
    clock.fetch_add(REFUSAL + 1, Ordering::Relaxed);
    activity.look();
    assert_eq!(activity.phase(), Phase::Cut, "but only a limited time");
}

#[test]
fn time_of_the_server_does_not_count_against_the_client() {
    let (clock, activity) = activity();
    activity.begin_answer();
    activity.wait_for_body(true);
    activity.wait_for_body(false);
    for _ in 0..200 {
        clock.fetch_add(1, Ordering::Relaxed);
        assert_eq!(activity.look(), None);
    }
    assert_eq!(activity.eviction_rank(), None);
    activity.wrote(&Poll::Ready(Ok(100)));
    activity.answer_ends();
    activity.flushed();
    assert_eq!(activity.look(), None, "the client has time for its next request");
    assert_eq!(activity.phase(), Phase::Idle);
}

/// Lets the client read `bytes` of a response in each tick, with a write pending, and checks the limits after it.
fn after_writes(clock: &Clock, activity: &Activity, bytes: usize) -> Option<(u64, Overdue)> {
    (1..=200).find_map(|tick| {
        clock.fetch_add(1, Ordering::Relaxed);
        if bytes > 0 {
            activity.wrote(&Poll::Ready(Ok(bytes)));
            activity.wrote(&Poll::Pending);
        }
        activity.look().map(|overdue| (tick, overdue))
    })
}

#[test]
fn a_response_has_a_minimum_read_rate() {
    let (clock, activity) = activity();
    activity.begin_answer();
    activity.wrote(&Poll::Ready(Ok(1 << 20)));
    assert_eq!(activity.eviction_rank(), None);
    activity.wrote(&Poll::Pending);
    assert_eq!(activity.eviction_rank(), Some((5, 100)));
    activity.wrote(&Poll::Ready(Ok(1)));
    assert_eq!(activity.eviction_rank(), None, "the client reads on");
    activity.wrote(&Poll::Pending);
    assert_eq!(after_writes(&clock, &activity, 4_096), None);
    activity.wrote(&Poll::Ready(Ok(1)));
    activity.answer_ends();
    activity.flushed();
    assert_eq!(activity.phase(), Phase::Idle);

    // Bytes that the kernel's buffers took before the first pending write do not count.
    for bytes in [0, 100] {
        let (clock, activity) = self::activity();
        activity.begin_answer();
        activity.wrote(&Poll::Ready(Ok(1 << 20)));
        activity.wrote(&Poll::Pending);
        assert_eq!(after_writes(&clock, &activity, bytes), Some((11, Overdue::SlowReader)));
        assert_eq!(activity.phase(), Phase::Cut);
    }
}

#[test]
fn a_pipelined_request_gives_a_slow_reader_no_more_time() {
    let (clock, activity) = activity();
    activity.begin_answer();
    activity.wrote(&Poll::Pending);
    let slow = (1..=200).find_map(|tick| {
        clock.fetch_add(1, Ordering::Relaxed);
        activity.wrote(&Poll::Ready(Ok(100)));
        activity.answer_ends();
        activity.begin_answer();
        activity.wrote(&Poll::Pending);
        activity.look().map(|overdue| (tick, overdue))
    });
    assert_eq!(slow, Some((11, Overdue::SlowReader)));
}

#[test]
fn a_slow_reader_can_be_evicted() {
    let (_, activity) = activity();
    activity.begin_answer();
    assert!(!activity.evict());
    activity.wrote(&Poll::Pending);
    assert!(activity.evict());
    assert_eq!(activity.phase(), Phase::Cut);
}
