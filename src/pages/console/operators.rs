//! The operators, the people who sign in to the console: their list, a new one, and one of them.

use chrono::{DateTime, Utc};
use maud::{Markup, html};
use poem::Response;
use poem::http::Method;
use serde::Deserialize;
use serde_json::{Value, json};

use super::parts::{audit_of, is_admin, needs_admin, sign_in_changes};
use crate::pages::call::{List, Refusal};
use crate::pages::form::Kind;
use crate::pages::outcome::{PageResult, redirect};
use crate::pages::parts::fields::Filled;
use crate::pages::parts::values::{copyable, facts, time, words};
use crate::pages::parts::{layout, table};
use crate::pages::site::Site;
use crate::pages::visit::Visit;

/// Roles of operators, with what they may do.
pub const ROLES: [(&str, &str); 3] = [
    ("auditor", "Auditor: reads everything"),
    ("finance", "Finance: also funds and adjusts wallets, settles payouts, and reconciles"),
    ("admin", "Admin: may do everything"),
];

/// An operator, as `GET /admin/v1/operators` returns it.
#[derive(Debug, Deserialize)]
struct Operator {
    id: i64,
    email: String,
    role: String,
    sign_in: String,
    two_factor: bool,
    created_at: DateTime<Utc>,
}

impl Operator {
    /// Returns the email address, or the number if the address is erased.
    fn name(&self) -> String {
        if self.email.is_empty() { format!("Operator {}", self.id) } else { self.email.clone() }
    }

    /// Returns whether the identity provider assigns the role.
    fn is_of_provider(&self) -> bool {
        self.sign_in == "open_id"
    }
}

pub fn add(site: Site) -> Site {
    site.get("/console/operators", list)
        .post("/console/operators", create)
        .get("/console/operators/:id", show)
        .post("/console/operators/:id", change)
        .post("/console/operators/:id/two-factor", remove_two_factor)
        .post("/console/operators/:id/remove", remove)
}

async fn list(visit: Visit) -> PageResult {
    visit.operator()?;
    if !is_admin(&visit) {
        return Ok(layout::page(&visit, "Operators", &needs_admin("see and manage operators")));
    }
    let operators = load(&visit).await?;
    Ok(list_page(&visit, &operators, None))
}

async fn load(visit: &Visit) -> Result<List<Operator>, Refusal> {
    visit.list(&format!("/admin/v1/operators?{}", visit.query.only(&["page"])), "operators").await
}

async fn create(visit: Visit) -> PageResult {
    visit.operator()?;
    let body = visit.form.json(&[("email", Kind::Text), ("password", Kind::Exact), ("role", Kind::Text)]);
    match visit.change::<Operator>(Method::POST, "/admin/v1/operators", &body).await {
        Ok(operator) => Ok(redirect(&format!("/console/operators/{}?done=created", operator.id))),
        Err(refusal) if !refusal.is_correctable() || !is_admin(&visit) => Err(refusal.into()),
        Err(refusal) => {
            let operators = load(&visit).await?;
            Ok(layout::refused(list_page(&visit, &operators, Some(&refusal)), &refusal))
        }
    }
}

fn list_page(visit: &Visit, operators: &List<Operator>, refusal: Option<&Refusal>) -> Response {
    let fields = Filled { form: &visit.form, refusal };
    let body = html! {
        (layout::problem(refusal))
        p { "An operator is a person who signs in to this console. A program has a token instead." }
        p.actions { a.button.plain href="/console/operator-tokens" { "Tokens of programs" } }
        @if operators.items.is_empty() { (table::empty("There is no operator yet. Create the first one here.", None)) }
        @else {
            (rows(&operators.items))
            (table::pager(operators, "/console/operators", &visit.query))
        }
        details.card open[refusal.is_some() || operators.items.is_empty()] {
            summary { "New operator" }
            form method="post" action="/console/operators" {
                (fields.input("email", "Email", "email", "To sign in to the console. No two operators have the same one."))
                (fields.new_password("password", "Password", "8 to 128 characters, and not a common one."))
                (fields.select("role", "Role", &ROLES, ""))
                p.quiet { "Operators of an identity provider are not created here: their first sign-in does that." }
                button { "Create the operator" }
            }
        }
    };
    layout::page(visit, "Operators", &body)
}

fn rows(operators: &[Operator]) -> Markup {
    let columns = [("Operator", false), ("Role", false), ("Signs in with", false), ("Second factor", false), ("Created", false)];
    let row = |operator: &Operator| {
        vec![
            html! { a href={ "/console/operators/" (operator.id) } { (operator.name()) } },
            html! { (words(&operator.role)) },
            proof(operator),
            html! { @if operator.two_factor { "Enrolled" } @else { "–" } },
            time(operator.created_at),
        ]
    };
    table::table("Operators", &columns, &operators.iter().map(row).collect::<Vec<_>>())
}

