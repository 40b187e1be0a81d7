//! Decisions of a batch: each command in turn, in memory, on the rows of the batch and on the commands before it.

use ledger_events::{Actor, Rejection, ShardId};

use super::batch::Batch;
use super::cache::IdempotencyRecord;
use super::command_result::CommandResult;
use super::commands::{CommandError, DecideError};
use super::context::{CommandContext, Idempotency};
use super::keys::Owner;
use super::read_set::ReadSet;
use super::submission::{Reply, Submission, WriteError};
use crate::secrets::seal::Keyring;

/// Collects the reads of a batch.
pub fn reads_of(shard: ShardId, submissions: &[Submission]) -> ReadSet<'_> {
    let mut reads = ReadSet { shard, ..ReadSet::default() };
    for submission in submissions {
        reads.keys.extend(submission.idempotency.as_ref().map(|i| i.key_hash));
        // Each command may seal something for somebody who has no data key yet.
        reads.new_ids.data_keys += 1;
        match submission.origin.actor {
            Actor::Credential(id) => reads.streams.credentials.id(id),
            Actor::User(id) => reads.streams.users.id(id),
            Actor::Operator(_) | Actor::Fulfilment | Actor::Replay | Actor::Sandbox | Actor::Service => {}
        }
        submission.command.reads(&mut reads);
    }
    reads
}

/// Decides every command in the order of arrival. Returns a reply for each.
pub fn decide_all(batch: &mut Batch, submissions: &[Submission]) -> Result<Vec<Result<Reply, WriteError>>, DecideError> {
    let replies = submissions
        .iter()
        .map(|submission| match decide_one(batch, submission) {
            Ok(reply) => Ok(Ok(reply)),
            Err(CommandError::Rejected(rejection)) => Ok(Err(rejection.into())),
            Err(CommandError::Broken(error)) => Err(error),
        })
        .collect();
    batch.put_back_stock();
    replies
}

fn decide_one(batch: &mut Batch, submission: &Submission) -> Result<Reply, CommandError> {
    let idempotency = submission.idempotency.as_ref();
    if let Some(key) = idempotency
        && let Some(stored) = batch.response(&key.key_hash)
    {
        if !is_same_request(&batch.keyring, key, &stored.fingerprint) {
            return Err(Rejection::IdempotencyKeyReused.into());
        }
        let response = stored.response.clone();
        if !batch.pending.responses.contains(&key.key_hash) {
            batch.repeated.push(key.key_hash);
        }
        return Ok(Reply::Stored { response, is_replay: true });
    }
    require_actor(batch, submission.origin.actor)?;
    let origin = &submission.origin;
    let traceparent = submission.trace.place;
    let context = CommandContext { origin, idempotency, account_id: None, correlation_id: None, causation_id: None, traceparent };
    let result = submission.command.decide(batch, &context)?;
    let Some(key) = idempotency else { return Ok(Reply::Result(Box::new(result))) };
    let response = (key.render)(&result)?;
    let (owner, about) = owner_of(&result).filter(|_| response.is_secret).unzip();
    let data_key = owner.map(|owner| batch.data_key(owner)).transpose()?;
    let fingerprint = fingerprint(&batch.keyring, key);
    let record = IdempotencyRecord { fingerprint, response: response.clone(), key: data_key, about };
    batch.responses.insert(key.key_hash, record);
    batch.pending.responses.push(key.key_hash);
    Ok(Reply::Stored { response, is_replay: false })
}

/// Refuses commands of a revoked or expired credential and of a removed user. Either may have ended after the request was admitted.
fn require_actor(batch: &Batch, actor: Actor) -> Result<(), Rejection> {
    match actor {
        Actor::Credential(id) if batch.streams.credentials.get(id).is_none_or(|credential| credential.is_revoked) => {
            Err(Rejection::CredentialRevoked)
        }
        Actor::Credential(id)
            if batch.streams.credentials.get(id).is_some_and(|key| key.restrictions.has_expired_at(batch.now)) =>
        {
            Err(Rejection::CredentialExpired)
        }
        Actor::User(id) if batch.streams.users.get(id).is_none_or(|user| user.is_removed) => Err(Rejection::UserRemoved),
        _ => Ok(()),
    }
}

/// Returns the keyed hash that is stored of a request and its key. A plain hash would confirm a guess of the request to
/// everybody who reads the table, even after the request's data was erased.
fn fingerprint(keyring: &Keyring, key: &Idempotency) -> [u8; 32] {
    keyring.fingerprint("idempotency", [key.key_hash, key.fingerprint].as_flattened())
}

/// Compares a request with a stored one. An earlier version stored the plain hash; such a response is repeated for its 24
/// hours, too.
fn is_same_request(keyring: &Keyring, key: &Idempotency, stored: &[u8; 32]) -> bool {
    *stored == fingerprint(keyring, key) || *stored == key.fingerprint
}

/// Returns the owner of the personal data that a result shows, if any, and the id of the object that it is about.
fn owner_of(result: &CommandResult) -> Option<(Owner, i64)> {
    match result {
        CommandResult::Order(view) => Some((Owner::Account(view.order.placed.account_id), view.order.id.0)),
        CommandResult::Webhook(view) => Some((Owner::Account(view.webhook.account_id), view.webhook.id.0)),
        CommandResult::Beneficiary(view) => Some((Owner::Beneficiary(view.beneficiary.id), view.beneficiary.id.0)),
        CommandResult::Approval(view) => Some((Owner::Account(view.approval.requested.account_id), view.approval.id.0)),
        CommandResult::Payout(view) => Some((Owner::Beneficiary(view.payout.requested.beneficiary_id), view.payout.id.0)),
        _ => None,
    }
}
