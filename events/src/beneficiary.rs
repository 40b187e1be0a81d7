//! The beneficiary stream: the recipients of an account's payouts.
//!
//! The vault stores the identity of a beneficiary, where it can be erased. The events commit to it with salted
//! hashes, and contain only what the decision about a payout needs.

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};

use crate::erasure::PersonalDataErased;
use crate::{AccountId, BeneficiaryId, Currency, Moment, Rejection};

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct BeneficiaryAdded {
    pub account_id: AccountId,
    #[serde(rename = "type")]
    pub kind: BeneficiaryKind,
    /// ISO 3166-1 alpha-2 code.
    pub country: String,
    pub currency: Currency,
    /// SHA-256 (hex) over a salt and the visible profile of the person. The vault stores both.
    pub profile_hash: String,
    /// SHA-256 (hex) over a salt and the account number, which the API never shows. The vault stores both.
    pub account_number_hash: String,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct BeneficiaryDeleted {}

/// Kind of account that receives the money.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum BeneficiaryKind {
    Bank,
    MobileWallet,
}

impl BeneficiaryKind {
    pub const ALL: [BeneficiaryKind; 2] = [Self::Bank, Self::MobileWallet];

    pub fn as_str(self) -> &'static str {
        match self {
            Self::Bank => "BANK",
            Self::MobileWallet => "MOBILE_WALLET",
        }
    }

    pub fn parse(text: &str) -> Option<BeneficiaryKind> {
        Self::ALL.into_iter().find(|kind| kind.as_str() == text)
    }
}

/// State of a beneficiary: the fold of its stream, and the row of the table `beneficiaries`.
#[derive(Clone, Debug, PartialEq)]
pub struct Beneficiary {
    pub id: BeneficiaryId,
    pub version: i64,
    pub account_id: AccountId,
    pub kind: BeneficiaryKind,
    pub country: String,
    pub currency: Currency,
    pub is_deleted: bool,
    pub created_at: DateTime<Utc>,
    pub updated_at: DateTime<Utc>,
}

/// Deletes a beneficiary. Its payouts stay.
///
/// # Errors
/// Fails with [`Rejection::NotFound`] if the beneficiary is already deleted.
pub fn delete(beneficiary: &Beneficiary) -> Result<BeneficiaryEvent, Rejection> {
    if beneficiary.is_deleted { Err(Rejection::NotFound) } else { Ok(BeneficiaryDeleted {}.into()) }
}

/// Folds an event into the state. This is the only fold of the beneficiary stream. Returns `None` only before
/// `BeneficiaryAdded`.
pub fn evolve(state: Option<Beneficiary>, id: BeneficiaryId, event: &BeneficiaryEvent, at: &Moment) -> Option<Beneficiary> {
    let mut beneficiary = match (state, event) {
        (None, BeneficiaryEvent::BeneficiaryAdded(e)) => Beneficiary {
            id,
            version: at.version,
            account_id: e.account_id,
            kind: e.kind,
            country: e.country.clone(),
            currency: e.currency,
            is_deleted: false,
            created_at: at.recorded_at,
            updated_at: at.recorded_at,
        },
        (None, _) => return None,
        (Some(beneficiary), _) => beneficiary,
    };
    match event {
        BeneficiaryEvent::BeneficiaryAdded(_) => {}
        // Without the personal data, the destination of the money is unknown.
        BeneficiaryEvent::BeneficiaryDeleted(_) | BeneficiaryEvent::PersonalDataErased(_) => beneficiary.is_deleted = true,
    }
    beneficiary.version = at.version;
    beneficiary.updated_at = at.recorded_at;
    Some(beneficiary)
}

crate::codec::stream_events! {
    /// Events of a beneficiary.
    BeneficiaryEvent {
        BeneficiaryAdded = 1,
        BeneficiaryDeleted = 1,
        PersonalDataErased = 1,
    }
}
