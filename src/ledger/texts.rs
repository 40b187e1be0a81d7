//! Reading the texts that stand sealed in the vault.

use std::collections::HashMap;

use ledger_events::ShardId;
use sqlx::{PgExecutor, PgPool};

use super::batch::SealedText;
use crate::access::seal::{Keyring, Private, SealError};

/// A user's email, what is shown of a beneficiary, its account number, and why a payout failed: the kinds of what
/// is to be erased when a person asks for it.
pub const EMAIL: &str = "user.email";
pub const PROFILE: &str = "beneficiary.profile";
pub const ACCOUNT_NUMBER: &str = "beneficiary.account_number";
pub const FAILURE_REASON: &str = "payout.failure_reason";

/// Why somebody decided what a line of a bank's statement is, and took that back.
pub const DECISION_REASON: &str = "match.decision_reason";
pub const REVOCATION_REASON: &str = "match.revocation_reason";

/// Why something in the vault could not be read.
#[derive(Debug, thiserror::Error)]
pub enum VaultError {
    #[error(transparent)]
    Database(#[from] sqlx::Error),
    #[error(transparent)]
    Seal(#[from] SealError),
    #[error("{0} in the vault is not what was sealed")]
    Damaged(&'static str),
}

/// Texts by kind and id.
pub type Texts = HashMap<(&'static str, i64), Private>;

/// The texts of these kinds and ids, read in one statement; those that are not there are left out.
pub async fn load(pool: &PgPool, keyring: &Keyring, shard: ShardId, wanted: &[(&'static str, i64)]) -> Result<Texts, VaultError> {
    if wanted.is_empty() {
        return Ok(Texts::new());
    }
    let found = sealed(pool, shard, wanted).await?;
    found.iter().map(|text| Ok(((text.kind, text.id), keyring.open_text(text.kind, text.id, &text.sealed)?))).collect()
}

/// The same as they stand in the vault.
pub(super) async fn sealed(
    db: impl PgExecutor<'_>,
    shard: ShardId,
    wanted: &[(&'static str, i64)],
) -> Result<Vec<SealedText>, sqlx::Error> {
    let (kinds, ids): (Vec<&str>, Vec<i64>) = wanted.iter().copied().unzip();
    let found: Vec<(i64, Vec<u8>, Vec<u8>)> = sqlx::query_as(
        "SELECT w.ordinality, t.salt, t.sealed FROM unnest($2::text[], $3::bigint[]) WITH ORDINALITY AS w (kind, id, ordinality)
         JOIN vault.texts t ON t.shard_id = $1 AND t.kind = w.kind AND t.id = w.id",
    )
    .bind(shard)
    .bind(kinds)
    .bind(ids)
    .fetch_all(db)
    .await?;
    let text = |(ordinality, salt, sealed): (i64, Vec<u8>, Vec<u8>)| {
        let &(kind, id) = wanted.get(usize::try_from(ordinality - 1).ok()?)?;
        Some(SealedText { kind, id, salt, sealed })
    };
    Ok(found.into_iter().filter_map(text).collect())
}
