//! `/admin/v1/accounts`: client organisations, whether they may act, and their discounts.

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
use crate::ledger::{Answer, Command, FIRST_SHARD};

/// Whether an account may change anything.
#[derive(Clone, Copy, Default, Enum, Serialize)]
#[oai(rename_all = "SCREAMING_SNAKE_CASE")]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
enum AccountStatus {
    #[default]
    Active,
    /// It can read, and change nothing.
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

/// A new client organisation.
#[derive(Object)]
struct CreateAccount {
    /// For people.
    #[oai(validator(min_length = 1, max_length = 100))]
    name: String,
}

impl FromFields for CreateAccount {
    fn from_fields(fields: &mut Fields<'_>) -> Self {
        Self { name: fields.required("name", line(1..=100)) }
    }
}

/// Suspends an account, or lifts that.
#[derive(Object)]
struct ChangeAccount {
    /// Where it stands.
    status: AccountStatus,
}

impl FromFields for ChangeAccount {
    fn from_fields(fields: &mut Fields<'_>) -> Self {
        let statuses = [("ACTIVE", AccountStatus::Active), ("SUSPENDED", AccountStatus::Suspended)];
        Self { status: fields.required("status", one_of(&statuses)) }
    }
}

/// The account's discount on a product, on a category, or (with neither) on everything. The most
/// specific one counts.
#[derive(Object, Serialize)]
struct Discount {
    /// In percent, "0.00" to "99.99".
    discount: Money,
    /// The product.
    product_id: Option<i64>,
    /// The category.
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

/// A client organisation.
#[derive(Object, Serialize)]
struct Account {
    /// Its id.
    id: i64,
    /// For people.
    name: String,
    /// Where it stands.
    status: AccountStatus,
    /// When it was made.
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
        // As long as only the first shard has stock, an order elsewhere would wait for ever.
        let command = Command::CreateAccount { name: body.0.name };
        let answer = state.ledger.execute(FIRST_SHARD, command, origin(caller.0.0.actor())).await?;
        Ok(Created(answered!(answer, Answer::Account(account) => account)?.into()))
    }

    /// List accounts
    ///
    /// Newest first.
    #[oai(path = "/accounts", method = "get", operation_id = "list_accounts")]
    async fn list(
        &self,
        _caller: Caller<Operator>,
        state: State<'_>,
        /// From 1.
        page: Query<Option<i64>>,
        /// Accounts on a page: 1 to 100, by default 20.
        limit: Query<Option<i64>>,
    ) -> Result<Listed<Account>, ApiError> {
        let page = Page::of(page.0, limit.0, 20, 100)?;
        Ok(listed(accounts::list(state.ledger.pool(), rows_of(page)).await?, page, Account::from))
    }

    /// Suspend an account, or lift that
    #[oai(path = "/accounts/:id", method = "put", operation_id = "change_account")]
    async fn change(
        &self,
        caller: Caller<Admin>,
        state: State<'_>,
        /// The account's id.
        id: Path<i64>,
        body: StrictJson<ChangeAccount>,
    ) -> Result<Reply<Account>, ApiError> {
        let shard = state.shard_of(id.0).await?;
        let command = Command::SetAccountStatus { account_id: id.0, status: body.0.status.into() };
        let answer = state.ledger.execute(shard, command, origin(caller.0.0.actor())).await?;
        Ok(Reply(answered!(answer, Answer::Account(account) => account)?.into()))
    }

    /// Set a discount
    ///
    /// Replaces the account's discount on the same product, category, or everything.
    #[oai(path = "/accounts/:id/discounts", method = "put", operation_id = "set_discount")]
    async fn set_discount(
        &self,
        caller: Caller<Admin>,
        state: State<'_>,
        /// The account's id.
        id: Path<i64>,
        body: StrictJson<Discount>,
    ) -> Result<Reply<Discount>, ApiError> {
        let shard = state.shard_of(id.0).await?;
        let Discount { discount, product_id, category_id } = body.0;
        let percent = discount.0.try_into().map_err(|_| ApiError::invalid("discount", "is out of range"))?;
        let rule = DiscountRule { product_id, category_id, discount: percent };
        let command = Command::SetDiscount { account_id: id.0, rule };
        state.ledger.execute(shard, command, origin(caller.0.0.actor())).await?;
        Ok(Reply(Discount { discount, product_id, category_id }))
    }
}
