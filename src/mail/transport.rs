//! Transports of mails: an SMTP server, or files in the data directory if none is configured.

use std::fmt;
use std::io::Write;
use std::net::IpAddr;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::Duration;

use chrono::Utc;
use lettre::message::header::{ContentTransferEncoding, ContentType};
use lettre::message::{Body, Mailbox};
use lettre::{AsyncSmtpTransport, AsyncTransport, Tokio1Executor};
use url::Url;

use super::compose::Message;
use crate::secrets::seal::Secret;

/// Timeout of each step of a conversation with the server, and of the whole. With the waits for the database it stays below
/// the time after which a loop counts as stalled.
const STEP_TIMEOUT: Duration = Duration::from_secs(10);
const SEND_TIMEOUT: Duration = Duration::from_secs(20);
/// Longest line that a message may have without an encoding, in bytes (RFC 5322, 2.1.1).
const MAX_LINE: usize = 998;

/// URL of an SMTP server. It may contain a password.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SmtpUrl(Secret);

impl FromStr for SmtpUrl {
    type Err = &'static str;

    /// Checks the URL. No message repeats it, because it may contain a password.
    fn from_str(text: &str) -> Result<SmtpUrl, &'static str> {
        let url = Url::parse(text).map_err(|_| "is not a URL such as smtps://user:password@host")?;
        let host = url.host_str().filter(|host| !host.is_empty()).ok_or("has no host")?;
        let is_encrypted = match url.scheme() {
            "smtps" => true,
            "smtp" => url.query_pairs().any(|(key, value)| key == "tls" && value == "required"),
            _ => return Err("must begin with smtps:// or smtp://"),
        };
        let address = host.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>();
        let is_local = host.eq_ignore_ascii_case("localhost") || address.is_ok_and(|address| address.is_loopback());
        if !is_encrypted && !is_local {
            return Err("would send tokens unencrypted: use smtps://, or add ?tls=required");
        }
        AsyncSmtpTransport::<Tokio1Executor>::from_url(text).map_err(|_| "is not the URL of an SMTP server")?;
        Ok(SmtpUrl(Secret::new(text)))
    }
}

#[derive(Debug, thiserror::Error)]
pub enum SendError {
    #[error("the message cannot be built: {0}")]
    Message(#[from] lettre::error::Error),
    /// The recipient's address has a form that no mail can have. The API checks addresses only roughly.
    #[error("the recipient's address is invalid")]
    Address(#[from] lettre::address::AddressError),
    /// The server's text is left out, because it may name the recipient.
    #[error("the SMTP server refused the message or did not answer{}", status(.0))]
    Smtp(lettre::transport::smtp::Error),
    /// A refusal of the recipient that no repetition changes.
    #[error("the SMTP server refuses the recipient for good (status {0})")]
    Recipient(u16),
    #[error("the SMTP server did not answer in time")]
    Timeout,
    #[error("cannot write the message to a file: {0}")]
    File(#[from] std::io::Error),
}

impl From<lettre::transport::smtp::Error> for SendError {
    fn from(error: lettre::transport::smtp::Error) -> SendError {
        let text = std::error::Error::source(&error).map(ToString::to_string).unwrap_or_default();
        match error.status().map(u16::from) {
            Some(status) if error.is_permanent() && is_about_recipient(status, &text) => SendError::Recipient(status),
            _ => SendError::Smtp(error),
        }
    }
}

/// Returns whether a permanent refusal is about the recipient. Others are about this service, such as a wrong password, a
/// sender that is not allowed, or a relay that is denied. An operator can correct them, so the mail must not be lost.
///
/// The enhanced status code tells (RFC 3463): addresses and mailboxes, except for the codes of the sender's address. Without
/// one, the status codes that RFC 5321 assigns to mailboxes count.
fn is_about_recipient(status: u16, text: &str) -> bool {
    let enhanced = text.split_whitespace().next().and_then(|code| code.strip_prefix("5.")?.split_once('.'));
    match enhanced {
        Some((subject, detail)) => subject == "1" && !matches!(detail, "7" | "8") || subject == "2",
        None => matches!(status, 550 | 551 | 553),
    }
}

/// Returns the server's status code as part of a message, if it answered.
fn status(error: &lettre::transport::smtp::Error) -> String {
    error.status().map_or_else(String::new, |code| format!(" (status {code})"))
}

/// Way of a mail out of the service.
#[derive(Clone)]
pub enum Transport {
    Smtp(AsyncSmtpTransport<Tokio1Executor>),
    /// Directory for files in the format of RFC 5322 (`.eml`).
    Files(PathBuf),
}

/// Shows no details: those of a connection include the password.
impl fmt::Debug for Transport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Smtp(_) => f.write_str("Smtp"),
            Self::Files(directory) => f.debug_tuple("Files").field(directory).finish(),
        }
    }
}

impl Transport {
    /// Creates the transport to an SMTP server. It connects for each mail.
    ///
    /// # Errors
    /// If the platform's certificates cannot be loaded.
    pub fn smtp(url: &SmtpUrl) -> Result<Transport, SendError> {
        let builder = AsyncSmtpTransport::<Tokio1Executor>::from_url(url.0.expose())?;
        Ok(Transport::Smtp(builder.timeout(Some(STEP_TIMEOUT)).build()))
    }
}

