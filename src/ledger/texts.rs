//! Reading the texts that stand sealed in the vault.

use std::collections::HashMap;
use std::sync::Arc;

use ledger_database::PgPool;
use ledger_events::ShardId;
use sqlx::PgExecutor;

use super::batch::SealedText;
use super::keys;
use crate::secrets::seal::{Keyring, Private, SealError};

/// The kinds of texts from people, each with what its id is of. `super::erasure` says of each how it
/// is erased.
pub const METADATA: &str = "order.metadata";
pub const CANCEL_REASON: &str = "order.cancel_reason";
/// Of a movement: why a wallet was funded or adjusted.
pub const NOTE: &str = "transaction.note";
pub const EMAIL: &str = "user.email";
/// What is shown of a beneficiary.
pub const PROFILE: &str = "beneficiary.profile";
pub const ACCOUNT_NUMBER: &str = "beneficiary.account_number";
/// Of a payout.
pub const FAILURE_REASON: &str = "payout.failure_reason";
pub const WEBHOOK_NAME: &str = "webhook.name";
pub const WEBHOOK_URL: &str = "webhook.url";
pub const WEBHOOK_TOKEN: &str = "webhook.token";
/// Why something was erased; its id is the position of the event.
pub const ERASURE_REASON: &str = "erasure.reason";

/// Why somebody decided what a line of a bank's statement is, and took that back.
pub const DECISION_REASON: &str = "match.decision_reason";
pub const REVOCATION_REASON: &str = "match.revocation_reason";

/// Why an operator let the transparency log go on under another origin; its id is the position of the event. It is not
/// erased.
pub const LOG_INCIDENT_REASON: &str = "log_incident.reason";

/// Whose an operator's token is. It is not erased: the log says who did what.
pub const OPERATOR_NAME: &str = "operator.name";

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

impl VaultError {
    /// For who can tell only of the database.
    pub(super) fn into_database(self) -> sqlx::Error {
        match self {
            Self::Database(error) => error,
            error => sqlx::Error::Decode(Box::new(error)),
        }
    }
}

/// Texts by kind and id.
pub type Texts = HashMap<(&'static str, i64), Private>;

/// The texts of these kinds and ids, read in one statement; those that are not there, or are erased,
/// are left out.
pub async fn load(pool: &PgPool, keyring: &Keyring, shard: ShardId, wanted: &[(&'static str, i64)]) -> Result<Texts, VaultError> {
    if wanted.is_empty() {
        return Ok(Texts::new());
    }
    let found = sealed(pool, keyring, shard, wanted).await?;
    found.iter().map(|text| Ok(((text.kind, text.id), text.open(keyring)?))).collect()
}

/// Where, key id, salt, what is sealed, and the sealed key.
type Row = (i64, Option<i64>, Vec<u8>, Vec<u8>, Option<Vec<u8>>);

/// The same as they stand in the vault.
pub(super) async fn sealed(
    db: impl PgExecutor<'_>,
    keyring: &Keyring,
    shard: ShardId,
    wanted: &[(&'static str, i64)],
) -> Result<Vec<SealedText>, VaultError> {
    let (kinds, ids): (Vec<&str>, Vec<i64>) = wanted.iter().copied().unzip();
    // With its key destroyed, a text is erased.
    let found: Vec<Row> = sqlx::query_as(
        "SELECT w.ordinality, t.key_id, t.salt, t.sealed, k.sealed
         FROM unnest($2::text[], $3::bigint[]) WITH ORDINALITY AS w (kind, id, ordinality)
         JOIN vault.texts t ON t.shard_id = $1 AND t.kind = w.kind AND t.id = w.id
         LEFT JOIN vault.data_keys k ON k.shard_id = $1 AND k.id = t.key_id
         WHERE t.key_id IS NULL OR k.id IS NOT NULL",
    )
    .bind(shard)
    .bind(kinds)
    .bind(ids)
    .fetch_all(db)
    .await?;
    let mut texts = Vec::with_capacity(found.len());
    for (ordinality, key_id, salt, sealed, key) in found {
        if let Some(&(kind, id)) = usize::try_from(ordinality - 1).ok().and_then(|n| wanted.get(n)) {
            let key = keys::beside(keyring, key_id, key.as_deref())?.map(Arc::new);
            texts.push(SealedText { kind, id, salt, sealed, key });
        }
    }
    Ok(texts)
}
