//! `admin operator`: manages the people who operate the service. Programs have tokens: see `admin token`.

use std::path::PathBuf;

use clap::{ArgGroup, Subcommand, ValueEnum};
use reqwest::Method;
use serde_json::json;

use super::users::password;
use super::{Operation, PageArgs, filled, get, list, post, put};

#[derive(Subcommand, Debug)]
pub enum Operator {
    /// Create an operator, who signs in to the console
    Create {
        /// Email address, which the operator signs in with
        email: String,
        /// Role of the operator
        #[arg(long, value_enum)]
        role: Role,
        /// File with the password on its first line; - reads from stdin
        #[arg(long, value_name = "FILE")]
        password_file: PathBuf,
    },
    /// List operators
    List(PageArgs),
    /// Show one operator
    Show {
        /// Operator id
        operator: i64,
    },
    /// Change the role or password of an operator, and end their sessions
    #[command(group = ArgGroup::new("what").required(true).multiple(true))]
    Change {
        /// Operator id
        operator: i64,
        /// New role of the operator
        #[arg(long, value_enum, group = "what")]
        role: Option<Role>,
        /// File with the new password on its first line; - reads from stdin
        #[arg(long, value_name = "FILE", group = "what")]
        password_file: Option<PathBuf>,
    },
    /// Remove the second factor of an operator who has lost it
    RemoveTwoFactor {
        /// Operator id
        operator: i64,
    },
    /// Remove an operator, starting with the next request
    Remove {
        /// Operator id
        operator: i64,
    },
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub enum Role {
    /// Does everything
    Admin,
    /// Reads, moves money, and reconciles
    Finance,
    /// Reads, including the entries of the transparency log
    Auditor,
}

impl Role {
    fn as_str(self) -> &'static str {
        match self {
            Role::Admin => "admin",
            Role::Finance => "finance",
            Role::Auditor => "auditor",
        }
    }
}

pub fn operation(operator: Operator) -> anyhow::Result<Operation> {
    Ok(match operator {
        Operator::Create { email, role, password_file } => {
            let password = password(&password_file)?;
            post("/operators", json!({"email": email, "password": password.expose(), "role": role.as_str()}))
        }
        Operator::List(page) => list("/operators", &page),
        Operator::Show { operator } => get(&format!("/operators/{operator}")),
        Operator::Change { operator, role, password_file } => {
            let password = password_file.as_deref().map(password).transpose()?;
            let change = [
                ("role", role.map(|role| json!(role.as_str()))),
                ("password", password.map(|password| json!(password.expose()))),
            ];
            put(&format!("/operators/{operator}"), filled(change))
        }
        Operator::RemoveTwoFactor { operator } => (Method::DELETE, format!("/admin/v1/operators/{operator}/two-factor"), None),
        Operator::Remove { operator } => (Method::DELETE, format!("/admin/v1/operators/{operator}"), None),
    })
}
