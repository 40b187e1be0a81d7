//! `erase …`: destroying personal data, straight on the database, and rewriting the tables it was in.

use std::io::{BufRead, IsTerminal, Write};

use anyhow::bail;
use clap::{Args, Subcommand};
use ledger_database::Connector;
use serde_json::{Value, json};

use super::output::{Output, with_progress};
use super::writing::{ByArgs, Writing};
use crate::config::{DatabaseSettings, MasterKeySettings};
use crate::ledger::erasure::run::{self, EraseError, Preview, Report};
use crate::ledger::erasure::wipe::{self, Remains};
use crate::ledger::erasure::{Counts, Subject, orphans};
use crate::ledger::{Ledger, Origin, WriteError};
use crate::node::Database;
use crate::secrets::seal::{Keyring, Private};

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
    /// Who it is, its account number, and why payouts to it failed; it is deleted with that
    Beneficiary(One),
    /// An order's metadata, the reason of its cancellation, and its vouchers' codes
    Order(One),
    /// Everything of a suspended account: texts, codes, webhooks, users, beneficiaries
    Account(One),
    /// A user's email and login
    User(One),
    /// What the lines of a bank's statement say, and the reasons of decisions about them; what was decided stays
    Statement {
        #[command(flatten)]
        one: One,
        /// Only this line
        #[arg(long, value_name = "NUMBER")]
        line: Option<i32>,
    },
    /// Rewrite the tables that earlier erasures have touched and left, and delete lines of banks' files that were never imported
    Finish,
}

#[derive(Args, Debug)]
struct One {
    id: i64,
    /// Why; sealed, and told by `show`. Names nobody, or it would have to be erased, too
    #[arg(long)]
    reason: String,
    #[command(flatten)]
    by: ByArgs,
    /// Only count what there is
    #[arg(long)]
    dry_run: bool,
    /// Do not ask
    #[arg(long)]
    yes: bool,
    /// Leave the rewriting of tables, which keeps others out of them, to a later `erase finish`
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
        What::Beneficiary(one) => (Subject::Beneficiary(one.id), one),
        What::Order(one) => (Subject::Order(one.id), one),
        What::Account(one) => (Subject::Account(one.id), one),
        What::User(one) => (Subject::User(one.id), one),
        What::Statement { one, line } => (Subject::Statement { id: one.id, line: *line }, one),
        What::Finish => {
            let orphans = with_progress("looking for lines without a statement", orphans::delete(database.migrating())).await?;
            let wiped = with_progress("rewriting tables", wipe::wipe(database.migrating())).await?;
            let facts = json!({"lines_never_imported": orphans, "rewritten": wiped, "remains": remains(database).await?});
            return Ok(output.facts(&facts)?);
        }
    };
    let writing = Writing::open(database, &args.master_key, &args.database.data_dir).await?;
    let erased = erase(&writing.ledger, &writing.keyring, subject, one, output).await;
    let is_unknown = matches!(
        erased.as_ref().err().and_then(|error| error.downcast_ref()),
        Some(EraseError::Write(WriteError::OutcomeUnknown))
    );
    writing.close(is_unknown).await;
    if is_unknown {
        let (kind, id) = subject.name();
        bail!(
            "it is not known whether {kind} {id} is erased: give the same command again when the database is back; it erases what is left, nothing twice, and rewrites the tables, which was not done"
        );
    }
    let Some(report) = erased? else { return Ok(()) };
    if one.later {
        return Ok(output.facts(&facts(subject, &report, &[], remains(database).await?))?);
    }
    // What was recorded is done, whatever becomes of this: `erase finish` goes on here.
    let wiped = with_progress("rewriting tables", wipe::wipe(database.migrating())).await?;
    Ok(output.facts(&facts(subject, &report, &wiped, remains(database).await?))?)
}

/// None where nothing was to be done.
async fn erase(
    ledger: &Ledger,
    keyring: &Keyring,
    subject: Subject,
    one: &One,
    output: &Output,
) -> anyhow::Result<Option<Report>> {
    let actor = one.by.actor(ledger.pool()).await?;
    let Preview { counts, obstacle } = with_progress("counting", run::preview(ledger, keyring, subject)).await?;
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
    let reason = Private::new(one.reason.trim());
    let erasing = run::erase(ledger, subject, &reason, &origin, |_| {});
    Ok(Some(with_progress("erasing", erasing).await?))
}

/// Has the id typed, since nothing brings back what is erased.
fn is_confirmed(subject: Subject, counts: Counts) -> anyhow::Result<bool> {
    let (kind, id) = subject.name();
    if !std::io::stdin().is_terminal() {
        bail!("there is nobody to ask whether {kind} {id} is to be erased: give --yes");
    }
    let Counts { texts, vouchers, .. } = counts;
    anstream::eprint!(
        "{texts} texts and the codes of {vouchers} vouchers of {kind} {id} will be gone for ever.\nType {id} to go on: "
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

/// Where it still is: outside of the tables, and in those that are still to be rewritten.
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
        places.push(format!("what {replication_slots} replication slots hold back, and what standbys have not replayed"));
    }
    if !outstanding.is_empty() {
        places.push(format!("the files of {}, until `erase finish`", outstanding.join(", ")));
    }
    Ok(json!(places))
}
