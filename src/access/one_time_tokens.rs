//! Tokens that are sent by mail and used once: password resets and invitations.
//!
//! Only the hash of a token is stored. A token is taken out of its table before it takes effect, so of two requests with the
//! same token at most one succeeds.

use chrono::{DateTime, Utc};
use ledger_database::{FromRow, PgPool, replanned};
use ledger_events::user::UserRole;
use ledger_events::{AccountId, ShardId, UserId};
use sha2::{Digest, Sha256};

use super::AccessError;
use crate::ledger::outbox::{self, Mail, QueuedMail, Recipient};
use crate::secrets::INVITATION_EMAIL;
use crate::secrets::rows::{NOBODY, Row};
use crate::secrets::seal::{Keyring, SealError, Secret, random_secret};

/// Maximum number of rows that one purge deletes from each table.
const PURGED_ROWS: i64 = 1_000;

/// Returns the hash under which a token is stored. It needs no salt: the token has 256 random bits.
fn hash(token: &str) -> [u8; 32] {
    Sha256::digest(token.as_bytes()).into()
}

/// Returns the time of the database, which decides when a token expires.
///
/// # Errors
/// [`AccessError::Unavailable`] if the database does not answer.
pub async fn now(pool: &PgPool) -> Result<DateTime<Utc>, AccessError> {
    Ok(sqlx::query_scalar("SELECT clock_timestamp()::timestamptz(3)").fetch_one(pool).await?)
}

fn unsealable(error: SealError) -> AccessError {
    tracing::error!(%error, "failed to seal a one-time token");
    AccessError::Unavailable
}

/// Stores a token that resets the password of the user with this email, and the mail that carries it.
///
/// An unknown email makes the same rows, without a recipient, so that both take the same time.
///
/// # Errors
/// [`AccessError::Unavailable`] if the database does not answer.
pub async fn request_reset(pool: &PgPool, keyring: &Keyring, email_lookup: &[u8; 32]) -> Result<(), AccessError> {
    replanned(|| request_once(pool, keyring, email_lookup)).await
}

async fn request_once(pool: &PgPool, keyring: &Keyring, email_lookup: &[u8; 32]) -> Result<(), AccessError> {
    let token = random_secret();
    let token_hash = hash(token.expose());
    let mut transaction = pool.begin().await?;
    let (user_id, now): (Option<UserId>, DateTime<Utc>) =
        sqlx::query_as("SELECT (SELECT user_id FROM vault.users WHERE email_lookup = $1), clock_timestamp()::timestamptz(3)")
            .bind(&email_lookup[..])
            .fetch_one(&mut *transaction)
            .await?;
    let expires_at = now + Mail::RESET_LIFETIME;
    let row = Row::PasswordReset { token_hash: &token_hash, user_id: user_id.unwrap_or(NOBODY), expires_at };
    let mac = keyring.row_mac(row).map_err(unsealable)?;
    let insert = "INSERT INTO vault.password_resets (token_hash, user_id, expires_at, mac) VALUES ($1, $2, $3, $4)";
    sqlx::query(insert).bind(&token_hash[..]).bind(user_id).bind(expires_at).bind(&mac[..]).execute(&mut *transaction).await?;
    let to = user_id.map_or(Recipient::Nobody, Recipient::User);
    let mail = QueuedMail::new(keyring, &Mail::PasswordReset { token: token.expose().to_owned() }, to).map_err(unsealable)?;
    outbox::insert(&mut transaction, &[mail]).await?;
    Ok(transaction.commit().await?)
}

/// A valid token that resets a password.
#[derive(Clone, Debug, FromRow)]
pub struct PasswordReset {
    pub user_id: UserId,
    pub account_id: AccountId,
    pub shard_id: ShardId,
    expires_at: DateTime<Utc>,
    mac: Vec<u8>,
    #[sqlx(skip)]
    token_hash: [u8; 32],
}

