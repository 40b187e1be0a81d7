//! Matching a statement's lines with fundings and payouts: pure, by reference, amount and day.
//!
//! A line is matched by itself only if its reference, its amount and its day lead to one funding or
//! payout, and no other line leads there. Whatever is less sure is put before a person, and what a
//! person decided stands above everything.

use std::collections::{BTreeMap, HashMap, HashSet};

use chrono::{NaiveDate, TimeDelta};
use ledger_events::reconciliation::Decision;
use ledger_events::wallet::Direction;
use ledger_events::{AccountId, Currency, Money, Position, WalletId};

use super::lines::{Line, may_be_one_account};

/// How far a line may be from what it is matched with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tolerance {
    pub days: i64,
    pub amount: Money,
}

impl Default for Tolerance {
    fn default() -> Tolerance {
        Tolerance { days: Self::DAYS, amount: Money::ZERO }
    }
}

impl Tolerance {
    /// A bank books at the latest some days after a weekend.
    pub const DAYS: i64 = 5;
    pub const MOST_DAYS: i64 = 60;
}

/// A funding or a payout that was paid.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Candidate {
    /// [`Decision::Funding`] or [`Decision::Payout`].
    pub is: Decision,
    pub account_id: AccountId,
    pub wallet_id: WalletId,
    pub position: Option<Position>,
    pub amount: Money,
    pub currency: Currency,
    pub day: NaiveDate,
    pub references: Vec<String>,
}

impl Candidate {
    /// Which way its money goes on the bank's side.
    fn direction(&self) -> Direction {
        match self.is {
            Decision::Payout { .. } => Direction::Debit,
            Decision::Funding { .. } | Decision::Ignored => Direction::Credit,
        }
    }
}

/// A line to be matched.
#[derive(Clone, Debug)]
pub struct Open<'a> {
    pub line: &'a Line,
    /// What a person decided.
    pub decided: Option<Decision>,
    /// The same line was in an earlier statement.
    pub is_duplicate: bool,
}

/// What became of a line. Candidates are named by their index.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Reference, amount and day lead to one.
    Matched(usize),
    /// A person said so.
    Decided(Decision),
    Ambiguous {
        candidates: Vec<usize>,
        why: &'static str,
    },
    Unmatched,
    /// It and another line, by its index, take each other back.
    Reversed(usize),
    /// The same line was in an earlier statement.
    Duplicate,
}

const SEVERAL: &str = "several fit";
const SHARED: &str = "another line fits the same";
const OFF: &str = "the reference is right, the amount or the day is not";
const UNNAMED: &str = "amount and day are right, the reference is not";

/// An ambiguous line names at most so many.
const MOST_NAMED: usize = 10;
/// A line is compared with at most so many that its amount and day lead to, of at most so many
/// amounts; what its reference leads to is found in any case.
const MOST_COMPARED: usize = 200;
const MOST_AMOUNTS: usize = 2_000;
/// Shorter references are not looked for within texts.
const SHORTEST_WITHIN: usize = 6;

