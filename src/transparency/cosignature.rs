//! Cosignatures of witnesses (C2SP `tlog-cosignature`). A witness that has seen a checkpoint confirms that it is
//! consistent with every checkpoint of this log that the witness saw before. A verifier that requires a quorum of
//! witnesses therefore cannot be shown a separate version of the log.

use std::time::Duration;

use chrono::{DateTime, TimeDelta, Utc};
use ledger_database::PgPool;
use ledger_events::{Position, ShardId};
use transparency_log::checkpoint::{Checkpoint, CheckpointError};
use transparency_log::note::{Algorithm, Note, VerifierKey};
use transparency_log::quorum::Quorum;

use super::TreeError;
use super::store;

/// Largest tolerated difference between a witness's clock and ours.
const CLOCK_SKEW: TimeDelta = TimeDelta::minutes(5);

/// Reason why the log rejects a cosigned checkpoint.
#[derive(Debug, thiserror::Error)]
pub enum CosignatureError {
    #[error(transparent)]
    Checkpoint(CheckpointError),
    #[error("none of the witnesses that this log is configured with has signed it")]
    Stranger,
    #[error("this log has not signed this checkpoint")]
    Unknown,
    #[error("the signature of {0} has a time in the future, or before the checkpoint was signed")]
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
            CheckpointError::Note(transparency_log::note::NoteError::Unsigned) => CosignatureError::Stranger,
            error => CosignatureError::Checkpoint(error),
        }
    }
}

/// Longest wait for the tree to reach a position, if no witness is required.
const PATIENCE: Duration = Duration::from_secs(3);
/// Longest wait if witnesses are required: the log asks them only every two seconds.
const PATIENCE_WITH_WITNESSES: Duration = Duration::from_secs(8);
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// Returns the newest checkpoint that a quorum has cosigned, once it covers `position`. Returns none if that takes longer
/// than 3 seconds, or 8 seconds if the quorum is not empty.
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

/// Stores the cosignatures of configured witnesses for a checkpoint, and returns these witnesses. Storing the same
/// cosignature again changes nothing. The signatures are verified before the first query to the database.
///
/// # Errors
/// Returns an error when a configured witness's signature is invalid or has an impossible time, or when there is none.
/// Also when this log has not signed a checkpoint with the same origin, size and root.
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

/// Returns a checkpoint as the API serves it: the witnesses' signatures follow the log's own.
pub async fn with_cosignatures(pool: &PgPool, shard: ShardId, published: &store::Published) -> Result<String, sqlx::Error> {
    let cosignatures = store::cosignatures(pool, shard, published).await?;
    Ok(cosignatures.iter().fold(published.note.clone(), |note, line| note + line + "\n"))
}

/// Parses the verifier key of a witness from the configuration.
///
/// # Errors
/// Returns an error when the text is not a verifier key, or is not a witness's key.
pub fn witness(text: &str) -> Result<VerifierKey, String> {
    let key: VerifierKey = text.trim().parse().map_err(|error: transparency_log::note::NoteError| error.to_string())?;
    match key.algorithm() {
        Algorithm::CosignatureV1 => Ok(key),
        Algorithm::Ed25519 => {
            Err("not a witness's key: it must be of type 4 (cosignature/v1), and is of type 1 (Ed25519)".to_owned())
        }
    }
}
