//! Sealing of secrets under the master key, message authentication codes of rows, key files, and the strength of tokens.

pub mod cursors;
pub mod key_file;
pub mod master_keys;
pub mod rows;
pub mod seal;
pub mod sealing;
pub mod strength;

/// Kind that a credential's sealed signing secret is bound to, together with the credential's id.
pub const SIGNING_SECRET: &str = "credential.signing_secret";

/// Kind that a two-factor secret is bound to while its enrolment is not confirmed, together with the console session's id.
pub const CONSOLE_ENROLMENT: &str = "console.enrolment";
/// Kind that the secret of a user's one-time codes is bound to, together with the user's id.
pub const TWO_FACTOR_SECRET: &str = "user.two_factor";
/// Kind that the network and user agent of a session are bound to, together with the session's id.
pub const SESSION_CLIENT: &str = "session.client";
/// Kind that the email address of an invitation is bound to, together with the invitation's id.
pub const INVITATION_EMAIL: &str = "invitation.email";
/// Kind that a position of the log is bound to, which clients carry from a change to a later read.
pub const LOG_POSITION: &str = "log position";
/// Kind that a mail is bound to, together with its id.
pub const MAIL: &str = "mail";
