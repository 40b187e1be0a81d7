//! Tokens of operators, the people who run the service. No event contains a token or the name of its owner.

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

crate::codec::stream_events! {
    /// Events of an operator token.
    OperatorEvent {
        OperatorTokenIssued = 1,
        OperatorTokenRevoked = 1,
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
