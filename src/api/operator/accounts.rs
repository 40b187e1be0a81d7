//! `/admin/v1/accounts`: client organizations, their status and their discounts.

use ledger_events::account::{self, AccountStatus as Status, DiscountRule};
use ledger_projections::accounts;
use poem_openapi::param::{Path, Query};
use poem_openapi::{Enum, Object, OpenApi};
use rust_decimal::Decimal;
use serde::Serialize;

use crate::access::Operator;
use crate::api::body::StrictJson;
use crate::api::error::ApiError;
use crate::api::fields::{Fields, FromFields};
use crate::api::outcome::answered;
use crate::api::page::Page;
use crate::api::principal::{Admin, Caller};
use crate::api::readers::{integer, line, money, one_of};
use crate::api::reply::{Created, Listed, Plural, Reply};
use crate::api::scalars::{Money, Timestamp};
use crate::api::state::{State, Tag, listed, origin, rows_of};
use crate::ledger::{CommandResult, FIRST_SHARD, commands};

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

impl From<Status> for AccountStatus {
    fn from(status: Status) -> Self {
        match status {
            Status::Active => Self::Active,
            Status::Suspended => Self::Suspended,
        }
    }
}

impl From<AccountStatus> for Status {
    fn from(status: AccountStatus) -> Self {
        match status {
            AccountStatus::Active => Self::Active,
            AccountStatus::Suspended => Self::Suspended,
        }
    }
}

/// A new client organization.
#[derive(Object)]
struct CreateAccount {
    /// Name of the organization, for people to recognize it.
    #[oai(validator(min_length = 1, max_length = 100))]
    name: String,
}

impl FromFields for CreateAccount {
    fn from_fields(fields: &mut Fields<'_>) -> Self {
        Self { name: fields.required("name", line(1..=100)) }
    }
}

/// Change of an account's status.
#[derive(Object)]
struct ChangeAccount {
    /// New status: `SUSPENDED` suspends the account, `ACTIVE` lifts the suspension.
    status: AccountStatus,
}

impl FromFields for ChangeAccount {
    fn from_fields(fields: &mut Fields<'_>) -> Self {
        let statuses = [("ACTIVE", AccountStatus::Active), ("SUSPENDED", AccountStatus::Suspended)];
        Self { status: fields.required("status", one_of(&statuses)) }
    }
}

/// Discount of an account on a product, on a category, or on everything if neither is given. The most specific discount
/// applies.
#[derive(Object, Serialize)]
struct Discount {
    /// Discount in percent, from 0.00 to 99.99.
    discount: Money,
    /// Product that the discount applies to. Mutually exclusive with `category_id`.
    product_id: Option<i64>,
    /// Category that the discount applies to. Mutually exclusive with `product_id`.
    category_id: Option<i64>,
}

impl FromFields for Discount {
    fn from_fields(fields: &mut Fields<'_>) -> Self {
        let rule = Self {
            discount: fields.required("discount", money(Decimal::ZERO..=Decimal::new(99_99, 2))),
            product_id: fields.optional("product_id", integer(1..=i64::MAX)),
            category_id: fields.optional("category_id", integer(1..=i64::MAX)),
        };
        if rule.product_id.is_some() && rule.category_id.is_some() {
            fields.problem("category_id", "must not be given with product_id");
        }
        rule
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
    /// Time at which the account was created.
    created_at: Timestamp,
}

impl Plural for Account {
    const PLURAL: &'static str = "accounts";
}

impl From<account::Account> for Account {
    fn from(account: account::Account) -> Self {
        Self { id: account.id, name: account.name, status: account.status.into(), created_at: account.created_at.into() }
    }
}

pub struct Accounts;

#[OpenApi(prefix_path = "/admin/v1", tag = "Tag::Accounts")]
impl Accounts {
    /// Create an account
    #[oai(path = "/accounts", method = "post", operation_id = "create_account")]
    async fn create(
        &self,
        caller: Caller<Admin>,
        state: State<'_>,
        body: StrictJson<CreateAccount>,
    ) -> Result<Created<Account>, ApiError> {
        // As long as only the first shard has stock, an order in another shard would wait forever.
        let command = commands::CreateAccount { name: body.0.name };
        let answer = state.ledger.execute(FIRST_SHARD, command, origin(caller.0.0.actor())).await?;
        Ok(Created(answered!(answer, CommandResult::Account(account) => account)?.into()))
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
        Ok(listed(accounts::list(state.ledger.pool(), rows_of(page)).await?, page, Account::from))
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
        let shard = state.shard_of(id.0).await?;
        let command = commands::SetAccountStatus { account_id: id.0, status: body.0.status.into() };
        let answer = state.ledger.execute(shard, command, origin(caller.0.0.actor())).await?;
        Ok(Reply(answered!(answer, CommandResult::Account(account) => account)?.into()))
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
        let shard = state.shard_of(id.0).await?;
        let Discount { discount, product_id, category_id } = body.0;
        let percent = discount.0.try_into().map_err(|_| ApiError::invalid("discount", "is out of range"))?;
        let rule = DiscountRule { product_id, category_id, discount: percent };
        let command = commands::SetDiscount { account_id: id.0, rule };
        state.ledger.execute(shard, command, origin(caller.0.0.actor())).await?;
        Ok(Reply(Discount { discount, product_id, category_id }))
    }
}
