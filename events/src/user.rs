//! Users: people who act for an account, each with a role.

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};

use crate::erasure::PersonalDataErased;
use crate::{AccountId, Moment, UserId};

/// Role of a user. Each role includes the permissions of the roles before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum UserRole {
    /// Reads everything except voucher codes.
    Viewer,
    /// Also places and cancels orders, reads voucher codes, and manages webhooks.
    Operator,
    /// Also manages payouts, beneficiaries and API keys.
    Owner,
}

impl UserRole {
    pub const ALL: [UserRole; 3] = [Self::Viewer, Self::Operator, Self::Owner];

    pub fn as_str(self) -> &'static str {
        match self {
            Self::Viewer => "viewer",
            Self::Operator => "operator",
            Self::Owner => "owner",
        }
    }

    pub fn parse(text: &str) -> Option<UserRole> {
        Self::ALL.into_iter().find(|role| role.as_str() == text)
    }
}

/// A new user with access. The vault stores the email and the password.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct UserCreated {
    pub account_id: AccountId,
    pub role: UserRole,
    /// Salted SHA-256 (hex) of the email.
    pub email_hash: String,
    /// MAC (hex) of the row that this event creates, under a key of the service. Absent from events of releases
    /// without MACs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub row_mac: Option<String>,
}

/// A change of the role, by an operator. Ends all sessions of the user.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct UserRoleChanged {
    pub role: UserRole,
}

/// A new password, stored in the vault. An operator or the user sets it. Ends the sessions of the user; a user who changes
/// the password keeps the current one.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct UserPasswordReset {
    /// MAC (hex) of the row that this event creates, under a key of the service. Absent from events of releases
    /// without MACs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub row_mac: Option<String>,
}

/// The end of all sessions of the user, by an operator.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct UserSessionsEnded {}

/// The start of two-factor authentication: each login of the user also takes a code from now on. The vault stores the secret.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct UserTwoFactorEnabled {
    /// MAC (hex) of the row with the secret, under a key of the service.
    pub row_mac: String,
}

/// The end of two-factor authentication. The secret and the recovery codes are deleted.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct UserTwoFactorDisabled {}

/// A permanent removal of the user's access.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct UserRemoved {}

/// State of a user: the fold of its stream, and the row of the table `users`.
#[derive(Clone, Debug, PartialEq)]
pub struct User {
    pub id: UserId,
    pub version: i64,
    pub account_id: AccountId,
    pub role: UserRole,
    pub email_hash: String,
    pub is_removed: bool,
    pub created_at: DateTime<Utc>,
    pub updated_at: DateTime<Utc>,
}

/// Folds an event into the state. This is the only fold of the user stream. Returns `None` only before
/// `UserCreated`.
pub fn evolve(state: Option<User>, id: UserId, event: &UserEvent, at: &Moment) -> Option<User> {
    let mut user = match (state, event) {
        (None, UserEvent::UserCreated(e)) => User {
            id,
            version: at.version,
            account_id: e.account_id,
            role: e.role,
            email_hash: e.email_hash.clone(),
            is_removed: false,
            created_at: at.recorded_at,
            updated_at: at.recorded_at,
        },
        (None, _) => return None,
        (Some(user), _) => user,
    };
    match event {
        UserEvent::UserRoleChanged(e) => user.role = e.role,
        UserEvent::UserCreated(_)
        | UserEvent::UserPasswordReset(_)
        | UserEvent::UserSessionsEnded(_)
        | UserEvent::UserTwoFactorEnabled(_)
        | UserEvent::UserTwoFactorDisabled(_) => {}
        // A user whose email is erased cannot log in.
        UserEvent::UserRemoved(_) | UserEvent::PersonalDataErased(_) => user.is_removed = true,
    }
    user.version = at.version;
    user.updated_at = at.recorded_at;
    Some(user)
}

crate::codec::stream_events! {
    /// Events of a user.
    UserEvent {
        UserCreated = 1,
        UserRoleChanged = 1,
        UserPasswordReset = 1,
        UserSessionsEnded = 1,
        UserTwoFactorEnabled = 1,
        UserTwoFactorDisabled = 1,
        UserRemoved = 1,
        PersonalDataErased = 1,
    }
}

#[cfg(test)]
mod tests {
    use chrono::TimeZone;

    use super::*;

    fn moment(version: i64) -> Moment {
        let recorded_at = Utc.timestamp_opt(version, 0).unwrap();
        Moment { position: version, event_id: uuid::Uuid::nil(), version, recorded_at }
    }

    #[test]
    fn a_user_is_created_and_removed() {
        let created = UserEvent::from(UserCreated {
            account_id: AccountId(7),
            role: UserRole::Owner,
            email_hash: "ab".into(),
            row_mac: None,
        });
        let removed = UserEvent::from(UserRemoved {});
        let user = evolve(None, UserId(3), &created, &moment(1)).unwrap();
        assert_eq!((user.id, user.account_id, user.role, user.is_removed), (UserId(3), AccountId(7), UserRole::Owner, false));
        let gone = evolve(Some(user.clone()), UserId(3), &removed, &moment(2)).unwrap();
        assert_eq!(gone, User { version: 2, is_removed: true, updated_at: moment(2).recorded_at, ..user });
        assert_eq!(evolve(None, UserId(3), &removed, &moment(1)), None);
    }

    #[test]
    fn a_users_role_is_the_last_one_given() {
        let created = UserEvent::from(UserCreated {
            account_id: AccountId(7),
            role: UserRole::Viewer,
            email_hash: "ab".into(),
            row_mac: None,
        });
        let user = evolve(None, UserId(3), &created, &moment(1)).unwrap();
        let raised = UserEvent::from(UserRoleChanged { role: UserRole::Owner });
        let owner = evolve(Some(user.clone()), UserId(3), &raised, &moment(2)).unwrap();
        assert_eq!(owner, User { version: 2, role: UserRole::Owner, updated_at: moment(2).recorded_at, ..user });
        for (version, event) in [(3, UserEvent::from(UserPasswordReset::default())), (4, UserEvent::from(UserSessionsEnded {}))] {
            let same = evolve(Some(owner.clone()), UserId(3), &event, &moment(version)).unwrap();
            assert_eq!(same, User { version, updated_at: moment(version).recorded_at, ..owner.clone() });
            assert_eq!(evolve(None, UserId(3), &event, &moment(1)), None);
        }
    }

    #[test]
    fn each_role_outranks_the_roles_before_it() {
        assert!(UserRole::Viewer < UserRole::Operator && UserRole::Operator < UserRole::Owner);
        for role in UserRole::ALL {
            assert_eq!(UserRole::parse(role.as_str()), Some(role));
            assert_eq!(serde_json::to_string(&role).unwrap(), format!("\"{}\"", role.as_str()));
        }
        assert_eq!(UserRole::parse("admin"), None);
    }
}
