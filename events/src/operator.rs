//! Operators, the people who run the service: their tokens, and the users with whom they sign in to the console. Tokens and
//! users share one space of ids. No event contains a token, a name or an email address.

use serde::{Deserialize, Serialize};

/// Role of an operator: the set of permitted actions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum OperatorRole {
    /// All actions.
    Admin,
    /// Funding, adjustments and reconciliation, plus read access.
    Finance,
    /// Entries of the log itself, plus read access.
    Auditor,
}

impl OperatorRole {
    pub const ALL: [OperatorRole; 3] = [Self::Admin, Self::Finance, Self::Auditor];

    pub fn as_str(self) -> &'static str {
        match self {
            Self::Admin => "admin",
            Self::Finance => "finance",
            Self::Auditor => "auditor",
        }
    }

    pub fn parse(text: &str) -> Option<OperatorRole> {
        Self::ALL.into_iter().find(|role| role.as_str() == text)
    }
}

/// A new operator token. The vault stores its hash and the name of its owner.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct OperatorTokenIssued {
    pub role: OperatorRole,
    /// Salted SHA-256 (hex) of the owner's name.
    pub name_hash: String,
    /// MAC (hex) of the row that this event creates, under a key of the service. Absent from events of releases
    /// without MACs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub row_mac: Option<String>,
}

/// The revocation of a token. A token that is older than these events has no event but this one.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct OperatorTokenRevoked {}

/// Proof of identity that an operator's user signs in with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SignIn {
    /// Email address and password, and a second factor if the user has enrolled one.
    Password,
    /// OpenID Connect. The identity provider assigns the role, and asks for further factors.
    OpenId,
}

/// A new operator's user. The vault stores the email address, and the hash of the password or of the provider's subject.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct OperatorUserCreated {
    pub role: OperatorRole,
    pub sign_in: SignIn,
    /// Salted SHA-256 (hex) of the email address, or of another name if the identity provider states no email address.
    pub email_hash: String,
    /// MAC (hex) of the row that this event creates, under a key of the service.
    pub row_mac: String,
}

/// A new role or password of an operator's user. It ends the user's sessions.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct OperatorUserChanged {
    /// New role, if it changed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub role: Option<OperatorRole>,
    /// Whether the password changed.
    pub is_password_changed: bool,
    /// MAC (hex) of the changed row.
    pub row_mac: String,
}

/// The removal of an operator's user. It ends the user's sessions.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct OperatorUserRemoved {
    /// MAC (hex) of the row that is left.
    pub row_mac: String,
}

/// The enrolment of a second factor.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct OperatorTwoFactorEnabled {
    /// Salted SHA-256 (hex) of the secret.
    pub secret_hash: String,
    /// MAC (hex) of the changed row.
    pub row_mac: String,
}

/// The removal of a second factor, with its recovery codes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct OperatorTwoFactorRemoved {
    /// MAC (hex) of the changed row.
    pub row_mac: String,
}

crate::codec::stream_events! {
    /// Events of an operator's token or user.
    OperatorEvent {
        OperatorTokenIssued = 1,
        OperatorTokenRevoked = 1,
        OperatorUserCreated = 1,
        OperatorUserChanged = 1,
        OperatorUserRemoved = 1,
        OperatorTwoFactorEnabled = 1,
        OperatorTwoFactorRemoved = 1,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_role_serializes_to_its_name() {
        for role in OperatorRole::ALL {
            assert_eq!(OperatorRole::parse(role.as_str()), Some(role));
            assert_eq!(serde_json::to_string(&role).unwrap(), format!("\"{}\"", role.as_str()));
        }
        assert_eq!(OperatorRole::parse("king"), None);
    }
}
