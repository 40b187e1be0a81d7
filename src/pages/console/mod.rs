//! The console: pages for the operators of the service.

mod account;
mod accounts;
mod attempts;
mod audit;
mod audit_runs;
mod catalogue;
mod checkpoints;
mod erasures;
mod event;
mod ip_blocks;
mod live;
mod log;
mod login;
mod money;
mod operations;
mod operator_tokens;
mod operators;
mod order;
mod orders;
mod overview;
mod parts;
mod proof;
mod purchases;
mod queue;
mod reconciliation;
mod replays;
mod search;

use std::sync::Arc;

use tokio_util::sync::CancellationToken;

use super::site::Site;

/// Adds all pages of the console. Their streams end when `stop` is cancelled.
pub fn add(site: Site, has_open_id: bool, service_name: Arc<str>, stop: CancellationToken) -> Site {
    let site = login::add(site, has_open_id).get("/console", overview::show);
    let site = purchases::add(reconciliation::add(money::add(catalogue::add(site))));
    let site = accounts::add(order::add(orders::add(search::add(account::add(site)))), service_name);
    let site = audit_runs::add(log::add(erasures::add(replays::add(queue::add(attempts::add(operations::add(site)))))));
    let site = operator_tokens::add(operators::add(event::add(audit::add(ip_blocks::add(site)))));
    live::add(site, stop)
}
