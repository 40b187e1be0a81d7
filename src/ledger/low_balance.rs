//! Mails and webhooks about low balances.

use ledger_database::PgPool;
use ledger_events::account::LowBalanceReached;
use ledger_events::{Actor, Position, ShardId};
use ledger_projections::low_balance::{Notice, announced, take_due, unannounced};
use ledger_projections::users;
use sha2::{Digest, Sha256};

use super::commands::AnnounceLowBalance;
use super::outbox::{self, Mail, QueuedMail, Recipient};
use super::{CommandResult, Idempotency, Ledger, Origin, StoredResponse, WriteError};
use crate::secrets::seal::{Keyring, SealError};

/// Maximum number of notices in one transaction.
const STEP: i64 = 100;

/// Queues a mail to each owner of the accounts whose notices are due. The notices and the mails are written in one
/// transaction, so each notice becomes mails exactly once, on one node. Returns the number of notices; there may be more if
/// it is not zero.
///
/// # Errors
/// Any error of the database, and a mail that cannot be sealed. The notices are then due again.
pub async fn queue_mails(pool: &PgPool, keyring: &Keyring, shard: ShardId) -> Result<usize, sqlx::Error> {
    let mut tx = pool.begin().await?;
    let notices = take_due(&mut tx, shard, STEP).await?;
    for notice in &notices {
        let Notice { wallet_id, balance, below, ref currency, account_id, .. } = *notice;
        let mail = Mail::LowBalance { wallet_id, currency: currency.clone(), balance, below };
        let owners = users::load_owners(&mut tx, shard, &[account_id]).await?;
        let mails: Result<Vec<_>, SealError> =
            owners.iter().map(|owner| QueuedMail::new(keyring, &mail, Recipient::User(owner.id))).collect();
        let mails = mails.map_err(|error| sqlx::Error::Encode(error.into()))?;
        outbox::insert(&mut tx, &mails).await?;
    }
    tx.commit().await?;
    Ok(notices.len())
}

/// Appends an event for each new notice, for webhooks and the event feed. Returns the number of notices; there may be more if
/// it is not zero.
///
/// Any number of nodes may do so concurrently, and again after a crash: a key makes each notice one event. The key is kept for a
/// day, so the caller first brings the notices up to the head of the log, which tells those that it announces already.
///
/// # Errors
/// Any error of the database. The notices are then announced by a later call.
pub async fn announce(ledger: &Ledger, shard: ShardId) -> Result<usize, sqlx::Error> {
    let notices = unannounced(ledger.pool(), shard, STEP).await?;
    let mut made = 0;
    for Notice { position, wallet_id, account_id, currency, below, balance, fell_at } in notices {
        let currency = currency.parse().map_err(|error: &'static str| sqlx::Error::Decode(error.into()))?;
        let reached = LowBalanceReached { wallet_id, currency, below, balance, position, fell_at };
        let origin = Origin { actor: Actor::Service, request_id: "low balance".to_owned() };
        let command = AnnounceLowBalance { account_id, reached };
        match ledger.submit(shard, command, origin, Some(once(shard, position))).await {
            Ok(_) | Err(WriteError::Rejected(_)) => {
                announced(ledger.pool(), shard, &[position]).await?;
                made += 1;
            }
            Err(error) => tracing::warn!(shard, position, %error, "failed to announce a low balance; retrying"),
        }
    }
    Ok(made)
}

/// Returns the key under which a notice becomes one event. No client's key has such a scope.
fn once(shard: ShardId, position: Position) -> Idempotency {
    let key = Sha256::digest(format!("low balance\n{shard}\n{position}"));
    Idempotency { key_hash: key.into(), fingerprint: key.into(), render: rendered, renderer: None }
}

fn rendered(_: &CommandResult) -> Result<StoredResponse, serde_json::Error> {
    Ok(StoredResponse { status: 200, body: "{}".to_owned(), is_secret: false })
}
