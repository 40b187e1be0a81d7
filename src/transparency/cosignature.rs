//! Witnesses (C2SP `tlog-cosignature`): who has seen a checkpoint, and vouches that it is consistent
//! with all that it saw of this log before. Whoever asks for a quorum of them cannot be shown a log
//! of his own.

use std::time::Duration;

use chrono::{DateTime, TimeDelta, Utc};
use ledger_database::PgPool;
use ledger_events::{Position, ShardId};

use super::TreeError;
use super::checkpoint::{Checkpoint, CheckpointError};
use super::note::{Algorithm, Note, VerifierKey};
use super::quorum::Quorum;
use super::store;

/// How far a witness's clock may be off.
const CLOCK_SKEW: TimeDelta = TimeDelta::minutes(5);

/// Why a cosigned checkpoint is not taken.
#[derive(Debug, thiserror::Error)]
pub enum CosignatureError {
    #[error(transparent)]
    Checkpoint(CheckpointError),
    #[error("no witness that this log knows has signed it")]
    Stranger,
    #[error("this log has signed no such checkpoint")]
    Unknown,
    #[error("the time of the signature of {0} is in the future, or before the checkpoint was signed")]
    Time(String),
    #[error(transparent)]
    Tree(#[from] TreeError),
}

impl From<sqlx::Error> for CosignatureError {
    fn from(error: sqlx::Error) -> CosignatureError {
        CosignatureError::Tree(error.into())
    }
}

impl From<CheckpointError> for CosignatureError {
    fn from(error: CheckpointError) -> CosignatureError {
        match error {
            CheckpointError::Note(super::note::NoteError::Unsigned) => CosignatureError::Stranger,
            error => CosignatureError::Checkpoint(error),
        }
    }
}

/// How long somebody waits for the tree to reach a position.
const PATIENCE: Duration = Duration::from_secs(3);
/// The same for witnesses, who are asked every two seconds.
const PATIENCE_WITH_WITNESSES: Duration = Duration::from_secs(8);
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// The newest checkpoint of a quorum, once it has this position; none if that takes longer than some seconds.
pub async fn covering(
    pool: &PgPool,
    shard: ShardId,
    position: Position,
    quorum: &Quorum,
) -> Result<Option<store::Published>, sqlx::Error> {
    let patience = if quorum.count == 0 { PATIENCE } else { PATIENCE_WITH_WITNESSES };
    let looks = patience.as_millis() / LOOK_EVERY.as_millis();
    for _ in 0..looks {
        let newest = store::newest_cosigned(pool, shard, quorum).await?;
        if let Some(newest) = newest.filter(|newest| i64::try_from(newest.size).is_ok_and(|size| size >= position)) {
            return Ok(Some(newest));
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
    Ok(None)
}

/// Takes what configured witnesses have said of a checkpoint; the same again changes nothing.
/// Returns who they are. Signatures are checked before the database is asked.
///
/// # Errors
/// When one of theirs does not hold or has an impossible time, none is there, or the checkpoint is
/// not one that this log has signed: same origin, size and root.
pub async fn accept(
    pool: &PgPool,
    shard: ShardId,
    witnesses: &[VerifierKey],
    note: &str,
    now: DateTime<Utc>,
) -> Result<Vec<VerifierKey>, CosignatureError> {
    let note = Note::parse(note).map_err(CheckpointError::from)?;
    let checkpoint = Checkpoint::parse(note.text())?;
    let verified = note.verify(witnesses).map_err(CheckpointError::from)?;
    let published = store::checkpoint(pool, shard, &checkpoint.origin, checkpoint.size).await?;
    let is_same = |published: &store::Published| published.root == checkpoint.root && published.note.starts_with(note.text());
    let published = published.filter(is_same).ok_or(CosignatureError::Unknown)?;
    let mut accepted = vec![];
    for witness in verified {
        let name = || CosignatureError::Time(witness.key.name().to_owned());
        let time = witness.time.and_then(|time| i64::try_from(time).ok()).and_then(|time| DateTime::from_timestamp(time, 0));
        let time = time.ok_or_else(name)?;
        if time > now + CLOCK_SKEW || time < published.signed_at - CLOCK_SKEW {
            return Err(name());
        }
        accepted.push((witness.key, time));
    }
    for (witness, time) in &accepted {
        let line = note.signatures.iter().find(|line| line.name == witness.name() && line.id == witness.id());
        let line = line.ok_or(CosignatureError::Stranger)?.to_string();
        store::cosign(pool, shard, &published, witness, &line, *time).await?;
    }
    Ok(accepted.into_iter().map(|(witness, _)| witness.clone()).collect())
}

/// A checkpoint as it is served: with the witnesses' signatures under the log's own.
pub async fn with_cosignatures(pool: &PgPool, shard: ShardId, published: &store::Published) -> Result<String, sqlx::Error> {
    let cosignatures = store::cosignatures(pool, shard, published).await?;
    Ok(cosignatures.iter().fold(published.note.clone(), |note, line| note + line + "\n"))
}

/// A witness's key, as it is configured.
///
/// # Errors
/// On what is no verifier key of a witness.
pub fn witness(text: &str) -> Result<VerifierKey, String> {
    let key: VerifierKey = text.trim().parse().map_err(|error: super::note::NoteError| error.to_string())?;
    match key.algorithm() {
        Algorithm::CosignatureV1 => Ok(key),
        Algorithm::Ed25519 => Err("a witness's key is of type 4 (cosignature/v1)".to_owned()),
    }
}
