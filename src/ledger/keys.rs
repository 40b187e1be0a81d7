//! Data keys: their owners, and loading and storing them.

use std::collections::HashMap;
use std::sync::Arc;

use ledger_events::{AccountId, BeneficiaryId, ShardId, UserId};
use ledger_projections::row_type;
use ledger_projections::write::Write;
use sqlx::PgExecutor;

use crate::secrets::seal::{DataKey, Keyring, SealError};

/// Owner of a data key. An order's texts are sealed under its account's key, which the writer has at hand. Each voucher's
/// codes have a key of their own, created when the stock is loaded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Owner {
    /// Key for the texts of the account's orders, and for notes on its movements.
    Account(AccountId),
    /// Key for the beneficiary's profile, and for the reasons why payouts to it failed.
    Beneficiary(BeneficiaryId),
    /// Key for the user's email address.
    User(UserId),
    /// Key for the voucher's codes.
    Voucher(i64),
}

impl Owner {
    pub fn name(self) -> (&'static str, i64) {
        match self {
            Self::Account(id) => ("account", id.0),
            Self::Beneficiary(id) => ("beneficiary", id.0),
            Self::User(id) => ("user", id.0),
            Self::Voucher(id) => ("voucher", id),
        }
    }
}

/// Loaded keys by their owner. The value is none for owners that have no key yet.
pub type DataKeys = HashMap<Owner, Option<Arc<DataKey>>>;

/// A data key that has not been stored yet.
#[derive(Debug)]
pub struct NewKey {
    pub id: i64,
    pub owner: Owner,
    pub sealed: Vec<u8>,
}

/// Reason why a value in the vault could not be read.
#[derive(Debug, thiserror::Error)]
pub enum VaultError {
    #[error(transparent)]
    Database(#[from] sqlx::Error),
    #[error(transparent)]
    Seal(#[from] SealError),
    #[error("{0} in the vault is damaged: it differs from what was sealed")]
    Damaged(&'static str),
}

impl VaultError {
    /// Converts to a database error, for callers that cannot return others.
    pub(super) fn into_database(self) -> sqlx::Error {
        match self {
            Self::Database(error) => error,
            error => sqlx::Error::Decode(Box::new(error)),
        }
    }
}

/// Loads the data keys of these owners.
pub async fn load(db: impl PgExecutor<'_>, keyring: &Keyring, shard: ShardId, owners: &[Owner]) -> Result<DataKeys, VaultError> {
    let (subjects, ids): (Vec<&str>, Vec<i64>) = owners.iter().map(|owner| owner.name()).unzip();
    let found: Vec<(i64, i64, Vec<u8>)> = sqlx::query_as(
        "SELECT w.ordinality, k.id, k.sealed FROM unnest($2::text[], $3::bigint[]) WITH ORDINALITY AS w (subject, subject_id, ordinality)
         JOIN vault.data_keys k ON k.shard_id = $1 AND k.subject = w.subject AND k.subject_id = w.subject_id",
    )
    .bind(shard)
    .bind(subjects)
    .bind(ids)
    .fetch_all(db)
    .await?;
    let mut keys: DataKeys = owners.iter().map(|owner| (*owner, None)).collect();
    for (ordinality, id, sealed) in found {
        if let Some(owner) = usize::try_from(ordinality - 1).ok().and_then(|n| owners.get(n)) {
            keys.insert(*owner, Some(Arc::new(keyring.open_data_key(id, &sealed)?)));
        }
    }
    Ok(keys)
}

/// Opens the data key that was read together with a value, given the key's id and its sealed form.
pub fn beside(keyring: &Keyring, key: Option<i64>, sealed: Option<&[u8]>) -> Result<Option<DataKey>, VaultError> {
    Ok(key.zip(sealed).map(|(id, sealed)| keyring.open_data_key(id, sealed)).transpose()?)
}

pub fn push(write: &mut Write, shard_id: ShardId, keys: &[NewKey]) {
    let rows: Vec<_> = keys
        .iter()
        .map(|key| {
            let (subject, subject_id) = key.owner.name();
            KeyRow { shard_id, id: key.id, subject, subject_id, sealed: &key.sealed }
        })
        .collect();
    write.insert("vault.data_keys (shard_id, id, subject, subject_id, sealed)", &rows, "");
}

row_type! {
    struct KeyRow<'a> as "public.data_key_row" {
        shard_id: ShardId,
        id: i64,
        subject: &'a str,
        subject_id: i64,
        sealed: &'a [u8],
    }
}
