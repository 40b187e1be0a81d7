//! `/admin/v1/operators`: people who operate the service. Programs have tokens instead.

use poem_openapi::param::{Path, Query};
use poem_openapi::{Object, OpenApi};
use serde::Serialize;

use crate::access::{self, Lane};
use crate::api::body::{NoFields, StrictJson};
use crate::api::error::ApiError;
use crate::api::fields::{Fields, body};
use crate::api::operator_sessions::{OperatorRole, SignIn};
use crate::api::outcome::answered;
use crate::api::page::Page;
use crate::api::principal::{Admin, Caller};
use crate::api::readers::{one_of, text};
use crate::api::reply::{Created, Listed, Plural, Reply};
use crate::api::scalars::Timestamp;
use crate::api::state::{ApiState, State, Tag, listed, not_found, origin, rows_of};
use crate::api::users::{email, hash};
use crate::ledger::operator_users::{self, OperatorUser};
use crate::ledger::texts::{self, OPERATOR_EMAIL, Texts};
use crate::ledger::{Command, CommandResult, FIRST_SHARD, commands};
use crate::secrets::seal::Secret;

body! {
    /// A new operator.
    #[derive(Object)]
    struct CreateOperator {
        /// Email address to sign in with. It is unique among all operators, case-insensitively.
        #[oai(validator(pattern = r"^[^\s@\u0000-\u001f\u007f-\u009f]+@[^\s@\u0000-\u001f\u007f-\u009f]+$"))]
        email: String = required(email()),
        /// Password to sign in with, 8 to 128 characters. Common passwords, and close variants of them, are refused.
        password: String = required(text(8..=128)),
        /// Role of the operator.
        role: OperatorRole = required(one_of),
    }
}

body! {
    /// Changes to an operator. At least one field is required. Fields that are omitted or null keep their value.
    #[derive(Object)]
    struct ChangeOperator {
        /// New role of the operator.
        role: Option<OperatorRole> = optional(one_of),
        /// New password, 8 to 128 characters. Common passwords, and close variants of them, are refused.
        password: Option<String> = optional(text(8..=128)),
    }
    check ChangeOperator::check
}

impl ChangeOperator {
    fn check(&self, fields: &mut Fields<'_>) {
        fields.require_any();
    }
}

/// A person who operates the service.
#[derive(Object, Serialize)]
#[oai(rename = "Operator")]
struct OperatorView {
    /// Unique identifier of the operator. Events name their actor by it.
    id: i64,
    /// Email address to sign in with, or another name that the identity provider states.
    email: String,
    /// Role of the operator.
    role: OperatorRole,
    /// Proof of identity that the operator signs in with.
    sign_in: SignIn,
    /// Whether a second factor is enrolled.
    two_factor: bool,
    /// Time at which the operator was created.
    created_at: Timestamp,
}

impl Plural for OperatorView {
    const PLURAL: &'static str = "operators";
}

impl OperatorView {
    fn of(user: &OperatorUser, emails: &Texts) -> Self {
        Self {
            id: user.id,
            email: emails.get(&(OPERATOR_EMAIL, user.id)).map_or("", Secret::expose).to_owned(),
            role: user.role.into(),
            sign_in: user.sign_in.into(),
            two_factor: user.has_two_factor,
            created_at: user.created_at.into(),
        }
    }
}

pub struct Operators;

#[OpenApi(prefix_path = "/admin/v1", tag = "Tag::Operators")]
impl Operators {
    /// Create an operator
    ///
    /// The operator signs in to the console with this email address and password. Operators of the identity provider are
    /// created when they first sign in. Returns 409 `E_CONFLICT` if another operator has the email address.
    #[oai(path = "/operators", method = "post", operation_id = "create_operator")]
    async fn create(
        &self,
        caller: Caller<Admin>,
        state: State<'_>,
        body: StrictJson<CreateOperator>,
    ) -> Result<Created<OperatorView>, ApiError> {
        let CreateOperator { email, password, role } = body.0;
        let password_hash = hash(&state, Lane::Operators, ("password", password), &email).await?;
        let email_lookup = state.console.email_lookup(&email);
        let email = Secret::new(email);
        let create = commands::CreateOperatorUser { email, email_lookup, role: role.into(), password_hash };
        Ok(Created(act(&state, &caller, create).await?))
    }

