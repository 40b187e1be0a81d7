//! `erase …`: erases personal data directly in the database, and rewrites the tables that held it.

use std::io::{BufRead, IsTerminal, Write};

use anyhow::bail;
use clap::{Args, Subcommand};
use ledger_database::Connector;
use ledger_events::{AccountId, BeneficiaryId, OrderId, StatementId, UserId};
use serde_json::{Value, json};

use super::output::{Output, with_progress};
use super::writing::{self, ByArgs, Writing};
use crate::config::{DatabaseSettings, MasterKeySettings};
use crate::ledger::eraser::{self, EraseError, Preview, Report};
use crate::ledger::erasure::wipe::{self, Remains};
use crate::ledger::erasure::{Counts, Subject, orphans};
use crate::ledger::{Origin, WriteError};
use crate::node::Database;
use crate::secrets::seal::Secret;

#[derive(Args, Debug)]
pub struct EraseArgs {
    #[command(flatten)]
    database: DatabaseSettings,
    #[command(flatten)]
    master_key: MasterKeySettings,
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand, Debug)]
enum What {
    /// Erase a beneficiary: name, account number, and failure reasons of its payouts; also deletes the beneficiary
    Beneficiary(One),
    /// Erase the metadata, cancellation reason, and voucher codes of an order
    Order(One),
    /// Erase everything of a suspended account: texts, voucher codes, webhooks, users, and beneficiaries
    Account(One),
    /// Erase the email and login of a user
    User(One),
    /// Erase the contents of bank statement lines and the reasons of decisions about them; the decisions stay
    Statement {
        #[command(flatten)]
        one: One,
        /// Erase only this line
        #[arg(long, value_name = "NUMBER")]
        line: Option<i32>,
    },
    /// Rewrite tables that earlier erasures did not rewrite, and delete bank statement lines whose import never finished
    Finish,
}

#[derive(Args, Debug)]
struct One {
    /// Id of the beneficiary, order, account, user, or statement
    id: i64,
    /// Reason for the erasure, at most 500 characters; stored sealed and printed by `show`. Do not name a person in it: it is not
    /// erased
    #[arg(long)]
    reason: String,
    #[command(flatten)]
    by: ByArgs,
    /// Only count what would be erased
    #[arg(long)]
    dry_run: bool,
    /// Do not ask for confirmation
    #[arg(long)]
    yes: bool,
    /// Do not rewrite tables now, because that locks them; run `erase finish` later
    #[arg(long)]
    later: bool,
}

pub async fn run(args: EraseArgs, output: &Output) -> anyhow::Result<()> {
    let database = with_progress("starting the embedded Postgres", Database::open(&args.database)).await?;
    let done = on(&args, &database, output).await;
    database.close().await?;
    done
}

async fn on(args: &EraseArgs, database: &Database, output: &Output) -> anyhow::Result<()> {
    let (subject, one) = match &args.what {
        What::Beneficiary(one) => (Subject::Beneficiary(BeneficiaryId(one.id)), one),
        What::Order(one) => (Subject::Order(OrderId(one.id)), one),
        What::Account(one) => (Subject::Account(AccountId(one.id)), one),
        What::User(one) => (Subject::User(UserId(one.id)), one),
        What::Statement { one, line } => (Subject::Statement { id: StatementId(one.id), line: *line }, one),
        What::Finish => {
            let orphans = with_progress("looking for lines without a statement", orphans::delete(database.migrating())).await?;
            let wiped = with_progress("rewriting tables", wipe::wipe(database.migrating())).await?;
            let facts = json!({"lines_never_imported": orphans, "rewritten": wiped, "remains": remains(database).await?});
            return Ok(output.facts(&facts)?);
        }
    };
    let reason = writing::reason(&one.reason)?;
    let writing = Writing::open(database, &args.master_key, &args.database.data_dir).await?;
    let erased = erase(&writing, subject, one, &reason, output).await;
    let is_unknown = matches!(
        erased.as_ref().err().and_then(|error| error.downcast_ref()),
        Some(EraseError::Write(WriteError::OutcomeUnknown))
    );
    writing.close(is_unknown).await;
    if is_unknown {
        let (kind, id) = subject.name();
        bail!(
            "it is not known whether {kind} {id} was erased: run the same command again when the database is back; it erases only what is left, and rewrites the tables, which has not been done yet"
        );
    }
    let Some(report) = erased? else { return Ok(()) };
    if one.later {
        return Ok(output.facts(&facts(subject, &report, &[], remains(database).await?))?);
    }
    // The erasure is already recorded. If rewriting fails, `erase finish` resumes here.
    let wiped = with_progress("rewriting tables", wipe::wipe(database.migrating())).await?;
    Ok(output.facts(&facts(subject, &report, &wiped, remains(database).await?))?)
}

