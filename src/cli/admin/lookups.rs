//! `admin search`, `admin webhook`, `admin delivery` and the lists of `admin account show`.

use clap::{Subcommand, ValueEnum};

use super::{Operation, get};

#[derive(Subcommand, Debug)]
pub enum Lookup {
    /// Find orders, accounts, credentials, users, webhooks and events
    Search {
        /// Number, reference code, name, key prefix, email address, event ID or request ID
        term: String,
    },
    /// Show a webhook of any account
    Webhook {
        /// Webhook id
        webhook: i64,
    },
    /// Show a delivery of any account, with its attempts
    Delivery {
        /// Delivery id
        delivery: i64,
    },
}

/// List of what an account has.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub enum OfAccount {
    Credentials,
    Deliveries,
    Discounts,
    Limits,
    Users,
    Wallets,
    Webhooks,
}

impl OfAccount {
    fn path(self) -> &'static str {
        match self {
            Self::Credentials => "/credentials",
            Self::Deliveries => "/deliveries",
            Self::Discounts => "/discounts",
            Self::Limits => "/limits",
            Self::Users => "/users",
            Self::Wallets => "/wallets",
            Self::Webhooks => "/webhooks",
        }
    }
}

pub fn of_account(account: i64, what: Option<OfAccount>) -> Operation {
    let list = what.map(OfAccount::path).unwrap_or_default();
    get(&format!("/accounts/{account}{list}"))
}

pub fn operation(lookup: Lookup) -> Operation {
    match lookup {
        Lookup::Search { term } => {
            let term: String = url::form_urlencoded::byte_serialize(term.as_bytes()).collect();
            get(&format!("/search?q={term}"))
        }
        Lookup::Webhook { webhook } => get(&format!("/webhooks/{webhook}")),
        Lookup::Delivery { delivery } => get(&format!("/deliveries/{delivery}")),
    }
}