    /// List operators
    ///
    /// Returns the operators who were not removed, newest first.
    #[oai(path = "/operators", method = "get", operation_id = "list_operators")]
    async fn list(
        &self,
        _caller: Caller<Admin>,
        state: State<'_>,
        /// Page number, from 1. Default: 1.
        page: Query<Option<i64>>,
        /// Operators per page, 1 to 100. Default: 20.
        limit: Query<Option<i64>>,
    ) -> Result<Listed<OperatorView>, ApiError> {
        let page = Page::of(page.0, limit.0, 20, 100)?;
        let found = operator_users::list(state.ledger.pool(), rows_of(page)).await?;
        let wanted: Vec<_> = found.rows.iter().map(|user| (OPERATOR_EMAIL, user.id)).collect();
        let emails = texts::load(state.ledger.pool(), &state.keyring, FIRST_SHARD, &wanted).await?;
        Ok(listed(found, page, |user| OperatorView::of(&user, &emails)))
    }

    /// Retrieve an operator
    ///
    /// Returns 404 for a removed operator.
    #[oai(path = "/operators/:id", method = "get", operation_id = "get_operator")]
    async fn get(
        &self,
        _caller: Caller<Admin>,
        state: State<'_>,
        /// Unique identifier of the operator.
        id: Path<i64>,
    ) -> Result<Reply<OperatorView>, ApiError> {
        let user = operator_users::find_present(state.ledger.pool(), id.0).await?.ok_or_else(not_found)?;
        Ok(Reply(view(&state, &user).await?))
    }

    /// Change an operator
    ///
    /// Changes the role, the password, or both. The change takes effect with the next request and ends all sessions of the
    /// operator. Returns 409 `E_CONFLICT` for an operator of the identity provider, which assigns the role.
    #[oai(path = "/operators/:id", method = "put", operation_id = "change_operator")]
    async fn change(
        &self,
        caller: Caller<Admin>,
        state: State<'_>,
        /// Unique identifier of the operator.
        id: Path<i64>,
        body: StrictJson<ChangeOperator>,
    ) -> Result<Reply<OperatorView>, ApiError> {
        let ChangeOperator { role, password } = body.0;
        let password_hash = match password {
            Some(password) => {
                let known = texts::load(state.ledger.pool(), &state.keyring, FIRST_SHARD, &[(OPERATOR_EMAIL, id.0)]).await?;
                let email = known.get(&(OPERATOR_EMAIL, id.0)).map_or("", Secret::expose);
                Some(hash(&state, Lane::Operators, ("password", password), email).await?)
            }
            None => None,
        };
        let role = role.map(access::Role::from);
        let change = commands::ChangeOperatorUser { id: id.0, role, password_hash, own: None };
        Ok(Reply(act(&state, &caller, change).await?))
    }

    /// Remove an operator
    ///
    /// Takes effect with the next request and ends all sessions of the operator. The email address can then be used for
    /// another operator. A removed operator of the identity provider cannot sign in again.
    #[oai(path = "/operators/:id", method = "delete", operation_id = "remove_operator")]
    async fn remove(
        &self,
        caller: Caller<Admin>,
        state: State<'_>,
        /// Unique identifier of the operator.
        id: Path<i64>,
        _no_fields: NoFields,
    ) -> Result<Reply<OperatorView>, ApiError> {
        Ok(Reply(act(&state, &caller, commands::RemoveOperatorUser { id: id.0 }).await?))
    }

    /// Remove an operator's second factor
    ///
    /// For an operator who has lost the authenticator app and the recovery codes. The operator can enrol again.
    #[oai(path = "/operators/:id/two-factor", method = "delete", operation_id = "remove_operator_two_factor")]
    async fn remove_two_factor(
        &self,
        caller: Caller<Admin>,
        state: State<'_>,
        /// Unique identifier of the operator.
        id: Path<i64>,
        _no_fields: NoFields,
    ) -> Result<Reply<OperatorView>, ApiError> {
        Ok(Reply(act(&state, &caller, commands::RemoveOperatorTwoFactor { id: id.0 }).await?))
    }
}

/// Executes a command on an operator.
async fn act(state: &ApiState, caller: &Caller<Admin>, command: impl Into<Command>) -> Result<OperatorView, ApiError> {
    let answer = state.ledger.execute(FIRST_SHARD, command, origin(caller.0.0.actor())).await?;
    let user = answered!(answer, CommandResult::OperatorUser(user) => user)?;
    view(state, &user).await
}

async fn view(state: &ApiState, user: &OperatorUser) -> Result<OperatorView, ApiError> {
    let emails = texts::load(state.ledger.pool(), &state.keyring, FIRST_SHARD, &[(OPERATOR_EMAIL, user.id)]).await?;
    Ok(OperatorView::of(user, &emails))
}
