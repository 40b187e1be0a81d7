//! Links of the demo and of a new sandbox that sign a user in with one click.

use std::sync::Arc;

use serde_json::json;

use super::outcome::{PageResult, Stop};
use super::parts::layout;
use super::sign_in::log_in;
use super::site::Site;
use super::visit::Visit;
use crate::access::one_click::{Login, OneClick};

/// Adds the links, if the program has made users for them.
pub fn add(site: Site, one_click: Option<OneClick>) -> Site {
    let Some(one_click) = one_click.map(Arc::new) else { return site };
    let of_operator = one_click.clone();
    site.get("/portal/demo", move |visit| {
        let users = one_click.clone();
        async move { enter(visit, &users, &users.client, "/auth/login", "/portal").await }
    })
    .get("/console/demo", move |visit| {
        let users = of_operator.clone();
        async move { enter(visit, &users, &users.operator, "/admin/auth/login", "/console").await }
    })
}

/// Signs the user in, and leads to the page that the query asks for.
async fn enter(mut visit: Visit, users: &OneClick, login: &Login, operation: &'static str, start: &'static str) -> PageResult {
    if !users.admits(visit.query.value("token")) {
        return Err(Stop::NotFound);
    }
    visit.form = visit.query.clone();
    let body = json!({ "email": login.email, "password": login.password.expose() });
    log_in(visit, operation, &body, start, |visit, _, refusal| layout::page(visit, "Sign in", &layout::problem(Some(refusal))))
        .await
}
