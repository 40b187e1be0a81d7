//! Stored bank statements, and the matching of their lines with the ledger.
//!
//! The lines of a statement are sealed in the vault under a fingerprint of the file as it was read. They are written
//! before the event that imports the statement. The same file is therefore imported only once, however often and by
//! whomever it is sent. An interrupted import leaves no lines that count.

mod candidates;

use std::collections::{HashMap, HashSet};
use std::ops::RangeInclusive;

use bank_statements::camt;
use bank_statements::lines::{self, BankLine, Columns, LineError};
use bank_statements::matching::{self, Open, Outcome, Tolerance};
use chrono::{NaiveDate, TimeDelta};
use futures::TryStreamExt;
use ledger_database::{PgPool, replanned};
use ledger_events::reconciliation::{BankStatement, Decision, StatementFormat, StatementImported};
use ledger_events::{Currency, ShardId, StatementId};
use ledger_projections::{ProjectionError, statements};
use sha2::{Digest, Sha256};

use crate::ledger::FIRST_SHARD;
use crate::secrets::seal::{Keyring, SealError};
pub use candidates::{Candidate, exists};

/// Largest tolerance in days.
pub const MAX_DAYS: i64 = 60;
/// Largest size of a file, in bytes.
pub const MAX_BYTES: usize = 16 << 20;
/// Limits on the memory of one matching.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Largest number of lines: those of the statement and the nearby ones of other statements.
    pub lines: usize,
    /// Largest number of fundings and payouts on the days of those lines.
    pub candidates: usize,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits { lines: 100_000, candidates: 200_000 }
    }
}

/// Number of lines per INSERT statement. It is small, because the progress is told after each one.
const BATCH_LINES: usize = 1_000;

