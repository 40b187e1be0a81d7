//! The client portal: pages for the users of an account.

mod account;
mod api_keys;
mod beneficiaries;
mod bulk;
mod deliveries;
mod events;
mod health;
mod live;
mod login;
mod notice;
mod order;
mod orders;
mod outbox;
mod overview;
mod payouts;
mod product;
mod products;
mod recovery;
mod restrictions;
mod statement;
mod team;
mod transactions;
mod two_factor;
mod wallets;
mod webhook;
mod webhooks;

use std::sync::Arc;

use tokio_util::sync::CancellationToken;

use crate::heartbeat::Heartbeats;

use super::site::Site;

/// Adds all pages of the portal. Their streams end when `stop` is cancelled.
pub fn add(site: Site, service_name: Arc<str>, heartbeats: Heartbeats, stop: CancellationToken) -> Site {
    let site = site
        .get("/portal", overview::show)
        .get("/portal/login", login::show)
        .post("/portal/login", login::sign_in)
        .post("/portal/logout", login::sign_out);
    let site = bulk::add(order::add(orders::add(site)));
    let site = transactions::add(product::add(products::add(site)));
    let site = events::add(beneficiaries::add(payouts::add(statement::add(wallets::add(site)))));
    let site = api_keys::add(deliveries::add(webhooks::add(site), service_name));
    let site = outbox::add(team::add(account::add(recovery::add(site))));
    live::add(site, heartbeats, stop)
}
