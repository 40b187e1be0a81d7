//! The users of an account, and the creation of one.

use maud::{Markup, html};
use poem::Response;
use poem::http::Method;
use serde::Deserialize;

use super::{Account, account, page};
use crate::pages::call::{List, Refusal};
use crate::pages::console::parts::{is_admin, needs_admin};
use crate::pages::form::Kind;
use crate::pages::outcome::{PageResult, redirect};
use crate::pages::parts::fields::Filled;
use crate::pages::parts::values::words;
use crate::pages::parts::{layout, table};
use crate::pages::site::Site;
use crate::pages::visit::Visit;

/// Roles of users, with what they may do.
pub const ROLES: [(&str, &str); 3] = [
    ("viewer", "Viewer: reads everything but voucher codes"),
    ("operator", "Operator: also orders, reads voucher codes, and manages webhooks"),
    ("owner", "Owner: also manages payouts, beneficiaries and API keys"),
];

/// A user, as `GET /admin/v1/accounts/:id/users` returns it.
#[derive(Debug, Deserialize)]
pub struct User {
    pub id: i64,
    pub email: String,
    pub role: String,
}

impl User {
    /// Returns the email address, or the number if the address is erased.
    pub fn name(&self) -> String {
        if self.email.is_empty() { format!("User {}", self.id) } else { self.email.clone() }
    }
}

pub fn add(site: Site) -> Site {
    site.get("/console/accounts/:id/users", list).post("/console/accounts/:id/users", create)
}

async fn load(visit: &Visit, id: i64) -> Result<(Account, List<User>), Refusal> {
    let path = format!("/admin/v1/accounts/{id}/users?{}", visit.query.only(&["page"]));
    futures::try_join!(account(visit, id), visit.list(&path, "users"))
}

async fn list(visit: Visit) -> PageResult {
    visit.operator()?;
    let (account, users) = load(&visit, visit.id("id")?).await?;
    Ok(list_page(&visit, &account, &users, None))
}

async fn create(visit: Visit) -> PageResult {
    visit.operator()?;
    let id = visit.id("id")?;
    let body = visit.form.json(&[("email", Kind::Text), ("password", Kind::Exact), ("role", Kind::Text)]);
    match visit.change::<User>(Method::POST, &format!("/admin/v1/accounts/{id}/users"), &body).await {
        Ok(user) => Ok(redirect(&format!("/console/accounts/{id}/users/{}?done=created", user.id))),
        Err(refusal) if !refusal.is_correctable() => Err(refusal.into()),
        Err(refusal) => {
            let (account, users) = load(&visit, id).await?;
            Ok(layout::refused(list_page(&visit, &account, &users, Some(&refusal)), &refusal))
        }
    }
}

fn list_page(visit: &Visit, account: &Account, users: &List<User>, refusal: Option<&Refusal>) -> Response {
    let fields = Filled { form: &visit.form, refusal };
    let path = format!("/console/accounts/{}/users", account.id);
    let body = html! {
        (layout::problem(refusal))
        @if users.items.is_empty() { (table::empty("The account has no user yet. Its people need one to use the portal.", None)) }
        @else {
            (rows(&path, &users.items))
            (table::pager(users, &path, &visit.query))
        }
        @if is_admin(visit) {
            details.card open[refusal.is_some() || users.items.is_empty()] {
                summary { "New user" }
                form method="post" action=(path) {
                    (fields.input("email", "Email", "email", "To sign in to the portal. No two users have the same one."))
                    (fields.new_password("password", "Password", "8 to 128 characters, and not a common one. The user can change it."))
                    (fields.select("role", "Role", &ROLES, ""))
                    button { "Create the user" }
                }
            }
        } @else { (needs_admin("create users")) }
    };
    page(visit, account, &format!("Users of {}", account.name), &body)
}

fn rows(path: &str, users: &[User]) -> Markup {
    let columns = [("User", false), ("Number", true), ("Role", false)];
    let row = |user: &User| {
        vec![html! { a href={ (path) "/" (user.id) } { (user.name()) } }, html! { (user.id) }, html! { (words(&user.role)) }]
    };
    table::table("Users", &columns, &users.iter().map(row).collect::<Vec<_>>())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_erased_user_has_a_name() {
        let user = |email: &str| User { id: 7, email: email.to_owned(), role: "owner".to_owned() };
        assert_eq!(user("").name(), "User 7");
        let markup = rows("/users", &[user("<b>@example.com")]).0;
        assert!(!markup.contains("<b>") && markup.contains("Owner"), "{markup}");
    }
}