impl PasswordReset {
    /// Finds a token that has neither expired nor been used.
    ///
    /// # Errors
    /// [`AccessError::InvalidToken`] for any other token.
    pub async fn find(pool: &PgPool, keyring: &Keyring, token: &Secret) -> Result<PasswordReset, AccessError> {
        let token_hash = hash(token.expose());
        let found: Option<PasswordReset> = sqlx::query_as(
            "SELECT r.user_id, u.account_id, a.shard_id, r.expires_at, r.mac FROM vault.password_resets r
             JOIN users u ON u.id = r.user_id JOIN accounts a ON a.id = u.account_id
             WHERE r.token_hash = $1 AND r.expires_at > clock_timestamp() AND NOT u.is_removed",
        )
        .bind(&token_hash[..])
        .fetch_optional(pool)
        .await?;
        let PasswordReset { user_id, expires_at, .. } = *found.as_ref().ok_or(AccessError::InvalidToken)?;
        let found = found.filter(|found| {
            keyring.admits(Row::PasswordReset { token_hash: &token_hash, user_id, expires_at }, Some(&found.mac))
        });
        found.map(|found| PasswordReset { token_hash, ..found }).ok_or(AccessError::InvalidToken)
    }

    /// Takes the token out of its table.
    ///
    /// # Errors
    /// [`AccessError::InvalidToken`] if somebody else has taken it.
    pub async fn take(&self, pool: &PgPool) -> Result<(), AccessError> {
        let taken = sqlx::query("DELETE FROM vault.password_resets WHERE token_hash = $1 AND expires_at > clock_timestamp()");
        match taken.bind(&self.token_hash[..]).execute(pool).await?.rows_affected() {
            0 => Err(AccessError::InvalidToken),
            _ => Ok(()),
        }
    }

    /// Puts the token back, because nothing has happened.
    ///
    /// # Errors
    /// [`AccessError::Unavailable`] if the database does not answer.
    pub async fn put_back(&self, pool: &PgPool) -> Result<(), AccessError> {
        sqlx::query("INSERT INTO vault.password_resets (token_hash, user_id, expires_at, mac) VALUES ($1, $2, $3, $4) ON CONFLICT DO NOTHING")
            .bind(&self.token_hash[..])
            .bind(self.user_id)
            .bind(self.expires_at)
            .bind(&self.mac)
            .execute(pool)
            .await?;
        Ok(())
    }
}

#[derive(FromRow)]
struct StoredInvitation {
    id: i64,
    account_id: AccountId,
    role: String,
    sealed: Vec<u8>,
    token_hash: Vec<u8>,
    invited_by: UserId,
    created_at: DateTime<Utc>,
    expires_at: DateTime<Utc>,
    mac: Vec<u8>,
}

/// An invitation that has neither expired nor ended.
#[derive(Clone, Debug)]
pub struct Invitation {
    pub id: i64,
    pub account_id: AccountId,
    pub role: UserRole,
    pub email: Secret,
    pub invited_by: UserId,
    pub created_at: DateTime<Utc>,
    pub expires_at: DateTime<Utc>,
    token_hash: Vec<u8>,
    sealed: Vec<u8>,
    mac: Vec<u8>,
}

/// Columns of [`StoredInvitation`], as a literal for `concat!`.
macro_rules! invitations {
    ($where:literal) => {
        concat!(
            "SELECT id, account_id, role, sealed, token_hash, invited_by, created_at, expires_at, mac
             FROM vault.invitations WHERE expires_at > clock_timestamp() AND ",
            $where
        )
    };
}

impl Invitation {
    /// Finds the invitation of a token.
    ///
    /// # Errors
    /// [`AccessError::InvalidToken`] for a token that is unknown, expired or used.
    pub async fn find(pool: &PgPool, keyring: &Keyring, token: &Secret) -> Result<Invitation, AccessError> {
        let found: Option<StoredInvitation> =
            sqlx::query_as(invitations!("token_hash = $1")).bind(&hash(token.expose())[..]).fetch_optional(pool).await?;
        found.and_then(|stored| Invitation::open(keyring, stored)).ok_or(AccessError::InvalidToken)
    }

