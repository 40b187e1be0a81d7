//! `/admin/v1/users`: people who act for an account, with an access token or in the portal.

use ledger_events::{AccountId, UserId, user};
use ledger_projections::users;
use poem_openapi::param::{Path, Query};
use poem_openapi::{Object, OpenApi};
use serde::Serialize;

use crate::access::{Lane, Operator};
use crate::api::body::{NoFields, StrictJson};
use crate::api::error::ApiError;
use crate::api::fields::{Fields, body};
use crate::api::outcome::answered;
use crate::api::page::Page;
use crate::api::principal::{Admin, Caller};
use crate::api::readers::{one_of, text};
use crate::api::reply::{Created, Listed, Plural, Reply};
use crate::api::state::{ApiState, State, Tag, listed, not_found, origin, rows_of};
use crate::api::users::{UserRole, email, hash};
use crate::ledger::commands::{ChangeUser as Change, CreateUser as Create};
use crate::ledger::texts::{self, EMAIL};
use crate::ledger::{Command, CommandResult, WriteError, commands};
use crate::secrets::seal::Secret;

body! {
    /// A new user.
    #[derive(Object)]
    struct CreateUser {
        /// Email address to log in with. It is unique among all users, case-insensitively.
        #[oai(validator(pattern = r"^[^\s@\u0000-\u001f\u007f-\u009f]+@[^\s@\u0000-\u001f\u007f-\u009f]+$"))]
        email: String = required(email()),
        /// Password to log in with, 8 to 128 characters. Common passwords, and close variants of them, are refused.
        password: String = required(text(8..=128)),
        /// Role of the user.
        role: UserRole = required(one_of),
    }
}

body! {
    /// Changes to a user. At least one field is required. Fields that are omitted or null keep their value.
    #[derive(Object)]
    struct ChangeUser {
        /// New role of the user.
        role: Option<UserRole> = optional(one_of),
        /// New password, 8 to 128 characters. Common passwords, and close variants of them, are refused.
        password: Option<String> = optional(text(8..=128)),
    }
    check ChangeUser::check
}

impl ChangeUser {
    fn check(&self, fields: &mut Fields<'_>) {
        fields.require_any();
    }
}

/// A person who acts for an account.
#[derive(Object, Serialize)]
struct User {
    /// Unique identifier of the user.
    id: i64,
    /// Email address to log in with. Empty after it is erased.
    email: String,
    /// Role of the user.
    role: UserRole,
}

impl Plural for User {
    const PLURAL: &'static str = "users";
}

impl User {
    fn of(user: &user::User, email: Option<&Secret>) -> Self {
        let email = email.map_or("", Secret::expose).to_owned();
        Self { id: user.id.0, email, role: user.role.into() }
    }
}

pub struct Users;

#[OpenApi(prefix_path = "/admin/v1", tag = "Tag::Accounts")]
impl Users {
    /// Create a user
    ///
    /// Returns 409 `E_CONFLICT` if another user has the email address.
    #[oai(path = "/accounts/:id/users", method = "post", operation_id = "create_user")]
    async fn create(
        &self,
        caller: Caller<Admin>,
        state: State<'_>,
        /// Unique identifier of the account.
        id: Path<i64>,
        body: StrictJson<CreateUser>,
    ) -> Result<Created<User>, ApiError> {
        let id = AccountId(id.0);
        let shard = state.shard_of(id).await?;
        let CreateUser { email, password, role } = body.0;
        let password_hash = hash(&state, Lane::Operators, ("password", password), &email).await?;
        let create = Command::CreateUser(Create {
            account_id: id,
            role: role.into(),
            email_lookup: state.sessions.email_lookup(&email),
            email: Secret::new(email.clone()),
            password_hash,
        });
        let origin = || origin(caller.0.0.actor());
        let answer = match state.ledger.execute(shard, create.clone(), origin()).await {
            // Another shard has just taken the email address. A second try sees that and returns the right error.
            Err(WriteError::Refused) => state.ledger.execute(shard, create, origin()).await?,
            answer => answer?,
        };
        let user = answered!(answer, CommandResult::User(user) => user)?;
        Ok(Created(User::of(&user, Some(&Secret::new(email)))))
    }

    /// List an account's users
    ///
    /// Returns the users of an account, newest first. Removed users are not listed.
    #[oai(path = "/accounts/:id/users", method = "get", operation_id = "list_users")]
    async fn list(
        &self,
        _caller: Caller<Operator>,
        state: State<'_>,
        /// Unique identifier of the account.
        id: Path<i64>,
        /// Page number, from 1. Default: 1.
        page: Query<Option<i64>>,
        /// Users per page, 1 to 100. Default: 20.
        limit: Query<Option<i64>>,
    ) -> Result<Listed<User>, ApiError> {
        let id = AccountId(id.0);
        let page = Page::of(page.0, limit.0, 20, 100)?;
        let shard = state.shard_of(id).await?;
        let pool = state.read_pool();
        let found = users::list(&pool, id, rows_of(page)).await?;
        let wanted: Vec<_> = found.rows.iter().map(|user| (EMAIL, user.id.0)).collect();
        let emails = texts::load(&pool, &state.keyring, shard, &wanted).await?;
        Ok(listed(found, page, |user| User::of(&user, emails.get(&(EMAIL, user.id.0)))))
    }

