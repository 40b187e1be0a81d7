//! The state of one connection, shared between its task and the task that watches all of them.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::task::{Context, Poll};

use futures::task::AtomicWaker;

/// Time of a connection without a byte in either direction after which it is cut, in ticks. It does not count while the
/// application prepares an answer.
const IDLE: u64 = 75;
/// Time for a request's head, in ticks: from its first byte, or from the connection's begin.
const HEAD: u64 = 10;
/// Time for a request's body before its rate counts, in ticks.
const BODY_GRACE: u64 = 10;
/// Least rate of a request's body, in bytes per tick. Only time in which the server waits for the client counts.
const BODY_RATE: u64 = 4_096;
/// Time for a client to go on reading an answer before its rate counts, in ticks.
const ANSWER_GRACE: u64 = 10;
/// Least rate at which a client takes an answer, in bytes per tick. Only time in which a write is pending counts.
const ANSWER_RATE: u64 = 4_096;
/// Time for the answer to a body that was too slow, in ticks.
const REFUSAL: u64 = 5;
/// Age of an unfinished head that makes it a better candidate for eviction than an idle connection, in ticks.
const SLOW_HEAD: u64 = 2;

/// The server's clock, in ticks of one second.
pub type Clock = Arc<AtomicU64>;

/// What a connection is doing. The values order nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// Between two requests.
    Idle,
    /// Part of a request's head has arrived, or the connection is new.
    Head,
    /// The application waits for more of a request's body.
    Body,
    /// A request is being answered.
    Answer,
    /// A write of an answer is pending: the client does not read it.
    Sending,
    /// The last answer was sent; what the client still sends is discarded.
    Closing,
    /// To be dropped by its task.
    Cut,
}

impl Phase {
    fn of(value: u8) -> Phase {
        const ALL: [Phase; 7] =
            [Phase::Idle, Phase::Head, Phase::Body, Phase::Answer, Phase::Sending, Phase::Closing, Phase::Cut];
        ALL[usize::from(value)]
    }
}

/// Why the watching task ended a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Overdue {
    Idle,
    SlowHead,
    SlowBody,
    SlowReader,
}

impl Overdue {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Idle => "idle",
            Self::SlowHead => "slow_head",
            Self::SlowBody => "slow_body",
            Self::SlowReader => "slow_reader",
        }
    }
}

/// The state of one connection.
#[derive(Debug)]
pub struct Activity {
    clock: Clock,
    phase: AtomicU8,
    /// Ticks at which the phase began, and at which the last byte moved.
    since: AtomicU64,
    moved_at: AtomicU64,
    /// Bytes read since the request began, and the ticks in which more of its body were waited for.
    received: AtomicU64,
    waited: AtomicU64,
    /// Bytes of answers written since a write first was pending, and the ticks in which one was.
    sent: AtomicU64,
    stalled: AtomicU64,
    /// Tick at which reading was ended; 0 if it was not.
    reading_ended_at: AtomicU64,
    /// All of the answer was handed to the connection.
    is_answered: AtomicBool,
    /// The client may still be sending when the connection is closed.
    lingers: AtomicBool,
    task: AtomicWaker,
}

impl Activity {
    pub fn new(clock: Clock) -> Activity {
        let now = AtomicU64::new(clock.load(Ordering::Relaxed));
        Activity {
            since: AtomicU64::new(now.load(Ordering::Relaxed)),
            moved_at: now,
            clock,
            phase: AtomicU8::new(Phase::Head as u8),
            received: AtomicU64::new(0),
            waited: AtomicU64::new(0),
            sent: AtomicU64::new(0),
            stalled: AtomicU64::new(0),
            reading_ended_at: AtomicU64::new(0),
            is_answered: AtomicBool::new(false),
            lingers: AtomicBool::new(false),
            task: AtomicWaker::new(),
        }
    }

    fn now(&self) -> u64 {
        self.clock.load(Ordering::Relaxed)
    }

    fn phase(&self) -> Phase {
        Phase::of(self.phase.load(Ordering::Acquire))
    }

