//! Accounts (client organisations) and their API credentials.

use std::collections::HashMap;

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};

use crate::erasure::PersonalDataErased;
use crate::restrictions::Restrictions;
use crate::user::UserRole;
use crate::{AccountId, CategoryId, CredentialId, Currency, Moment, Money, Percent, Position, ProductId, WalletId};

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct AccountCreated {
    pub name: String,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct AccountStatusChanged {
    pub status: AccountStatus,
}

/// A discount of the account on a product, on a category, or on everything if both ids are `None`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct DiscountSet {
    pub product_id: Option<ProductId>,
    pub category_id: Option<CategoryId>,
    pub discount: Percent,
}

/// The amount below which the account wants to be told about a wallet's balance.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LowBalanceNoticeSet {
    pub wallet_id: WalletId,
    pub currency: Currency,
    /// `None` if the account wants no notices any more.
    pub below: Option<Money>,
    /// Balance of the wallet at this event: a wallet that is below already makes no notice.
    pub balance: Money,
}

/// A fall of a wallet's balance below the amount that the account has set.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LowBalanceReached {
    pub wallet_id: WalletId,
    pub currency: Currency,
    pub below: Money,
    /// Balance after the movement.
    pub balance: Money,
    /// Position of the movement.
    pub position: Position,
    pub fell_at: DateTime<Utc>,
}

/// An invitation of a person to become a user. The vault stores the email address until the invitation ends.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct UserInvited {
    pub invitation_id: i64,
    pub role: UserRole,
}

/// The end of an invitation that nobody has accepted.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct InvitationRevoked {
    pub invitation_id: i64,
}

/// A change of the rules for logins of the account's users.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SecurityPolicyChanged {
    /// Whether an owner without two-factor authentication may only enrol.
    pub owners_need_two_factor: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum AccountStatus {
    Active,
    Suspended,
}

impl AccountStatus {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Active => "ACTIVE",
            Self::Suspended => "SUSPENDED",
        }
    }

    pub fn parse(text: &str) -> Option<AccountStatus> {
        [Self::Active, Self::Suspended].into_iter().find(|s| s.as_str() == text)
    }
}

/// A discount and its target: a product, a category, or everything if both ids are `None`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct DiscountRule {
    pub product_id: Option<ProductId>,
    pub category_id: Option<CategoryId>,
    pub discount: Percent,
}

/// State of an account: the fold of its stream, and the row of the table `accounts`.
#[derive(Clone, Debug, PartialEq)]
pub struct Account {
    pub id: AccountId,
    pub version: i64,
    pub name: String,
    pub status: AccountStatus,
    pub discounts: Vec<DiscountRule>,
    pub created_at: DateTime<Utc>,
    pub updated_at: DateTime<Utc>,
}

impl Account {
    /// Returns the most specific discount: the product's, else its category's, else the account's, else 0.00.
    pub fn discount_on(&self, product_id: ProductId, category_id: Option<CategoryId>) -> Percent {
        let find = |target| self.discounts.iter().find(|rule| rule.target() == target).map(|rule| rule.discount);
        most_specific(product_id, category_id, find)
    }

    /// Indexes the discounts, for looking up many products.
    pub fn discounts(&self) -> Discounts {
        Discounts(self.discounts.iter().map(|rule| (rule.target(), rule.discount)).collect())
    }
}

/// Target of a discount: a product, a category, or everything.
type Target = (Option<ProductId>, Option<CategoryId>);

impl DiscountRule {
    fn target(&self) -> Target {
        (self.product_id, self.category_id)
    }
}

/// Discounts of an account, indexed by target.
#[derive(Clone, Debug)]
pub struct Discounts(HashMap<Target, Percent>);

impl Discounts {
    /// Returns the most specific discount, like [`Account::discount_on`].
    pub fn on(&self, product_id: ProductId, category_id: Option<CategoryId>) -> Percent {
        most_specific(product_id, category_id, |target| self.0.get(&target).copied())
    }
}

fn most_specific(product: ProductId, category: Option<CategoryId>, find: impl Fn(Target) -> Option<Percent>) -> Percent {
    find((Some(product), None))
        .or_else(|| category.and_then(|category| find((None, Some(category)))))
        .or_else(|| find((None, None)))
        .unwrap_or(Percent::ZERO)
}

