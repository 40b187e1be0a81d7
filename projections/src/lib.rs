//! Projections of the ledger's log. Each file contains one projection: a fold from recorded events to rows, the
//! SQL of its own tables, and the queries that read them.
//!
//! Statements name the tables of a projection without a schema. The same code therefore builds them in `public`
//! and, for a rebuild, in `shadow`: the `search_path` of the connection decides.

pub mod accounts;
pub mod approvals;
pub mod beneficiaries;
pub mod catalogue;
pub mod deliveries;
pub mod envelope;
pub mod listing;
pub mod low_balance;
pub mod orders;
pub mod page;
pub mod payouts;
pub mod purchases;
pub mod replays;
pub mod shards;
pub mod state;
pub mod statements;
pub mod stock;
pub mod totals;
pub mod users;
pub mod wallets;
pub mod webhooks;
pub mod write;

use ledger_database::{PgConnection, Replannable, is_plan_outdated};
use ledger_events::account::{Account, Credential};
use ledger_events::approval::Approval;
use ledger_events::beneficiary::Beneficiary;
use ledger_events::catalogue::{Category, Product};
use ledger_events::payout::Payout;
use ledger_events::purchase::Purchase;
use ledger_events::reconciliation::BankStatement;
use ledger_events::replay::Replay;
use ledger_events::shard::Shard;
use ledger_events::user::User;
use ledger_events::webhook::Webhook;
use ledger_events::{Money, Percent, Recorded, ShardId};
use rust_decimal::Decimal;
use state::apply;

#[derive(Debug, thiserror::Error)]
pub enum ProjectionError {
    #[error(transparent)]
    Database(#[from] sqlx::Error),
    /// A row that no fold can have written.
    #[error("the row {table} {id} is not readable: {problem}")]
    Row { table: &'static str, id: i64, problem: String },
    #[error(transparent)]
    Json(#[from] serde_json::Error),
}

impl Replannable for ProjectionError {
    fn is_plan_outdated(&self) -> bool {
        matches!(self, Self::Database(error) if is_plan_outdated(error))
    }
}

/// Inline projections: the writer updates them in its own transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Inline {
    Accounts,
    Approvals,
    Catalogue,
    Orders,
    Payouts,
    Purchases,
    Reconciliation,
    Shards,
    Users,
    Wallets,
    Webhooks,
}

impl Inline {
    pub const ALL: [Inline; 11] = [
        Self::Accounts,
        Self::Approvals,
        Self::Catalogue,
        Self::Orders,
        Self::Payouts,
        Self::Purchases,
        Self::Reconciliation,
        Self::Shards,
        Self::Users,
        Self::Wallets,
        Self::Webhooks,
    ];

    pub fn name(self) -> &'static str {
        match self {
            Self::Accounts => "accounts",
            Self::Approvals => "approvals",
            Self::Catalogue => "catalogue",
            Self::Orders => "orders",
            Self::Payouts => "payouts",
            Self::Purchases => "purchases",
            Self::Reconciliation => "reconciliation",
            Self::Shards => "shards",
            Self::Users => "users",
            Self::Wallets => "wallets",
            Self::Webhooks => "webhooks",
        }
    }

    pub fn tables(self) -> &'static [&'static str] {
        match self {
            Self::Accounts => &["accounts", "credentials", "credential_restrictions"],
            Self::Approvals => &["approvals"],
            Self::Catalogue => &["categories", "products"],
            Self::Orders => &["orders"],
            Self::Payouts => &["beneficiaries", "payouts"],
            Self::Purchases => &["purchases"],
            Self::Reconciliation => &["bank_statements"],
            Self::Shards => &["shards"],
            Self::Users => &["users"],
            Self::Wallets => &["wallets", "wallet_transactions"],
            Self::Webhooks => &["webhooks", "webhook_subscriptions", "webhook_deactivations", "webhook_replays"],
        }
    }

    /// Folds the next events of the log into the rows of this projection.
    pub async fn apply(self, conn: &mut PgConnection, shard: ShardId, events: &[Recorded]) -> Result<(), ProjectionError> {
        match self {
            Self::Accounts => {
                apply::<Account>(conn, shard, events).await?;
                apply::<Credential>(conn, shard, events).await
            }
            Self::Approvals => apply::<Approval>(conn, shard, events).await,
            Self::Catalogue => {
                apply::<Product>(conn, shard, events).await?;
                apply::<Category>(conn, shard, events).await
            }
            Self::Orders => orders::apply(conn, shard, events).await,
            Self::Payouts => {
                apply::<Beneficiary>(conn, shard, events).await?;
                apply::<Payout>(conn, shard, events).await
            }
            Self::Purchases => apply::<Purchase>(conn, shard, events).await,
            Self::Reconciliation => apply::<BankStatement>(conn, shard, events).await,
            Self::Shards => apply::<Shard>(conn, shard, events).await,
            Self::Users => apply::<User>(conn, shard, events).await,
            Self::Wallets => wallets::apply(conn, shard, events).await,
            Self::Webhooks => {
                apply::<Webhook>(conn, shard, events).await?;
                apply::<Replay>(conn, shard, events).await
            }
        }
    }
}

/// Converts a stored amount. Stored amounts have two decimals; anything else is a damaged row and an error.
pub(crate) fn money(value: Decimal) -> Result<Money, sqlx::Error> {
    Money::try_from(value).map_err(|problem| sqlx::Error::Decode(Box::new(problem)))
}

pub(crate) fn percent(value: Decimal) -> Result<Percent, sqlx::Error> {
    Percent::try_from(value).map_err(|problem| sqlx::Error::Decode(Box::new(problem)))
}

/// Returns the parsed value of a text from a closed set, or an error that names the text.
pub(crate) fn known<T>(value: Option<T>, text: &str) -> Result<T, sqlx::Error> {
    value.ok_or_else(|| sqlx::Error::Decode(format!("unknown value {text:?}").into()))
}