    /// Moves to another phase, unless the connection was cut.
    fn enter(&self, next: Phase) -> bool {
        let entered = self
            .phase
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, |phase| (Phase::of(phase) != Phase::Cut).then_some(next as u8));
        if entered.is_ok_and(|phase| Phase::of(phase) != next) {
            self.since.store(self.now(), Ordering::Relaxed);
        }
        entered.is_ok()
    }

    /// A request's head is complete. False if the connection was cut.
    pub fn begin_answer(&self) -> bool {
        self.received.store(0, Ordering::Relaxed);
        self.waited.store(0, Ordering::Relaxed);
        self.is_answered.store(false, Ordering::Relaxed);
        self.enter(Phase::Answer)
    }

    /// The application waits for the request's body, or does so no longer.
    pub fn wait_for_body(&self, waits: bool) {
        self.enter(if waits { Phase::Body } else { Phase::Answer });
    }

    /// All of the answer was handed to the connection; when that has written it, the request is over.
    pub fn answer_ends(&self) {
        self.is_answered.store(true, Ordering::Relaxed);
    }

    /// Everything was written that the connection was given.
    pub fn flushed(&self) {
        if self.phase() == Phase::Answer && self.is_answered.load(Ordering::Relaxed) {
            // Not where a pipelined request begins: it must not give a slow reader new time.
            self.sent.store(0, Ordering::Relaxed);
            self.stalled.store(0, Ordering::Relaxed);
            self.enter(Phase::Idle);
        }
    }

    /// Notes the outcome of a write.
    pub fn wrote(&self, outcome: &Poll<io::Result<usize>>) {
        match outcome {
            Poll::Pending => {
                if self.phase() == Phase::Answer {
                    if self.stalled.load(Ordering::Relaxed) == 0 {
                        // What was written before fills the system's buffers: the client may have read none of it.
                        self.sent.store(0, Ordering::Relaxed);
                    }
                    self.enter(Phase::Sending);
                }
            }
            Poll::Ready(written) => {
                self.moved();
                let written = written.as_ref().map_or(0, |bytes| *bytes as u64);
                self.sent.fetch_add(written, Ordering::Relaxed);
                if self.phase() == Phase::Sending {
                    self.enter(Phase::Answer);
                }
            }
        }
    }

    /// Whether no request is being answered: what is written then is no answer of the application.
    pub fn is_between_requests(&self) -> bool {
        matches!(self.phase(), Phase::Idle | Phase::Head)
    }

    pub fn waits_for_body(&self) -> bool {
        self.phase() == Phase::Body
    }

    /// Marks the connection as one that is closed while the client may still be sending.
    pub fn linger(&self) {
        self.lingers.store(true, Ordering::Relaxed);
    }

    pub fn lingers(&self) -> bool {
        self.lingers.load(Ordering::Relaxed)
    }

    pub fn close(&self) {
        self.enter(Phase::Closing);
    }

    pub fn read(&self, bytes: usize) {
        self.moved();
        self.received.fetch_add(bytes as u64, Ordering::Relaxed);
        if self.phase() == Phase::Idle {
            self.enter(Phase::Head);
        }
    }

    fn moved(&self) {
        self.moved_at.store(self.now(), Ordering::Relaxed);
    }

    pub fn is_reading_ended(&self) -> bool {
        self.reading_ended_at.load(Ordering::Acquire) > 0
    }

    /// Whether the connection was cut; else the task is woken when it is.
    pub fn is_cut(&self, cx: &mut Context<'_>) -> bool {
        self.task.register(cx.waker());
        self.phase() == Phase::Cut
    }

    /// Has the connection's task drop it.
    fn cut(&self) {
        self.phase.store(Phase::Cut as u8, Ordering::Release);
        self.task.wake();
    }

    /// Cuts the connection, unless a request on it is being answered and no write is pending. True if it was cut by this call.
    pub fn evict(&self) -> bool {
        let evicted = self.phase.fetch_update(Ordering::AcqRel, Ordering::Acquire, |phase| {
            (!matches!(Phase::of(phase), Phase::Answer | Phase::Cut)).then_some(Phase::Cut as u8)
        });
        self.task.wake();
        evicted.is_ok()
    }

    /// Order of eviction: the least first, the longest in its phase first among equals. None if a request is being
    /// answered and no write is pending.
    pub fn eviction_rank(&self) -> Option<(u8, u64)> {
        let since = self.since.load(Ordering::Relaxed);
        let rank = match self.phase() {
            Phase::Closing => 0,
            Phase::Head if self.now().saturating_sub(since) >= SLOW_HEAD => 1,
            Phase::Idle => 2,
            Phase::Head => 3,
            Phase::Body => 4,
            // Last: its request has had its effect, and the client would not learn of it.
            Phase::Sending => 5,
            Phase::Answer | Phase::Cut => return None,
        };
        Some((rank, since))
    }

    /// Ends what takes too long; called once a tick.
    pub fn look(&self) -> Option<Overdue> {
        let now = self.now();
        let ended_at = self.reading_ended_at.load(Ordering::Relaxed);
        let phase = self.phase();
        if phase == Phase::Cut {
            return None;
        }
        if ended_at > 0 && now - ended_at > REFUSAL {
            self.cut();
            return None;
        }
        // Not while the application prepares an answer, even if that begins just now.
        if now.saturating_sub(self.moved_at.load(Ordering::Relaxed)) > IDLE && self.evict() {
            return Some(Overdue::Idle);
        }
        match phase {
            // Not while it is being answered, if its head has become complete meanwhile.
            Phase::Head if now.saturating_sub(self.since.load(Ordering::Relaxed)) > HEAD => {
                self.evict().then_some(Overdue::SlowHead)
            }
            Phase::Body => {
                let waited = 1 + self.waited.fetch_add(1, Ordering::Relaxed);
                let expected = waited.saturating_sub(BODY_GRACE) * BODY_RATE;
                if ended_at > 0 || self.received.load(Ordering::Relaxed) >= expected {
                    return None;
                }
                // The application answers that the body broke off.
                self.reading_ended_at.store(now.max(1), Ordering::Release);
                self.task.wake();
                Some(Overdue::SlowBody)
            }
            Phase::Sending => {
                let stalled = 1 + self.stalled.fetch_add(1, Ordering::Relaxed);
                let expected = stalled.saturating_sub(ANSWER_GRACE) * ANSWER_RATE;
                let is_slow = self.sent.load(Ordering::Relaxed) < expected;
                (is_slow && self.evict()).then_some(Overdue::SlowReader)
            }
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn activity() -> (Clock, Activity) {
        let clock = Clock::new(AtomicU64::new(100));
        (clock.clone(), Activity::new(clock))
    }

    /// Looks after each tick, having read so many bytes in it; what is overdue, and after how many ticks.
    fn after(clock: &Clock, activity: &Activity, bytes: usize) -> Option<(u64, Overdue)> {
        (1..=200).find_map(|tick| {
            clock.fetch_add(1, Ordering::Relaxed);
            activity.read(bytes);
            activity.look().map(|overdue| (tick, overdue))
        })
    }

    #[test]
    fn a_head_has_ten_seconds_however_its_bytes_arrive() {
        let (clock, activity) = activity();
        assert_eq!(after(&clock, &activity, 1), Some((11, Overdue::SlowHead)));
        assert_eq!(activity.phase(), Phase::Cut);
        assert!(!activity.begin_answer(), "what was cut is not answered");
    }

    #[test]
    fn a_second_request_has_as_long_from_its_first_byte() {
        let (clock, activity) = activity();
        assert!(activity.begin_answer());
        assert_eq!(activity.eviction_rank(), None);
        assert!(!activity.evict(), "a request is being answered");
        activity.flushed();
        assert_eq!(activity.phase(), Phase::Answer, "part of an answer was written");
        activity.answer_ends();
        activity.flushed();
        clock.fetch_add(50, Ordering::Relaxed);
        assert_eq!(activity.look(), None, "an idle connection is kept");
        assert_eq!(after(&clock, &activity, 1).map(|(_, overdue)| overdue), Some(Overdue::SlowHead));
    }

    #[test]
    fn an_idle_connection_is_cut_in_the_end() {
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
    fn a_body_has_a_least_rate() {
        let (clock, activity) = activity();
        activity.begin_answer();
        activity.wait_for_body(true);
        assert_eq!(after(&clock, &activity, 4_096), None);
        let (clock, activity) = self::activity();
        activity.begin_answer();
        activity.wait_for_body(true);
        assert_eq!(after(&clock, &activity, 100), Some((11, Overdue::SlowBody)));
        assert!(activity.is_reading_ended());
        assert_eq!(activity.phase(), Phase::Body, "there is time for an answer");
        clock.fetch_add(REFUSAL + 1, Ordering::Relaxed);
        activity.look();
        assert_eq!(activity.phase(), Phase::Cut, "but not for ever");
    }

    #[test]
    fn time_that_the_server_takes_is_not_the_clients() {
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

    /// Looks after each tick, in which the client took so many bytes of an answer, and a write is pending again.
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
    fn an_answer_is_read_at_a_least_rate() {
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

        // What the system's buffers took before the first write was pending does not count.
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
}
