//! `/api/v1/beneficiaries`: recipients of payouts.

use ledger_events::BeneficiaryId;
use ledger_events::beneficiary::{self as domain, BeneficiaryKind};
use ledger_projections::beneficiaries;
use poem_openapi::param::{Path, Query};
use poem_openapi::{Enum, Object, OpenApi};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::body::{NoFields, StrictJson};
use super::error::ApiError;
use super::fields::body;
use super::idempotency::IdempotencyKey;
use super::limits::Reader as _;
use super::mirror::mirror;
use super::outcome::{respond, unrenderable};
use super::page::Page;
use super::principal::{Caller, ClientOwner};
use super::problems::Read;
use super::readers::{line, one_of};
use super::reference::{country, currency};
use super::reply::{Data, Listed, Plural, Reply, Stored, render};
use super::scalars::Timestamp;
use super::state::{State, Tag, not_found, origin, parsed_currency, rows_of};
use crate::ledger::commands;
use crate::ledger::texts::{self, PROFILE};
use crate::ledger::{Command, CommandResult, StoredResponse};
use crate::secrets::seal::Secret;

/// Type of account that receives a payout.
///
/// - `BANK`: a bank account.
/// - `MOBILE_WALLET`: a mobile wallet, identified by a telephone number.
#[derive(Debug, Clone, Copy, Default, Enum, Serialize)]
#[oai(rename_all = "SCREAMING_SNAKE_CASE")]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
enum BeneficiaryType {
    #[default]
    Bank,
    MobileWallet,
}

mirror!(BeneficiaryType, BeneficiaryKind: Bank, MobileWallet);

body! {
    /// A new beneficiary.
    #[derive(Object, Serialize)]
    struct AddBeneficiary {
        /// Name of the person or company that receives the money.
        name: String = required(line(1..=200)),
        /// Type of account that receives the money.
        #[oai(rename = "type")]
        #[serde(rename = "type")]
        kind as "type": BeneficiaryType = required(one_of),
        /// Country of the account, as an ISO 3166-1 alpha-2 code.
        #[oai(validator(pattern = "^[A-Z]{2}$"))]
        country: String = required(country),
        /// Currency of the account, as an ISO 4217 code. Payouts are made from the wallet in this currency. It must have at
        /// most two decimals.
        #[oai(validator(pattern = "^[A-Z]{3}$"))]
        currency: String = required(currency),
        /// IBAN or account number without spaces, or a telephone number for a mobile wallet. Responses contain its last four
        /// characters only.
        #[oai(validator(pattern = "^\\+?[0-9A-Za-z]{5,34}$"))]
        account_number: String = required(account_number),
        /// BIC, sort code or name of the mobile wallet's provider, where one is needed.
        bank_code: Option<String> = optional(line(1..=50)),
    }
}

/// Reads an account number of 5 to 34 letters and digits, with an optional leading `+`. An IBAN has at most 34.
/// With at least 5, the last four do not reveal the whole number.
fn account_number(value: &RawValue) -> Read<String> {
    let text = line(1..=35).read(value)?;
    let digits = text.strip_prefix('+').unwrap_or(&text);
    let is_good = (5..=34).contains(&digits.len()) && digits.bytes().all(|byte| byte.is_ascii_alphanumeric());
    if is_good { Ok(text) } else { Err("must be 5 to 34 letters and digits, with an optional leading +".into()) }
}

/// Details of a beneficiary that are sealed in the vault and shown to its account. Empty once they are erased.
#[derive(Default, Deserialize, Serialize)]
struct Profile {
    name: String,
    account_last4: String,
    bank_code: Option<String>,
}

/// A recipient of payouts.
#[derive(Object, Serialize)]
struct Beneficiary {
    /// Unique identifier of the beneficiary.
    id: i64,
    /// Name of the person or company that receives the money.
    name: String,
    /// Type of account that receives the money.
    #[oai(rename = "type")]
    #[serde(rename = "type")]
    kind: BeneficiaryType,
    /// Country of the account, as an ISO 3166-1 alpha-2 code.
    country: String,
    /// Currency of the account, as an ISO 4217 code.
    currency: String,
    /// Last four characters of the account number.
    account_last4: String,
    /// BIC, sort code or name of the mobile wallet's provider.
    bank_code: Option<String>,
    /// Time at which the beneficiary was added.
    created_at: Timestamp,
}

impl Plural for Beneficiary {
    const PLURAL: &'static str = "beneficiaries";
}

impl Beneficiary {
    fn of(beneficiary: domain::Beneficiary, profile: Option<&Secret>) -> Result<Self, serde_json::Error> {
        let profile: Profile = profile.map(|text| serde_json::from_str(text.expose())).transpose()?.unwrap_or_default();
        Ok(Self {
            id: beneficiary.id.0,
            name: profile.name,
            kind: beneficiary.kind.into(),
            country: beneficiary.country,
            currency: beneficiary.currency.as_str().to_owned(),
            account_last4: profile.account_last4,
            bank_code: profile.bank_code,
            created_at: beneficiary.created_at.into(),
        })
    }
}

/// Confirmation that a beneficiary is deleted. The history of its payouts is kept.
#[derive(Object, Serialize)]
struct DeletedBeneficiary {
    /// Confirmation in plain English.
    message: String,
    /// Unique identifier of the deleted beneficiary.
    beneficiary_id: i64,
}