/// What becomes of every line, in their order.
pub fn outcomes(lines: &[Open<'_>], candidates: &[Candidate], tolerance: Tolerance) -> Vec<Outcome> {
    let reversed = reversals(lines);
    let decided: HashSet<Decision> = lines.iter().filter_map(|open| open.decided).collect();
    let index = Index::of(candidates, &decided);
    let hits: Vec<Option<Hits>> = lines
        .iter()
        .enumerate()
        .map(|(at, open)| {
            let is_open = open.decided.is_none() && !open.is_duplicate && !reversed.contains_key(&at);
            is_open.then(|| index.hits(open.line, tolerance))
        })
        .collect();
    let mut claims: HashMap<usize, usize> = HashMap::new();
    for hit in hits.iter().flatten() {
        hit.strong.iter().for_each(|candidate| *claims.entry(*candidate).or_default() += 1);
    }
    let is_alone = |hit: &Hits| matches!(&*hit.strong, [only] if claims.get(only) == Some(&1));
    let taken: HashSet<usize> = hits.iter().flatten().filter(|hit| is_alone(hit)).map(|hit| hit.strong[0]).collect();
    let outcome = |(at, (open, hit)): (usize, (&Open<'_>, Option<Hits>))| {
        let Some(hit) = hit else {
            return match (open.decided, reversed.get(&at)) {
                (Some(decision), _) => Outcome::Decided(decision),
                (None, Some(other)) => Outcome::Reversed(*other),
                (None, None) => Outcome::Duplicate,
            };
        };
        if is_alone(&hit) {
            return Outcome::Matched(hit.strong[0]);
        }
        let named = |mut candidates: Vec<usize>, why| {
            candidates.truncate(MOST_NAMED);
            Outcome::Ambiguous { candidates, why }
        };
        if !hit.strong.is_empty() {
            let why = if hit.strong.len() > 1 { SEVERAL } else { SHARED };
            return named(hit.strong, why);
        }
        let free = |candidates: Vec<usize>| candidates.into_iter().filter(|c| !taken.contains(c)).collect::<Vec<_>>();
        let (near, weak) = (free(hit.near), free(hit.weak));
        match (near.is_empty(), weak.is_empty()) {
            (false, _) => named(near, OFF),
            (true, false) => named(weak, UNNAMED),
            (true, true) => Outcome::Unmatched,
        }
    };
    lines.iter().zip(hits).enumerate().map(outcome).collect()
}

/// Lines that take each other back: a reversal, and the one line before it of the other direction,
/// the same amount, a common reference, and as far as is known the same account.
fn reversals(lines: &[Open<'_>]) -> HashMap<usize, usize> {
    let mut pairs = HashMap::new();
    let is_open = |open: &Open<'_>| open.decided.is_none() && !open.is_duplicate;
    let mut by_amount: HashMap<(Currency, Money), Vec<usize>> = HashMap::new();
    for (at, open) in lines.iter().enumerate().filter(|(_, open)| is_open(open)) {
        by_amount.entry((open.line.currency, open.line.amount)).or_default().push(at);
    }
    for (at, open) in lines.iter().enumerate().filter(|(_, open)| is_open(open) && open.line.is_reversal) {
        let reversal = open.line;
        let is_reversed = |other: &&usize| {
            let line = lines[**other].line;
            let shares = line.references.iter().any(|reference| reversal.references.contains(reference));
            let is_before = line.direction != reversal.direction && line.booked_on <= reversal.booked_on;
            !line.is_reversal && is_before && shares && may_be_one_account(line.account.as_deref(), reversal.account.as_deref())
        };
        let others = by_amount.get(&(reversal.currency, reversal.amount)).into_iter().flatten();
        let mut others = others.filter(is_reversed).filter(|other| !pairs.contains_key(*other));
        if let (Some(other), None) = (others.next(), others.next()) {
            pairs.insert(at, *other);
            pairs.insert(*other, at);
        }
    }
    pairs
}

/// Candidates that fit a line: in all, in all but amount or day, in all but the reference.
struct Hits {
    strong: Vec<usize>,
    near: Vec<usize>,
    weak: Vec<usize>,
}

/// Candidates by what they are looked for by; those that a person gave to a line are left out.
struct Index<'a> {
    candidates: &'a [Candidate],
    references: HashMap<String, Vec<usize>>,
    amounts: BTreeMap<(Currency, Money), Vec<usize>>,
    /// Each candidate's references, plain.
    plain: Vec<Vec<String>>,
}

impl<'a> Index<'a> {
    fn of(candidates: &'a [Candidate], decided: &HashSet<Decision>) -> Index<'a> {
        let mut index = Index { candidates, references: HashMap::new(), amounts: BTreeMap::new(), plain: vec![] };
        for (at, candidate) in candidates.iter().enumerate() {
            let plain: Vec<String> =
                candidate.references.iter().map(|text| plain(text)).filter(|text| !text.is_empty()).collect();
            if !decided.contains(&candidate.is) {
                for reference in &plain {
                    index.references.entry(reference.clone()).or_default().push(at);
                }
                index.amounts.entry((candidate.currency, candidate.amount)).or_default().push(at);
            }
            index.plain.push(plain);
        }
        for of_amount in index.amounts.values_mut() {
            of_amount.sort_by_key(|at| candidates[*at].day);
        }
        index
    }

    fn hits(&self, line: &Line, tolerance: Tolerance) -> Hits {
        let fits = |at: &usize| {
            let candidate = &self.candidates[*at];
            (candidate.currency, candidate.direction()) == (line.currency, line.direction) && !line.is_reversal
        };
        let least = line.amount.checked_sub(tolerance.amount).unwrap_or(Money::ZERO);
        let most = line.amount.checked_add(tolerance.amount).unwrap_or(line.amount);
        let days = TimeDelta::days(tolerance.days);
        let apart = &|at: &usize| self.candidates[*at].day.signed_duration_since(line.booked_on);
        let is_right = |at: &usize| {
            let amount = self.candidates[*at].amount;
            least <= amount && amount <= most && -days <= apart(at) && apart(at) <= days
        };
        let amounts = self.amounts.range((line.currency, least)..=(line.currency, most)).take(MOST_AMOUNTS);
        let in_days = |(_, of_amount): (_, &'_ Vec<usize>)| {
            let first = of_amount.partition_point(|at| apart(at) < -days);
            let of_days = of_amount[first..].iter().copied().take_while(|at| apart(at) <= days);
            of_days.filter(fits).take(MOST_COMPARED).collect::<Vec<_>>()
        };
        let by_amount = amounts.flat_map(in_days).take(MOST_COMPARED);

        let words = line.text.iter().flat_map(|text| text.split(|c: char| c.is_whitespace() || matches!(c, ',' | ';' | ':')));
        let named = line.references.iter().map(String::as_str).chain(words).map(plain).filter(|text| !text.is_empty());
        let mut by_reference: Vec<usize> =
            named.filter_map(|text| self.references.get(&text)).flatten().copied().filter(fits).collect();
        by_reference.sort_unstable();
        by_reference.dedup();
        let whole = plain(&[line.references.join(" "), line.text.clone().unwrap_or_default()].join(" "));
        let is_named = |at: &usize| {
            let within = |reference: &String| reference.len() >= SHORTEST_WITHIN && whole.contains(reference.as_str());
            by_reference.binary_search(at).is_ok() || self.plain[*at].iter().any(within)
        };
        let (mut strong, weak): (Vec<usize>, Vec<usize>) = by_amount.partition(is_named);
        strong.extend(by_reference.iter().copied().filter(is_right));
        strong.sort_unstable();
        strong.dedup();
        let near = by_reference.into_iter().filter(|at| strong.binary_search(at).is_err()).collect();
        Hits { strong, near, weak }
    }
}

/// A reference as it is compared: letters and digits only, in upper case. Banks drop and add the rest.
fn plain(text: &str) -> String {
    text.chars().filter(|c| c.is_alphanumeric()).flat_map(char::to_uppercase).collect()
}

#[cfg(test)]
mod tests;
