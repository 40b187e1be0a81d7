//! `clock`: shows the clocks, and records an operator's confirmation that the database clock is right.

use clap::{Args, Subcommand};
use ledger_projections::envelope::iso8601;
use serde_json::json;

use super::output::{Output, with_progress};
use super::writing;
use crate::config::DatabaseSettings;
use crate::ledger::{clock, connect};
use crate::node::Database;

#[derive(Args, Debug)]
pub struct ClockArgs {
    #[command(flatten)]
    database: DatabaseSettings,
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand, Debug)]
enum What {
    /// Show the database clock and the trusted time, which decides when vouchers expire
    Show,
    /// Trust the database clock after a jump; from now on vouchers expire by it
    Confirm {
        /// Reason why the clock is right, at most 500 characters; stored with the confirmation
        #[arg(long, value_parser = clap::builder::NonEmptyStringValueParser::new())]
        reason: String,
    },
}

pub async fn run(args: ClockArgs, output: &Output) -> anyhow::Result<()> {
    let reason = match &args.what {
        What::Show => None,
        What::Confirm { reason } => Some(writing::reason(reason)?),
    };
    let database = with_progress("starting the embedded Postgres", Database::open(&args.database)).await?;
    let pool = connect::pool(database.options());
    let done = match &reason {
        None => clock::read(&pool).await,
        Some(reason) => clock::confirm(&pool, reason.expose()).await,
    };
    pool.close().await;
    database.close().await?;
    let reading = done?;
    output.facts(&json!({
        "database_clock": iso8601(reading.now),
        "trusted_time": iso8601(reading.trusted_at),
        "ahead_seconds": reading.ahead().num_seconds(),
        "machine_clock": iso8601(chrono::Utc::now()),
    }))?;
    Ok(())
}
