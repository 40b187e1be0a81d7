//! Reading of `stock_days`: the stock of a period, by day and currency.

use std::collections::BTreeMap;

use chrono::NaiveDate;
use ledger_database::PgConnection;
use ledger_events::ShardId;
use sqlx::Row as _;
use sqlx::postgres::PgRow;

use super::{Lot, Moved};

/// Stock of a period.
#[derive(Clone, Debug, Default)]
pub struct Period {
    /// Stock before the first day, by currency.
    pub opening: BTreeMap<String, Lot>,
    /// Movements by day and currency. Days without movements have none.
    pub days: BTreeMap<(NaiveDate, String), Moved>,
}

impl Period {
    /// Adds the stock of another shard.
    pub fn merge(&mut self, more: Period) {
        for (currency, lot) in more.opening {
            self.opening.entry(currency).or_default().add(&lot, 1);
        }
        for (day, moved) in more.days {
            self.days.entry(day).or_default().merge(&moved);
        }
    }
}

impl Moved {
    pub fn merge(&mut self, more: &Moved) {
        self.loaded.add(&more.loaded, 1);
        self.allocated.add(&more.allocated, 1);
        self.voided.add(&more.voided, 1);
        self.expired.add(&more.expired, 1);
        self.transferred_in.add(&more.transferred_in, 1);
        self.transferred_out.add(&more.transferred_out, 1);
        self.sales += more.sales;
    }
}

/// Reads the stock of the days from the first to the last one. A product that has no row counts as `XXX`, which stands for no
/// currency.
pub async fn of_period(
    conn: &mut PgConnection,
    shard: ShardId,
    (first, last): (NaiveDate, NaiveDate),
) -> Result<Period, sqlx::Error> {
    let rows = sqlx::query(
        "SELECT CASE WHEN s.day >= $2 THEN s.day END AS day, coalesce(p.currency, 'XXX') AS currency, sum(sales) AS sales,
            sum(loaded)::bigint AS loaded, sum(loaded_unpriced)::bigint AS loaded_unpriced, sum(loaded_cost) AS loaded_cost,
            sum(allocated)::bigint AS allocated, sum(allocated_unpriced)::bigint AS allocated_unpriced,
            sum(allocated_cost) AS allocated_cost, sum(voided)::bigint AS voided, sum(voided_unpriced)::bigint AS voided_unpriced,
            sum(voided_cost) AS voided_cost, sum(expired)::bigint AS expired, sum(expired_unpriced)::bigint AS expired_unpriced,
            sum(expired_cost) AS expired_cost, sum(transferred_in)::bigint AS transferred_in,
            sum(transferred_in_unpriced)::bigint AS transferred_in_unpriced, sum(transferred_in_cost) AS transferred_in_cost,
            sum(transferred_out)::bigint AS transferred_out, sum(transferred_out_unpriced)::bigint AS transferred_out_unpriced,
            sum(transferred_out_cost) AS transferred_out_cost
         FROM stock_days s LEFT JOIN products p ON p.id = s.product_id WHERE s.shard_id = $1 AND s.day <= greatest($3, $2 - 1)
         GROUP BY 1, 2",
    )
    .bind(shard)
    .bind(first)
    .bind(last)
    .fetch_all(conn)
    .await?;
    let mut period = Period::default();
    for row in rows {
        let (day, currency): (Option<NaiveDate>, String) = (row.try_get("day")?, row.try_get("currency")?);
        let moved = moved(&row)?;
        match day {
            Some(day) => period.days.entry((day, currency)).or_default().merge(&moved),
            None => period.opening.entry(currency).or_default().add(&moved.net(), 1),
        }
    }
    Ok(period)
}

fn moved(row: &PgRow) -> Result<Moved, sqlx::Error> {
    let lot = |vouchers: &str, unpriced: &str, cost: &str| {
        Ok::<_, sqlx::Error>(Lot { vouchers: row.try_get(vouchers)?, unpriced: row.try_get(unpriced)?, cost: row.try_get(cost)? })
    };
    Ok(Moved {
        loaded: lot("loaded", "loaded_unpriced", "loaded_cost")?,
        allocated: lot("allocated", "allocated_unpriced", "allocated_cost")?,
        voided: lot("voided", "voided_unpriced", "voided_cost")?,
        expired: lot("expired", "expired_unpriced", "expired_cost")?,
        transferred_in: lot("transferred_in", "transferred_in_unpriced", "transferred_in_cost")?,
        transferred_out: lot("transferred_out", "transferred_out_unpriced", "transferred_out_cost")?,
        sales: row.try_get("sales")?,
    })
}
