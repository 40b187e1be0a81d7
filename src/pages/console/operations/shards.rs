//! The shards that get new accounts, and how an admin adds or drains one.

use ledger_events::ShardId;
use ledger_events::shard::NUMBERS;
use maud::{Markup, html};
use poem::http::Method;
use serde::Deserialize;
use serde_json::{Value, json};

use super::show_with;
use crate::pages::call::Refusal;
use crate::pages::console::parts::{is_admin, needs_admin};
use crate::pages::form::address;
use crate::pages::outcome::{PageResult, redirect};
use crate::pages::parts::table;
use crate::pages::parts::values::{badge, counted};
use crate::pages::site::Site;
use crate::pages::visit::Visit;

/// Path of the shards in the API.
const SHARDS: &str = "/admin/v1/shards";

/// A shard, as `GET /admin/v1/shards` returns it.
#[derive(Debug, Deserialize)]
struct Shard {
    id: i16,
    status: String,
    accounts: i64,
}

pub fn add(site: Site) -> Site {
    site.post("/console/operations/shards", create).post("/console/operations/shards/:id/drain", drain)
}

async fn create(visit: Visit) -> PageResult {
    visit.operator()?;
    let body = json!({"shard_id": visit.form.value("shard_id").parse::<i16>().ok()});
    let outcome = visit.change::<Value>(Method::POST, SHARDS, &body).await;
    changed(&visit, outcome, "shard-added").await
}

async fn drain(visit: Visit) -> PageResult {
    visit.operator()?;
    let body = json!({"draining": visit.form.value("draining") == "true"});
    let outcome = visit.change::<Value>(Method::PUT, &format!("{SHARDS}/{}/drain", visit.id("id")?), &body).await;
    changed(&visit, outcome, "changed").await
}

/// Leads back to the state of operations, which shows a conflict.
async fn changed(visit: &Visit, outcome: Result<Value, Refusal>, done: &str) -> PageResult {
    match outcome {
        Ok(_) => Ok(redirect(&format!("/console/operations?done={done}"))),
        Err(refusal) if refusal.code == "E_CONFLICT" => show_with(visit, Some(&refusal)).await,
        Err(refusal) => Err(refusal.into()),
    }
}

/// Reads the shards, and renders which of them get new accounts, with the forms of an admin.
pub async fn section(visit: &Visit) -> Result<Markup, Refusal> {
    let shards = visit.list::<Shard>(SHARDS, "shards").await?.items;
    let may_change = is_admin(visit);
    Ok(html! {
        p.quiet {
            "A new account goes to the open shard with the fewest events in the last 24 hours, and stays in its shard. "
            "A draining shard gets no new accounts."
        }
        (rows(&shards, may_change))
        @if let Some(free) = lowest_free(&shards).filter(|_| may_change) {
            details.card {
                summary { "Add a shard" }
                form method="post" action="/console/operations/shards" {
                    p {
                        "Every node works on it within a second, with more connections to the database. A shard cannot be removed."
                    }
                    input type="hidden" name="shard_id" value=(free);
                    button { "Add the shard" }
                }
            }
        }
        @if !may_change { (needs_admin("add or drain a shard")) }
    })
}

/// Returns the lowest number that no shard has. The form names it, so that a form that is sent twice adds one shard.
fn lowest_free(shards: &[Shard]) -> Option<ShardId> {
    NUMBERS.clone().find(|number| shards.iter().all(|shard| shard.id != *number))
}

/// Renders the shards. A shard that is the only open one cannot be drained, and one that no event adds is neither.
fn rows(shards: &[Shard], may_change: bool) -> Markup {
    let is_last_open = shards.iter().filter(|shard| shard.status == "open").count() == 1;
    let created = |shard: &Shard| address("/console/audit", &[("type", "AccountCreated"), ("shard_id", &shard.id.to_string())]);
    let row = |shard: &Shard| {
        let has_form = may_change && (shard.status == "draining" || shard.status == "open" && !is_last_open);
        let change = may_change.then(|| html! { @if has_form { (form(shard)) } @else { span.quiet { "–" } } });
        let cells = [html! { "Shard " (shard.id) }, badge(&shard.status), counted(shard.accounts, &created(shard))];
        cells.into_iter().chain(change).collect::<Vec<_>>()
    };
    let columns = [("Shard", false), ("Status", false), ("Accounts", true), ("Change", false)];
    let columns = &columns[..columns.len() - usize::from(!may_change)];
    table::table("Shards and their accounts", columns, &shards.iter().map(row).collect::<Vec<_>>())
}

/// Renders the form that drains a shard, or ends its drain.
fn form(shard: &Shard) -> Markup {
    let is_open = shard.status == "open";
    let (summary, button) = if is_open { ("Drain", "Drain it") } else { ("Open again", "Open it again") };
    html! {
        details {
            summary aria-label={ (summary) " shard " (shard.id) } { (summary) }
            form method="post" action={ "/console/operations/shards/" (shard.id) "/drain" } {
                p { @if is_open { "It gets no new accounts. Its accounts work as before." } @else { "It gets new accounts again." } }
                input type="hidden" name="draining" value=(is_open);
                button.danger[is_open] aria-label={ (button) ": shard " (shard.id) } { (button) }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shard(id: i16, status: &str) -> Shard {
        Shard { id, status: status.to_owned(), accounts: 3 }
    }

    #[test]
    fn the_last_open_shard_cannot_be_drained() {
        let one = rows(&[shard(1, "open")], true).0;
        assert!(!one.contains("<form") && one.contains("/console/audit?type=AccountCreated&amp;shard_id=1\">3</a>"), "{one}");
        let drained = rows(&[shard(1, "open"), shard(2, "draining"), shard(3, "unannounced")], true).0;
        assert_eq!(drained.matches("<form").count(), 1, "{drained}");
        assert!(drained.contains("/shards/2/drain") && drained.contains("value=\"false\""), "{drained}");
        let open = rows(&[shard(1, "open"), shard(2, "open")], true).0;
        assert!(open.contains("/shards/1/drain") && open.contains("/shards/2/drain"), "{open}");
        assert!(open.contains("value=\"true\"") && !open.contains("value=\"false\""), "{open}");
        assert!(!rows(&[shard(1, "open"), shard(2, "open")], false).0.contains("<form"), "only an admin changes it");
    }
}
