//! State of one connection, shared between its task and the task that watches all connections.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::task::{Context, Poll};

use futures::task::AtomicWaker;

/// Time without a byte in either direction after which a connection is cut, in ticks. It does not count while the
/// application prepares a response.
const IDLE: u64 = 75;
/// Deadline of a request's head, in ticks, from its first byte or from the start of the connection.
const HEAD: u64 = 10;
/// Grace period before the rate of a request's body counts, in ticks.
const BODY_GRACE: u64 = 10;
/// Minimum rate of a request's body, in bytes per tick. Only time in which the server waits for the client counts.
const BODY_RATE: u64 = 4_096;
/// Grace period before the rate counts at which a client reads a response, in ticks.
const ANSWER_GRACE: u64 = 10;
/// Minimum rate at which a client reads a response, in bytes per tick. Only time in which a write is pending counts.
const ANSWER_RATE: u64 = 4_096;
/// Time for the response to a body that was too slow, in ticks.
const REFUSAL: u64 = 5;
/// Age from which an unfinished head is a better candidate for eviction than an idle connection, in ticks.
const SLOW_HEAD: u64 = 2;

/// The server's clock, in ticks of one second.
pub type Clock = Arc<AtomicU64>;

/// Phase of a connection. The order of the values has no meaning.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// Between two requests.
    Idle,
    /// Part of a request head has arrived, or the connection is new.
    Head,
    /// The application waits for more of a request body.
    Body,
    /// The application is processing a request, or its response is being written.
    Respond,
    /// A write of a response is pending because the client does not read it.
    Sending,
    /// The last response was sent. Further input from the client is discarded.
    Closing,
    /// The connection's task must drop it.
    Cut,
}

impl Phase {
    fn of(value: u8) -> Phase {
        const ALL: [Phase; 7] =
            [Phase::Idle, Phase::Head, Phase::Body, Phase::Respond, Phase::Sending, Phase::Closing, Phase::Cut];
        ALL[usize::from(value)]
    }
}

/// Reason that the watching task ended a connection.
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

/// State of one connection.
#[derive(Debug)]
pub struct Activity {
    clock: Clock,
    phase: AtomicU8,
    /// Ticks at which the phase began, and at which the last byte was transferred.
    since: AtomicU64,
    moved_at: AtomicU64,
    /// Bytes read since the request began, and the number of ticks spent waiting for its body.
    received: AtomicU64,
    waited: AtomicU64,
    /// Bytes of responses written since a write was first pending, and the number of ticks with a pending write.
    sent: AtomicU64,
    stalled: AtomicU64,
    /// Tick at which reading was ended; 0 if it was not.
    reading_ended_at: AtomicU64,
    /// The whole response was handed to the connection.
    is_answered: AtomicBool,
    /// The client may still be sending when the connection closes.
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

    /// Marks a request head as complete. Returns false if the connection was cut.
    pub fn begin_answer(&self) -> bool {
        self.received.store(0, Ordering::Relaxed);
        self.waited.store(0, Ordering::Relaxed);
        self.is_answered.store(false, Ordering::Relaxed);
        self.enter(Phase::Respond)
    }

    /// Records whether the application waits for the request body.
    pub fn wait_for_body(&self, waits: bool) {
        self.enter(if waits { Phase::Body } else { Phase::Respond });
    }

    /// Records that the whole response was handed to the connection. The request ends once it is written.
    pub fn answer_ends(&self) {
        self.is_answered.store(true, Ordering::Relaxed);
    }

    /// Records that the connection has written all of its output.
    pub fn flushed(&self) {
        if self.phase() == Phase::Respond && self.is_answered.load(Ordering::Relaxed) {
            // The counters restart here, not at the next request: pipelining must not give a slow reader more time.
            self.sent.store(0, Ordering::Relaxed);
            self.stalled.store(0, Ordering::Relaxed);
            self.enter(Phase::Idle);
        }
    }

    /// Records the outcome of a write.
    pub fn wrote(&self, outcome: &Poll<io::Result<usize>>) {
        match outcome {
            Poll::Pending => {
                if self.phase() == Phase::Respond {
                    if self.stalled.load(Ordering::Relaxed) == 0 {
                        // Earlier output fills the kernel's buffers; the client may have read none of it.
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
                    self.enter(Phase::Respond);
                }
            }
        }
    }

    /// Returns whether no request is in progress. Anything written then is not a response of the application.
    pub fn is_between_requests(&self) -> bool {
        matches!(self.phase(), Phase::Idle | Phase::Head)
    }

    pub fn waits_for_body(&self) -> bool {
        self.phase() == Phase::Body
    }

    /// Records that the client may still be sending when the connection closes.
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

    /// Returns whether the connection was cut. If not, registers the task to be woken when it is.
    pub fn is_cut(&self, cx: &mut Context<'_>) -> bool {
        self.task.register(cx.waker());
        self.phase() == Phase::Cut
    }

    /// Cuts the connection: its task drops it.
    fn cut(&self) {
        self.phase.store(Phase::Cut as u8, Ordering::Release);
        self.task.wake();
    }

    /// Cuts the connection, unless a request is in progress and no write is pending. Returns true if this call cut it.
    pub fn evict(&self) -> bool {
        let evicted = self.phase.fetch_update(Ordering::AcqRel, Ordering::Acquire, |phase| {
            (!matches!(Phase::of(phase), Phase::Respond | Phase::Cut)).then_some(Phase::Cut as u8)
        });
        self.task.wake();
        evicted.is_ok()
    }

    /// Returns the rank for eviction: the lowest goes first, and among equals the one that is longest in its phase. `None`
    /// if a request is in progress and no write is pending.
    pub fn eviction_rank(&self) -> Option<(u8, u64)> {
        let since = self.since.load(Ordering::Relaxed);
        let rank = match self.phase() {
            Phase::Closing => 0,
            Phase::Head if self.now().saturating_sub(since) >= SLOW_HEAD => 1,
            Phase::Idle => 2,
            Phase::Head => 3,
            Phase::Body => 4,
            // Last, because the request has taken effect and the client would not learn of it.
            Phase::Sending => 5,
            Phase::Respond | Phase::Cut => return None,
        };
        Some((rank, since))
    }

    /// Enforces the time limits. The watching task calls it once per tick. Returns the reason if it ended the connection.
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
        // `evict` refuses while the application prepares a response, even if that began just now.
        if now.saturating_sub(self.moved_at.load(Ordering::Relaxed)) > IDLE && self.evict() {
            return Some(Overdue::Idle);
        }
        match phase {
            // `evict` refuses if the head has become complete in the meantime.
            Phase::Head if now.saturating_sub(self.since.load(Ordering::Relaxed)) > HEAD => {
                self.evict().then_some(Overdue::SlowHead)
            }
            Phase::Body => {
                let waited = 1 + self.waited.fetch_add(1, Ordering::Relaxed);
                let expected = waited.saturating_sub(BODY_GRACE) * BODY_RATE;
                if ended_at > 0 || self.received.load(Ordering::Relaxed) >= expected {
                    return None;
                }
                // The application then sees a truncated body and responds with an error.
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
mod tests;