fn proof(operator: &Operator) -> Markup {
    html! { @if operator.is_of_provider() { "Identity provider" } @else { "Password" } }
}

async fn find(visit: &Visit, id: i64) -> Result<Operator, Refusal> {
    visit.get(&format!("/admin/v1/operators/{id}")).await
}

async fn show(visit: Visit) -> PageResult {
    visit.operator()?;
    let operator = find(&visit, visit.id("id")?).await?;
    Ok(one(&visit, &operator, None))
}

/// Makes a change, and leads to a page that says so. Shows the operator again if the change is refused.
async fn act(visit: &Visit, method: Method, path: &str, body: &Value, to: &str) -> PageResult {
    match visit.change::<Value>(method, path, body).await {
        Ok(_) => Ok(redirect(to)),
        Err(refusal) if !refusal.is_correctable() || !is_admin(visit) => Err(refusal.into()),
        Err(refusal) => {
            let operator = find(visit, visit.id("id")?).await?;
            Ok(layout::refused(one(visit, &operator, Some(&refusal)), &refusal))
        }
    }
}

async fn change(visit: Visit) -> PageResult {
    visit.operator()?;
    let id = visit.id("id")?;
    let body = visit.form.json(&[("role", Kind::Text), ("password", Kind::Exact)]);
    let to = format!("/console/operators/{id}?done=changed");
    act(&visit, Method::PUT, &format!("/admin/v1/operators/{id}"), &body, &to).await
}

async fn remove_two_factor(visit: Visit) -> PageResult {
    visit.operator()?;
    let id = visit.id("id")?;
    let to = format!("/console/operators/{id}?done=two-factor-removed");
    act(&visit, Method::DELETE, &format!("/admin/v1/operators/{id}/two-factor"), &json!({}), &to).await
}

async fn remove(visit: Visit) -> PageResult {
    visit.operator()?;
    let id = visit.id("id")?;
    act(&visit, Method::DELETE, &format!("/admin/v1/operators/{id}"), &json!({}), "/console/operators?done=removed").await
}

fn one(visit: &Visit, operator: &Operator, refusal: Option<&Refusal>) -> Response {
    let is_self = visit.operator().is_ok_and(|own| own.id == operator.id);
    let body = html! {
        (layout::problem(refusal))
        @if is_self { p.notice { "This is you. A change of your own role or password ends your session." } }
        (facts(&[
            ("Role", html! { (words(&operator.role)) }),
            ("Signs in with", proof(operator)),
            ("Second factor", html! { @if operator.two_factor { "Enrolled" } @else { "Not enrolled" } }),
            ("Number", copyable(&operator.id.to_string())),
            ("Created", time(operator.created_at)),
        ]))
        p.actions { a href=(audit_of("actor", &format!("operator/{}", operator.id))) { "What this operator did" } }
        @if operator.is_of_provider() {
            p.quiet { "The identity provider assigns the role, and asks for the password and further factors." }
        } @else { (changes(visit, operator, refusal)) }
        details.card {
            summary { "Remove this operator" }
            form method="post" action={ "/console/operators/" (operator.id) "/remove" } {
                p {
                    "All sessions of the operator end with the next request. This cannot be undone. "
                    @if operator.is_of_provider() { "The operator cannot sign in again through the identity provider." }
                    @else { "Another operator can then have the email address." }
                }
                button.danger { "Remove the operator" }
            }
        }
        p.actions { a href="/console/operators" { "All operators" } }
    };
    layout::page(visit, &operator.name(), &body)
}

fn changes(visit: &Visit, operator: &Operator, refusal: Option<&Refusal>) -> Markup {
    let target = format!("/console/operators/{}", operator.id);
    html! {
        (sign_in_changes(visit, &target, "operator", &operator.role, &ROLES, refusal))
        @if operator.two_factor {
            details.card {
                summary { "Remove the second factor" }
                form method="post" action={ (target) "/two-factor" } {
                    p { "For an operator who has lost the authenticator app and the recovery codes. The password alone then signs in, until a second factor is enrolled again." }
                    button.danger { "Remove the second factor" }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_escaped_and_an_erased_one_is_a_number() {
        let operator = |email: &str| -> Operator {
            let operator = json!({"id": 3, "email": email, "role": "finance", "sign_in": "open_id", "two_factor": false,
                "created_at": "2026-01-31T12:00:00Z"});
            serde_json::from_value(operator).unwrap()
        };
        let markup = rows(&[operator("<b>@example.com"), operator("")]).0;
        assert!(!markup.contains("<b>") && markup.contains("Operator 3") && markup.contains("Identity provider"), "{markup}");
    }
}
