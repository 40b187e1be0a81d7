//! `/admin/v1/accounts`: client organizations, their status and their discounts.

use ledger_events::account::{self, AccountStatus as Status, DiscountRule};
use ledger_events::{AccountId, CategoryId, ProductId, ShardId};
use ledger_projections::accounts;
use poem_openapi::param::{Path, Query};
use poem_openapi::{Enum, Object, OpenApi};
use rust_decimal::Decimal;
use serde::Serialize;

use super::shards::placement;
use crate::access::Operator;
use crate::api::body::StrictJson;
use crate::api::error::ApiError;
use crate::api::fields::{Fields, body};
use crate::api::mirror::mirror;
use crate::api::outcome::answered;
use crate::api::page::Page;
use crate::api::principal::{Admin, Caller};
use crate::api::readers::{id, integer, line, money, one_of};
use crate::api::reply::{Created, Listed, Plural, Reply};
use crate::api::scalars::{Money, Timestamp};
use crate::api::state::{State, Tag, listed, not_found, origin, rows_of};
use crate::ledger::{CommandResult, commands};

/// Status of an account.
///
/// - `ACTIVE`: the account can read and change its data.
/// - `SUSPENDED`: the account can read its data, but every change is refused.
#[derive(Clone, Copy, Default, Enum, Serialize)]
#[oai(rename_all = "SCREAMING_SNAKE_CASE")]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
enum AccountStatus {
    #[default]
    Active,
    Suspended,
}

mirror!(AccountStatus, Status: Active, Suspended);

body! {
    /// A new client organization.
    #[derive(Object)]
    struct CreateAccount {
        /// Name of the organization, for people to recognize it.
        name: String = required(line(1..=100)),
        /// Shard of the account, for its whole life. Default: the open shard with the fewest events in the last 24 hours.
        shard_id: Option<i16> = optional(integer(1..=i16::MAX)),
    }
}

body! {
    /// Change of an account's status.
    #[derive(Object)]
    struct ChangeAccount {
        /// New status: `SUSPENDED` suspends the account, `ACTIVE` lifts the suspension.
        status: AccountStatus = required(one_of),
    }
}

body! {
    /// Discount of an account on a product, on a category, or on everything if neither is given. The most specific discount
    /// applies.
    #[derive(Object, Serialize)]
    struct Discount {
        /// Discount in percent, from 0.00 to 99.99.
        discount: Money = required(money(Decimal::ZERO..=Decimal::new(99_99, 2))),
        /// Product that the discount applies to. Mutually exclusive with `category_id`.
        product_id: Option<i64> = optional(id),
        /// Category that the discount applies to. Mutually exclusive with `product_id`.
        category_id: Option<i64> = optional(id),
    }
    check Discount::check
}

impl Plural for Discount {
    const PLURAL: &'static str = "discounts";
}

impl From<DiscountRule> for Discount {
    fn from(rule: DiscountRule) -> Self {
        let (product_id, category_id) = (rule.product_id.map(|id| id.0), rule.category_id.map(|id| id.0));
        Self { discount: rule.discount.into(), product_id, category_id }
    }
}

impl Discount {
    /// Checks the rules between fields.
    fn check(&self, fields: &mut Fields<'_>) {
        if self.product_id.is_some() && self.category_id.is_some() {
            fields.problem("category_id", "must not be given with product_id");
        }
    }
}

/// A client organization.
#[derive(Object, Serialize)]
struct Account {
    /// Unique identifier of the account.
    id: i64,
    /// Name of the organization.
    name: String,
    /// Status of the account.
    status: AccountStatus,
    /// Shard of the account.
    shard_id: i16,
    /// Time at which the account was created.
    created_at: Timestamp,
}

impl Plural for Account {
    const PLURAL: &'static str = "accounts";
}

impl From<(ShardId, account::Account)> for Account {
    fn from((shard_id, account): (ShardId, account::Account)) -> Self {
        let (id, status, created_at) = (account.id.0, account.status.into(), account.created_at.into());
        Self { id, name: account.name, status, shard_id, created_at }
    }
}

pub struct Accounts;

