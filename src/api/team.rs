//! `/client/api/users`: the users of an account, as its owners invite, change and remove them.

use std::collections::HashSet;

use ledger_database::replanned;
use ledger_events::{UserId, user};
use ledger_projections::page::Listed as Rows;
use ledger_projections::users;
use poem_openapi::param::{Path, Query};
use poem_openapi::{Object, OpenApi};
use serde::Serialize;

use super::body::{NoFields, StrictJson};
use super::error::ApiError;
use super::fields::body;
use super::idempotency::IdempotencyKey;
use super::outcome::{already_created, answered, made, made_by};
use super::page::Page;
use super::principal::{Caller, PortalOwner, PortalUser};
use super::readers::one_of;
use super::reply::{Data, Listed, Plural, Reply, Stored, render};
use super::scalars::Timestamp;
use super::security::signed_in;
use super::sessions::Confirmation;
use super::state::{ApiState, State, Tag, listed, not_found, origin, rows_of};
use super::users::{UserRole, email};
use crate::access::Principal;
use crate::access::one_time_tokens::{self, Invitation as Open};
use crate::ledger::commands::{ChangeMemberRole, InviteUser, RemoveMember, RevokeInvitation};
use crate::ledger::outbox::{Mail, random_id};
use crate::ledger::texts::{self, EMAIL, Texts};
use crate::ledger::{Command, CommandResult, Idempotency, user_security};
use crate::secrets::seal::{Secret, random_secret};

/// A user of the own account.
#[derive(Object, Serialize)]
pub(crate) struct TeamMember {
    /// Unique identifier of the user.
    pub(crate) id: i64,
    /// Email address to log in with. Empty after it is erased.
    pub(crate) email: String,
    /// Role of the user.
    pub(crate) role: UserRole,
    /// Whether each login of the user takes a code.
    pub(crate) has_two_factor: bool,
    /// Time at which the user was created.
    pub(crate) created_at: Timestamp,
}

impl Plural for TeamMember {
    const PLURAL: &'static str = "users";
}

impl TeamMember {
    fn new(user: &user::User, emails: &Texts, with_two_factor: &HashSet<UserId>) -> Self {
        Self {
            id: user.id.0,
            email: emails.get(&(EMAIL, user.id.0)).map_or("", Secret::expose).to_owned(),
            role: user.role.into(),
            has_two_factor: with_two_factor.contains(&user.id),
            created_at: user.created_at.into(),
        }
    }
}

body! {
    /// A person to invite.
    #[derive(Object, Serialize)]
    pub(crate) struct InvitePerson {
        /// Email address to send the invitation to, and to log in with afterwards.
        #[oai(validator(pattern = r"^[^\s@\u0000-\u001f\u007f-\u009f]+@[^\s@\u0000-\u001f\u007f-\u009f]+$"))]
        pub email: String = required(email()),
        /// Role of the user that the invitation becomes.
        pub role: UserRole = required(one_of),
    }
}

/// An invitation that nobody has accepted.
#[derive(Object, Serialize)]
pub(crate) struct Invitation {
    /// Unique identifier of the invitation.
    pub(crate) id: i64,
    /// Email address that the invitation was sent to.
    pub(crate) email: String,
    /// Role of the user that the invitation becomes.
    pub(crate) role: UserRole,
    /// Unique identifier of the user who sent the invitation.
    pub(crate) invited_by: i64,
    /// Time of the invitation.
    pub(crate) created_at: Timestamp,
    /// Time at which the invitation expires, 7 days later.
    pub(crate) expires_at: Timestamp,
}

impl Plural for Invitation {
    const PLURAL: &'static str = "invitations";
}

impl From<Open> for Invitation {
    fn from(open: Open) -> Self {
        Self {
            id: open.id,
            email: open.email.expose().to_owned(),
            role: open.role.into(),
            invited_by: open.invited_by.0,
            created_at: open.created_at.into(),
            expires_at: open.expires_at.into(),
        }
    }
}

body! {
    /// A new role of a user.
    #[derive(Object)]
    pub(crate) struct ChangeTeamMember {
        /// New role of the user.
        pub role: UserRole = required(one_of),
    }
}

/// Lists one page of the account's users, newest first, without removed ones.
///
/// # Errors
/// 503 if the database does not answer.
pub(crate) async fn members(state: &ApiState, caller: &Principal, page: Page) -> Result<Rows<TeamMember>, ApiError> {
    let found = users::list(state.ledger.pool(), caller.account_id, rows_of(page)).await?;
    let ids: Vec<UserId> = found.rows.iter().map(|user| user.id).collect();
    let wanted: Vec<_> = ids.iter().map(|id| (EMAIL, id.0)).collect();
    let emails = texts::load(state.ledger.pool(), &state.keyring, caller.shard_id, &wanted).await?;
    let find = async || user_security::with_two_factor(&mut *state.ledger.pool().acquire().await?, &ids).await;
    let with_two_factor: HashSet<UserId> = replanned(find).await?.into_iter().collect();
    Ok(found.map(|user| TeamMember::new(&user, &emails, &with_two_factor)))
}

