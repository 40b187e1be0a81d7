#![allow(clippy::unwrap_used)]

use super::*;

fn day(day: u32) -> NaiveDate {
    NaiveDate::from_ymd_opt(2026, 1, day).unwrap()
}

fn line(direction: Direction, amount: &str, reference: &str, on: u32) -> BankLine {
    BankLine {
        number: 1,
        booked_on: day(on),
        amount: amount.parse().unwrap(),
        currency: "EUR".to_owned(),
        direction,
        is_reversal: false,
        references: vec![reference.to_owned()],
        text: None,
        account: None,
    }
}

fn credit(amount: &str, reference: &str, on: u32) -> BankLine {
    line(Direction::Credit, amount, reference, on)
}

fn debit(amount: &str, reference: &str, on: u32) -> BankLine {
    line(Direction::Debit, amount, reference, on)
}

fn candidate(direction: Direction, amount: &str, references: &[&str], on: u32) -> Candidate {
    Candidate {
        direction,
        amount: amount.parse().unwrap(),
        currency: "EUR".to_owned(),
        day: day(on),
        references: references.iter().map(|r| (*r).to_owned()).collect(),
        is_taken: false,
    }
}

fn funding(amount: &str, reference: &str, on: u32) -> Candidate {
    candidate(Direction::Credit, amount, &[reference], on)
}

fn payout(amount: &str, on: u32) -> Candidate {
    candidate(Direction::Debit, amount, &["PAY-0000000001", "salary"], on)
}

fn decided(lines: &[BankLine], decided: &[usize], candidates: &[Candidate], tolerance: Tolerance) -> Vec<Outcome> {
    let open = |(at, line)| Open { line, is_decided: decided.contains(&at), is_duplicate: false };
    let lines: Vec<Open<'_>> = lines.iter().enumerate().map(open).collect();
    outcomes(&lines, &candidates.iter().collect::<Vec<_>>(), tolerance)
}

fn matched(lines: &[BankLine], candidates: &[Candidate]) -> Vec<Outcome> {
    decided(lines, &[], candidates, Tolerance::default())
}

fn ambiguous(candidates: &[usize], why: &'static str) -> Outcome {
    Outcome::Ambiguous { candidates: candidates.to_vec(), why }
}

#[test]
fn a_line_with_the_same_reference_amount_and_day_is_matched() {
    let candidates = [funding("100.00", "INV-2026/7", 10), payout("30.00", 12)];
    let lines = [credit("100.00", "inv 2026 7", 12), debit("30.00", "PAY-0000000001", 12)];
    assert_eq!(matched(&lines, &candidates), [Outcome::Matched(0), Outcome::Matched(1)]);
    // The direction of the money must match too.
    let lines = [debit("100.00", "INV-2026/7", 12), credit("30.00", "PAY-0000000001", 12)];
    assert_eq!(matched(&lines, &candidates), [Outcome::Unmatched, Outcome::Unmatched]);
}

#[test]
fn a_reference_inside_the_payers_text_is_found() {
    let mut with_text = credit("100.00", "NDX-1", 10);
    with_text.text = Some("our payment of INV-2026/7, thank you".to_owned());
    assert_eq!(matched(&[with_text.clone()], &[funding("100.00", "inv-2026/7", 10)]), [Outcome::Matched(0)]);
    with_text.text = Some("opening of wallet 77".to_owned());
    assert_eq!(matched(&[with_text], &[funding("100.00", "opening of wallet 77", 10)]), [Outcome::Matched(0)]);
}

