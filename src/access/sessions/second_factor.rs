//! Second factors of users: enrolment, and the check of codes and recovery codes. A code is accepted once.

use chrono::{DateTime, Utc};
use ledger_database::{FromRow, PgConnection, replanned};
use ledger_events::{AccountId, UserId};

use super::Sessions;
use crate::access::AccessError;
use crate::access::two_factor::{SecondFactor, accepted_step, generate_secret, recovery_code_hash};
use crate::ledger::commands::EnableTwoFactor;
use crate::secrets::TWO_FACTOR_SECRET;
use crate::secrets::rows::Row;
use crate::secrets::seal::Secret;

/// Kind of the keyed hash of a recovery code.
const RECOVERY_CODE: &str = "user.recovery_code";

#[derive(FromRow)]
struct Stored {
    sealed: Vec<u8>,
    is_enabled: bool,
    last_step: Option<i64>,
    mac: Vec<u8>,
    now: DateTime<Utc>,
}

/// State of a user's second factor.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromRow)]
pub struct TwoFactorState {
    pub is_enabled: bool,
    /// Number of unused recovery codes.
    pub recovery_codes: i64,
}

impl Sessions {
    /// Returns the state of a user's second factor.
    ///
    /// # Errors
    /// [`AccessError::Unavailable`] if the database does not answer.
    pub async fn two_factor(&self, user_id: UserId) -> Result<TwoFactorState, AccessError> {
        let found = sqlx::query_as(
            "SELECT is_enabled, (SELECT count(*) FROM vault.recovery_codes c WHERE c.user_id = t.user_id) AS recovery_codes
             FROM vault.two_factor t WHERE user_id = $1",
        );
        Ok(found.bind(user_id).fetch_optional(&self.pool).await?.unwrap_or_default())
    }

    /// Begins an enrolment, and replaces one that is not confirmed. Returns the secret; none if the user has a second factor.
    ///
    /// # Errors
    /// [`AccessError::Unavailable`] if the database does not answer.
    pub async fn begin_two_factor(&self, user_id: UserId) -> Result<Option<Secret>, AccessError> {
        let secret = generate_secret();
        let sealed = self.keyring.seal(TWO_FACTOR_SECRET, user_id.0, secret.expose().as_bytes()).map_err(broken)?;
        let mac = self.mac(Row::TwoFactor { user_id, secret: secret.expose() })?;
        let begun = sqlx::query(
            "INSERT INTO vault.two_factor AS t (user_id, sealed, is_enabled, mac) VALUES ($1, $2, false, $3)
             ON CONFLICT (user_id) DO UPDATE SET sealed = excluded.sealed, mac = excluded.mac WHERE NOT t.is_enabled",
        );
        let begun = begun.bind(user_id).bind(sealed).bind(&mac[..]).execute(&self.pool).await?;
        Ok((begun.rows_affected() > 0).then_some(secret))
    }

    /// Checks the first code of an enrolment. Returns the command that enables the second factor with these recovery codes; none
    /// if no enrolment was begun.
    ///
    /// # Errors
    /// [`AccessError::WrongSecondFactor`] for a wrong code.
    pub async fn confirm_two_factor(
        &self,
        (account_id, user_id): (AccountId, UserId),
        kept_session: i64,
        code: &Secret,
        recovery_codes: &[Secret],
    ) -> Result<Option<EnableTwoFactor>, AccessError> {
        let find = async || stored(&mut *self.pool.acquire().await?, user_id).await;
        let Some(stored) = replanned(find).await?.filter(|stored| !stored.is_enabled) else { return Ok(None) };
        let secret = self.opened(user_id, &stored)?;
        let step = accepted_step(&secret, code, stored.now, None).map_err(broken)?.ok_or(AccessError::WrongSecondFactor)?;
        let hash = |code| recovery_code_hash(&self.keyring, RECOVERY_CODE, user_id.0, code);
        let recovery_codes = recovery_codes.iter().map(hash).collect();
        Ok(Some(EnableTwoFactor { account_id, user_id, secret, step, recovery_codes, kept_session }))
    }

    /// Checks and uses up a code or a recovery code of a user who has a second factor.
    ///
    /// # Errors
    /// [`AccessError::WrongSecondFactor`] for a code that is wrong or was used before.
    pub async fn use_second_factor(&self, user_id: UserId, given: &SecondFactor) -> Result<(), AccessError> {
        let pass = async || {
            let mut transaction = self.pool.begin().await?;
            self.pass_second_factor(&mut transaction, user_id, Some(given)).await?;
            Ok(transaction.commit().await?)
        };
        replanned(pass).await
    }

    /// Checks the second factor of a login, if the user has one, and uses it up in the caller's transaction.
    pub(super) async fn pass_second_factor(
        &self,
        conn: &mut PgConnection,
        user_id: UserId,
        given: Option<&SecondFactor>,
    ) -> Result<(), AccessError> {
        let Some(stored) = stored(conn, user_id).await?.filter(|stored| stored.is_enabled) else { return Ok(()) };
        let secret = self.opened(user_id, &stored)?;
        let used_up = match given.ok_or(AccessError::TwoFactorRequired)? {
            SecondFactor::Code(code) => {
                let step = accepted_step(&secret, code, stored.now, stored.last_step).map_err(broken)?;
                let step = step.ok_or(AccessError::WrongSecondFactor)?;
                let update = sqlx::query("UPDATE vault.two_factor SET last_step = $2 WHERE user_id = $1");
                update.bind(user_id).bind(step).execute(conn).await?
            }
            SecondFactor::RecoveryCode(code) => {
                let hash = recovery_code_hash(&self.keyring, RECOVERY_CODE, user_id.0, code);
                let delete = sqlx::query("DELETE FROM vault.recovery_codes WHERE user_id = $1 AND code_hash = $2");
                delete.bind(user_id).bind(&hash[..]).execute(conn).await?
            }
        };
        match used_up.rows_affected() {
            0 => Err(AccessError::WrongSecondFactor),
            _ => Ok(()),
        }
    }

    /// Opens a stored secret. A row that this service did not write admits nobody.
    fn opened(&self, user_id: UserId, stored: &Stored) -> Result<Secret, AccessError> {
        let secret = self.keyring.open_text(TWO_FACTOR_SECRET, user_id.0, &stored.sealed).map_err(broken)?;
        match self.keyring.admits(Row::TwoFactor { user_id, secret: secret.expose() }, Some(&stored.mac)) {
            true => Ok(secret),
            false => Err(AccessError::WrongSecondFactor),
        }
    }
}

/// Loads a user's second factor and locks it: a concurrent use of the same code waits, and then finds it used.
async fn stored(conn: &mut PgConnection, user_id: UserId) -> Result<Option<Stored>, sqlx::Error> {
    sqlx::query_as(
        "SELECT sealed, is_enabled, last_step, mac, clock_timestamp() AS now FROM vault.two_factor WHERE user_id = $1 FOR UPDATE",
    )
    .bind(user_id)
    .fetch_optional(conn)
    .await
}

fn broken(error: impl std::fmt::Display) -> AccessError {
    tracing::error!(%error, "failed to read a second factor; run `verify`");
    AccessError::Unavailable
}