/// Folds an event into the state. This is the only fold of the account stream. Returns `None` only before
/// `AccountCreated`.
pub fn evolve(state: Option<Account>, id: AccountId, event: &AccountEvent, at: &Moment) -> Option<Account> {
    let mut account = match (state, event) {
        (None, AccountEvent::AccountCreated(e)) => Account {
            id,
            version: at.version,
            name: e.name.clone(),
            status: AccountStatus::Active,
            discounts: vec![],
            created_at: at.recorded_at,
            updated_at: at.recorded_at,
        },
        (None, _) => return None,
        (Some(account), _) => account,
    };
    match event {
        AccountEvent::AccountCreated(_)
        | AccountEvent::LowBalanceNoticeSet(_)
        | AccountEvent::LowBalanceReached(_)
        | AccountEvent::UserInvited(_)
        | AccountEvent::InvitationRevoked(_)
        | AccountEvent::SecurityPolicyChanged(_)
        | AccountEvent::PersonalDataErased(_) => {}
        AccountEvent::AccountStatusChanged(e) => account.status = e.status,
        AccountEvent::DiscountSet(e) => {
            account.discounts.retain(|rule| (rule.product_id, rule.category_id) != (e.product_id, e.category_id));
            account.discounts.push(DiscountRule { product_id: e.product_id, category_id: e.category_id, discount: e.discount });
        }
    }
    account.version = at.version;
    account.updated_at = at.recorded_at;
    Some(account)
}

crate::codec::stream_events! {
    /// Events of an account.
    AccountEvent {
        AccountCreated = 1,
        AccountStatusChanged = 1,
        DiscountSet = 1,
        LowBalanceNoticeSet = 1,
        LowBalanceReached = 1,
        UserInvited = 1,
        InvitationRevoked = 1,
        SecurityPolicyChanged = 1,
        PersonalDataErased = 1,
    }
}

/// A new API key and secret. Only the first 8 characters of the key are ever shown again.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CredentialIssued {
    pub account_id: AccountId,
    pub name: String,
    pub key_prefix: String,
    /// Restrictions of the key: none in events of releases without them.
    #[serde(flatten)]
    pub restrictions: Restrictions,
    /// MAC (hex) of the row that this event creates, under a key of the service. Absent from events of releases
    /// without MACs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub row_mac: Option<String>,
}

/// A new or replaced signing secret of the credential.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct SigningSecretRotated {
    /// MAC (hex) of the secret, under a key of the service. Absent from events of releases without MACs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret_mac: Option<String>,
    /// Time up to which deliveries are signed with the replaced secret, too.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub previous_until: Option<DateTime<Utc>>,
}

/// A change of whether requests with this credential must be signed, from now on.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct HmacRequirementChanged {
    pub is_required: bool,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CredentialRevoked {}

/// State of a credential: the fold of its stream, and the row of the table `credentials`.
#[derive(Clone, Debug, PartialEq)]
pub struct Credential {
    pub id: CredentialId,
    pub version: i64,
    pub account_id: AccountId,
    pub name: String,
    pub key_prefix: String,
    pub restrictions: Restrictions,
    pub has_signing_secret: bool,
    /// Whether each request must carry a valid `X-Signature`. Only possible with a signing secret.
    pub hmac_required: bool,
    pub is_revoked: bool,
    pub created_at: DateTime<Utc>,
    pub updated_at: DateTime<Utc>,
}

/// Folds an event into the state. This is the only fold of the credential stream. Returns `None` only before
/// `CredentialIssued`.
pub fn evolve_credential(
    state: Option<Credential>,
    id: CredentialId,
    event: &CredentialEvent,
    at: &Moment,
) -> Option<Credential> {
    let mut credential = match (state, event) {
        (None, CredentialEvent::CredentialIssued(e)) => Credential {
            id,
            version: at.version,
            account_id: e.account_id,
            name: e.name.clone(),
            key_prefix: e.key_prefix.clone(),
            restrictions: e.restrictions.clone(),
            has_signing_secret: false,
            hmac_required: false,
            is_revoked: false,
            created_at: at.recorded_at,
            updated_at: at.recorded_at,
        },
        (None, _) => return None,
        (Some(credential), _) => credential,
    };
    match event {
        CredentialEvent::CredentialIssued(_) => {}
        CredentialEvent::SigningSecretRotated(_) => credential.has_signing_secret = true,
        CredentialEvent::HmacRequirementChanged(e) => credential.hmac_required = e.is_required,
        CredentialEvent::CredentialRevoked(_) => credential.is_revoked = true,
    }
    credential.version = at.version;
    credential.updated_at = at.recorded_at;
    Some(credential)
}

crate::codec::stream_events! {
    /// Events of an API credential.
    CredentialEvent {
        CredentialIssued = 1,
        SigningSecretRotated = 1,
        HmacRequirementChanged = 1,
        CredentialRevoked = 1,
    }
}

#[cfg(test)]
mod histories;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::restrictions::{Scope, Scopes};

    #[test]
    fn restrictions_stand_beside_the_other_fields_of_a_credential() {
        let payload = r#"{"account_id":7,"name":"till","key_prefix":"3f9a1c04","scopes":["read","orders"],"expires_at":"2027-01-31T12:00:00Z","allowed_networks":["203.0.113.0/24"]}"#;
        let read: CredentialIssued = serde_json::from_str(payload).unwrap();
        let scopes: Scopes = [Scope::Orders, Scope::Read].into_iter().collect();
        assert_eq!(read.restrictions.scopes, Some(scopes));
        assert_eq!(serde_json::to_string(&read).unwrap(), payload);
    }
}
