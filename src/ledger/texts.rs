//! Reads the texts that are sealed in the vault.

use std::collections::HashMap;
use std::sync::Arc;

use ledger_database::PgPool;
use ledger_events::ShardId;
use sqlx::PgExecutor;

use super::keys;
pub use super::keys::VaultError;
use crate::secrets::seal::{DataKey, Keyring, SealError, Secret};

/// Kinds of texts that people write. Each constant's name starts with the entity whose id the text has. `super::erasure`
/// erases them.
pub const METADATA: &str = "order.metadata";
pub const CANCEL_REASON: &str = "order.cancel_reason";
/// Reason for funding or adjusting a wallet; its id is the movement's.
pub const NOTE: &str = "transaction.note";
pub const EMAIL: &str = "user.email";
/// Displayed details of a beneficiary.
pub const PROFILE: &str = "beneficiary.profile";
pub const ACCOUNT_NUMBER: &str = "beneficiary.account_number";
/// Reason why a payout failed; its id is the payout's.
pub const FAILURE_REASON: &str = "payout.failure_reason";
pub const WEBHOOK_NAME: &str = "webhook.name";
pub const WEBHOOK_URL: &str = "webhook.url";
pub const WEBHOOK_TOKEN: &str = "webhook.token";
/// Token that a rotation has replaced; `super::previous_secret` writes it.
pub const WEBHOOK_PREVIOUS_TOKEN: &str = "webhook.previous_token";
/// Signing secret that a rotation has replaced.
pub const CREDENTIAL_PREVIOUS_SECRET: &str = "credential.previous_secret";
/// Custom headers of a webhook, as JSON.
pub const WEBHOOK_HEADERS: &str = "webhook.headers";
/// Note or reason of an operator for what a second one must approve, and the reason of the second one for rejecting it.
pub const APPROVAL_NOTE: &str = "approval.note";
pub const APPROVAL_REASON: &str = "approval.reason";
/// Reason for an erasure; its id is the position of the event.
pub const ERASURE_REASON: &str = "erasure.reason";

/// Reason for deciding what a line of a bank statement is. [`REVOCATION_REASON`] is the reason for revoking the decision.
pub const DECISION_REASON: &str = "match.decision_reason";
pub const REVOCATION_REASON: &str = "match.revocation_reason";

/// Reason why an operator continued the transparency log under another origin; its id is the position of the event. It is
/// never erased.
pub const LOG_INCIDENT_REASON: &str = "log_incident.reason";

/// Reason for voiding vouchers; its id is the position of the event. It is never erased, because it is about stock.
pub const VOID_REASON: &str = "stock.void_reason";
/// Reason for transferring vouchers to another product; its id is the position of the event. It is never erased either.
pub const TRANSFER_REASON: &str = "stock.transfer_reason";

/// Name of the person who owns an operator's token. It is never erased, because the log must show who did what.
pub const OPERATOR_NAME: &str = "operator.name";
/// Email address of an operator's user, or another name that the identity provider states. It is never erased, because the
/// log must show who did what.
pub const OPERATOR_EMAIL: &str = "operator.email";
/// Two-factor secret of an operator's user.
pub const OPERATOR_TOTP: &str = "operator.totp";

/// Prefix of what a sealed response is bound to. The hash of its idempotency key follows.
pub const RESPONSE_KIND: &str = "idempotency";

/// Returns what a sealed response is bound to.
pub fn response_kind(key_hash: &[u8; 32]) -> String {
    format!("{RESPONSE_KIND}.{}", hex::encode(key_hash))
}

/// A text in the vault, sealed.
#[derive(Clone, Debug)]
pub struct SealedText {
    pub kind: &'static str,
    pub id: i64,
    pub salt: Vec<u8>,
    pub sealed: Vec<u8>,
    /// Data key of the person. None for the service's own texts, and for texts that are older than data keys.
    pub key: Option<Arc<DataKey>>,
}

impl SealedText {
    pub fn open(&self, keyring: &Keyring) -> Result<Secret, SealError> {
        keyring.open_text_under(self.key.as_deref(), self.kind, self.id, &self.sealed)
    }
}

/// Texts by kind and id.
pub type Texts = HashMap<(&'static str, i64), Secret>;

/// Loads the texts of these kinds and ids in one statement. Omits texts that do not exist or were erased.
pub async fn load(pool: &PgPool, keyring: &Keyring, shard: ShardId, wanted: &[(&'static str, i64)]) -> Result<Texts, VaultError> {
    if wanted.is_empty() {
        return Ok(Texts::new());
    }
    let found = sealed(pool, keyring, shard, wanted).await?;
    found.iter().map(|text| Ok(((text.kind, text.id), text.open(keyring)?))).collect()
}

/// Index into `wanted`, key id, salt, sealed text, and sealed data key.
type Row = (i64, Option<i64>, Vec<u8>, Vec<u8>, Option<Vec<u8>>);

/// Loads the texts of these kinds and ids as they are sealed in the vault.
pub(super) async fn sealed(
    db: impl PgExecutor<'_>,
    keyring: &Keyring,
    shard: ShardId,
    wanted: &[(&'static str, i64)],
) -> Result<Vec<SealedText>, VaultError> {
    let (kinds, ids): (Vec<&str>, Vec<i64>) = wanted.iter().copied().unzip();
    // A text whose data key was destroyed counts as erased.
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