#[derive(Debug, thiserror::Error)]
pub enum StatementError {
    #[error(transparent)]
    Database(#[from] sqlx::Error),
    #[error(transparent)]
    Seal(#[from] SealError),
    #[error(transparent)]
    Json(#[from] serde_json::Error),
    #[error(transparent)]
    Projection(#[from] ProjectionError),
    #[error(transparent)]
    Lines(#[from] LineError),
    #[error("the matching was interrupted: {0}")]
    Ended(#[from] tokio::task::JoinError),
    #[error("the days of the statement have more than {0} fundings and payouts: import it in parts")]
    TooMany(usize),
    #[error("this and other statements have more than {0} lines within twice the given number of days: use fewer days")]
    TooManyLines(usize),
}

/// Format of a statement file.
#[derive(Clone, Debug)]
pub enum Source<'a> {
    Csv(&'a Columns),
    Camt053,
}

/// Parses a statement file into lines.
pub fn read(bytes: &[u8], source: &Source<'_>) -> Result<Vec<BankLine>, LineError> {
    let text = std::str::from_utf8(bytes).map_err(|_| LineError::File("is not UTF-8"))?;
    match source {
        Source::Csv(columns) => lines::from_csv(text, columns, is_currency),
        Source::Camt053 => camt::lines(text, is_currency),
    }
}

/// Returns whether wallets can be in this currency.
fn is_currency(code: &str) -> bool {
    code.parse::<Currency>().is_ok()
}

/// Returns the kind under which a line is sealed, which binds the line to its statement.
pub(crate) fn kind(fingerprint: &str) -> String {
    format!("statement.line.{fingerprint}")
}

/// Seals the lines of a file and stores them in the vault. Returns the payload of the event that imports them; until that
/// event is appended, the lines do not count. Stored lines never change. The lines of an imported statement are not
/// written again, because some of them may have been erased. After each part of the lines, `told` gets the number of those
/// that are written.
pub async fn store(
    pool: &PgPool,
    keyring: &Keyring,
    bytes: &[u8],
    format: StatementFormat,
    lines: &[BankLine],
    told: impl Fn(usize) + Send + Sync,
) -> Result<StatementImported, StatementError> {
    let days = lines.iter().map(|line| line.booked_on);
    let (Some(first_day), Some(last_day)) = (days.clone().min(), days.max()) else {
        return Err(LineError::File("has no booked lines").into());
    };
    // The fingerprint covers the lines as they were read, so other column settings yield another statement. It excludes
    // the account that a camt.053 document names, because the document's bytes contain it. Fingerprints of documents
    // therefore are the same as before accounts were read.
    let mut content = Sha256::new_with_prefix(bytes);
    for line in lines {
        let account = line.account.clone().filter(|_| format == StatementFormat::Csv);
        content.update(serde_json::to_vec(&BankLine { account, ..line.clone() })?);
    }
    let fingerprint = hex::encode(keyring.fingerprint("statement", hex::encode(content.finalize())));
    let identities = lines::identities(lines);
    let kind = kind(&fingerprint);
    let mut rows = Vec::with_capacity(lines.len());
    for (line, identity) in lines.iter().zip(&identities) {
        let sealed = keyring.seal(&kind, line.number.into(), &serde_json::to_vec(line)?)?;
        rows.push((line.number, keyring.fingerprint("statement.line", identity), sealed));
    }
    replanned(|| insert(pool, &fingerprint, &rows, &told)).await?;
    let lines = i32::try_from(lines.len()).unwrap_or(i32::MAX);
    Ok(StatementImported { format, fingerprint, lines, first_day, last_day })
}

/// Stores the sealed lines of a statement: their number, fingerprint and sealed content.
async fn insert(
    pool: &PgPool,
    fingerprint: &str,
    rows: &[(i32, [u8; 32], Vec<u8>)],
    told: &(impl Fn(usize) + Sync),
) -> Result<(), sqlx::Error> {
    let mut tx = pool.begin().await?;
    let mut written = 0;
    for part in rows.chunks(BATCH_LINES) {
        sqlx::query(
            "INSERT INTO vault.statement_lines (shard_id, fingerprint, line, line_fingerprint, sealed)
             SELECT $1, $2, l.* FROM unnest($3::int[], $4::bytea[], $5::bytea[]) AS l
             WHERE NOT EXISTS (SELECT FROM bank_statements WHERE shard_id = $1 AND fingerprint = $2) ON CONFLICT DO NOTHING",
        )
        .bind(FIRST_SHARD)
        .bind(fingerprint)
        .bind(part.iter().map(|(number, ..)| *number).collect::<Vec<_>>())
        .bind(part.iter().map(|(_, identity, _)| &identity[..]).collect::<Vec<_>>())
        .bind(part.iter().map(|(.., sealed)| &sealed[..]).collect::<Vec<_>>())
        .execute(&mut *tx)
        .await?;
        written += part.len();
        told(written);
    }
    tx.commit().await
}

/// A stored line of a statement.
struct Kept {
    statement: StatementId,
    line: BankLine,
    decided: Option<Decision>,
    /// Set when an earlier statement contains the same line.
    is_duplicate: bool,
}

/// Decrypts the lines of statements one by one, and keeps only those that were booked on these days, to save memory. Reads
/// all statements with one query. Returns the lines in the order of the statements. Erased lines are missing.
async fn load(
    pool: &PgPool,
    keyring: &Keyring,
    statements: &[BankStatement],
    days: &RangeInclusive<NaiveDate>,
    most: usize,
) -> Result<Vec<Kept>, StatementError> {
    let fingerprints: Vec<&str> = statements.iter().map(|statement| statement.imported.fingerprint.as_str()).collect();
    let mut rows = sqlx::query_as(
        "SELECT s.at, kept.line, kept.sealed FROM unnest($2::text[]) WITH ORDINALITY AS s (fingerprint, at)
         JOIN vault.statement_lines kept ON kept.shard_id = $1 AND kept.fingerprint = s.fingerprint",
    )
    .bind(FIRST_SHARD)
    .bind(&fingerprints)
    .fetch(pool);
    let mut lines = vec![];
    while let Some((at, number, sealed)) = rows.try_next().await? {
        let (at, number, sealed): (i64, i32, Vec<u8>) = (at, number, sealed);
        let Some(statement) = usize::try_from(at - 1).ok().and_then(|index| statements.get(index)) else { continue };
        let kind = kind(&statement.imported.fingerprint);
        let line: BankLine = serde_json::from_slice(&keyring.open(&kind, number.into(), &sealed)?)?;
        if !days.contains(&line.booked_on) {
            continue;
        }
        if lines.len() == most {
            return Err(StatementError::TooManyLines(most));
        }
        let decided = statement.decisions.get(&number).map(|decided| decided.decision);
        lines.push((at, Kept { statement: statement.id, line, decided, is_duplicate: false }));
    }
    // Only the lines of these days are sorted, and without their sealed bytes.
    lines.sort_by_key(|(at, kept)| (*at, kept.line.number));
    Ok(lines.into_iter().map(|(_, kept)| kept).collect())
}

/// Marks lines that repeat a line of an earlier statement on the same account. Two lines of a statement never repeat the
/// same earlier line. A line with an unknown account may belong to any account, but only to one: that of the first line
/// that repeats it.
fn mark_duplicates(all: &mut [Kept]) {
    /// A booking that several statements may contain: its account, and the last statement that contained it.
    struct Booking {
        account: Option<String>,
        last: StatementId,
    }
    let mut bookings: HashMap<String, Vec<Booking>> = HashMap::new();
    for statement in all.chunk_by_mut(|one, other| one.statement == other.statement) {
        let mut new: Vec<(usize, String)> = (0..).zip(statement.iter().map(|kept| kept.line.identity())).collect();
        // Pair lines with equal known accounts first. The remaining lines may belong to any account.
        for is_same in [(|on, account| on == account) as fn(Option<&str>, Option<&str>) -> bool, lines::may_be_one_account] {
            new.retain(|(at, identity)| {
                let Kept { statement, line, decided, is_duplicate, .. } = &mut statement[*at];
                let earlier = bookings.get_mut(identity).into_iter().flatten();
                let mut repeated =
                    earlier.filter(|one| one.last != *statement && is_same(one.account.as_deref(), line.account.as_deref()));
                let Some(booking) = repeated.next() else { return true };
                booking.last = *statement;
                booking.account = booking.account.take().or_else(|| line.account.clone());
                *is_duplicate = decided.is_none();
                false
            });
        }
        for (at, identity) in new {
            let Kept { statement, line, .. } = &statement[at];
            let booking = Booking { account: line.account.clone(), last: *statement };
            bookings.entry(identity).or_default().push(booking);
        }
    }
}

/// Lines of a statement with their results, and the fundings and payouts that no line matches.
#[derive(Debug)]
pub struct Matching {
    pub lines: Vec<(BankLine, LineMatch)>,
    /// Fundings and payouts on the statement's days and in its currencies that no line of any statement is matched with.
    /// The flag is true for those that an ambiguous line names.
    pub unmatched: Vec<(Candidate, bool)>,
}

/// Result of matching a line, with the funding, payout or line that it is matched with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LineMatch {
    Matched(Candidate),
    Decided(Decision),
    Ambiguous {
        candidates: Vec<Candidate>,
        why: &'static str,
    },
    Unmatched,
    /// Cancelled out by this line, which may belong to another statement.
    Reversed {
        statement_id: StatementId,
        line: i32,
    },
    Duplicate,
}

impl LineMatch {
    /// Returns the name that JSON and CSV use.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Matched(_) | Self::Decided(Decision::Funding { .. } | Decision::Payout { .. }) => "MATCHED",
            Self::Decided(Decision::Ignored) => "IGNORED",
            Self::Ambiguous { .. } => "AMBIGUOUS",
            Self::Unmatched => "UNMATCHED",
            Self::Reversed { .. } => "REVERSED",
            Self::Duplicate => "DUPLICATE",
        }
    }

    /// Returns whether no person has to look at the line.
    pub fn is_settled(&self) -> bool {
        !matches!(self, Self::Ambiguous { .. } | Self::Unmatched)
    }
}

/// Matches lines with candidates. Marks the candidates that a person has assigned to one of the lines.
fn outcomes(all: &[Kept], candidates: &mut [Candidate], tolerance: Tolerance) -> Vec<Outcome> {
    let decided: HashSet<Decision> = all.iter().filter_map(|kept| kept.decided).collect();
    for candidate in &mut *candidates {
        candidate.entry.is_taken = decided.contains(&candidate.is);
    }
    let entries: Vec<_> = candidates.iter().map(|candidate| &candidate.entry).collect();
    let open = all.iter().map(|Kept { line, decided, is_duplicate, .. }| Open {
        line,
        is_decided: decided.is_some(),
        is_duplicate: *is_duplicate,
    });
    matching::outcomes(&open.collect::<Vec<_>>(), &entries, tolerance)
}

/// Matches a statement. Lines of other statements on nearby days take part, so that a funding is not matched with two
/// statements.
///
/// # Errors
/// Returns [`StatementError::TooManyLines`] or [`StatementError::TooMany`] beyond the limits.
pub async fn run(
    pool: &PgPool,
    keyring: &Keyring,
    shards: &[ShardId],
    statement: &BankStatement,
    tolerance: Tolerance,
    limits: Limits,
) -> Result<Matching, StatementError> {
    let days = TimeDelta::days(tolerance.days);
    let (first, last) = (statement.imported.first_day, statement.imported.last_day);
    // A line can be `days` away from a funding, and a second line of that funding `days` away on its other side.
    let near = first - days * 2..=last + days * 2;
    let others = statements::between(pool, FIRST_SHARD, *near.start(), *near.end()).await?;
    let mut all = load(pool, keyring, &others, &near, limits.lines).await?;
    mark_duplicates(&mut all);
    // Decisions about other lines: those of statements on any days, and of lines that have been erased since.
    let here: HashSet<(StatementId, i32)> =
        all.iter().filter(|kept| kept.decided.is_some()).map(|kept| (kept.statement, kept.line.number)).collect();
    let elsewhere = statements::decisions(pool, FIRST_SHARD).await?.into_iter();
    let elsewhere: HashSet<Decision> =
        elsewhere.filter(|(id, line, _)| !here.contains(&(*id, *line))).map(|(.., decision)| decision).collect();
    let booked = all.iter().map(|kept| kept.line.booked_on);
    let (from, to) = (booked.clone().min().unwrap_or(first) - days, booked.max().unwrap_or(last) + days);
    let mut candidates = candidates::on_days(pool, shards, from, to, limits.candidates).await?;
    candidates.retain(|candidate| !elsewhere.contains(&candidate.is));
    // Matching can take a second. A blocking thread keeps it from delaying other requests.
    let matched = tokio::task::spawn_blocking(move || {
        let outcomes = outcomes(&all, &mut candidates, tolerance);
        (all, candidates, outcomes)
    });
    let (all, candidates, outcomes) = matched.await?;

    let mut settled: HashSet<Decision> = HashSet::new();
    let mut named: HashSet<usize> = HashSet::new();
    for (kept, outcome) in all.iter().zip(&outcomes) {
        match outcome {
            Outcome::Matched(at) => _ = settled.insert(candidates[*at].is),
            Outcome::Decided => settled.extend(kept.decided),
            Outcome::Ambiguous { candidates, .. } => named.extend(candidates),
            Outcome::Unmatched | Outcome::Reversed(_) | Outcome::Duplicate => {}
        }
    }
    let found = |kept: &Kept, outcome: &Outcome| match outcome {
        Outcome::Matched(at) => LineMatch::Matched(candidates[*at].clone()),
        Outcome::Decided => kept.decided.map_or(LineMatch::Unmatched, LineMatch::Decided),
        Outcome::Ambiguous { candidates: named, why } => {
            LineMatch::Ambiguous { candidates: named.iter().map(|at| candidates[*at].clone()).collect(), why }
        }
        Outcome::Unmatched => LineMatch::Unmatched,
        Outcome::Reversed(other) => LineMatch::Reversed { statement_id: all[*other].statement, line: all[*other].line.number },
        Outcome::Duplicate => LineMatch::Duplicate,
    };
    let its = all.iter().zip(&outcomes).filter(|(kept, _)| kept.statement == statement.id);
    let lines: Vec<(BankLine, LineMatch)> = its.map(|(kept, outcome)| (kept.line.clone(), found(kept, outcome))).collect();
    let currencies: HashSet<&str> = lines.iter().map(|(line, _)| &*line.currency).collect();
    let is_missing = |candidate: &Candidate| {
        let is_of_statement = (first..=last).contains(&candidate.entry.day) && currencies.contains(&*candidate.entry.currency);
        is_of_statement && !settled.contains(&candidate.is)
    };
    let unmatched = candidates.iter().enumerate().filter(|(_, candidate)| is_missing(candidate));
    let unmatched = unmatched.map(|(at, candidate)| (candidate.clone(), named.contains(&at))).collect();
    Ok(Matching { lines, unmatched })
}
