//! The users of the account: their list, invitations, roles and removal, and the rule that owners need a second factor.

use chrono::{DateTime, Utc};
use futures::try_join;
use maud::{Markup, html};
use poem::Response;
use poem::http::Method;
use serde::Deserialize;
use serde_json::{Value, json};

use super::webhook::may;
use crate::pages::call::{List, Refusal};
use crate::pages::form::Kind;
use crate::pages::outcome::{PageResult, redirect};
use crate::pages::parts::fields::Filled;
use crate::pages::parts::values::{facts, time, words};
use crate::pages::parts::{layout, table};
use crate::pages::site::Site;
use crate::pages::visit::Visit;
use ledger_events::user::UserRole;

/// A user, as `GET /client/api/users` returns it.
#[derive(Debug, Deserialize)]
struct Member {
    id: i64,
    email: String,
    role: String,
    has_two_factor: bool,
    created_at: DateTime<Utc>,
}

/// An open invitation.
#[derive(Debug, Deserialize)]
struct Invitation {
    id: i64,
    email: String,
    role: String,
    created_at: DateTime<Utc>,
    expires_at: DateTime<Utc>,
}

/// Rules for logins of the account's users.
#[derive(Clone, Copy, Debug, Deserialize)]
struct Policy {
    owners_need_two_factor: bool,
}

/// Everything that the page of the team shows. Only an owner sees invitations.
struct Team {
    members: List<Member>,
    policy: Policy,
    invitations: Vec<Invitation>,
}

const ROLES: [(&str, &str); 3] = [
    ("viewer", "Viewer: reads everything except voucher codes"),
    ("operator", "Operator: also orders, reads codes, and manages webhooks"),
    ("owner", "Owner: also manages payouts, API keys and the team"),
];

pub fn add(site: Site) -> Site {
    site.get("/portal/team", show)
        .post("/portal/team/invitations", invite)
        .post("/portal/team/invitations/:id/revoke", revoke)
        .post("/portal/team/security", change_policy)
        .get("/portal/team/:id", member)
        .post("/portal/team/:id/role", change_role)
        .post("/portal/team/:id/remove", remove)
}

async fn load(visit: &Visit) -> Result<Team, Refusal> {
    let path = format!("/client/api/users?{}", visit.query.only(&["page"]));
    let invitations = async {
        match may(visit, UserRole::Owner) {
            true => Ok(visit.list("/client/api/users/invitations", "invitations").await?.items),
            false => Ok(vec![]),
        }
    };
    let (members, policy, invitations) = try_join!(visit.list(&path, "users"), visit.get("/client/api/security"), invitations)?;
    Ok(Team { members, policy, invitations })
}

async fn show(visit: Visit) -> PageResult {
    visit.user()?;
    let team = load(&visit).await?;
    Ok(page(&visit, &team, None))
}

/// Makes a change, and leads to the page with a notice, or shows the page again with the refusal.
async fn change(visit: Visit, method: Method, path: &str, body: &Value, done: &str) -> PageResult {
    visit.user()?;
    let changed = visit.change::<Value>(method, path, body).await;
    outcome(visit, changed, done).await
}

async fn outcome(visit: Visit, changed: Result<Value, Refusal>, done: &str) -> PageResult {
    match changed {
        Ok(_) => Ok(redirect(&format!("/portal/team?done={done}"))),
        Err(refusal) if refusal.is_correctable() || refusal.is_undecided() => {
            let team = load(&visit).await?;
            Ok(layout::refused(page(&visit, &team, Some(&refusal)), &refusal))
        }
        Err(refusal) => Err(refusal.into()),
    }
}

async fn invite(visit: Visit) -> PageResult {
    let body = visit.form.json(&[("email", Kind::Text), ("role", Kind::Text)]);
    visit.user()?;
    let invited = visit.change_once::<Value>("/client/api/users/invitations", &visit.form.key(), &body).await;
    outcome(visit, invited, "invited").await
}

async fn revoke(visit: Visit) -> PageResult {
    let path = format!("/client/api/users/invitations/{}", visit.id("id")?);
    change(visit, Method::DELETE, &path, &json!({}), "invitation-revoked").await
}

async fn change_policy(visit: Visit) -> PageResult {
    let body = json!({ "owners_need_two_factor": visit.form.value("owners_need_two_factor") == "true" });
    change(visit, Method::PUT, "/client/api/security", &body, "changed").await
}

async fn change_role(visit: Visit) -> PageResult {
    let path = format!("/client/api/users/{}", visit.id("id")?);
    let body = visit.form.json(&[("role", Kind::Text)]);
    change(visit, Method::PUT, &path, &body, "changed").await
}

async fn remove(visit: Visit) -> PageResult {
    let path = format!("/client/api/users/{}", visit.id("id")?);
    change(visit, Method::DELETE, &path, &json!({}), "removed").await
}