    /// Retrieve a user of an account
    ///
    /// Returns 404 for a removed user.
    #[oai(path = "/accounts/:id/users/:user_id", method = "get", operation_id = "get_user")]
    async fn get(
        &self,
        _caller: Caller<Operator>,
        state: State<'_>,
        /// Unique identifier of the account.
        id: Path<i64>,
        /// Unique identifier of the user.
        user_id: Path<i64>,
    ) -> Result<Reply<User>, ApiError> {
        let (id, user_id, pool) = (AccountId(id.0), UserId(user_id.0), state.ledger.pool());
        let shard = state.shard_of(id).await?;
        let user = users::find_present(pool, id, user_id).await?.ok_or_else(not_found)?;
        let email = texts::load(pool, &state.keyring, shard, &[(EMAIL, user_id.0)]).await?;
        Ok(Reply(User::of(&user, email.get(&(EMAIL, user_id.0)))))
    }

    /// Change a user
    ///
    /// Changes the role, the password, or both. The change takes effect with the next request and ends all sessions of
    /// the user, who has to log in again. Returns 409 `E_CONFLICT` for a removed user.
    #[oai(path = "/users/:id", method = "put", operation_id = "change_user")]
    async fn change(
        &self,
        caller: Caller<Admin>,
        state: State<'_>,
        /// Unique identifier of the user.
        id: Path<i64>,
        body: StrictJson<ChangeUser>,
    ) -> Result<Reply<User>, ApiError> {
        let id = UserId(id.0);
        let ChangeUser { role, password } = body.0;
        let password_hash = match password {
            Some(password) => {
                let (shard, _) = users::find(state.ledger.pool(), id).await?.ok_or_else(not_found)?;
                let email = texts::load(state.ledger.pool(), &state.keyring, shard, &[(EMAIL, id.0)]).await?;
                let email = email.get(&(EMAIL, id.0)).map_or("", Secret::expose);
                Some(hash(&state, Lane::Operators, ("password", password), email).await?)
            }
            None => None,
        };
        let role = role.map(Into::into);
        act(&state, &caller, id, |account_id| Command::ChangeUser(Change { account_id, user_id: id, role, password_hash })).await
    }

    /// End a user's sessions
    ///
    /// Invalidates the user's access tokens, refresh tokens and portal cookies, from the next request on. The user can
    /// log in again. Returns 409 `E_CONFLICT` for a removed user.
    #[oai(path = "/users/:id/sessions", method = "delete", operation_id = "end_user_sessions")]
    async fn end_sessions(
        &self,
        caller: Caller<Admin>,
        state: State<'_>,
        /// Unique identifier of the user.
        id: Path<i64>,
        _no_fields: NoFields,
    ) -> Result<Reply<User>, ApiError> {
        let id = UserId(id.0);
        act(&state, &caller, id, |account_id| commands::EndSessions { account_id, user_id: id }).await
    }

    /// Remove a user
    ///
    /// Takes effect with the next request and ends all sessions and tokens of the user. The email address can then be
    /// used for another user.
    #[oai(path = "/users/:id", method = "delete", operation_id = "remove_user")]
    async fn remove(
        &self,
        caller: Caller<Admin>,
        state: State<'_>,
        /// Unique identifier of the user.
        id: Path<i64>,
        _no_fields: NoFields,
    ) -> Result<Reply<User>, ApiError> {
        let id = UserId(id.0);
        act(&state, &caller, id, |account_id| commands::RemoveUser { account_id, user_id: id }).await
    }
}

/// Executes a command on a user, who is found by identifier alone.
async fn act<C: Into<Command>>(
    state: &ApiState,
    caller: &Caller<Admin>,
    id: UserId,
    command: impl FnOnce(AccountId) -> C,
) -> Result<Reply<User>, ApiError> {
    let (shard, user) = users::find(state.ledger.pool(), id).await?.ok_or_else(not_found)?;
    let answer = state.ledger.execute(shard, command(user.account_id), origin(caller.0.0.actor())).await?;
    let user = answered!(answer, CommandResult::User(user) => user)?;
    let email = texts::load(state.ledger.pool(), &state.keyring, shard, &[(EMAIL, id.0)]).await?;
    Ok(Reply(User::of(&user, email.get(&(EMAIL, id.0)))))
}