/// Invites a person by mail. The outcome does not tell whether somebody logs in with this address already. Returns the open
/// invitation of an earlier request with the same idempotency key.
///
/// # Errors
/// 403 for a suspended account. 409 if the account has too many open invitations, or if the invitation of the earlier request
/// is no longer open.
async fn invite(
    state: &ApiState,
    caller: &Principal,
    body: InvitePerson,
    idempotency: Option<Idempotency>,
) -> Result<Stored<Data<Invitation>, 201>, ApiError> {
    let (invited_by, _) = signed_in(caller)?;
    let created_at = one_time_tokens::now(state.ledger.pool()).await?;
    let (id, token, expires_at) = (random_id(), random_secret(), created_at + Mail::INVITATION_LIFETIME);
    let command = InviteUser {
        account_id: caller.account_id,
        id,
        role: body.role.into(),
        email: Secret::new(body.email.clone()),
        token,
        invited_by,
        created_at,
        expires_at,
    };
    let reply = state.ledger.submit(caller.shard_id, command, origin(caller.actor()), idempotency).await?;
    let (id, is_replay) = made_by(reply)?;
    let invitation = match is_replay {
        true => {
            let open = invitations(state, caller).await?;
            open.into_iter().find(|open| open.id == id).ok_or_else(|| already_created(id))?
        }
        false => {
            let (created_at, expires_at) = (created_at.into(), expires_at.into());
            Invitation { id, email: body.email, role: body.role, invited_by: invited_by.0, created_at, expires_at }
        }
    };
    Ok(Stored::new(201, render(&invitation).map_err(ApiError::internal)?, is_replay))
}

/// Lists the open invitations of the account, newest first.
///
/// # Errors
/// 503 if the database does not answer.
pub(crate) async fn invitations(state: &ApiState, caller: &Principal) -> Result<Vec<Invitation>, ApiError> {
    let open = Open::of_account(state.ledger.pool(), &state.keyring, caller.account_id).await?;
    Ok(open.into_iter().map(Invitation::from).collect())
}

/// Ends an open invitation of the account.
///
/// # Errors
/// 404 if the account has no such invitation.
pub(crate) async fn revoke_invitation(state: &ApiState, caller: &Principal, id: i64) -> Result<(), ApiError> {
    let (user_id, _) = signed_in(caller)?;
    if !invitations(state, caller).await?.iter().any(|open| open.id == id) {
        return Err(not_found());
    }
    execute(state, caller, RevokeInvitation { account_id: caller.account_id, id, user_id }).await.map(drop)
}

/// Changes the role of a user of the account, and ends the user's sessions.
///
/// # Errors
/// 404 for a user of another account, 409 for the last owner.
pub(crate) async fn change_role(
    state: &ApiState,
    caller: &Principal,
    user_id: UserId,
    role: UserRole,
) -> Result<TeamMember, ApiError> {
    let command = ChangeMemberRole { account_id: caller.account_id, user_id, role: role.into() };
    let user = execute(state, caller, command).await?;
    view(state, caller, &user).await
}

/// Removes a user of the account.
///
/// # Errors
/// 404 for a user of another account, 409 for the last owner.
pub(crate) async fn remove(state: &ApiState, caller: &Principal, user_id: UserId) -> Result<TeamMember, ApiError> {
    let user = execute(state, caller, RemoveMember { account_id: caller.account_id, user_id }).await?;
    view(state, caller, &user).await
}

async fn execute(state: &ApiState, caller: &Principal, command: impl Into<Command>) -> Result<user::User, ApiError> {
    let done = state.ledger.execute(caller.shard_id, command, origin(caller.actor())).await?;
    answered!(done, CommandResult::User(user) => user)
}

async fn view(state: &ApiState, caller: &Principal, user: &user::User) -> Result<TeamMember, ApiError> {
    let pool = state.ledger.pool();
    let emails = texts::load(pool, &state.keyring, caller.shard_id, &[(EMAIL, user.id.0)]).await?;
    let find = async || user_security::with_two_factor(&mut *pool.acquire().await?, &[user.id]).await;
    let with_two_factor = replanned(find).await?.into_iter().collect();
    Ok(TeamMember::new(user, &emails, &with_two_factor))
}

pub struct Team;

