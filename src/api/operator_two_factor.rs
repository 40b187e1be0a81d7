//! `/admin/auth/two-factor`: the second factor of an operator's user.

use poem::Request;
use poem_openapi::{Object, OpenApi};
use serde::Serialize;

use super::body::{NoFields, StrictJson};
use super::error::{ApiError, Code};
use super::fields::body;
use super::outcome::answered;
use super::principal::Caller;
use super::readers::text;
use super::reply::{Reply, Revealing};
use super::sessions::{LoginError, charge, refund};
use super::state::{State, Tag, origin};
use crate::access::{ConsoleSession, two_factor};
use crate::ledger::texts::{self, OPERATOR_EMAIL};
use crate::ledger::{CommandResult, FIRST_SHARD, commands};
use crate::secrets::seal::Secret;

/// Name of the service in authenticator apps.
const ISSUER: &str = "Rewards Ledger console";

/// A secret for an authenticator app. It is shown only in this response.
#[derive(Object, Serialize)]
pub(crate) struct TwoFactorSecret {
    /// Secret in base32, to type into the app.
    secret: String,
    /// URL with the secret, to show as a QR code.
    otpauth_url: String,
}

body! {
    /// Proof that the operator has the second factor.
    #[derive(Object)]
    pub(crate) struct TwoFactorCode {
        /// Six digits from the authenticator app. To remove the second factor, a recovery code works, too.
        pub code: String = required(text(1..=64)),
    }
}

/// Codes that each replace the second factor once. They are shown only in this response.
#[derive(Object, Serialize)]
pub(crate) struct RecoveryCodes {
    /// The recovery codes.
    recovery_codes: Vec<String>,
}

/// State of the second factor.
#[derive(Object, Serialize)]
pub(crate) struct TwoFactorState {
    /// Whether a second factor is enrolled.
    two_factor: bool,
}

pub struct OperatorTwoFactor;

#[OpenApi(prefix_path = "/admin/auth", tag = "Tag::Console")]
impl OperatorTwoFactor {
    /// Begin to enrol a second factor
    ///
    /// Returns a secret for an authenticator app. It takes effect when a code confirms it, in this session. Returns 409
    /// `E_CONFLICT` if a second factor is enrolled already, or if the identity provider authenticates the operator.
    #[oai(path = "/two-factor", method = "post", operation_id = "begin_console_two_factor")]
    async fn begin(
        &self,
        caller: Caller<ConsoleSession>,
        state: State<'_>,
        _no_fields: NoFields,
    ) -> Result<Revealing<Reply<TwoFactorSecret>>, ApiError> {
        let session = caller.0;
        require_own_factor(&session)?;
        if session.has_two_factor {
            return Err(ApiError::new(Code::Conflict).message("A second factor is enrolled already."));
        }
        let id = session.operator.id;
        let email = texts::load(state.ledger.pool(), &state.keyring, FIRST_SHARD, &[(OPERATOR_EMAIL, id)]).await?;
        let email = email.get(&(OPERATOR_EMAIL, id)).map_or("", Secret::expose);
        let secret = state.console.begin_enrolment(&session).await?;
        let url = two_factor::otpauth_url(&secret, ISSUER, email).map_err(ApiError::internal)?;
        Ok(Revealing(Reply(TwoFactorSecret { secret: secret.expose().to_owned(), otpauth_url: url.expose().to_owned() })))
    }

    /// Confirm a second factor
    ///
    /// Enables the second factor that this session has begun to enrol, and returns recovery codes. The operator's other
    /// sessions end. A wrong code returns 400. Wrong codes are rate limited.
    #[oai(path = "/two-factor/confirm", method = "post", operation_id = "confirm_console_two_factor")]
    async fn confirm(
        &self,
        caller: Caller<ConsoleSession>,
        request: &Request,
        state: State<'_>,
        body: StrictJson<TwoFactorCode>,
    ) -> Result<Revealing<Reply<RecoveryCodes>>, LoginError> {
        let session = caller.0;
        require_own_factor(&session)?;
        let budget = state.console.guess_budget(session.operator.id);
        charge(&state, request, budget).await?;
        let enrolment = state.console.confirm_enrolment(&session, &body.0.code).await?;
        let enrolment = enrolment.ok_or_else(wrong_code)?;
        refund(&state, budget).await;
        let command = commands::EnableOperatorTwoFactor {
            id: session.operator.id,
            secret: enrolment.secret,
            step: enrolment.step,
            recovery_codes: enrolment.recovery_hashes,
            session_id: session.id,
        };
        let answer = state.ledger.execute(FIRST_SHARD, command, origin(session.operator.actor())).await?;
        answered!(answer, CommandResult::OperatorUser(_) => ())?;
        state.console.end_enrolment(&session).await?;
        let recovery_codes = enrolment.recovery_codes.iter().map(|code| code.expose().to_owned()).collect();
        Ok(Revealing(Reply(RecoveryCodes { recovery_codes })))
    }

    /// Remove the second factor
    ///
    /// Requires a code or a recovery code. A wrong code returns 400. Wrong codes are rate limited.
    #[oai(path = "/two-factor/remove", method = "post", operation_id = "remove_console_two_factor")]
    async fn remove(
        &self,
        caller: Caller<ConsoleSession>,
        request: &Request,
        state: State<'_>,
        body: StrictJson<TwoFactorCode>,
    ) -> Result<Reply<TwoFactorState>, LoginError> {
        let session = caller.0;
        let budget = state.console.guess_budget(session.operator.id);
        charge(&state, request, budget).await?;
        if !state.console.use_factor(&session, &body.0.code).await? {
            return Err(wrong_code().into());
        }
        refund(&state, budget).await;
        let command = commands::RemoveOperatorTwoFactor { id: session.operator.id };
        let answer = state.ledger.execute(FIRST_SHARD, command, origin(session.operator.actor())).await?;
        let user = answered!(answer, CommandResult::OperatorUser(user) => user)?;
        Ok(Reply(TwoFactorState { two_factor: user.has_two_factor }))
    }
}

fn wrong_code() -> ApiError {
    ApiError::invalid("code", "is wrong, expired or used already")
}

/// Refuses an operator whom the identity provider authenticates.
fn require_own_factor(session: &ConsoleSession) -> Result<(), ApiError> {
    match session.is_by_provider {
        true => Err(ApiError::new(Code::Conflict).message("The identity provider asks for the second factor of this operator.")),
        false => Ok(()),
    }
}
