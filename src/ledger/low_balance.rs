//! Mails about low balances.

use ledger_database::PgPool;
use ledger_events::ShardId;
use ledger_projections::low_balance::{Notice, take_due};
use ledger_projections::users;

use super::outbox::{self, Mail, QueuedMail, Recipient};
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
