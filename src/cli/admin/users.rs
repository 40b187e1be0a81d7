//! `admin user`: people who act for an account.

use std::io::Read;
use std::path::{Path, PathBuf};

use anyhow::Context;
use clap::{ArgGroup, Subcommand, ValueEnum};
use reqwest::Method;
use serde_json::json;

use super::{Operation, PageArgs, filled, list, post, put};
use crate::secrets::seal::Private;

/// Longer than any password; what is read at most.
const PASSWORD_BYTES: u64 = 4_096;

#[derive(Subcommand, Debug)]
pub enum User {
    /// Let somebody act for an account
    Create {
        account: i64,
        email: String,
        #[arg(long, value_enum)]
        role: Role,
        /// The file that holds the password; - is standard input
        #[arg(long, value_name = "FILE")]
        password_file: PathBuf,
    },
    List {
        account: i64,
        #[command(flatten)]
        page: PageArgs,
    },
    /// Give a user another role or password, and end their sessions
    #[command(group = ArgGroup::new("what").required(true).multiple(true))]
    Change {
        user: i64,
        #[arg(long, value_enum, group = "what")]
        role: Option<Role>,
        /// The file that holds the new password; - is standard input
        #[arg(long, value_name = "FILE", group = "what")]
        password_file: Option<PathBuf>,
    },
    /// End all sessions of a user, who can log in again
    EndSessions { user: i64 },
    /// Counts on the very next request
    Remove { user: i64 },
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub enum Role {
    /// Reads all but voucher codes
    Viewer,
    /// Also orders, cancels, reads voucher codes, manages webhooks
    Operator,
    /// Also manages payouts, beneficiaries and API keys
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

/// The first line. An argument would be seen by every process of the machine.
fn password(file: &Path) -> anyhow::Result<Private> {
    let mut text = String::new();
    let read = match file.as_os_str() == "-" {
        true => std::io::stdin().take(PASSWORD_BYTES).read_to_string(&mut text),
        false => std::fs::File::open(file).and_then(|file| file.take(PASSWORD_BYTES).read_to_string(&mut text)),
    };
    read.with_context(|| format!("cannot read {}", file.display()))?;
    let text = Private::new(text);
    Ok(Private::new(text.expose().lines().next().unwrap_or_default()))
}
