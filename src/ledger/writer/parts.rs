//! Parts of batches, and replies to their callers.

use std::time::Instant;

use crate::ledger::submission::{Reply, Submission, WriteError};

/// Splits a batch around solitary commands. The first part is the last of the list.
pub(super) fn parts(submissions: Vec<Submission>) -> Vec<Vec<Submission>> {
    let mut parts: Vec<Vec<Submission>> = vec![];
    for submission in submissions {
        match parts.last_mut() {
            Some(part) if !submission.command.is_solitary() && !part.iter().any(|other| other.command.is_solitary()) => {
                part.push(submission)
            }
            _ => parts.push(vec![submission]),
        }
    }
    parts.reverse();
    parts
}

/// Splits a batch in two. The earlier half is the last of the list, so that it runs first.
pub(super) fn halves(mut batch: Vec<Submission>) -> [Vec<Submission>; 2] {
    let later = batch.split_off(batch.len() / 2);
    [later, batch]
}

/// Drops commands that their callers gave up, and those past their deadline. None of them was sent.
pub(super) fn give_up_expired(batch: Vec<Submission>) -> Vec<Submission> {
    let now = Instant::now();
    let (live, expired): (Vec<_>, Vec<_>) = batch.into_iter().partition(|s| s.state.take() && s.deadline > now);
    reply_all(expired, |_| Err(WriteError::Unavailable));
    live
}

pub(super) fn reply_all(batch: Vec<Submission>, mut reply: impl FnMut(&Submission) -> Result<Reply, WriteError>) {
    for mut submission in batch {
        let reply_now = reply(&submission);
        submission.trace.end(&reply_now);
        if let Some(reply) = submission.reply {
            _ = reply.send(reply_now); // A caller that went away does not undo its command.
        }
    }
}
