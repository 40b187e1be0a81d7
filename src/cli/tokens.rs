//! `admin token`: operator tokens, directly on the database, since the first one cannot be had by
//! calling the API.

use anyhow::bail;
use clap::{Args, Subcommand};
use ledger_projections::envelope::iso8601;
use serde_json::json;

use super::output::{Output, with_progress};
use crate::access::{Operators, Role};
use crate::config::DatabaseSettings;
use crate::ledger::connect;
use crate::node::Database;

#[derive(Args, Debug)]
pub struct TokenArgs {
    #[command(flatten)]
    database: DatabaseSettings,
    #[command(subcommand)]
    what: Token,
}

#[derive(Subcommand, Debug)]
enum Token {
    /// Make a token, which is shown once
    Create {
        /// Whose it is
        name: String,
        /// admin, finance or auditor
        #[arg(long, value_parser = role)]
        role: Role,
    },
    /// The tokens that were made, without themselves
    List,
    /// A revoked token opens nothing any more
    Revoke { id: i64 },
}

fn role(text: &str) -> Result<Role, &'static str> {
    Role::parse(text).ok_or("expected admin, finance or auditor")
}

pub async fn run(args: TokenArgs, output: &Output) -> anyhow::Result<()> {
    let database = with_progress("starting the embedded Postgres", Database::open(&args.database)).await?;
    let pool = connect::pool(database.options());
    let operators = Operators::new(pool.clone(), None);
    let done = async {
        database.migrate_if_allowed().await?;
        match args.what {
            Token::Create { name, role } => {
                let token = operators.issue(&name, role).await?;
                match output.json {
                    true => output.json_line(&json!({"name": name, "role": role.as_str(), "token": token.expose()}))?,
                    false => output.line(token.expose())?,
                }
            }
            Token::List => {
                let tokens = operators.list().await?.into_iter().map(|token| {
                    json!({"id": token.id, "name": token.name, "role": token.role,
                           "created_at": iso8601(token.created_at), "revoked_at": token.revoked_at.map(iso8601)})
                });
                output.facts(&json!({"tokens": tokens.collect::<Vec<_>>()}))?;
            }
            Token::Revoke { id } => {
                if !operators.revoke(id).await? {
                    bail!("no token {id} that is not revoked already");
                }
                output.facts(&json!({"id": id, "is_revoked": true}))?;
            }
        }
        Ok(())
    };
    let done = done.await;
    pool.close().await;
    database.close().await?;
    done
}