#[test]
fn uncertain_matches_are_left_to_a_person() {
    let candidates = [funding("100.00", "A-1", 10), funding("50.00", "B-2", 10)];
    let cases: [(&[BankLine], Vec<Outcome>); 5] = [
        (&[credit("99.99", "A-1", 10)], vec![ambiguous(&[0], OFF)]),
        (&[credit("100.00", "A-1", 20)], vec![ambiguous(&[0], OFF)]),
        (&[credit("100.00", "?", 10)], vec![ambiguous(&[0], UNNAMED)]),
        (&[credit("100.00", "A-1", 10), credit("100.00", "A-1", 11)], vec![ambiguous(&[0], SHARED), ambiguous(&[0], SHARED)]),
        // A candidate that is matched with another line is no longer available.
        (&[credit("100.00", "A-1", 10), credit("100.00", "?", 10)], vec![Outcome::Matched(0), Outcome::Unmatched]),
    ];
    for (lines, expected) in cases {
        assert_eq!(matched(lines, &candidates), expected, "{lines:?}");
    }
    let twice = [funding("100.00", "A-1", 10), funding("100.00", "A 1", 11)];
    assert_eq!(matched(&[credit("100.00", "A-1", 10)], &twice), [ambiguous(&[0, 1], SEVERAL)]);
}

#[test]
fn the_caller_sets_the_tolerance() {
    let candidates = [funding("100.00", "A-1", 10)];
    let tolerance = Tolerance { days: 10, amount: "0.50".parse().unwrap() };
    assert_eq!(decided(&[credit("99.50", "A-1", 20)], &[], &candidates, tolerance), [Outcome::Matched(0)]);
    assert_eq!(decided(&[credit("99.49", "A-1", 20)], &[], &candidates, tolerance), [ambiguous(&[0], OFF)]);
    assert_eq!(decided(&[credit("99.50", "A-1", 21)], &[], &candidates, tolerance), [ambiguous(&[0], OFF)]);
}

#[test]
fn a_persons_decision_is_kept_and_frees_the_other_lines() {
    let candidates = [funding("100.00", "A-1", 10)];
    let lines = [credit("100.00", "A-1", 10), credit("100.00", "A-1", 11)];
    let taken = candidates.clone().map(|candidate| Candidate { is_taken: true, ..candidate });
    let outcomes = decided(&lines, &[0], &taken, Tolerance::default());
    assert_eq!(outcomes, [Outcome::Decided, Outcome::Unmatched]);
    let outcomes = decided(&lines, &[1], &candidates, Tolerance::default());
    assert_eq!(outcomes, [Outcome::Matched(0), Outcome::Decided]);
}

#[test]
fn a_reversal_cancels_its_booking() {
    let candidates = [funding("100.00", "A-1", 10)];
    let reversal = BankLine { is_reversal: true, ..debit("100.00", "A-1", 12) };
    let outcomes = matched(&[credit("100.00", "A-1", 10), reversal.clone()], &candidates);
    assert_eq!(outcomes, [Outcome::Reversed(1), Outcome::Reversed(0)]);
    assert_eq!(matched(std::slice::from_ref(&reversal), &candidates), [Outcome::Unmatched]);
    // A reversal does not affect a booking of another account.
    let on = |account: &str, line: &BankLine| BankLine { account: Some(account.to_owned()), ..line.clone() };
    let (booking, other) = (on("A", &credit("100.00", "A-1", 10)), on("B", &reversal));
    assert_eq!(matched(&[booking.clone(), other], &candidates), [Outcome::Matched(0), Outcome::Unmatched]);
    for same in [on("A", &reversal), reversal] {
        assert_eq!(matched(&[booking.clone(), same], &candidates), [Outcome::Reversed(1), Outcome::Reversed(0)]);
    }
}

#[test]
fn a_line_of_an_earlier_statement_counts_once() {
    let candidates = [funding("100.00", "A-1", 10)];
    let (first, again) = (credit("100.00", "A-1", 10), credit("100.00", "A-1", 10));
    let open = |line, is_duplicate| Open { line, is_decided: false, is_duplicate };
    let outcomes = outcomes(&[open(&first, false), open(&again, true)], &[&candidates[0]], Tolerance::default());
    assert_eq!(outcomes, [Outcome::Matched(0), Outcome::Duplicate]);
}
