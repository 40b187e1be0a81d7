//! `admin token`: manages operator tokens directly in the database, because nobody can ask the API for the first one. Each change
//! is an event, as everywhere else.

use anyhow::bail;
use clap::{Args, Subcommand};
use ledger_events::Rejection;
use ledger_projections::envelope::iso8601;
use serde_json::json;

use super::output::{Output, with_progress};
use super::writing::{ByArgs, Writing};
use crate::access::Role;
use crate::config::{DatabaseSettings, MasterKeySettings};
use crate::ledger::commands::IssueOperatorToken;
use crate::ledger::operators;
use crate::ledger::submission::WriteError;
use crate::ledger::{Command, CommandResult, FIRST_SHARD, Origin, commands, connect};
use crate::node::Database;
use crate::secrets::seal::random_secret;

#[derive(Args, Debug)]
pub struct TokenArgs {
    #[command(flatten)]
    database: DatabaseSettings,
    #[command(flatten)]
    master_key: MasterKeySettings,
    #[command(subcommand)]
    what: Token,
}

#[derive(Subcommand, Debug)]
enum Token {
    /// Create an operator token; it is shown only once
    Create {
        /// Name of the operator
        name: String,
        /// Role of the operator: admin, finance or auditor
        #[arg(long, value_parser = role)]
        role: Role,
        #[command(flatten)]
        by: ByArgs,
    },
    /// List operator tokens without their secrets
    List,
    /// Revoke an operator token, starting with the next request
    Revoke {
        /// Token id, see `admin token list`
        id: i64,
        #[command(flatten)]
        by: ByArgs,
    },
}

fn role(text: &str) -> Result<Role, &'static str> {
    Role::parse(text).ok_or("expected admin, finance or auditor")
}

pub async fn run(args: TokenArgs, output: &Output) -> anyhow::Result<()> {
    let database = with_progress("starting the embedded Postgres", Database::open(&args.database)).await?;
    let done = on(&args, &database, output).await;
    database.close().await?;
    done
}

async fn on(args: &TokenArgs, database: &Database, output: &Output) -> anyhow::Result<()> {
    database.migrate_if_allowed().await?;
    match &args.what {
        Token::Create { name, role, by } => {
            let token = random_secret();
            let command = Command::IssueOperatorToken(IssueOperatorToken::of(name, *role, &token));
            let id = match write(args, database, command, by, "admin token create").await? {
                Err(WriteError::OutcomeUnknown) => bail!(
                    "it is not known whether the token was created, and its secret is lost: if `admin token list` shows a new token of {name}, revoke it with `admin token revoke ID`; then create another"
                ),
                created => created?,
            };
            match output.json {
                true => output.json_line(&json!({"id": id, "name": name, "role": role.as_str(), "token": token.expose()}))?,
                false => output.line(token.expose())?,
            }
        }
        Token::List => {
            let pool = connect::pool(database.options());
            let tokens = operators::list(&pool).await;
            pool.close().await;
            let tokens = tokens?.into_iter().map(|token| {
                json!({"id": token.id, "name": token.name, "role": token.role,
                       "created_at": iso8601(token.created_at), "revoked_at": token.revoked_at.map(iso8601)})
            });
            output.facts(&json!({"tokens": tokens.collect::<Vec<_>>()}))?;
        }
        Token::Revoke { id, by } => {
            match write(args, database, commands::RevokeOperatorToken { id: *id }, by, "admin token revoke").await? {
                Err(WriteError::Rejected(Rejection::NotFound)) => bail!("there is no token {id}, or it is already revoked"),
                Err(WriteError::OutcomeUnknown) => {
                    bail!(
                        "it is not known whether token {id} was revoked: see `admin token list`, and revoke it again if it was not"
                    )
                }
                revoked => _ = revoked?,
            }
            output.facts(&json!({"id": id, "is_revoked": true}))?;
        }
    }
    Ok(())
}

/// Executes a command on the ledger. Returns the token's id, or the error with which the ledger refused the command.
async fn write(
    args: &TokenArgs,
    database: &Database,
    command: impl Into<Command>,
    by: &ByArgs,
    request: &str,
) -> anyhow::Result<Result<i64, WriteError>> {
    let writing = Writing::open(database, &args.master_key, &args.database.data_dir).await?;
    let done = async {
        let origin = Origin { actor: by.actor(writing.ledger.pool()).await?, request_id: request.to_owned() };
        anyhow::Ok(writing.ledger.execute(FIRST_SHARD, command, origin).await)
    };
    let done = done.await;
    writing.close(matches!(done, Ok(Err(WriteError::OutcomeUnknown)))).await;
    match done? {
        Ok(CommandResult::OperatorToken { id }) => Ok(Ok(id)),
        Ok(_) => bail!("the ledger returned an unexpected result instead of a token"),
        Err(error) => Ok(Err(error)),
    }
}
