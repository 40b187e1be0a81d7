//! A period, split into parts of a shard's log: whole days, which have rows, and the pieces of days around them.
//! Pure.

use chrono::{DateTime, NaiveDate, Utc};
use ledger_events::Position;

/// A period as positions of a shard's log, with the range of day rows to add up. All values are of one snapshot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// Last position before the period.
    pub after: Position,
    /// Last position of the period.
    pub upto: Position,
    /// First complete day of the period, and the first day after its complete days.
    pub whole: (NaiveDate, NaiveDate),
    /// First day whose rows are added up. This and `end_day` are the midnights nearest to the ends of the period,
    /// so that as few movements as possible are read one by one. Movements in these rows but outside the period
    /// are subtracted.
    pub first_day: NaiveDate,
    /// First day after the days whose rows are added up.
    pub end_day: NaiveDate,
    /// Last position before `first_day`.
    pub days_after: Position,
    /// Last position before `end_day`, or the head of the log if the period has no end.
    pub days_upto: Position,
    /// Checkpoint of `daily_totals`.
    pub checkpoint: Position,
    /// End of the period; `None` if it has none. Wallets opened from then on are not part of it.
    pub end: Option<DateTime<Utc>>,
}

/// A range of movements that are read one by one, and the number of times that they count: 1, 0, or -1 to subtract
/// them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece {
    /// Positions after the first value and up to the second.
    pub range: (Position, Position),
    /// Day of all movements in the range, if known.
    pub day: Option<NaiveDate>,
    /// Factor in the opening balances. The rows of the days before cover these as far as they reach.
    pub in_opening: i8,
    /// Factor in the movements of the period. The rows of its days cover these as far as they reach.
    pub in_period: i8,
}

impl Bounds {
    /// Returns the positions that the rows of the days cover, if any: after the first value and up to the second.
    fn covered(&self) -> Option<(Position, Position)> {
        let (from, to) = (self.days_after, self.days_upto.min(self.checkpoint));
        (from < to).then_some((from, to))
    }

    /// Returns the position up to which the rows of the days before determine balances.
    fn known(&self) -> Position {
        self.days_after.min(self.checkpoint)
    }

    /// Returns the ranges that the rows lack, or contain in excess.
    pub fn pieces(&self) -> Vec<Piece> {
        // Directed ranges of positions. A backward range subtracts.
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

    /// Returns the day of a range, if known. Everything between an end of the period and the midnight next to it
    /// belongs to one day.
    fn day_of(&self, (from, to): (Position, Position)) -> Option<NaiveDate> {
        let ends = [(self.after, self.days_after, self.first_day), (self.upto, self.days_upto, self.end_day)];
        let (end, midnight, day) =
            ends.into_iter().find(|(end, midnight, _)| *end.min(midnight) <= from && to <= *end.max(midnight))?;
        if end > midnight { Some(day) } else { day.pred_opt() }
    }
}

/// Counts how often the directed ranges `ways` cover a range. A backward one counts as -1. None begins or ends
/// inside the range.
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

    /// Generates bounds with three positions per day, starting at day 0. The ends of the period are anywhere, and
    /// the rows start and end at a midnight next to them.
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

    /// Every position of the period counts once and no other position counts, wherever the ends and the checkpoint
    /// are. The opening balances have the same property.
    #[test]
    fn rows_and_pieces_cover_the_period_exactly() {
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

    /// A piece with a known day contains no movement of another day. If the rows reach as far as the period, every
    /// piece has a known day.
    #[test]
    fn the_day_of_a_piece_matches_its_positions() {
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