/// Renders the stored response. It names a person, so it is sealed wherever it is kept.
fn added(answer: &CommandResult) -> Result<StoredResponse, serde_json::Error> {
    let CommandResult::Beneficiary(view) = answer else { return unrenderable() };
    let body = render(&Beneficiary::of(view.beneficiary.clone(), view.profile.as_ref())?)?;
    Ok(StoredResponse { status: 201, body, is_secret: true })
}

pub struct Beneficiaries;

#[OpenApi(prefix_path = "/api/v1", tag = "Tag::Beneficiaries")]
impl Beneficiaries {
    /// Add a beneficiary
    ///
    /// Adds an account that payouts can be sent to. The account number is stored encrypted. Responses contain its last
    /// four characters only.
    #[oai(path = "/beneficiaries", method = "post", operation_id = "add_beneficiary")]
    async fn add(
        &self,
        caller: Caller<ClientOwner>,
        state: State<'_>,
        /// Unique key that makes retries safe: a repeated request with the same key returns the first response.
        #[oai(name = "Idempotency-Key")]
        key: IdempotencyKey,
        body: StrictJson<AddBeneficiary>,
    ) -> Result<Stored<Data<Beneficiary>, 201>, ApiError> {
        let (caller, request) = (caller.0, body.0);
        let idempotency = key.of(&caller, "/api/v1/beneficiaries", &request, added)?;
        let last4 = request.account_number.len().saturating_sub(4);
        let profile = Profile {
            name: request.name,
            account_last4: request.account_number[last4..].to_owned(),
            bank_code: request.bank_code,
        };
        let command = Command::AddBeneficiary(commands::AddBeneficiary {
            account_id: caller.account_id,
            kind: request.kind.into(),
            country: request.country,
            currency: parsed_currency(&request.currency)?,
            profile: Secret::new(serde_json::to_string(&profile).map_err(ApiError::internal)?),
            account_number: Secret::new(request.account_number),
        });
        let reply = state.ledger.submit(caller.shard_id, command, origin(caller.actor()), idempotency).await?;
        respond(reply, added)
    }

    /// List beneficiaries
    ///
    /// Returns the account's beneficiaries, newest first.
    #[oai(path = "/beneficiaries", method = "get", operation_id = "list_beneficiaries")]
    async fn list(
        &self,
        caller: Caller,
        state: State<'_>,
        /// Page number, from 1. Default: 1.
        page: Query<Option<i64>>,
        /// Beneficiaries per page, 1 to 100. Default: 20.
        limit: Query<Option<i64>>,
    ) -> Result<Listed<Beneficiary>, ApiError> {
        let page = Page::of(page.0, limit.0, 20, 100)?;
        let (pool, shard) = (&state.read_pool(), caller.0.shard_id);
        let found = beneficiaries::list(pool, shard, caller.0.account_id, rows_of(page)).await?;
        let wanted: Vec<_> = found.rows.iter().map(|beneficiary| (PROFILE, beneficiary.id.0)).collect();
        let texts = texts::load(pool, &state.keyring, shard, &wanted).await?;
        let total = u64::try_from(found.total).unwrap_or_default();
        let view = |row: domain::Beneficiary| {
            let profile = texts.get(&(PROFILE, row.id.0));
            Beneficiary::of(row, profile).map_err(ApiError::internal)
        };
        Ok(Listed::page(found.rows.into_iter().map(view).collect::<Result<_, _>>()?, page, total))
    }

    /// Retrieve a beneficiary
    ///
    /// Returns 404 after the beneficiary is deleted or the person's data is erased.
    #[oai(path = "/beneficiaries/:id", method = "get", operation_id = "get_beneficiary")]
    async fn get(
        &self,
        caller: Caller,
        state: State<'_>,
        /// Unique identifier of the beneficiary.
        id: Path<i64>,
    ) -> Result<Reply<Beneficiary>, ApiError> {
        let (pool, shard) = (state.ledger.pool(), caller.0.shard_id);
        let found = beneficiaries::find(pool, shard, caller.0.account_id, BeneficiaryId(id.0)).await?.ok_or_else(not_found)?;
        let texts = texts::load(pool, &state.keyring, shard, &[(PROFILE, id.0)]).await?;
        Ok(Reply(Beneficiary::of(found, texts.get(&(PROFILE, id.0))).map_err(ApiError::internal)?))
    }

    /// Delete a beneficiary
    ///
    /// No new payout can be made to a deleted beneficiary. Existing payouts, pending ones included, are not affected.
    #[oai(path = "/beneficiaries/:id", method = "delete", operation_id = "delete_beneficiary")]
    async fn delete(
        &self,
        caller: Caller<ClientOwner>,
        state: State<'_>,
        /// Unique identifier of the beneficiary.
        id: Path<i64>,
        _no_fields: NoFields,
    ) -> Result<Reply<DeletedBeneficiary>, ApiError> {
        let caller = caller.0;
        let command = commands::DeleteBeneficiary { account_id: caller.account_id, beneficiary_id: BeneficiaryId(id.0) };
        state.ledger.execute(caller.shard_id, command, origin(caller.actor())).await?;
        Ok(Reply(DeletedBeneficiary { message: "The beneficiary is deleted.".to_owned(), beneficiary_id: id.0 }))
    }
}
