//! `/client/api/outbox`: the mails that a sandbox or the demo has sent. Other nodes do not serve it.

use poem_openapi::{Object, OpenApi};
use serde::Serialize;

use super::error::ApiError;
use super::principal::{Caller, PortalOwner};
use super::reply::{Listed, Plural, Revealing};
use super::scalars::Timestamp;
use super::state::{State, Tag};
use crate::mail::{self, Site};

/// Maximum number of mails in the list.
const MAX_LISTED: i64 = 100;

/// A mail that the sandbox has sent.
#[derive(Object, Serialize)]
struct SentMail {
    /// Time at which the mail was sent.
    sent_at: Timestamp,
    /// Email address of the recipient.
    to: String,
    /// Subject of the mail.
    subject: String,
    /// Plain text of the mail, with its link.
    text: String,
}

impl Plural for SentMail {
    const PLURAL: &'static str = "mails";
}

impl From<mail::SentMail> for SentMail {
    fn from(sent: mail::SentMail) -> Self {
        let mail::SentMail { sent_at, message } = sent;
        let (to, text) = (message.to.expose().to_owned(), message.text.expose().to_owned());
        Self { sent_at: sent_at.into(), to, subject: message.subject, text }
    }
}

#[derive(Debug)]
pub struct Outbox;

#[OpenApi(prefix_path = "/client/api", tag = "Tag::Sandbox")]
impl Outbox {
    /// List sent mails
    ///
    /// Returns up to 100 mails that the sandbox has sent to the account's users and to the people they invited, newest first.
    /// A mail is listed until its link expires, and at most a week. This operation exists in a sandbox and in the demo only;
    /// elsewhere it returns 404. Requires the role owner.
    #[oai(path = "/outbox", method = "get", operation_id = "list_sent_mails")]
    async fn list(&self, caller: Caller<PortalOwner>, state: State<'_>) -> Result<Revealing<Listed<SentMail>>, ApiError> {
        let site = Site { portal_url: state.portal_url.to_string() };
        let sent = mail::sent(state.ledger.pool(), &state.keyring, &site, caller.0.account_id, MAX_LISTED).await?;
        Ok(Revealing(Listed::whole(sent.into_iter().map(SentMail::from).collect())))
    }
}