fn page(visit: &Visit, team: &Team, refusal: Option<&Refusal>) -> Response {
    let is_owner = may(visit, UserRole::Owner);
    let body = html! {
        (layout::problem(refusal))
        p { "The people who sign in to this account, each with a role." }
        @if visit.shows_outbox() && is_owner {
            p.actions { a.button.plain href="/portal/outbox" { "Mails that this service has sent" } }
        }
        (rows(&team.members.items, is_owner))
        (table::pager(&team.members, "/portal/team", &visit.query))
        @if is_owner {
            (new_one(&Filled { form: &visit.form, refusal }))
            (invitations(&team.invitations))
        } @else { p.quiet { "To invite, change and remove users, you need the role owner." } }
        (policy(team.policy, is_owner))
    };
    layout::page(visit, "Team", &body)
}

fn rows(members: &[Member], is_owner: bool) -> Markup {
    let columns = [("Email", false), ("Role", false), ("Second factor", false), ("Since", false)];
    let row = |member: &Member| {
        vec![
            html! {
                @if is_owner { a href={ "/portal/team/" (member.id) } { (member.title()) } } @else { (member.title()) }
            },
            html! { (words(&member.role)) },
            html! { @if member.has_two_factor { "Yes" } @else { "No" } },
            time(member.created_at),
        ]
    };
    table::table("Users", &columns, &members.iter().map(row).collect::<Vec<_>>())
}

impl Member {
    /// Returns the email address, or the number if the address is erased.
    fn title(&self) -> String {
        if self.email.is_empty() { format!("User {}", self.id) } else { self.email.clone() }
    }
}

fn new_one(fields: &Filled<'_>) -> Markup {
    html! {
        h2 { "Invite a person" }
        form.card method="post" action="/portal/team/invitations" {
            (fields.input("email", "Email", "email", "The person gets a link by mail, which expires after 7 days. An earlier link to the address stops."))
            (fields.select("role", "Role", &ROLES, ""))
            (fields.key())
            button { "Send the invitation" }
        }
    }
}

fn invitations(open: &[Invitation]) -> Markup {
    let columns = [("Email", false), ("Role", false), ("Sent", false), ("Expires", false), ("Actions", false)];
    let row = |invitation: &Invitation| {
        vec![
            html! { (invitation.email) },
            html! { (words(&invitation.role)) },
            time(invitation.created_at),
            time(invitation.expires_at),
            html! {
                form method="post" action={ "/portal/team/invitations/" (invitation.id) "/revoke" } {
                    button.plain aria-label={ "Revoke the invitation of " (invitation.email) } { "Revoke" }
                }
            },
        ]
    };
    html! {
        @if !open.is_empty() {
            h2 { "Open invitations" }
            (table::table("Open invitations", &columns, &open.iter().map(row).collect::<Vec<_>>()))
        }
    }
}

fn policy(policy: Policy, is_owner: bool) -> Markup {
    let (state, button) = match policy.owners_need_two_factor {
        true => ("Owners need two-factor authentication.", "Let owners sign in without a second factor"),
        false => ("Owners may sign in with a password alone.", "Require a second factor of owners"),
    };
    html! {
        h2 { "Security" }
        p { (state) }
        @if is_owner {
            form method="post" action="/portal/team/security" {
                input type="hidden" name="owners_need_two_factor" value=(!policy.owners_need_two_factor);
                @if !policy.owners_need_two_factor {
                    p.hint { "An owner without a second factor can then only set one up. Set up your own first." }
                }
                button.plain { (button) }
            }
        }
    }
}

async fn member(visit: Visit) -> PageResult {
    visit.user()?;
    let member: Member = visit.get(&format!("/client/api/users/{}", visit.id("id")?)).await?;
    let chosen = crate::pages::form::Form::from_pairs(vec![("role".to_owned(), member.role.clone())]);
    let fields = Filled { form: &chosen, refusal: None };
    let body = html! {
        (facts(&[
            ("Role", html! { (words(&member.role)) }),
            ("Second factor", html! { @if member.has_two_factor { "Yes" } @else { "No" } }),
            ("Since", time(member.created_at)),
        ]))
        @if may(&visit, UserRole::Owner) {
            form.card method="post" action={ "/portal/team/" (member.id) "/role" } {
                (fields.select("role", "Role", &ROLES, "The person's sessions end, so the person signs in again."))
                button { "Change the role" }
            }
            details.card {
                summary { "Remove this user" }
                form method="post" action={ "/portal/team/" (member.id) "/remove" } {
                    p { "The person's sessions end at once, and the login is gone. What the person did stays in the history." }
                    button.danger { "Remove the user" }
                }
            }
        }
        p { a href="/portal/team" { "The whole team" } }
    };
    Ok(layout::page(&visit, &member.title(), &body))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_an_owner_gets_links_and_the_form_of_the_rule() {
        let member = json!({"id": 5, "email": "<b>@example.com", "role": "owner", "has_two_factor": false,
            "created_at": "2026-01-31T12:00:00Z"});
        let member: Member = serde_json::from_value(member).unwrap();
        let (owner, viewer) = (rows(std::slice::from_ref(&member), true).0, rows(&[member], false).0);
        assert!(owner.contains("/portal/team/5") && !owner.contains("<b>"), "{owner}");
        assert!(!viewer.contains("/portal/team/5"), "{viewer}");
        let lax = Policy { owners_need_two_factor: false };
        assert!(policy(lax, true).0.contains("value=\"true\"") && !policy(lax, false).0.contains("<form"));
    }
}
