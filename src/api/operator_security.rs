//! `/admin/auth`: the signed-in operator's own password and sessions.

use poem::Request;
use poem_openapi::param::Path;
use poem_openapi::{Object, OpenApi};
use serde::Serialize;

use super::audit_log::{Kind, note};
use super::auth::refused_session;
use super::body::{NoFields, StrictJson};
use super::error::ApiError;
use super::outcome::answered;
use super::principal::Caller;
use super::reply::{Listed, Plural, Reply};
use super::scalars::Timestamp;
use super::security::ChangePassword;
use super::sessions::{Confirmation, LoginError, charge, refund};
use super::source::source_ip;
use super::state::{State, Tag, not_found, origin};
use super::users::hash;
use crate::access::console::LiveSession;
use crate::access::limits::source_network;
use crate::access::{ConsoleSession, Lane};
use crate::ledger::texts::{self, OPERATOR_EMAIL};
use crate::ledger::{CommandResult, FIRST_SHARD, commands};
use crate::secrets::seal::Secret;

/// A session of the operator who is signed in.
#[derive(Object, Serialize)]
struct OperatorSession {
    /// Unique identifier of the session.
    id: i64,
    /// Time of the sign-in.
    started_at: Timestamp,
    /// Time at which the session ends.
    expires_at: Timestamp,
    /// Whether this request belongs to the session.
    is_current: bool,
}

impl Plural for OperatorSession {
    const PLURAL: &'static str = "sessions";
}

impl OperatorSession {
    fn new(session: LiveSession, current: i64) -> Self {
        Self {
            id: session.id,
            started_at: session.started_at.into(),
            expires_at: session.expires_at.into(),
            is_current: session.id == current,
        }
    }
}

pub struct OperatorSecurity;

#[OpenApi(prefix_path = "/admin/auth", tag = "Tag::Console")]
impl OperatorSecurity {
    /// Change the password
    ///
    /// Changes the password of the operator who is signed in. The current session goes on; all other sessions of the
    /// operator end. A wrong present password returns 400. Wrong present passwords are rate limited, together with wrong
    /// codes. Returns 409 `E_CONFLICT` if the identity provider authenticates the operator, or an admin changes the password
    /// at the same time.
    #[oai(path = "/password", method = "put", operation_id = "change_console_password")]
    async fn change_password(
        &self,
        caller: Caller<ConsoleSession>,
        request: &Request,
        state: State<'_>,
        body: StrictJson<ChangePassword>,
    ) -> Result<Reply<Confirmation>, LoginError> {
        let session = caller.0;
        if session.is_by_provider {
            return Err(ApiError::conflict("The identity provider keeps the password of this operator.").into());
        }
        let (id, ChangePassword { current_password, new_password }) = (session.operator.id, body.0);
        let lane = Lane::Source(source_network(source_ip(request, &state.trusted_proxies)));
        let budget = state.console.guess_budget(id);
        charge(&state, request, budget).await?;
        let present_hash = state.console.hash_of_password(id, lane, Secret::new(current_password)).await?;
        let present_hash = present_hash.ok_or_else(|| ApiError::invalid("current_password", "is not the present password"))?;
        refund(&state, budget).await;
        let known = texts::load(state.ledger.pool(), &state.keyring, FIRST_SHARD, &[(OPERATOR_EMAIL, id)]).await?;
        let email = known.get(&(OPERATOR_EMAIL, id)).map_or("", Secret::expose);
        let password_hash = Some(hash(&state, lane, ("new_password", new_password), email).await?);
        // Hashing may have waited for long.
        state.console.require_live(&session).await.map_err(refused_session)?;
        let own = Some(commands::OwnChange { session_id: session.id, present_hash });
        let change = commands::ChangeOperatorUser { id, role: None, password_hash, own };
        let answer = state.ledger.execute(FIRST_SHARD, change, origin(session.operator.actor())).await?;
        answered!(answer, CommandResult::OperatorUser(_) => ())?;
        Ok(Reply(Confirmation::new("The password is changed. All other sessions have ended.")))
    }

    /// List sessions
    ///
    /// Returns up to 100 sessions of the operator who is signed in, newest first.
    #[oai(path = "/sessions", method = "get", operation_id = "list_console_sessions")]
    async fn list(&self, caller: Caller<ConsoleSession>, state: State<'_>) -> Result<Listed<OperatorSession>, ApiError> {
        let ConsoleSession { id: current, operator, .. } = caller.0;
        let found = state.console.sessions_of(operator.id).await?;
        Ok(Listed::whole(found.into_iter().map(|session| OperatorSession::new(session, current)).collect()))
    }

    /// End a session
    ///
    /// Ends a session of the operator who is signed in. Its cookie is invalid from the next request on.
    #[oai(path = "/sessions/:id", method = "delete", operation_id = "end_console_session")]
    async fn end(
        &self,
        caller: Caller<ConsoleSession>,
        state: State<'_>,
        /// Unique identifier of the session.
        id: Path<i64>,
        _no_fields: NoFields,
    ) -> Result<Reply<Confirmation>, ApiError> {
        note(Kind::SignOut);
        match state.console.end(caller.0.operator.id, id.0).await? {
            true => Ok(Reply(Confirmation::new("The session has ended."))),
            false => Err(not_found()),
        }
    }
}
