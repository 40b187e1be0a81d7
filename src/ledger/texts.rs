//! Reading the texts that stand sealed in the vault.

use std::collections::HashMap;

use ledger_events::ShardId;
use sqlx::PgPool;

use crate::access::seal::{Keyring, Private, SealError};

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
    let (kinds, ids): (Vec<&str>, Vec<i64>) = wanted.iter().copied().unzip();
    let found: Vec<(i64, Vec<u8>)> = sqlx::query_as(
        "SELECT w.ordinality, t.sealed FROM unnest($2::text[], $3::bigint[]) WITH ORDINALITY AS w (kind, id, ordinality)
         JOIN vault.texts t ON t.shard_id = $1 AND t.kind = w.kind AND t.id = w.id",
    )
    .bind(shard)
    .bind(kinds)
    .bind(ids)
    .fetch_all(pool)
    .await?;
    let mut texts = Texts::with_capacity(found.len());
    for (ordinality, sealed) in found {
        if let Some(&(kind, id)) = usize::try_from(ordinality - 1).ok().and_then(|index| wanted.get(index)) {
            texts.insert((kind, id), keyring.open_text(kind, id, &sealed)?);
        }
    }
    Ok(texts)
}