/// Sends messages from one address.
#[derive(Clone, Debug)]
pub struct Sender {
    pub transport: Transport,
    pub from: Mailbox,
}

impl Sender {
    /// Sends a message. Its id becomes part of its `Message-ID`, so that a mail that is sent twice can be recognized.
    ///
    /// # Errors
    /// If the message is not accepted in time. It may have been accepted nevertheless.
    pub async fn send(&self, id: i64, message: &Message) -> Result<(), SendError> {
        let Message { to, subject, text } = message;
        let message = lettre::Message::builder()
            .from(self.from.clone())
            .to(Mailbox::new(None, to.expose().parse()?))
            .subject(subject)
            .message_id(Some(format!("<{id:016x}@{}>", self.from.email.domain())))
            .header(ContentType::TEXT_PLAIN)
            .body(body(text.expose()))?;
        match &self.transport {
            Transport::Smtp(server) => {
                let sent = tokio::time::timeout(SEND_TIMEOUT, server.send(message)).await;
                sent.map_err(|_| SendError::Timeout)?.map(drop)?;
            }
            Transport::Files(directory) => {
                let (directory, bytes) = (directory.clone(), message.formatted());
                let name = format!("{}-{id:016x}.eml", Utc::now().format("%Y%m%dT%H%M%SZ"));
                let written = tokio::task::spawn_blocking(move || write(&directory, &name, &bytes));
                written.await.map_err(std::io::Error::other)??;
            }
        }
        Ok(())
    }
}

/// Encodes a text. A long link stays whole, so that it can be followed in a file, too: quoted-printable would break it.
fn body(text: &str) -> Body {
    if text.is_ascii() && text.lines().all(|line| line.len() <= MAX_LINE) {
        return Body::dangerous_pre_encoded(text.replace('\n', "\r\n").into_bytes(), ContentTransferEncoding::SevenBit);
    }
    Body::new(text.to_owned())
}

/// Writes a file that only this user can read, because mails contain tokens. A file under its final name is complete.
fn write(directory: &Path, name: &str, bytes: &[u8]) -> std::io::Result<()> {
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(directory)?;
    let mut file = tempfile::Builder::new().permissions(std::fs::Permissions::from_mode(0o600)).tempfile_in(directory)?;
    file.write_all(bytes)?;
    file.as_file().sync_all()?;
    file.persist(directory.join(name))?;
    Ok(())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn an_unencrypted_connection_must_stay_on_this_machine() {
        for good in [
            "smtps://user:p%40ss@mail.example.com",
            "smtp://mail.example.com:587?tls=required",
            "smtp://localhost:2525",
            "smtp://127.0.0.1:25",
            "smtp://[::1]:25",
        ] {
            let url: SmtpUrl = good.parse().unwrap_or_else(|error| panic!("{good}: {error}"));
            assert!(!format!("{url:?}").contains("p%40ss"));
        }
        for bad in [
            "mail.example.com",
            "http://mail.example.com",
            "smtp://mail.example.com",
            "smtp://mail.example.com?tls=opportunistic",
            "smtp://user:hunter2@10.0.0.1",
            "smtps://",
        ] {
            let error = bad.parse::<SmtpUrl>().unwrap_err();
            assert!(!error.contains("hunter2"), "{bad}");
        }
    }

    #[test]
    fn only_a_refusal_of_the_recipient_is_for_good() {
        for (status, text) in [
            (550, "no such user"),
            (551, "User not local"),
            (553, ""),
            (550, "5.1.1 <jo@example.com> User unknown"),
            (552, "5.2.2 Mailbox full"),
            (554, "5.2.1 Mailbox disabled"),
        ] {
            assert!(is_about_recipient(status, text), "{status} {text}");
        }
        for (status, text) in [
            (535, "5.7.8 Authentication credentials invalid"),
            (535, "wrong password"),
            (553, "5.7.1 Sender address rejected: not owned by user"),
            (553, "5.1.8 Sender address has no MX"),
            (554, "5.7.1 Relay access denied"),
            (554, "no SMTP service here"),
            (550, "5.7.25 no PTR record"),
        ] {
            assert!(!is_about_recipient(status, text), "{status} {text}");
        }
    }

    #[tokio::test]
    async fn a_file_is_private_and_holds_the_whole_message() {
        let directory = tempfile::tempdir().unwrap();
        let outbox = directory.path().join("outbox");
        let sender =
            Sender { transport: Transport::Files(outbox.clone()), from: "Rewards <rewards@example.com>".parse().unwrap() };
        let message = Message {
            to: Secret::new("jo@example.com"),
            subject: "Grüße".to_owned(),
            text: Secret::new(format!("https://pay.example/portal?token={}\n", "ab12".repeat(40))),
        };
        sender.send(10, &message).await.unwrap();
        let file = std::fs::read_dir(&outbox).unwrap().next().unwrap().unwrap();
        assert!(file.file_name().to_str().unwrap().ends_with("-000000000000000a.eml"));
        assert_eq!(file.metadata().unwrap().permissions().mode() & 0o777, 0o600);
        let text = std::fs::read_to_string(file.path()).unwrap();
        for part in [
            "To: jo@example.com\r\n",
            "Message-ID: <000000000000000a@example.com>\r\n",
            &format!("?token={}\r\n", "ab12".repeat(40)),
        ] {
            assert!(text.contains(part), "{text}");
        }
    }
}