#[OpenApi(prefix_path = "/admin/v1", tag = "Tag::Accounts")]
impl Accounts {
    /// Create an account
    ///
    /// Places the account in a shard, where it stays for its whole life. Returns 409 if the named shard is draining.
    #[oai(path = "/accounts", method = "post", operation_id = "create_account")]
    async fn create(
        &self,
        caller: Caller<Admin>,
        state: State<'_>,
        body: StrictJson<CreateAccount>,
    ) -> Result<Created<Account>, ApiError> {
        let CreateAccount { name, shard_id } = body.0;
        let shard = placement(&state, shard_id).await?;
        let command = commands::CreateAccount { name };
        let answer = state.ledger.execute(shard, command, origin(caller.0.0.actor())).await?;
        Ok(Created((shard, answered!(answer, CommandResult::Account(account) => account)?).into()))
    }

    /// List accounts
    ///
    /// Returns all accounts, newest first.
    #[oai(path = "/accounts", method = "get", operation_id = "list_accounts")]
    async fn list(
        &self,
        _caller: Caller<Operator>,
        state: State<'_>,
        /// Page number, from 1. Default: 1.
        page: Query<Option<i64>>,
        /// Accounts per page, 1 to 100. Default: 20.
        limit: Query<Option<i64>>,
    ) -> Result<Listed<Account>, ApiError> {
        let page = Page::of(page.0, limit.0, 20, 100)?;
        Ok(listed(accounts::list(&state.read_pool(), rows_of(page)).await?, page, Account::from))
    }

    /// Retrieve an account
    #[oai(path = "/accounts/:id", method = "get", operation_id = "get_account")]
    async fn get(
        &self,
        _caller: Caller<Operator>,
        state: State<'_>,
        /// Unique identifier of the account.
        id: Path<i64>,
    ) -> Result<Reply<Account>, ApiError> {
        let found = accounts::find(state.ledger.pool(), AccountId(id.0)).await?.ok_or_else(not_found)?;
        Ok(Reply(found.into()))
    }

    /// Suspend or reactivate an account
    #[oai(path = "/accounts/:id", method = "put", operation_id = "change_account")]
    async fn change(
        &self,
        caller: Caller<Admin>,
        state: State<'_>,
        /// Unique identifier of the account.
        id: Path<i64>,
        body: StrictJson<ChangeAccount>,
    ) -> Result<Reply<Account>, ApiError> {
        let id = AccountId(id.0);
        let shard = state.shard_of(id).await?;
        let command = commands::SetAccountStatus { account_id: id, status: body.0.status.into() };
        let answer = state.ledger.execute(shard, command, origin(caller.0.0.actor())).await?;
        Ok(Reply((shard, answered!(answer, CommandResult::Account(account) => account)?).into()))
    }

    /// List an account's discounts
    ///
    /// Returns all discounts of an account.
    #[oai(path = "/accounts/:id/discounts", method = "get", operation_id = "list_discounts")]
    async fn discounts(
        &self,
        _caller: Caller<Operator>,
        state: State<'_>,
        /// Unique identifier of the account.
        id: Path<i64>,
    ) -> Result<Listed<Discount>, ApiError> {
        let (_, account) = accounts::find(state.ledger.pool(), AccountId(id.0)).await?.ok_or_else(not_found)?;
        Ok(Listed::whole(account.discounts.into_iter().map(Into::into).collect()))
    }

    /// Set a discount
    ///
    /// Replaces the account's current discount on the same product, on the same category, or on everything.
    #[oai(path = "/accounts/:id/discounts", method = "put", operation_id = "set_discount")]
    async fn set_discount(
        &self,
        caller: Caller<Admin>,
        state: State<'_>,
        /// Unique identifier of the account.
        id: Path<i64>,
        body: StrictJson<Discount>,
    ) -> Result<Reply<Discount>, ApiError> {
        let id = AccountId(id.0);
        let shard = state.shard_of(id).await?;
        let Discount { discount, product_id, category_id } = body.0;
        let percent = discount.0.try_into().map_err(|_| ApiError::invalid("discount", "is out of range"))?;
        let rule =
            DiscountRule { product_id: product_id.map(ProductId), category_id: category_id.map(CategoryId), discount: percent };
        let command = commands::SetDiscount { account_id: id, rule };
        state.ledger.execute(shard, command, origin(caller.0.0.actor())).await?;
        Ok(Reply(Discount { discount, product_id, category_id }))
    }
}
