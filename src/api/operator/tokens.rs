//! `/admin/v1/operator-tokens`: tokens of programs that operate the service. People have users instead.

use poem_openapi::param::Path;
use poem_openapi::{Object, OpenApi};
use serde::Serialize;

use crate::access;
use crate::api::body::{NoFields, StrictJson};
use crate::api::error::ApiError;
use crate::api::fields::body;
use crate::api::idempotency::IdempotencyKey;
use crate::api::operator_sessions::OperatorRole;
use crate::api::outcome::{answered, made, made_once};
use crate::api::principal::{Admin, Caller};
use crate::api::readers::{line, one_of};
use crate::api::reply::{Created, Listed, Plural, Reply, Revealing};
use crate::api::scalars::Timestamp;
use crate::api::state::{State, Tag, origin};
use crate::ledger::operators::{self, IssuedToken};
use crate::ledger::{CommandResult, FIRST_SHARD, commands};
use crate::secrets::seal::random_secret;

body! {
    /// A new operator token.
    #[derive(Object, Serialize)]
    struct CreateOperatorToken {
        /// Name of the token, for people to recognize the program that has it.
        name: String = required(line(1..=100)),
        /// Role of the program.
        role: OperatorRole = required(one_of),
    }
}

/// A newly issued operator token. It is shown only in this response.
#[derive(Object, Serialize)]
struct IssuedOperatorToken {
    /// Unique identifier of the token. Events name their actor by it.
    id: i64,
    /// Token to send as `Authorization: Bearer <token>`.
    token: String,
}

/// An operator token without its text.
#[derive(Object, Serialize)]
struct OperatorToken {
    /// Unique identifier of the token. Events name their actor by it.
    id: i64,
    /// Name of the token, for people to recognize the program that has it.
    name: String,
    /// Role of the program.
    role: OperatorRole,
    /// Time at which the token was issued.
    created_at: Timestamp,
    /// Time at which the token was revoked; null if it is valid.
    revoked_at: Option<Timestamp>,
}

impl Plural for OperatorToken {
    const PLURAL: &'static str = "operator_tokens";
}

impl OperatorToken {
    /// Returns `None` for a token whose role this program does not know. Such a token admits nobody.
    fn of(token: IssuedToken) -> Option<Self> {
        Some(Self {
            id: token.id,
            role: access::Role::parse(&token.role)?.into(),
            name: token.name,
            created_at: token.created_at.into(),
            revoked_at: token.revoked_at.map(Into::into),
        })
    }
}

/// A revoked operator token.
#[derive(Object, Serialize)]
struct RevokedOperatorToken {
    /// Unique identifier of the token.
    id: i64,
}

pub struct OperatorTokens;

#[OpenApi(prefix_path = "/admin/v1", tag = "Tag::Operators")]
impl OperatorTokens {
    /// Create an operator token
    ///
    /// Issues a token to a program that operates the service. The token appears only in this response. Returns 409
    /// `E_ALREADY_CREATED` for a repeated request with the same `Idempotency-Key`.
    #[oai(path = "/operator-tokens", method = "post", operation_id = "create_operator_token")]
    async fn create(
        &self,
        caller: Caller<Admin>,
        state: State<'_>,
        /// Unique key that makes retries safe: a repeated request with the same key creates nothing, and returns 409.
        #[oai(name = "Idempotency-Key")]
        key: IdempotencyKey,
        body: StrictJson<CreateOperatorToken>,
    ) -> Result<Revealing<Created<IssuedOperatorToken>>, ApiError> {
        let (token, caller) = (random_secret(), caller.0.0);
        let idempotency = key.of_operator(caller, "/admin/v1/operator-tokens", &body.0, made)?;
        let issue = commands::IssueOperatorToken::of(&body.0.name, body.0.role.into(), &token);
        let id = made_once(state.ledger.submit(FIRST_SHARD, issue, origin(caller.actor()), idempotency).await?)?;
        Ok(Revealing(Created(IssuedOperatorToken { id, token: token.expose().to_owned() })))
    }

    /// List operator tokens
    ///
    /// Returns all tokens without their texts, oldest first, revoked ones included. The token of the configuration is not
    /// one of them.
    #[oai(path = "/operator-tokens", method = "get", operation_id = "list_operator_tokens")]
    async fn list(&self, _caller: Caller<Admin>, state: State<'_>) -> Result<Listed<OperatorToken>, ApiError> {
        let tokens = operators::list(state.ledger.pool()).await?;
        Ok(Listed::whole(tokens.into_iter().filter_map(OperatorToken::of).collect()))
    }

    /// Revoke an operator token
    ///
    /// Takes effect with the next request. Returns 404 if the token is already revoked.
    #[oai(path = "/operator-tokens/:id", method = "delete", operation_id = "revoke_operator_token")]
    async fn revoke(
        &self,
        caller: Caller<Admin>,
        state: State<'_>,
        /// Unique identifier of the token.
        id: Path<i64>,
        _no_fields: NoFields,
    ) -> Result<Reply<RevokedOperatorToken>, ApiError> {
        let revoke = commands::RevokeOperatorToken { id: id.0 };
        let answer = state.ledger.execute(FIRST_SHARD, revoke, origin(caller.0.0.actor())).await?;
        let id = answered!(answer, CommandResult::OperatorToken { id } => id)?;
        Ok(Reply(RevokedOperatorToken { id }))
    }
}
