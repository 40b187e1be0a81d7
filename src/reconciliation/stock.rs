//! The voucher stock of a period: opening, movements and closing by currency and by day, and the margin of what was sold.

use std::collections::BTreeMap;

use chrono::{DateTime, NaiveDate, TimeDelta, Utc};
use ledger_projections::stock::{self, Lot, Moved};
use serde::Serialize;

use super::{Amount, Period};

/// A number of vouchers, and what they cost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct StockLot {
    pub vouchers: i64,
    /// Number of those without a known cost. They add nothing to `cost`.
    pub unpriced: i64,
    pub cost: Amount,
}

impl From<Lot> for StockLot {
    fn from(lot: Lot) -> StockLot {
        StockLot { vouchers: lot.vouchers, unpriced: lot.unpriced, cost: Amount(lot.cost) }
    }
}

/// Stock of one currency: `opening` + `loaded` − `allocated` − `voided` − `expired` = `closing`. What one product of the currency
/// gives to another one changes no sum.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct StockFigures {
    pub currency: String,
    pub opening: StockLot,
    pub loaded: StockLot,
    pub allocated: StockLot,
    pub voided: StockLot,
    pub expired: StockLot,
    /// Vouchers that moved from one product to another one.
    pub transferred: StockLot,
    pub closing: StockLot,
    /// Money that customers paid for the allocated vouchers.
    pub sales: Amount,
    /// `sales` minus the cost of the allocated vouchers. Those without a known cost count as free.
    pub margin: Amount,
}

impl StockFigures {
    fn new(currency: String, opening: Lot, moved: &Moved) -> StockFigures {
        let mut closing = opening;
        closing.add(&moved.net(), 1);
        StockFigures {
            currency,
            opening: opening.into(),
            loaded: moved.loaded.into(),
            allocated: moved.allocated.into(),
            voided: moved.voided.into(),
            expired: moved.expired.into(),
            transferred: moved.transferred_out.into(),
            closing: closing.into(),
            sales: Amount(moved.sales),
            margin: Amount(moved.sales - moved.allocated.cost),
        }
    }

    /// Returns the lots with their names, in the order in which they add up, and last the one that changes no sum.
    pub fn lots(&self) -> [(&'static str, StockLot); 7] {
        [
            ("opening", self.opening),
            ("loaded", self.loaded),
            ("allocated", self.allocated),
            ("voided", self.voided),
            ("expired", self.expired),
            ("closing", self.closing),
            ("transferred", self.transferred),
        ]
    }
}

/// Stock of one currency on one day (UTC).
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct StockDay {
    pub day: NaiveDate,
    #[serde(flatten)]
    pub figures: StockFigures,
}

/// Returns the first and the last day of a period. The stock has whole days only, so a day that the period touches counts.
pub fn days(period: &Period, (first, last): (NaiveDate, NaiveDate)) -> (NaiveDate, NaiveDate) {
    let before = |to: DateTime<Utc>| to.checked_sub_signed(TimeDelta::nanoseconds(1)).unwrap_or(to).date_naive();
    (period.from.map_or(first, |from| from.date_naive()), period.to.map_or(last, before))
}

/// Computes the figures of the whole period by currency, and of each day on which something moved.
pub fn figures(stock: stock::Period) -> (Vec<StockFigures>, Vec<StockDay>) {
    let mut standing: BTreeMap<String, Lot> = stock.opening.clone();
    let mut totals: BTreeMap<String, Moved> = stock.opening.keys().map(|currency| (currency.clone(), Moved::default())).collect();
    let mut days = vec![];
    for ((day, currency), moved) in stock.days {
        let opening = standing.entry(currency.clone()).or_default();
        days.push(StockDay { day, figures: StockFigures::new(currency.clone(), *opening, &moved) });
        opening.add(&moved.net(), 1);
        totals.entry(currency).or_default().merge(&moved);
    }
    let total = |(currency, moved): (String, Moved)| {
        let opening = stock.opening.get(&currency).copied().unwrap_or_default();
        StockFigures::new(currency, opening, &moved)
    };
    (totals.into_iter().map(total).collect(), days)
}

#[cfg(test)]
mod tests {
    use rust_decimal::Decimal;

    use super::*;

    fn lot(vouchers: i64, unpriced: i64, cost: i64) -> Lot {
        Lot { vouchers, unpriced, cost: Decimal::from(cost) }
    }

    #[test]
    fn each_day_begins_with_the_stock_that_the_day_before_has_left() {
        let day = |n: u32| NaiveDate::from_ymd_opt(2026, 3, n).unwrap();
        let opening = BTreeMap::from([("EUR".to_owned(), lot(5, 1, 32)), ("USD".to_owned(), lot(2, 2, 0))]);
        let first = Moved { loaded: lot(10, 0, 90), voided: lot(1, 1, 0), ..Moved::default() };
        let second = Moved { allocated: lot(4, 0, 33), expired: lot(1, 0, 8), sales: Decimal::from(38), ..Moved::default() };
        let moved = BTreeMap::from([((day(1), "EUR".to_owned()), first), ((day(7), "EUR".to_owned()), second)]);
        let (totals, days) = figures(stock::Period { opening, days: moved });
        assert_eq!(days[0].figures.closing, lot(14, 0, 122).into());
        assert_eq!(days[1].figures.opening, days[0].figures.closing);
        assert_eq!((days[1].figures.closing, days[1].figures.margin), (lot(9, 0, 81).into(), Amount(Decimal::from(5))));
        assert_eq!((totals[0].opening, totals[0].closing), (lot(5, 1, 32).into(), lot(9, 0, 81).into()));
        assert_eq!((&*totals[1].currency, totals[1].opening), ("USD", totals[1].closing));
    }

    #[test]
    fn a_period_has_each_day_that_it_touches() {
        let all = (NaiveDate::MIN, NaiveDate::MAX);
        let time = |text: &str| Some(text.parse().unwrap());
        let of = |from, to| days(&Period { from, to, account_id: None }, all);
        let month = of(time("2026-01-01T00:00:00Z"), time("2026-02-01T00:00:00Z"));
        assert_eq!(month, ("2026-01-01".parse().unwrap(), "2026-01-31".parse().unwrap()));
        let hours = of(time("2026-01-01T12:00:00Z"), time("2026-01-02T00:00:01Z"));
        assert_eq!(hours, ("2026-01-01".parse().unwrap(), "2026-01-02".parse().unwrap()));
        assert_eq!(of(None, None), all);
    }
}
