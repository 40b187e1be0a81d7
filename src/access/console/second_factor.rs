//! Second factors of operators' users: enrolment, and codes that are accepted once.

use ledger_database::{PgConnection, replanned};

use super::{Candidate, Console, ConsoleSession};
use crate::access::AccessError;
use crate::access::two_factor::{self, InvalidSecret, SecondFactor};
use crate::ledger::texts::OPERATOR_TOTP;
use crate::secrets::CONSOLE_ENROLMENT as ENROLMENT;
use crate::secrets::rows::Row;
use crate::secrets::seal::{SealError, Secret, salted_hash};

/// Kind of the keyed hashes of recovery codes.
const RECOVERY_CODE: &str = "operator.recovery_code";

/// A second factor that is right, and is used up when the sign-in succeeds.
#[derive(Debug)]
pub(super) enum AcceptedFactor {
    NotNeeded,
    /// Time step of a code.
    Step(i64),
    /// Keyed hash of a recovery code.
    RecoveryCode([u8; 32]),
}

/// A confirmed enrolment.
#[derive(Debug)]
pub struct Enrolment {
    pub secret: Secret,
    /// Time step of the code that confirmed it.
    pub step: i64,
    pub recovery_codes: Vec<Secret>,
    /// Keyed hashes of the recovery codes.
    pub recovery_hashes: Vec<[u8; 32]>,
}

impl From<SealError> for AccessError {
    fn from(error: SealError) -> AccessError {
        tracing::error!(%error, "failed to seal or open a two-factor secret");
        AccessError::Unavailable
    }
}

impl From<InvalidSecret> for AccessError {
    fn from(error: InvalidSecret) -> AccessError {
        tracing::error!(%error, "failed to check a second factor");
        AccessError::Unavailable
    }
}

impl Console {
    /// Begins an enrolment: generates a secret, and keeps it sealed with the session until a code confirms it.
    ///
    /// # Errors
    /// [`AccessError::Unavailable`] if the database does not answer.
    pub async fn begin_enrolment(&self, session: &ConsoleSession) -> Result<Secret, AccessError> {
        let secret = two_factor::generate_secret();
        let sealed = self.keyring.seal(ENROLMENT, session.id, secret.expose().as_bytes())?;
        sqlx::query("UPDATE vault.console_sessions SET enrolment = $2 WHERE id = $1")
            .bind(session.id)
            .bind(sealed)
            .execute(&self.pool)
            .await?;
        Ok(secret)
    }

    /// Checks the code that confirms an enrolment. Returns nothing for a wrong code, or if no enrolment has begun.
    ///
    /// # Errors
    /// [`AccessError::Unavailable`] if the database does not answer.
    pub async fn confirm_enrolment(&self, session: &ConsoleSession, code: &str) -> Result<Option<Enrolment>, AccessError> {
        let begun: Option<(Vec<u8>, chrono::DateTime<chrono::Utc>)> = sqlx::query_as(
            "SELECT enrolment, clock_timestamp() FROM vault.console_sessions WHERE id = $1 AND enrolment IS NOT NULL",
        )
        .bind(session.id)
        .fetch_optional(&self.pool)
        .await?;
        let (Some((sealed, now)), Some(SecondFactor::Code(code))) = (begun, SecondFactor::parse(code)) else { return Ok(None) };
        let secret = self.keyring.open_text(ENROLMENT, session.id, &sealed)?;
        let Some(step) = two_factor::accepted_step(&secret, &code, now, None)? else { return Ok(None) };
        let recovery_codes = two_factor::generate_recovery_codes();
        let hash = |code| two_factor::recovery_code_hash(&self.keyring, RECOVERY_CODE, session.operator.id, code);
        let recovery_hashes = recovery_codes.iter().map(hash).collect();
        Ok(Some(Enrolment { secret, step, recovery_codes, recovery_hashes }))
    }

