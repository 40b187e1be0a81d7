//! Audit of the moves of vouchers between shards: both logs tell the same, and each voucher is where its last move says.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use ledger_database::PgConnection;
use ledger_events::catalogue::ProductEvent;
use ledger_events::{Event, Position, Recorded, ShardId};

use super::{AuditError, Difference, Findings};
use crate::ledger::reader;

/// Number of events that are read at once. Each may name a thousand vouchers.
const PAGE_EVENTS: i64 = 200;

/// A move, as the log of one of its shards tells it.
#[derive(Debug, PartialEq, Eq)]
struct Told<'a> {
    product: i64,
    is_arrival: bool,
    /// Shard and position of this event.
    here: (ShardId, Position),
    /// Shard and position of the event in the other log.
    there: (ShardId, Position),
    vouchers: BTreeSet<&'a str>,
}

impl<'a> Told<'a> {
    fn of(recorded: &'a Recorded) -> Option<Told<'a>> {
        let (is_arrival, there, vouchers) = match &recorded.event {
            Event::Product(ProductEvent::VouchersMovedOut(e)) => {
                (false, (e.to_shard, e.position), e.vouchers.iter().map(String::as_str).collect())
            }
            Event::Product(ProductEvent::VouchersMovedIn(e)) => {
                let vouchers = e.lots.iter().flat_map(|lot| lot.vouchers.iter().map(String::as_str)).collect();
                (true, (e.from_shard, e.position), vouchers)
            }
            _ => return None,
        };
        let here = (recorded.shard_id, recorded.moment.position);
        Some(Told { product: recorded.stream_id, is_arrival, here, there, vouchers })
    }

    /// Returns the event that the other log must have.
    fn counterpart(&self) -> Told<'a> {
        let Told { product, is_arrival, here, there, ref vouchers } = *self;
        Told { product, is_arrival: !is_arrival, here: there, there: here, vouchers: vouchers.clone() }
    }

    fn problem(&self, problem: String) -> Difference {
        let (shard, position) = self.here;
        Difference::Rule { shard, stream: "product", id: self.product, position, problem }
    }
}

/// Checks the moves of a shard. Each page is a snapshot, and the last one has the stock, too: a move changes both at once.
pub async fn check(conn: &mut PgConnection, shard: ShardId, findings: &mut Findings) -> Result<(), AuditError> {
    sqlx::raw_sql("TRUNCATE moved_vouchers").execute(&mut *conn).await?;
    let mut at = 0;
    loop {
        sqlx::raw_sql("BEGIN ISOLATION LEVEL REPEATABLE READ").execute(&mut *conn).await?;
        let page = reader::moves_after(&mut *conn, shard, at, PAGE_EVENTS).await?;
        at = page.last().map_or(at, |last| last.position);
        // The walk over the positions reports unreadable events.
        let readable: Vec<Recorded> = page.iter().filter_map(|stored| stored.decode().ok()).collect();
        let told: Vec<Told<'_>> = readable.iter().filter_map(Told::of).collect();
        compare(conn, &told, findings).await?;
        for told in &told {
            remember(conn, told).await?;
        }
        let is_last = i64::try_from(page.len()).is_ok_and(|events| events < PAGE_EVENTS);
        if is_last {
            locate(conn, shard, findings).await?;
        }
        sqlx::raw_sql("COMMIT").execute(&mut *conn).await?;
        if is_last {
            return Ok(());
        }
    }
}

/// Compares moves with the events of the other logs.
async fn compare(conn: &mut PgConnection, told: &[Told<'_>], findings: &mut Findings) -> Result<(), AuditError> {
    let mut wanted: BTreeMap<ShardId, Vec<Position>> = BTreeMap::new();
    for told in told {
        wanted.entry(told.there.0).or_default().push(told.there.1);
    }
    let mut found: HashMap<(ShardId, Position), Recorded> = HashMap::new();
    for (shard, positions) in wanted {
        let stored = reader::stored_at(&mut *conn, shard, &positions).await?;
        found.extend(stored.iter().filter_map(|stored| Some(((shard, stored.position), stored.decode().ok()?))));
    }
    for told in told {
        let (shard, position) = told.there;
        if found.get(&told.there).and_then(Told::of) != Some(told.counterpart()) {
            findings.add(told.problem(format!("shard {shard} does not tell the same move at position {position}")));
        }
    }
    Ok(())
}

/// Notes where the vouchers are after a move.
async fn remember(conn: &mut PgConnection, told: &Told<'_>) -> Result<(), sqlx::Error> {
    sqlx::query(
        "INSERT INTO moved_vouchers (reference, product_id, position, is_here)
         SELECT reference, $2, $3, $4 FROM unnest($1::text[]) AS moved (reference)
         ON CONFLICT (reference)
         DO UPDATE SET product_id = excluded.product_id, position = excluded.position, is_here = excluded.is_here",
    )
    .bind(told.vouchers.iter().copied().collect::<Vec<_>>())
    .bind(told.product)
    .bind(told.here.1)
    .bind(told.is_arrival)
    .execute(conn)
    .await?;
    Ok(())
}

/// Compares the places of the vouchers with the stock.
async fn locate(conn: &mut PgConnection, shard: ShardId, findings: &mut Findings) -> Result<(), sqlx::Error> {
    let elsewhere: Vec<(String, i64, Position, bool)> = sqlx::query_as(
        "SELECT m.reference, m.product_id, m.position, m.is_here FROM moved_vouchers m
         WHERE m.is_here <> EXISTS (SELECT FROM vault.vouchers v WHERE v.shard_id = $1 AND v.reference = m.reference)
         ORDER BY m.position, m.reference",
    )
    .bind(shard)
    .fetch_all(conn)
    .await?;
    findings.extend(elsewhere.into_iter().map(|(reference, id, position, is_here)| {
        let problem = match is_here {
            true => format!("brings voucher {reference}, which is not in the stock of this shard"),
            false => format!("takes voucher {reference} away, which is in the stock of this shard"),
        };
        Difference::Rule { shard, stream: "product", id, position, problem }
    }));
    Ok(())
}
