//! Commands that the writer hands to the leader of its shard, and what becomes of them.

use std::time::Duration;

use super::pipeline::release;
use super::{Writer, give_up_expired, reply_all};
use crate::ledger::cache::HeadState;
use crate::ledger::handover::{Answer, HandoverError, MAX_AGE, Returned};
use crate::ledger::in_flight::InFlightGuard;
use crate::ledger::submission::{Submission, WriteError};
use crate::ledger::{COMMAND_DEADLINE, VERDICT_GRACE};

/// Time for which the keys of commands of unknown outcome count as undecided. The leader has decided them or given them up then,
/// even if it took the request late and by a clock that differs.
const UNDECIDED: Duration = COMMAND_DEADLINE.saturating_add(VERDICT_GRACE).saturating_add(MAX_AGE.saturating_mul(2));

impl Writer {
    /// Hands commands to the leader if it is another node. Returns those that are decided here.
    pub(super) fn hand_over(&mut self, submissions: Vec<Submission>) -> Vec<Submission> {
        self.handovers.hand_over(give_up_expired(submissions))
    }

    /// Answers the callers of commands that the leader has decided. Decides those here that it did not take.
    pub(super) async fn conclude_handed(&mut self, returned: Returned) {
        let Returned { mut submissions, answer } = returned;
        match answer {
            Ok(Answer { head, outcomes }) => {
                if let Some((position, last_event)) = head {
                    self.see_head(HeadState { position, last_event: Some(last_event), ..HeadState::default() });
                }
                let (mut answered, mut replies, mut declined) = (vec![], vec![], vec![]);
                for (mut submission, outcome) in submissions.into_iter().zip(outcomes) {
                    match outcome.reply() {
                        Some(reply) => {
                            if matches!(reply, Err(WriteError::OutcomeUnknown)) {
                                stay_undecided(submission.guard.take());
                            }
                            answered.push(submission);
                            replies.push(reply);
                        }
                        None => declined.push(submission),
                    }
                }
                self.metrics.handed_over(self.shard, "answered", answered.len());
                self.finish(answered, replies, false);
                self.take_back(declined).await;
            }
            Err(HandoverError::NotTaken(reason)) => {
                let commands = submissions.len();
                tracing::warn!(shard = self.shard, commands, %reason, "the leader did not take commands; writing them here");
                self.take_back(submissions).await;
            }
            Err(HandoverError::Unanswered(reason)) => {
                tracing::warn!(shard = self.shard, commands = submissions.len(), %reason, "the leader did not answer");
                self.metrics.handed_over(self.shard, "unknown", submissions.len());
                submissions.iter_mut().for_each(|submission| stay_undecided(submission.guard.take()));
                reply_all(submissions, |_| Err(WriteError::OutcomeUnknown));
            }
        }
    }

    /// Decides commands here that the leader did not take.
    async fn take_back(&mut self, submissions: Vec<Submission>) {
        if submissions.is_empty() {
            return;
        }
        self.metrics.handed_over(self.shard, "returned", submissions.len());
        release(&submissions);
        self.decide(give_up_expired(submissions)).await;
    }

    /// Notes the head that a leader's answer includes, unless this node knows of a later one.
    pub(super) fn see_head(&self, head: HeadState) {
        self.answered_at.send_if_modified(|known| {
            let is_later = head.position > known.position;
            if is_later {
                *known = head;
            }
            is_later
        });
    }

    /// Waits for the answers to everything that was handed over.
    pub(super) async fn settle_handed(&mut self) {
        while self.handovers.are_in_flight() {
            self.heartbeat.beat();
            if let Some(returned) = self.handovers.returned().await {
                Box::pin(self.conclude_handed(returned)).await;
            }
        }
    }
}

/// Keeps a command registered under its idempotency key until the leader has decided it.
fn stay_undecided(guard: Option<InFlightGuard>) {
    let Some(guard) = guard else { return };
    tokio::spawn(async move {
        tokio::time::sleep(UNDECIDED).await;
        drop(guard);
    });
}
