//! Operators' tokens: who runs the service. A token is in no event, nor is whose it is.

use serde::{Deserialize, Serialize};

/// What an operator may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum OperatorRole {
    /// Everything.
    Admin,
    /// Money: funding, adjusting, reconciling; and reading.
    Finance,
    /// The log's own entries; and reading.
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

/// A token was made. Its hash, and the name of who has it, stand in the vault.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct OperatorTokenIssued {
    pub role: OperatorRole,
    /// Salted SHA-256 (hex) of the name.
    pub name_hash: String,
    /// MAC (hex) of the row that this made, keyed by the service; none in events of releases without MACs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub row_mac: Option<String>,
}

/// The token opens nothing any more. One that was made before this was an event has no other.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct OperatorTokenRevoked {}

crate::codec::stream_events! {
    /// What can happen to an operator's token.
    OperatorEvent {
        OperatorTokenIssued = 1,
        OperatorTokenRevoked = 1,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_role_is_written_as_it_is_called() {
        for role in OperatorRole::ALL {
            assert_eq!(OperatorRole::parse(role.as_str()), Some(role));
            assert_eq!(serde_json::to_string(&role).unwrap(), format!("\"{}\"", role.as_str()));
        }
        assert_eq!(OperatorRole::parse("king"), None);
    }
}