#[OpenApi(prefix_path = "/client/api", tag = "Tag::Team")]
impl Team {
    /// List users
    ///
    /// Returns the users of the account, newest first. Removed users are not listed.
    #[oai(path = "/users", method = "get", operation_id = "list_team")]
    pub(crate) async fn list(
        &self,
        caller: Caller<PortalUser>,
        state: State<'_>,
        /// Page number, from 1. Default: 1.
        page: Query<Option<i64>>,
        /// Users per page, 1 to 100. Default: 20.
        limit: Query<Option<i64>>,
    ) -> Result<Listed<TeamMember>, ApiError> {
        let page = Page::of(page.0, limit.0, 20, 100)?;
        Ok(listed(members(&state, &caller.0, page).await?, page, |member| member))
    }

    /// Retrieve a user
    ///
    /// Returns a user of the account. Returns 404 for a removed user.
    #[oai(path = "/users/:id", method = "get", operation_id = "get_team_member")]
    async fn get(
        &self,
        caller: Caller<PortalUser>,
        state: State<'_>,
        /// Unique identifier of the user.
        id: Path<i64>,
    ) -> Result<Reply<TeamMember>, ApiError> {
        let found = users::find_present(state.ledger.pool(), caller.0.account_id, UserId(id.0)).await?;
        Ok(Reply(view(&state, &caller.0, &found.ok_or_else(not_found)?).await?))
    }

    /// Invite a user
    ///
    /// Sends a mail with a link to the person, who chooses a password there. The invitation expires after 7 days. It replaces
    /// an open one to the same address, whose link stops. An account can have 100 open invitations. Requires the role owner.
    #[oai(path = "/users/invitations", method = "post", operation_id = "invite_user")]
    pub(crate) async fn invite(
        &self,
        caller: Caller<PortalOwner>,
        state: State<'_>,
        /// Unique key that makes retries safe: a repeated request with the same key returns the first invitation while it is
        /// open, and 409 `E_ALREADY_CREATED` afterwards.
        #[oai(name = "Idempotency-Key")]
        key: IdempotencyKey,
        body: StrictJson<InvitePerson>,
    ) -> Result<Stored<Data<Invitation>, 201>, ApiError> {
        let idempotency = key.of(&caller.0, "/client/api/users/invitations", &body.0, made)?;
        invite(&state, &caller.0, body.0, idempotency).await
    }

    /// List invitations
    ///
    /// Returns the account's invitations that nobody has accepted, newest first. Requires the role owner.
    #[oai(path = "/users/invitations", method = "get", operation_id = "list_invitations")]
    pub(crate) async fn list_invitations(
        &self,
        caller: Caller<PortalOwner>,
        state: State<'_>,
    ) -> Result<Listed<Invitation>, ApiError> {
        Ok(Listed::whole(invitations(&state, &caller.0).await?))
    }

    /// Revoke an invitation
    ///
    /// Ends an invitation that nobody has accepted. Requires the role owner.
    #[oai(path = "/users/invitations/:id", method = "delete", operation_id = "revoke_invitation")]
    pub(crate) async fn revoke_invitation(
        &self,
        caller: Caller<PortalOwner>,
        state: State<'_>,
        /// Unique identifier of the invitation.
        id: Path<i64>,
        _no_fields: NoFields,
    ) -> Result<Reply<Confirmation>, ApiError> {
        revoke_invitation(&state, &caller.0, id.0).await?;
        Ok(Reply(Confirmation::new("The invitation is revoked.")))
    }

    /// Change a user's role
    ///
    /// The change takes effect with the next request and ends all sessions of the user, who has to log in again. Returns 409
    /// `E_CONFLICT` for the last owner and for a removed user. Requires the role owner.
    #[oai(path = "/users/:id", method = "put", operation_id = "change_team_member")]
    pub(crate) async fn change(
        &self,
        caller: Caller<PortalOwner>,
        state: State<'_>,
        /// Unique identifier of the user.
        id: Path<i64>,
        body: StrictJson<ChangeTeamMember>,
    ) -> Result<Reply<TeamMember>, ApiError> {
        Ok(Reply(change_role(&state, &caller.0, UserId(id.0), body.0.role).await?))
    }

    /// Remove a user
    ///
    /// Takes effect with the next request and ends all sessions and tokens of the user. Returns 409 `E_CONFLICT` for the last
    /// owner. Requires the role owner.
    #[oai(path = "/users/:id", method = "delete", operation_id = "remove_team_member")]
    pub(crate) async fn remove(
        &self,
        caller: Caller<PortalOwner>,
        state: State<'_>,
        /// Unique identifier of the user.
        id: Path<i64>,
        _no_fields: NoFields,
    ) -> Result<Reply<TeamMember>, ApiError> {
        Ok(Reply(remove(&state, &caller.0, UserId(id.0)).await?))
    }
}
