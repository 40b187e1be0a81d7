//! Words of mails: plain text, short, with one link at most.

use crate::ledger::outbox::Mail;
use crate::secrets::seal::Secret;

/// Path of the page that sets a new password. The token follows as the query.
pub const RESET_PATH: &str = "/portal/reset-password";
/// Path of the page that accepts an invitation. The token follows as the query.
pub const INVITATION_PATH: &str = "/portal/accept-invitation";
/// Path of the page of wallets. The id of one follows as a segment.
pub const WALLETS_PATH: &str = "/portal/wallets";
/// Path of the page of webhooks. The id of one follows as a segment.
pub const WEBHOOKS_PATH: &str = "/portal/webhooks";
/// Path of the page to sign in.
pub const PORTAL_PATH: &str = "/portal";

/// The service as mails name it: the base URL at which people reach the portal, without a trailing slash.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Site {
    pub portal_url: String,
}

impl Site {
    /// Returns the host and port, as the short name of the service.
    pub fn name(&self) -> &str {
        self.portal_url.split_once("://").map_or(&*self.portal_url, |(_, rest)| rest)
    }
}

/// A mail in words. Address and text are secret: the text may contain a token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    pub to: Secret,
    pub subject: String,
    pub text: Secret,
}

/// Puts a mail into words.
pub fn compose(mail: &Mail, to: &Secret, site: &Site) -> Message {
    let (url, name) = (&site.portal_url, site.name());
    let sign_in = format!("{url}{PORTAL_PATH}");
    let unexpected = "If you did not do this, reset your password and tell an owner of your account.";
    let (subject, text) = match mail {
        Mail::PasswordReset { token } => (
            format!("Reset your password for {name}"),
            format!(
                "Somebody asked to reset the password of your login at {name}.\n\n\
                 Choose a new password within {} minutes:\n{url}{RESET_PATH}?token={token}\n\n\
                 If it was not you, ignore this mail. Your password stays as it is.\n",
                Mail::RESET_LIFETIME.num_minutes()
            ),
        ),
        Mail::PasswordChanged => (
            format!("Your password for {name} was changed"),
            format!("The password of your login at {name} was changed.\n\n{unexpected}\n{sign_in}\n"),
        ),
        Mail::TwoFactorEnabled => (
            format!("Two-factor authentication for {name} is on"),
            format!("Two-factor authentication was switched on for your login at {name}.\n\n{unexpected}\n{sign_in}\n"),
        ),
        Mail::TwoFactorDisabled => (
            format!("Two-factor authentication for {name} is off"),
            format!("Two-factor authentication was switched off for your login at {name}.\n\n{unexpected}\n{sign_in}\n"),
        ),
        Mail::Invitation { token, account_name } => (
            format!("Invitation to {account_name} at {name}"),
            format!(
                "You are invited to join {account_name} at {name}.\n\n\
                 Accept within {} days and choose a password:\n{url}{INVITATION_PATH}?token={token}\n\n\
                 If you do not know the sender, ignore this mail.\n",
                Mail::INVITATION_LIFETIME.num_days()
            ),
        ),
        Mail::LowBalance { wallet_id, currency, balance, below } => (
            format!("The balance in {currency} at {name} is low"),
            format!(
                "The balance of your account's wallet in {currency} at {name} has fallen below {below}. It was {balance}.\n\n\
                 {url}{WALLETS_PATH}/{wallet_id}\n\n\
                 The next mail follows only after the balance has been above that amount again.\n"
            ),
        ),
        Mail::WebhookDeactivated { webhook_id, name: webhook, failing_since } => (
            format!("A webhook at {name} was switched off"),
            format!(
                "The webhook “{}” of your account at {name} was switched off.\n\
                 Every delivery since {} UTC has failed.\n\n\
                 It receives no events until you switch it on. Repair the endpoint first:\n{url}{WEBHOOKS_PATH}/{webhook_id}\n\n\
                 That page also delivers the missed events again.\n",
                one_line(webhook),
                failing_since.format("%Y-%m-%d %H:%M"),
            ),
        ),
    };
    Message { to: to.clone(), subject: one_line(&subject), text: Secret::new(text) }
}

/// Replaces control characters: an account's name must not add a header.
fn one_line(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use chrono::DateTime;
    use ledger_events::{Money, WalletId, WebhookId};

    use super::*;

    fn composed(mail: &Mail) -> Message {
        compose(mail, &Secret::new("jo@example.com"), &Site { portal_url: "https://pay.example:8443".into() })
    }

    #[test]
    fn a_mail_is_short_and_has_at_most_one_link() {
        for mail in [
            Mail::PasswordReset { token: "ab12".into() },
            Mail::PasswordChanged,
            Mail::TwoFactorEnabled,
            Mail::TwoFactorDisabled,
            Mail::Invitation { token: "ab12".into(), account_name: "Acme".into() },
            Mail::LowBalance { wallet_id: WalletId(7), currency: "EUR".into(), balance: Money::ZERO, below: Money::ZERO },
            Mail::WebhookDeactivated {
                webhook_id: WebhookId(7),
                name: "Shop\r\nBcc: x@example.com".into(),
                failing_since: DateTime::UNIX_EPOCH,
            },
        ] {
            let Message { to, subject, text } = composed(&mail);
            assert_eq!(to.expose(), "jo@example.com");
            assert!(subject.contains("pay.example:8443") && subject.len() < 80, "{subject}");
            assert_eq!(text.expose().matches("https://").count(), 1, "{}", text.expose());
            assert!(text.expose().lines().count() <= 8 && text.expose().lines().all(|line| line.len() < 200));
        }
    }

    #[test]
    fn a_token_stands_in_the_link_and_nowhere_else() {
        let message = composed(&Mail::PasswordReset { token: "ab12".into() });
        assert!(message.text.expose().contains("\nhttps://pay.example:8443/portal/reset-password?token=ab12\n"));
        assert!(message.text.expose().contains("within 30 minutes"));
        assert!(!message.subject.contains("ab12") && !format!("{message:?}").contains("ab12"));
        let message = composed(&Mail::Invitation { token: "ab12".into(), account_name: "Acme\r\nBcc: x@example.com".into() });
        assert!(message.text.expose().contains("/portal/accept-invitation?token=ab12\n"));
        assert_eq!(message.subject, "Invitation to Acme  Bcc: x@example.com at pay.example:8443");
    }
}