/// Erases the subject and returns the report. Returns none for a dry run.
async fn erase(
    writing: &Writing,
    subject: Subject,
    one: &One,
    reason: &Secret,
    output: &Output,
) -> anyhow::Result<Option<Report>> {
    let Writing { ledger, keyring, .. } = writing;
    let actor = one.by.actor(ledger.pool()).await?;
    let Preview { counts, obstacle } = with_progress("counting", eraser::preview(ledger, keyring, subject)).await?;
    if one.dry_run {
        let mut found = counted(counts);
        found["obstacle"] = json!(obstacle);
        output.facts(&found)?;
        return Ok(None);
    }
    let (kind, id) = subject.name();
    if let Some(obstacle) = obstacle {
        bail!("{kind} {id} cannot be erased now: {obstacle}");
    }
    if !one.yes && !is_confirmed(subject, counts)? {
        bail!("nothing was erased");
    }
    let origin = Origin { actor, request_id: "erase".to_owned() };
    let erasing = eraser::erase(ledger, subject, reason, &origin, |_| {});
    Ok(Some(with_progress("erasing", erasing).await?))
}

/// Asks the operator to type the id, because an erasure cannot be undone.
fn is_confirmed(subject: Subject, counts: Counts) -> anyhow::Result<bool> {
    let (kind, id) = subject.name();
    if !std::io::stdin().is_terminal() {
        bail!("cannot ask for confirmation to erase {kind} {id}, because stdin is not a terminal: pass --yes");
    }
    let Counts { texts, vouchers, .. } = counts;
    anstream::eprint!(
        "This erases {texts} texts and the codes of {vouchers} vouchers of {kind} {id}, and cannot be undone.\nType {id} to continue: "
    );
    std::io::stderr().flush()?;
    let mut typed = String::new();
    std::io::stdin().lock().read_line(&mut typed)?;
    Ok(typed.trim() == id.to_string())
}

fn counted(counts: Counts) -> Value {
    let Counts { texts, vouchers, answers, data_keys } = counts;
    json!({"texts": texts, "vouchers": vouchers, "answers": answers, "data_keys": data_keys})
}

fn facts(subject: Subject, report: &Report, wiped: &[&str], remains: Value) -> Value {
    let (kind, id) = subject.name();
    let mut facts = counted(report.counts);
    facts["erased"] = json!(format!("{kind} {id}"));
    facts["positions"] = json!(report.events.iter().map(|(position, _)| position).collect::<Vec<_>>());
    facts["rewritten"] = json!(wiped);
    facts["remains"] = remains;
    facts
}

/// Lists the places that still hold erased data: those outside the tables, and the tables still to be rewritten.
async fn remains(database: &Database) -> anyhow::Result<Value> {
    let mut conn = Connector::patient(database.migrating().clone()).connect().await?;
    let outstanding = wipe::outstanding(&mut conn).await?;
    let Remains { wal_until, archive_mode, wal_keep_size, max_wal_size, replication_slots } = wipe::remains(&mut conn).await?;
    conn.close().await?;
    let mut places = vec!["every backup that was made before".to_owned()];
    places.push(format!(
        "the write-ahead log up to {wal_until}, until it is recycled (max_wal_size {max_wal_size}, wal_keep_size {wal_keep_size})"
    ));
    if archive_mode != "off" {
        places.push("the archive of the write-ahead log".to_owned());
    }
    if replication_slots > 0 {
        places.push(format!("the write-ahead log that {replication_slots} replication slots hold back, and the part that standbys have not replayed"));
    }
    if !outstanding.is_empty() {
        places.push(format!("the files of {}, until `erase finish`", outstanding.join(", ")));
    }
    Ok(json!(places))
}