    /// Forgets the secret of an enrolment that is confirmed.
    ///
    /// # Errors
    /// [`AccessError::Unavailable`] if the database does not answer.
    pub async fn end_enrolment(&self, session: &ConsoleSession) -> Result<(), AccessError> {
        let end = sqlx::query("UPDATE vault.console_sessions SET enrolment = NULL WHERE id = $1");
        end.bind(session.id).execute(&self.pool).await?;
        Ok(())
    }

    /// Uses up a code or a recovery code of an operator's user. Returns whether it was right.
    ///
    /// # Errors
    /// [`AccessError::Unavailable`] if the database does not answer.
    pub async fn use_factor(&self, session: &ConsoleSession, factor: &str) -> Result<bool, AccessError> {
        let found = self.candidate(None, Some(session.operator.id)).await?;
        let user = found.filter(|user| self.keyring.admits(user.row(), Some(&user.mac)));
        let Some(user) = user.filter(|user| user.totp_hash.is_some()) else { return Ok(false) };
        let Some(accepted) = self.accept(&user, factor)? else { return Ok(false) };
        let use_up = async || {
            let mut transaction = self.pool.begin().await?;
            let is_right = self.use_up(&mut transaction, user.id, &accepted).await?;
            if is_right {
                transaction.commit().await?;
            }
            Ok(is_right)
        };
        replanned(use_up).await
    }

    /// Checks a second factor without using it up. Returns nothing if it is wrong.
    pub(super) fn accept(&self, user: &Candidate, factor: &str) -> Result<Option<AcceptedFactor>, AccessError> {
        match SecondFactor::parse(factor) {
            None => Ok(None),
            Some(SecondFactor::RecoveryCode(code)) => {
                let hash = two_factor::recovery_code_hash(&self.keyring, RECOVERY_CODE, user.id, &code);
                Ok(Some(AcceptedFactor::RecoveryCode(hash)))
            }
            Some(SecondFactor::Code(code)) => {
                let (Some(salt), Some(sealed)) = (&user.salt, &user.sealed) else { return Ok(None) };
                let secret = self.keyring.open_text(OPERATOR_TOTP, user.id, sealed)?;
                // The row's MAC covers the hash. An older secret of the user is as wrong as a foreign one.
                if user.totp_hash.as_deref() != Some(&salted_hash(salt, secret.expose())) {
                    tracing::error!(operator_id = user.id, "refused a replaced two-factor secret; run `verify`");
                    return Ok(None);
                }
                let step = two_factor::accepted_step(&secret, &code, user.now, user.totp_step)?;
                Ok(step.map(AcceptedFactor::Step))
            }
        }
    }

    /// Uses up a second factor in the caller's transaction. Returns false if it was used already.
    pub(super) async fn use_up(
        &self,
        conn: &mut PgConnection,
        operator_id: i64,
        accepted: &AcceptedFactor,
    ) -> Result<bool, AccessError> {
        match accepted {
            AcceptedFactor::NotNeeded => Ok(true),
            AcceptedFactor::Step(step) => {
                let used = sqlx::query(
                    "UPDATE vault.operator_users SET totp_step = $2 WHERE id = $1 AND (totp_step IS NULL OR totp_step < $2)",
                );
                Ok(used.bind(operator_id).bind(step).execute(conn).await?.rows_affected() == 1)
            }
            AcceptedFactor::RecoveryCode(code_hash) => {
                let used: Option<Vec<u8>> = sqlx::query_scalar(
                    "DELETE FROM vault.operator_recovery_codes WHERE operator_id = $1 AND code_hash = $2 RETURNING mac",
                )
                .bind(operator_id)
                .bind(&code_hash[..])
                .fetch_optional(conn)
                .await?;
                let row = Row::OperatorRecoveryCode { operator_id, code_hash };
                Ok(used.is_some_and(|mac| self.keyring.admits(row, Some(&mac))))
            }
        }
    }
}
