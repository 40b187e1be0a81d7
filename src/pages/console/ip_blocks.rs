//! The blocks of IP addresses after too many logins, and how an admin lifts one.

use std::net::IpAddr;

use chrono::{DateTime, Utc};
use maud::{Markup, html};
use poem::Response;
use poem::http::Method;
use serde::Deserialize;
use serde_json::{Value, json};

use super::parts::{is_admin, needs_admin};
use crate::pages::call::{List, Refusal};
use crate::pages::outcome::{PageResult, Stop, redirect};
use crate::pages::parts::values::time;
use crate::pages::parts::{layout, table};
use crate::pages::site::Site;
use crate::pages::visit::Visit;

/// A block, as `GET /admin/v1/ip-blocks` returns it.
#[derive(Debug, Deserialize)]
pub struct Block {
    ip: String,
    started_at: DateTime<Utc>,
    ends_at: DateTime<Utc>,
}

pub fn add(site: Site) -> Site {
    site.get("/console/ip-blocks", list).post("/console/ip-blocks", lift)
}

async fn load(visit: &Visit) -> Result<List<Block>, Refusal> {
    visit.list(&format!("/admin/v1/ip-blocks?{}", visit.query.only(&["page"])), "ip_blocks").await
}

async fn list(visit: Visit) -> PageResult {
    visit.operator()?;
    let blocks = load(&visit).await?;
    Ok(page(&visit, &blocks, None))
}

async fn lift(visit: Visit) -> PageResult {
    visit.operator()?;
    let ip: IpAddr = visit.form.value("ip").parse().map_err(|_| Stop::NotFound)?;
    match visit.change::<Value>(Method::DELETE, &format!("/admin/v1/ip-blocks/{ip}"), &json!({})).await {
        Ok(_) => Ok(redirect("/console/ip-blocks?done=lifted")),
        Err(refusal) if !refusal.is_correctable() => Err(refusal.into()),
        Err(refusal) => {
            let blocks = load(&visit).await?;
            Ok(layout::refused(page(&visit, &blocks, Some(&refusal)), &refusal))
        }
    }
}

fn page(visit: &Visit, blocks: &List<Block>, refusal: Option<&Refusal>) -> Response {
    let may_lift = is_admin(visit);
    let body = html! {
        (layout::problem(refusal))
        p { "After too many logins, all requests from an address are refused until the block ends. An IPv6 address stands for its /64 network." }
        @if blocks.items.is_empty() { (table::empty("No address is blocked.", None)) }
        @else {
            (rows(&blocks.items, may_lift))
            (table::pager(blocks, "/console/ip-blocks", &visit.query))
            @if !may_lift { (needs_admin("lift a block")) }
        }
    };
    layout::page(visit, "Blocked addresses", &body)
}

/// Shows the blocks of the addresses from which the users of an account are signed in.
pub fn of_account(visit: &Visit, blocks: &[Block]) -> Markup {
    html! {
        h2 { "Blocked addresses of its users" }
        @if blocks.is_empty() { p { "No address from which a user of this account is signed in is blocked." } }
        @else { (rows(blocks, is_admin(visit))) }
        p.quiet {
            "A block belongs to an address. The page compares it with the addresses of the account's 100 newest sessions. "
            a href="/console/ip-blocks" { "All blocked addresses" }
        }
    }
}

fn rows(blocks: &[Block], may_lift: bool) -> Markup {
    let columns = [("Address", false), ("Since", false), ("Until", false), ("Lift", false)];
    let width = if may_lift { 4 } else { 3 };
    let row = |block: &Block| {
        let form = html! {
            details {
                summary { "Lift the block" }
                form method="post" action="/console/ip-blocks" {
                    p { (block.ip) " can call again at once, and its count of logins begins anew." }
                    input type="hidden" name="ip" value=(block.ip);
                    button.danger aria-label={ "Lift it now: " (block.ip) } { "Lift it now" }
                }
            }
        };
        vec![html! { (block.ip) }, time(block.started_at), time(block.ends_at), form]
    };
    table::table("Blocked addresses", &columns[..width], &blocks.iter().map(row).collect::<Vec<_>>())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_an_admin_sees_how_to_lift_a_block() {
        let at = DateTime::from_timestamp(0, 0).unwrap_or_default();
        let block = || Block { ip: "203.0.113.7".to_owned(), started_at: at, ends_at: at };
        assert!(rows(&[block()], true).0.contains("Lift it now"));
        assert!(!rows(&[block()], false).0.contains("Lift it now"));
    }
}
