//! Settings of mails to users.

use std::path::Path;

use clap::Args;

use super::ConfigError;
use super::values::{secret, url};
use crate::mail::{Mailbox, Sender, SmtpUrl, Transport};
use crate::secrets::seal::Secret;

/// Directory for mails within the data directory.
const OUTBOX: &str = "outbox";
/// Sender of mails that go into files.
const NOBODY: &str = "no-reply@localhost";

/// Settings of mails to users.
#[derive(Args, Clone, Debug)]
pub struct MailSettings {
    /// URL of the SMTP server for mails to users, such as smtps://user:password@host:465 [default: none: mails become files
    /// in the directory outbox of the data directory]
    #[arg(long, env = "LEDGER_SMTP_URL", value_name = "URL", value_parser = secret, hide_default_value = true)]
    pub smtp_url: Option<Secret>,

    /// URL at which people reach the portal, to which mails link [default: the public URL; required with --smtp-url on nodes
    /// that send mails with --pages off]
    #[arg(long, env = "LEDGER_PORTAL_URL", value_name = "URL", value_parser = url)]
    pub portal_url: Option<String>,

    /// Sender of mails to users, such as "Acme Rewards <rewards@example.com>" [default: none; required with --smtp-url]
    #[arg(long, env = "LEDGER_MAIL_FROM", value_name = "MAILBOX")]
    pub mail_from: Option<Mailbox>,
}

impl MailSettings {
    /// Checks the settings of a node that sends mails, with or without pages.
    ///
    /// # Errors
    /// As [`MailSettings::server`]; also if mails to people would link to a portal that this node does not serve.
    pub fn check(&self, sends: bool, has_pages: bool) -> Result<(), ConfigError> {
        let has_server = self.server()?.is_some();
        if sends && has_server && !has_pages && self.portal_url.is_none() {
            return Err(ConfigError(
                "--smtp-url (LEDGER_SMTP_URL) with --pages off needs --portal-url (LEDGER_PORTAL_URL), because mails link to the \
                 portal, which this node does not serve"
                    .into(),
            ));
        }
        Ok(())
    }

    /// Returns the URL of the SMTP server, if one is configured.
    ///
    /// # Errors
    /// For an invalid URL, and for one without a sender. The message does not repeat the URL, because it may hold a password.
    pub fn server(&self) -> Result<Option<SmtpUrl>, ConfigError> {
        let Some(url) = &self.smtp_url else { return Ok(None) };
        if self.mail_from.is_none() {
            return Err(ConfigError("--smtp-url (LEDGER_SMTP_URL) needs --mail-from (LEDGER_MAIL_FROM)".into()));
        }
        let url =
            url.expose().parse::<SmtpUrl>().map_err(|problem| ConfigError(format!("--smtp-url (LEDGER_SMTP_URL) {problem}")))?;
        Ok(Some(url))
    }

    /// Creates the sender of mails.
    ///
    /// # Errors
    /// See [`MailSettings::server`].
    pub fn sender(&self, data_dir: &Path) -> Result<Sender, ConfigError> {
        let invalid =
            |error: &dyn std::fmt::Display| ConfigError(format!("--smtp-url (LEDGER_SMTP_URL) cannot be used: {error}"));
        let transport = match self.server()? {
            Some(url) => Transport::smtp(&url).map_err(|error| invalid(&error))?,
            None => Transport::Files(data_dir.join(OUTBOX)),
        };
        let from = match &self.mail_from {
            Some(from) => from.clone(),
            None => NOBODY.parse::<Mailbox>().map_err(|error| invalid(&error))?,
        };
        Ok(Sender { transport, from })
    }
}
