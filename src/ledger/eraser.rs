//! Runs an erasure step by step. Each step is one transaction of the writer.

use ledger_events::account::AccountStatus;
use ledger_events::{Id, Position, ShardId};
use ledger_projections::{accounts, orders, users};
use uuid::Uuid;

use super::commands::Erase;
use super::erasure::find::{self, Finder};
use super::erasure::{Counts, Erasable, Part, Subject};
use super::texts::VaultError;
use super::{CommandResult, Ledger, Origin, WriteError};
use crate::secrets::seal::{Keyring, Secret};

#[derive(Debug, thiserror::Error)]
pub enum EraseError {
    #[error(transparent)]
    Vault(#[from] VaultError),
    #[error(transparent)]
    Write(#[from] WriteError),
    #[error("there is no {0} {1}")]
    Unknown(&'static str, i64),
    #[error("{0}")]
    Refused(String),
}

impl From<sqlx::Error> for EraseError {
    fn from(error: sqlx::Error) -> EraseError {
        EraseError::Vault(error.into())
    }
}

/// Data that an erasure would destroy, and the reason why it cannot be done now.
#[derive(Clone, Debug)]
pub struct Preview {
    pub counts: Counts,
    pub obstacle: Option<&'static str>,
}

/// Data that was erased, and the events that record it. There are no events if nothing was left to erase.
#[derive(Clone, Debug, Default)]
pub struct Report {
    pub counts: Counts,
    pub events: Vec<(Position, Uuid)>,
}

/// Returns the shard of a subject.
pub async fn shard_of(ledger: &Ledger, subject: Subject) -> Result<ShardId, EraseError> {
    let shard = match subject {
        Subject::Account(id) => ledger.shard_of_account(id).await?,
        Subject::Order(id) => ledger.shard_of_order(id).await?,
        Subject::Statement { id, .. } => {
            sqlx::query_scalar("SELECT shard_id FROM bank_statements WHERE shard_id = ANY($1) AND id = $2")
                .bind(id.shards_among(&ledger.shards()))
                .bind(id)
                .fetch_optional(ledger.pool())
                .await?
        }
        Subject::User(id) => users::find(ledger.pool(), id).await?.map(|(shard, _)| shard),
        Subject::Beneficiary(id) => {
            sqlx::query_scalar("SELECT shard_id FROM beneficiaries WHERE shard_id = ANY($1) AND id = $2")
                .bind(id.shards_among(&ledger.shards()))
                .bind(id)
                .fetch_optional(ledger.pool())
                .await?
        }
    };
    let (name, id) = subject.name();
    shard.ok_or(EraseError::Unknown(name, id))
}

/// Counts the data of a subject without changing anything.
pub async fn preview(ledger: &Ledger, keyring: &Keyring, subject: Subject) -> Result<Preview, EraseError> {
    let (pool, shard) = (ledger.pool(), shard_of(ledger, subject).await?);
    let mut counts = Counts::default();
    let mut obstacle = None;
    let mut finder = match subject {
        Subject::Account(id) => {
            let is_suspended =
                accounts::find(pool, id).await?.is_some_and(|(_, account)| account.status == AccountStatus::Suspended);
            obstacle = if is_suspended { find::obstacle(pool, shard, id).await? } else { Some("the account is not suspended") };
            Some(Finder::new(shard, id))
        }
        Subject::Order(id) => {
            let is_final = orders::find(pool, shard, id, None).await?.is_some_and(|order| order.status.is_final());
            obstacle = (!is_final).then_some("the order is neither delivered nor cancelled");
            None
        }
        Subject::Beneficiary(_) | Subject::User(_) | Subject::Statement { .. } => None,
    };
    let mut part = next(&mut finder, pool).await?;
    while let Some(found) = &part {
        let erasable = Erasable::load(&mut *pool.acquire().await?, keyring, shard, subject, found).await?;
        counts += erasable.counts();
        if erasable.has_pending_payouts {
            obstacle = Some("a payout to the beneficiary is not settled");
        }
        part = if found.is_last { None } else { next(&mut finder, pool).await? };
    }
    Ok(Preview { counts, obstacle })
}

/// Returns the next part of an account. The data of any other subject is a single part.
async fn next(finder: &mut Option<Finder>, pool: &ledger_database::PgPool) -> Result<Option<Part>, sqlx::Error> {
    match finder {
        Some(finder) => finder.next(pool).await,
        None => Ok(Some(Part { is_last: true, ..Part::default() })),
    }
}

/// Erases the data of a subject. If an erasure was interrupted between two steps, another call continues it.
///
/// # Errors
/// Returns [`EraseError::Refused`] with the obstacle. Nothing is erased then.
pub async fn erase(
    ledger: &Ledger,
    subject: Subject,
    reason: &Secret,
    origin: &Origin,
    mut progress: impl FnMut(Counts),
) -> Result<Report, EraseError> {
    let (pool, shard) = (ledger.pool(), shard_of(ledger, subject).await?);
    let mut finder = match subject {
        Subject::Account(id) => Some(Finder::new(shard, id)),
        _ => None,
    };
    if let Subject::Account(id) = subject
        && let Some(obstacle) = find::obstacle(pool, shard, id).await?
    {
        return Err(EraseError::Refused(obstacle.to_owned()));
    }
    let mut report = Report::default();
    while let Some(part) = next(&mut finder, pool).await? {
        let is_last = part.is_last;
        let command = Erase { subject, reason: reason.clone(), part };
        let answer = ledger.execute(shard, command, origin.clone()).await;
        let CommandResult::Erased(erased) = answer? else { return Err(WriteError::Refused.into()) };
        report.counts += erased.counts;
        report.events.extend(erased.event);
        progress(report.counts);
        if is_last {
            break;
        }
    }
    Ok(report)
}
