//! `admin user`: people who act for an account.

use std::io::Read;
use std::path::{Path, PathBuf};

use anyhow::Context;
use clap::{Subcommand, ValueEnum};
use reqwest::Method;
use serde_json::json;

use super::{Operation, PageArgs, list, post};
use crate::access::seal::Private;

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

pub fn operation(user: User) -> anyhow::Result<Operation> {
    Ok(match user {
        User::Create { account, email, role, password_file } => {
            let password = password(&password_file).with_context(|| format!("cannot read {}", password_file.display()))?;
            let role = match role {
                Role::Viewer => "viewer",
                Role::Operator => "operator",
                Role::Owner => "owner",
            };
            let user = json!({"email": email, "password": password.expose(), "role": role});
            post(&format!("/accounts/{account}/users"), user)
        }
        User::List { account, page } => list(&format!("/accounts/{account}/users"), &page),
        User::Remove { user } => (Method::DELETE, format!("/admin/v1/users/{user}"), None),
    })
}

/// The first line. An argument would be seen by every process of the machine.
fn password(file: &Path) -> std::io::Result<Private> {
    let mut text = String::new();
    match file.as_os_str() == "-" {
        true => std::io::stdin().take(PASSWORD_BYTES).read_to_string(&mut text)?,
        false => std::fs::File::open(file)?.take(PASSWORD_BYTES).read_to_string(&mut text)?,
    };
    let text = Private::new(text);
    Ok(Private::new(text.expose().lines().next().unwrap_or_default()))
}