    /// Lists the open invitations of an account, newest first.
    ///
    /// # Errors
    /// [`AccessError::Unavailable`] if the database does not answer.
    pub async fn of_account(pool: &PgPool, keyring: &Keyring, account: AccountId) -> Result<Vec<Invitation>, AccessError> {
        let found: Vec<StoredInvitation> =
            sqlx::query_as(invitations!("account_id = $1 ORDER BY created_at DESC, id LIMIT 1000"))
                .bind(account)
                .fetch_all(pool)
                .await?;
        Ok(found.into_iter().filter_map(|stored| Invitation::open(keyring, stored)).collect())
    }

    /// Opens a row and checks its MAC. Returns none for a row that this service did not write.
    fn open(keyring: &Keyring, stored: StoredInvitation) -> Option<Invitation> {
        let StoredInvitation { id, account_id, role, sealed, token_hash, invited_by, created_at, expires_at, mac } = stored;
        let email = keyring.open_text(INVITATION_EMAIL, id, &sealed);
        let email = email.inspect_err(|error| tracing::error!(%error, id, "failed to open an invitation; run `verify`")).ok()?;
        let (token, text) = (&token_hash[..], email.expose());
        let row = Row::Invitation { id, account_id, role: &role, email: text, token_hash: token, invited_by, expires_at };
        let role = UserRole::parse(&role).filter(|_| keyring.admits(row, Some(&mac)))?;
        Some(Invitation { id, account_id, role, email, invited_by, created_at, expires_at, token_hash, sealed, mac })
    }

    /// Takes the invitation out of its table.
    ///
    /// # Errors
    /// [`AccessError::InvalidToken`] if it was taken or revoked meanwhile.
    pub async fn take(&self, pool: &PgPool) -> Result<(), AccessError> {
        match sqlx::query("DELETE FROM vault.invitations WHERE id = $1").bind(self.id).execute(pool).await?.rows_affected() {
            0 => Err(AccessError::InvalidToken),
            _ => Ok(()),
        }
    }

    /// Puts the invitation back, because nothing has happened.
    ///
    /// # Errors
    /// [`AccessError::Unavailable`] if the database does not answer.
    pub async fn put_back(&self, pool: &PgPool) -> Result<(), AccessError> {
        sqlx::query(
            "INSERT INTO vault.invitations (id, account_id, role, sealed, token_hash, invited_by, created_at, expires_at, mac)
             VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9) ON CONFLICT DO NOTHING",
        )
        .bind(self.id)
        .bind(self.account_id)
        .bind(self.role.as_str())
        .bind(&self.sealed)
        .bind(&self.token_hash)
        .bind(self.invited_by)
        .bind(self.created_at)
        .bind(self.expires_at)
        .bind(&self.mac)
        .execute(pool)
        .await?;
        Ok(())
    }
}

/// Deletes one batch each of expired tokens, invitations and mails. Sent mails of a sandbox expire, too.
///
/// Returns the number of deleted rows, and whether more may be left. All nodes may run it at the same time.
pub async fn purge(pool: &PgPool) -> Result<(u64, bool), sqlx::Error> {
    let mut purged = [0; 3];
    for (rows, delete) in purged.iter_mut().zip([
        "DELETE FROM vault.password_resets WHERE token_hash IN (SELECT token_hash FROM vault.password_resets
            WHERE expires_at < clock_timestamp() LIMIT $1 FOR UPDATE SKIP LOCKED)",
        "DELETE FROM vault.invitations WHERE id IN (SELECT id FROM vault.invitations
            WHERE expires_at < clock_timestamp() LIMIT $1 FOR UPDATE SKIP LOCKED)",
        "DELETE FROM vault.mails WHERE id IN (SELECT id FROM vault.mails
            WHERE expires_at < clock_timestamp() LIMIT $1 FOR UPDATE SKIP LOCKED)",
    ]) {
        *rows = sqlx::query(delete).bind(PURGED_ROWS).execute(pool).await?.rows_affected();
    }
    Ok((purged.iter().sum(), purged.iter().any(|rows| *rows >= PURGED_ROWS.unsigned_abs())))
}
