//! `admin user`: manages the users of an account.

use std::io::Read;
use std::path::{Path, PathBuf};

use anyhow::Context;
use clap::{ArgGroup, Subcommand, ValueEnum};
use reqwest::Method;
use serde_json::json;

use super::{Operation, PageArgs, filled, get, list, post, put};
use crate::secrets::seal::Secret;

/// Maximum number of bytes read from a password file; longer than any password.
const PASSWORD_BYTES: u64 = 4_096;

#[derive(Subcommand, Debug)]
pub enum User {
    /// Create a user for an account
    Create {
        /// Account id
        account: i64,
        /// Email address, which the user logs in with
        email: String,
        /// Role of the user
        #[arg(long, value_enum)]
        role: Role,
        /// File with the password on its first line; - reads from stdin
        #[arg(long, value_name = "FILE")]
        password_file: PathBuf,
    },
    /// List the users of an account
    List {
        /// Account id
        account: i64,
        #[command(flatten)]
        page: PageArgs,
    },
    /// Show one user of an account
    Show {
        /// Account id
        account: i64,
        /// User id
        user: i64,
    },
    /// Change the role or password of a user, and end their sessions
    #[command(group = ArgGroup::new("what").required(true).multiple(true))]
    Change {
        /// User id
        user: i64,
        /// New role of the user
        #[arg(long, value_enum, group = "what")]
        role: Option<Role>,
        /// File with the new password on its first line; - reads from stdin
        #[arg(long, value_name = "FILE", group = "what")]
        password_file: Option<PathBuf>,
    },
    /// End all sessions of a user; the user can log in again
    EndSessions {
        /// User id
        user: i64,
    },
    /// Remove a user, starting with the next request
    Remove {
        /// User id
        user: i64,
    },
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub enum Role {
    /// Reads everything except voucher codes
    Viewer,
    /// Also places and cancels orders, reads voucher codes, and manages webhooks
    Operator,
    /// Also manages payouts, beneficiaries, and API keys
    Owner,
}

impl Role {
    fn as_str(self) -> &'static str {
        match self {
            Role::Viewer => "viewer",
            Role::Operator => "operator",
            Role::Owner => "owner",
        }
    }
}

pub fn operation(user: User) -> anyhow::Result<Operation> {
    Ok(match user {
        User::Create { account, email, role, password_file } => {
            let password = password(&password_file)?;
            let user = json!({"email": email, "password": password.expose(), "role": role.as_str()});
            post(&format!("/accounts/{account}/users"), user)
        }
        User::List { account, page } => list(&format!("/accounts/{account}/users"), &page),
        User::Show { account, user } => get(&format!("/accounts/{account}/users/{user}")),
        User::Change { user, role, password_file } => {
            let password = password_file.as_deref().map(password).transpose()?;
            let change = [
                ("role", role.map(|role| json!(role.as_str()))),
                ("password", password.map(|password| json!(password.expose()))),
            ];
            put(&format!("/users/{user}"), filled(change))
        }
        User::EndSessions { user } => (Method::DELETE, format!("/admin/v1/users/{user}/sessions"), None),
        User::Remove { user } => (Method::DELETE, format!("/admin/v1/users/{user}"), None),
    })
}

/// Reads the password from the first line of the file. A command-line argument would be visible to every process on the
/// machine.
pub fn password(file: &Path) -> anyhow::Result<Secret> {
    let mut text = String::new();
    let read = match file.as_os_str() == "-" {
        true => std::io::stdin().take(PASSWORD_BYTES).read_to_string(&mut text),
        false => std::fs::File::open(file).and_then(|file| file.take(PASSWORD_BYTES).read_to_string(&mut text)),
    };
    read.with_context(|| format!("cannot read {}", file.display()))?;
    let text = Secret::new(text);
    Ok(Secret::new(text.expose().lines().next().unwrap_or_default()))
}
