//! Matches the lines of a bank statement with expected payments, by reference, amount and day.
//!
//! A line is matched automatically only if its reference, amount and day lead to exactly one payment. No other
//! line may lead to the same one. All less certain cases are presented to a person. A person's decision takes precedence
//! over everything else.

use std::collections::{BTreeMap, HashMap, HashSet};

use chrono::{NaiveDate, TimeDelta};
use rust_decimal::Decimal;

use crate::lines::{BankLine, Direction, may_be_one_account};

/// Largest differences between a line and the payment that it is matched with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tolerance {
    /// Difference in days, not below zero.
    pub days: i64,
    /// Difference in amount, not below zero.
    pub amount: Decimal,
}

impl Default for Tolerance {
    fn default() -> Tolerance {
        Tolerance { days: Self::DAYS, amount: Decimal::ZERO }
    }
}

impl Tolerance {
    /// Default number of days: a bank books within a few days, even after a weekend.
    pub const DAYS: i64 = 5;
}

/// A payment that the caller knows of, and that a line can be matched with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Candidate {
    /// Direction of the money on the bank's side.
    pub direction: Direction,
    pub amount: Decimal,
    pub currency: String,
    pub day: NaiveDate,
    /// References by which a line can name the payment.
    pub references: Vec<String>,
    /// Set when a person has assigned the payment to a line. No other line is matched with it.
    pub is_taken: bool,
}

/// A line of a statement to be matched.
#[derive(Clone, Debug)]
pub struct Open<'a> {
    pub line: &'a BankLine,
    /// Set when a person has decided about this line.
    pub is_decided: bool,
    /// Set when an earlier statement contains the same line.
    pub is_duplicate: bool,
}

/// Result of matching a line. Candidates are given by their index.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Reference, amount and day lead to exactly one candidate.
    Matched(usize),
    /// A person has decided.
    Decided,
    /// Several candidates fit, or one fits in part: a person has to decide.
    Ambiguous {
        /// The first ten of them.
        candidates: Vec<usize>,
        why: &'static str,
    },
    /// No candidate fits.
    Unmatched,
    /// This line and another line, given by its index, cancel each other out.
    Reversed(usize),
    /// An earlier statement contains the same line.
    Duplicate,
}

const SEVERAL: &str = "several fit";
const SHARED: &str = "another line fits the same";
const OFF: &str = "the reference is right, the amount or the day is not";
const UNNAMED: &str = "amount and day are right, the reference is not";

/// Largest number of candidates that an ambiguous line names.
const MAX_NAMED: usize = 10;
/// Limits on the candidates that a line is compared with because of their amount and day, and on the distinct amounts.
/// Candidates with the line's reference are always found.
const MAX_COMPARED: usize = 200;
const MAX_AMOUNTS: usize = 2_000;
/// Shortest reference that is searched for inside texts.
const MIN_WITHIN: usize = 6;

