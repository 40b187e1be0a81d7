//! A period as parts of a shard's log: whole days, which have rows, and pieces of days beside them. Pure.

use chrono::{DateTime, NaiveDate, Utc};
use ledger_events::Position;

/// A period as positions of a shard's log, and which rows of days are added up for it. All as of one snapshot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// The last position before the period.
    pub after: Position,
    /// The period's last position.
    pub upto: Position,
    /// The first day that the period has all of, and the first one after these days.
    pub whole: (NaiveDate, NaiveDate),
    /// The first day whose rows are added up, and the first one after them. They begin at the midnights that are nearest to
    /// the period's ends, so that the fewer movements are read one by one: what rows have beyond the period is taken off.
    pub first_day: NaiveDate,
    pub end_day: NaiveDate,
    /// The last position before the first day.
    pub days_after: Position,
    /// The last position before the end day; that of the log where the period has no end.
    pub days_upto: Position,
    /// Where `daily_totals` stands.
    pub checkpoint: Position,
    /// Wallets opened from then on are not in the period.
    pub end: Option<DateTime<Utc>>,
}

/// Movements that are read one by one: a range of positions, and how often they are added, at most once; below zero
/// they are taken off.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece {
    /// After the first, up to the second.
    pub range: (Position, Position),
    /// The day that all of it is of, where that is known.
    pub day: Option<NaiveDate>,
    /// In the balances when the period begins, which rows of the days before tell as far as they go.
    pub in_opening: i8,
    /// In what moved in the period, which rows of its days tell as far as they go.
    pub in_period: i8,
}

impl Bounds {
    /// The positions that rows of the days cover, if any: after the first, up to the second.
    fn covered(&self) -> Option<(Position, Position)> {
        let (from, to) = (self.days_after, self.days_upto.min(self.checkpoint));
        (from < to).then_some((from, to))
    }

    /// Up to where rows of the days before know balances.
    fn known(&self) -> Position {
        self.days_after.min(self.checkpoint)
    }

    /// What rows do not tell, or tell too much.
    pub fn pieces(&self) -> Vec<Piece> {
        // From one position to another one; backwards it is taken off.
        let opening = [(self.known(), self.after)];
        let period = match self.covered() {
            Some((from, to)) => vec![(self.after, from), (to, self.upto)],
            None => vec![(self.after, self.upto)],
        };
        let mut cuts: Vec<Position> = opening.iter().chain(&period).flat_map(|(from, to)| [*from, *to]).collect();
        cuts.sort_unstable();
        cuts.dedup();
        let pieces = cuts.windows(2).map(|cut| {
            let range = (cut[0], cut[1]);
            Piece { range, day: self.day_of(range), in_opening: times(&opening, range), in_period: times(&period, range) }
        });
        pieces.filter(|piece| piece.in_opening != 0 || piece.in_period != 0).collect()
    }

    /// What lies between an end of the period and the midnight next to it is of one day.
    fn day_of(&self, (from, to): (Position, Position)) -> Option<NaiveDate> {
        let ends = [(self.after, self.days_after, self.first_day), (self.upto, self.days_upto, self.end_day)];
        let (end, midnight, day) =
            ends.into_iter().find(|(end, midnight, _)| *end.min(midnight) <= from && to <= *end.max(midnight))?;
        if end > midnight { Some(day) } else { day.pred_opt() }
    }
}

/// How often these ways from one position to another one go over a range that none of them begins or ends within.
fn times(ways: &[(Position, Position)], (from, to): (Position, Position)) -> i8 {
    let forth = |(begin, end): &(Position, Position)| i8::from(*begin <= from && to <= *end);
    let back = |(begin, end): &(Position, Position)| i8::from(*end <= from && to <= *begin);
    ways.iter().map(|way| forth(way) - back(way)).sum()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    fn day(n: Position) -> NaiveDate {
        NaiveDate::from_ymd_opt(2026, 1, 1).unwrap() + chrono::Days::new(n.unsigned_abs())
    }

    /// Three positions a day, from day 0 on; the period's ends anywhere, and rows from and to one of the midnights next to
    /// them.
    fn all() -> impl Iterator<Item = Bounds> {
        let midnights = |end: Position| [end / 3, (end + 2) / 3];
        let ends = (0..9).flat_map(|after| (after..12).map(move |upto| (after, upto)));
        ends.flat_map(move |(after, upto)| {
            let days = midnights(after).into_iter().flat_map(move |first| midnights(upto).map(|last| (first, last)));
            days.filter(|(first, last)| first <= last).flat_map(move |(first, last)| {
                (0..14).map(move |checkpoint| Bounds {
                    after,
                    upto,
                    whole: (day((after + 2) / 3), day(upto / 3)),
                    first_day: day(first),
                    end_day: day(last),
                    days_after: 3 * first,
                    days_upto: 3 * last,
                    checkpoint,
                    end: None,
                })
            })
        })
    }

    /// Every position of the period is counted once and no other one is, wherever its ends and the checkpoint are; and so it is
    /// with the balances when it begins.
    #[test]
    fn the_parts_make_the_period() {
        for bounds in all() {
            let pieces = bounds.pieces();
            for position in 1..16 {
                let is_within = |(from, to): (Position, Position)| from < position && position <= to;
                let sum = |of: fn(&Piece) -> i8| pieces.iter().filter(|p| is_within(p.range)).map(of).sum::<i8>();
                let is_in_rows = bounds.covered().is_some_and(is_within);
                let in_period = i8::from(is_in_rows) + sum(|piece| piece.in_period);
                assert_eq!(in_period, i8::from(is_within((bounds.after, bounds.upto))), "{position}: {bounds:?}: {pieces:?}");
                let in_opening = i8::from(position <= bounds.known()) + sum(|piece| piece.in_opening);
                assert_eq!(in_opening, i8::from(position <= bounds.after), "{position}: {bounds:?}: {pieces:?}");
            }
        }
    }

    /// A piece that is said to be of a day has nothing of another one; and where the rows go as far as the period, each piece is.
    #[test]
    fn the_day_of_a_piece_is_that_of_its_positions() {
        for bounds in all() {
            for piece in bounds.pieces() {
                let (from, to) = piece.range;
                if let Some(of) = piece.day {
                    assert!((from + 1..=to).all(|position| day((position - 1) / 3) == of), "{bounds:?}: {piece:?}");
                }
                let is_projected = bounds.checkpoint >= bounds.upto.max(bounds.days_upto);
                assert!(piece.day.is_some() || !is_projected, "{bounds:?}: {piece:?}");
            }
        }
    }
}