/// Returns the outcome of every line, in their order.
///
/// # Panics
/// If the tolerance is below zero, or its days are out of chrono's range.
pub fn outcomes(lines: &[Open<'_>], candidates: &[&Candidate], tolerance: Tolerance) -> Vec<Outcome> {
    let reversed = reversals(lines);
    let index = Index::of(candidates);
    let hits: Vec<Option<Hits>> = lines
        .iter()
        .enumerate()
        .map(|(at, open)| {
            let is_open = !open.is_decided && !open.is_duplicate && !reversed.contains_key(&at);
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
            return match (open.is_decided, reversed.get(&at)) {
                (true, _) => Outcome::Decided,
                (false, Some(other)) => Outcome::Reversed(*other),
                (false, None) => Outcome::Duplicate,
            };
        };
        if is_alone(&hit) {
            return Outcome::Matched(hit.strong[0]);
        }
        let named = |mut candidates: Vec<usize>, why| {
            candidates.truncate(MAX_NAMED);
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

/// Finds pairs of lines that cancel each other out: a reversal, and the only earlier line of the opposite direction that
/// matches it. Amount and account must be equal (an unknown account matches any), and they must share a reference.
fn reversals(lines: &[Open<'_>]) -> HashMap<usize, usize> {
    let mut pairs = HashMap::new();
    let is_open = |open: &Open<'_>| !open.is_decided && !open.is_duplicate;
    let mut by_amount: HashMap<(&str, Decimal), Vec<usize>> = HashMap::new();
    for (at, open) in lines.iter().enumerate().filter(|(_, open)| is_open(open)) {
        by_amount.entry((&open.line.currency, open.line.amount)).or_default().push(at);
    }
    for (at, open) in lines.iter().enumerate().filter(|(_, open)| is_open(open) && open.line.is_reversal) {
        let reversal = open.line;
        let is_reversed = |other: &&usize| {
            let line = lines[**other].line;
            let shares = line.references.iter().any(|reference| reversal.references.contains(reference));
            let is_before = line.direction != reversal.direction && line.booked_on <= reversal.booked_on;
            !line.is_reversal && is_before && shares && may_be_one_account(line.account.as_deref(), reversal.account.as_deref())
        };
        let others = by_amount.get(&(&*reversal.currency, reversal.amount)).into_iter().flatten();
        let mut others = others.filter(is_reversed).filter(|other| !pairs.contains_key(*other));
        if let (Some(other), None) = (others.next(), others.next()) {
            pairs.insert(at, *other);
            pairs.insert(*other, at);
        }
    }
    pairs
}

/// Candidates that fit a line: in everything (`strong`), in all but amount or day (`near`), in all but the reference
/// (`weak`).
struct Hits {
    strong: Vec<usize>,
    near: Vec<usize>,
    weak: Vec<usize>,
}

/// Candidates indexed by reference and amount. Excludes candidates that a person has assigned to a line.
struct Index<'a> {
    candidates: &'a [&'a Candidate],
    references: HashMap<String, Vec<usize>>,
    amounts: BTreeMap<(&'a str, Decimal), Vec<usize>>,
    /// References of each candidate, normalized by [`plain`].
    plain: Vec<Vec<String>>,
}

impl<'a> Index<'a> {
    fn of(candidates: &'a [&'a Candidate]) -> Index<'a> {
        let mut index = Index { candidates, references: HashMap::new(), amounts: BTreeMap::new(), plain: vec![] };
        for (at, candidate) in candidates.iter().enumerate() {
            let plain: Vec<String> =
                candidate.references.iter().map(|text| plain(text)).filter(|text| !text.is_empty()).collect();
            if !candidate.is_taken {
                for reference in &plain {
                    index.references.entry(reference.clone()).or_default().push(at);
                }
                index.amounts.entry((&candidate.currency, candidate.amount)).or_default().push(at);
            }
            index.plain.push(plain);
        }
        for of_amount in index.amounts.values_mut() {
            of_amount.sort_by_key(|at| candidates[*at].day);
        }
        index
    }

    fn hits(&self, line: &BankLine, tolerance: Tolerance) -> Hits {
        let fits = |at: &usize| {
            let candidate = self.candidates[*at];
            candidate.currency == line.currency && candidate.direction == line.direction && !line.is_reversal
        };
        let least = line.amount.checked_sub(tolerance.amount).unwrap_or(Decimal::ZERO);
        let most = line.amount.checked_add(tolerance.amount).unwrap_or(line.amount);
        let days = TimeDelta::days(tolerance.days);
        let apart = &|at: &usize| self.candidates[*at].day.signed_duration_since(line.booked_on);
        let is_right = |at: &usize| {
            let amount = self.candidates[*at].amount;
            least <= amount && amount <= most && -days <= apart(at) && apart(at) <= days
        };
        let amounts = self.amounts.range((&*line.currency, least)..=(&*line.currency, most)).take(MAX_AMOUNTS);
        let in_days = |(_, of_amount): (_, &'_ Vec<usize>)| {
            let first = of_amount.partition_point(|at| apart(at) < -days);
            let of_days = of_amount[first..].iter().copied().take_while(|at| apart(at) <= days);
            of_days.filter(fits).take(MAX_COMPARED).collect::<Vec<_>>()
        };
        let by_amount = amounts.flat_map(in_days).take(MAX_COMPARED);

        let words = line.text.iter().flat_map(|text| text.split(|c: char| c.is_whitespace() || matches!(c, ',' | ';' | ':')));
        let named = line.references.iter().map(String::as_str).chain(words).map(plain).filter(|text| !text.is_empty());
        let mut by_reference: Vec<usize> =
            named.filter_map(|text| self.references.get(&text)).flatten().copied().filter(fits).collect();
        by_reference.sort_unstable();
        by_reference.dedup();
        let whole = plain(&[line.references.join(" "), line.text.clone().unwrap_or_default()].join(" "));
        let is_named = |at: &usize| {
            let within = |reference: &String| reference.len() >= MIN_WITHIN && whole.contains(reference.as_str());
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

/// Normalizes a reference for comparison: letters and digits only, in upper case. Banks drop or add everything else.
fn plain(text: &str) -> String {
    text.chars().filter(|c| c.is_alphanumeric()).flat_map(char::to_uppercase).collect()
}

#[cfg(test)]
mod tests;
