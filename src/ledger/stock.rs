//! The voucher stock in the vault.

mod expiry;
mod known;
mod levels;
mod list;
mod named;

use std::collections::{HashMap, HashSet, VecDeque};

use chrono::NaiveDate;
use ledger_database::{FromRow, PgConnection, PgPool};
use ledger_events::order::Order;
use ledger_events::{Money, OrderId, Position, ProductId, ShardId};
use ledger_projections::row_type;
use ledger_projections::write::Write;
use rust_decimal::Decimal;
use serde::Deserialize;
use sqlx::PgExecutor;

use super::clock::expiry_day;
use super::keys;
use super::texts::VaultError;
use crate::secrets::seal::{Keyring, Secret};
pub use expiry::{Expiring, expire, expiring};
pub use known::{KNOWN, known};
pub use levels::{Level, levels, low};
pub use list::{StockedVoucher, VoucherState, list};
pub use named::{Gone, NamedVoucher, duplicates, named, set_expiry, shards_of, transfer, void};

/// A voucher to add to the stock.
#[derive(Clone, Debug)]
pub struct NewVoucher {
    /// Row of the upload, by which the response names the voucher.
    pub row: i64,
    pub card_number: Secret,
    pub pin: Option<Secret>,
    pub claim_url: Option<Secret>,
    /// Made from the voucher's id if absent.
    pub reference: Option<String>,
    pub expires_on: Option<NaiveDate>,
}

/// The voucher stock, as far as the batch knows it.
#[derive(Debug, Default)]
pub struct Stock {
    pub shelves: Shelves,
    /// Vouchers that no order waits for outside of the batch.
    pub nobody_waits_for: HashSet<(ProductId, Money)>,
    /// The vouchers of each order that the batch takes up, the oldest order first.
    pub allocated: HashMap<OrderId, Vec<Voucher>>,
    /// Uploaded vouchers that the stock has.
    pub known: KnownVouchers,
    /// Vouchers that an operator names, by their references.
    pub named: HashMap<String, NamedVoucher>,
    /// References of named vouchers whose card number the product has that is to get them.
    pub duplicates: HashSet<String>,
}

impl Stock {
    /// Returns a voucher of a product that an operator names.
    ///
    /// # Errors
    /// [`Gone`] if the product has no such voucher, or no longer has it in its stock.
    pub fn named_of(&self, product: ProductId, reference: &str) -> Result<&NamedVoucher, Gone> {
        let voucher = self.named.get(reference).filter(|voucher| voucher.product_id == product).ok_or(Gone::Unknown)?;
        voucher.gone().map_or(Ok(voucher), Err)
    }

    /// Drops the vouchers of these denominations from memory, so that the next order reads them anew.
    pub fn reread(&mut self, product: ProductId, denominations: impl IntoIterator<Item = Money>) {
        for denomination in denominations {
            self.shelves.remove(&(product, denomination));
        }
    }

    /// Returns the number of vouchers on the shelves.
    pub fn vouchers(&self) -> usize {
        self.shelves.values().map(Shelf::len).sum()
    }

    /// Drops what the next batch loads anew.
    pub fn end_batch(&mut self) {
        self.allocated.clear();
        self.known = KnownVouchers::default();
        self.named.clear();
        self.duplicates.clear();
    }
}

/// Returns the product and denomination of an order's vouchers.
pub fn pair(order: &Order) -> (ProductId, Money) {
    (order.placed.product_id, order.placed.denomination)
}

/// A voucher that can be allocated.
#[derive(Clone, Debug)]
pub struct Voucher {
    pub id: i64,
    pub reference: String,
}

/// A voucher that is about to be added.
#[derive(Debug)]
pub struct NewRow {
    pub id: i64,
    pub product_id: ProductId,
    pub denomination: Money,
    pub reference: String,
    pub fingerprint: [u8; 32],
    pub sealed: Vec<u8>,
    /// Data key that seals its codes.
    pub key_id: i64,
    pub expires_on: Option<NaiveDate>,
}

/// Card numbers and references of an upload that the stock has, or that an earlier command of the batch takes.
#[derive(Debug, Default)]
pub struct KnownVouchers {
    pub fingerprints: HashSet<(ProductId, [u8; 32])>,
    pub references: HashSet<String>,
}

/// Kind that a voucher's codes are sealed as.
pub const KIND: &str = "voucher";

/// Returns the keyed hash that finds a card number without revealing it.
pub fn fingerprint(keyring: &Keyring, voucher: &NewVoucher) -> [u8; 32] {
    keyring.fingerprint(KIND, voucher.card_number.expose())
}

/// Free vouchers of one (product, denomination), oldest first, as far as they were read.
#[derive(Debug, Default)]
pub struct Shelf {
    vouchers: VecDeque<Voucher>,
    /// Id of the newest voucher that was read. Ids are drawn under the head lock, so a voucher that is loaded later has a higher
    /// id, and an assigned voucher is never read again. A move between shards advances the head, so that no shelf outlasts it.
    read_to: i64,
    /// Whether the stock has no further vouchers.
    is_whole: bool,
    /// Day of the reading, by the database's clock. On another day other vouchers may have expired, or be held.
    read_on: NaiveDate,
}

impl Shelf {
    /// Minimum number of vouchers to read at once.
    const READ: i64 = 1_000;

    /// Returns whether the shelf has the wanted number of vouchers, or all that there are.
    pub fn suffices(&self, wanted: i64) -> bool {
        self.is_whole || i64::try_from(self.vouchers.len()).is_ok_and(|there| there >= wanted)
    }

    /// Takes up to this number of vouchers, the oldest first.
    pub fn take(&mut self, wanted: usize) -> Vec<Voucher> {
        self.vouchers.drain(..wanted.min(self.vouchers.len())).collect()
    }

    /// Returns whether the shelf was read on this day.
    pub fn is_of(&self, today: NaiveDate) -> bool {
        self.read_on == today
    }

    /// Puts back vouchers that were taken and not needed.
    pub fn put_back(&mut self, mut vouchers: Vec<Voucher>) {
        vouchers.sort_unstable_by_key(|voucher| voucher.id);
        for voucher in vouchers.into_iter().rev() {
            self.vouchers.push_front(voucher);
        }
    }

    fn len(&self) -> usize {
        self.vouchers.len()
    }
}

/// Stock by (product, denomination).
pub type Shelves = HashMap<(ProductId, Money), Shelf>;

/// Fills the shelves that have too few vouchers, with vouchers that have not expired and are not held ([`super::clock`]).
///
/// A shelf of another day is read again. The caller must wait for a batch in flight first: it may be assigning vouchers of
/// that shelf.
pub async fn fill(
    conn: &mut PgConnection,
    shard: ShardId,
    shelves: &mut Shelves,
    wanted: &HashMap<(ProductId, Money), i64>,
    today: NaiveDate,
) -> Result<(), sqlx::Error> {
    for pair in wanted.keys() {
        if shelves.get(pair).is_some_and(|shelf| !shelf.is_of(today)) {
            shelves.remove(pair);
        }
    }
    let short: Vec<_> = wanted
        .iter()
        .filter(|(pair, wanted)| !shelves.get(*pair).is_some_and(|shelf| shelf.suffices(**wanted)))
        .map(|(pair, wanted)| (*pair, shelves.get(pair).map_or(0, |shelf| shelf.read_to), (*wanted).max(Shelf::READ)))
        .collect();
    if short.is_empty() {
        return Ok(());
    }
    let rows: Vec<(i64, i64, String)> = sqlx::query_as(concat!(
        "SELECT w.ordinality, v.id, v.reference
         FROM unnest($2::bigint[], $3::numeric[], $4::bigint[], $5::bigint[]) WITH ORDINALITY
            AS w (product_id, denomination, read_to, wanted, ordinality)
         CROSS JOIN LATERAL
            (SELECT id, reference FROM vault.vouchers
             WHERE shard_id = $1 AND product_id = w.product_id AND denomination = w.denomination AND order_id IS NULL
               AND id > w.read_to AND expired_at IS NULL AND (expires_on IS NULL OR expires_on >= ",
        expiry_day!(),
        ") ORDER BY id LIMIT w.wanted) AS v
         ORDER BY v.id"
    ))
    .bind(shard)
    .bind(short.iter().map(|((product, _), ..)| *product).collect::<Vec<_>>())
    .bind(short.iter().map(|((_, denomination), ..)| denomination.decimal()).collect::<Vec<_>>())
    .bind(short.iter().map(|(_, read_to, _)| *read_to).collect::<Vec<_>>())
    .bind(short.iter().map(|(.., wanted)| *wanted).collect::<Vec<_>>())
    .fetch_all(conn)
    .await?;
    let mut read = vec![0; short.len()];
    for (ordinality, id, reference) in rows {
        let Some(n) = usize::try_from(ordinality - 1).ok().filter(|n| *n < short.len()) else { continue };
        read[n] += 1;
        let shelf = shelves.entry(short[n].0).or_default();
        shelf.read_to = id;
        shelf.vouchers.push_back(Voucher { id, reference });
    }
    for ((pair, _, wanted), read) in short.iter().zip(read) {
        let shelf = shelves.entry(*pair).or_default();
        (shelf.is_whole, shelf.read_on) = (read < *wanted, today);
    }
    Ok(())
}

/// Arrivals in the stock of a shard, by which a reader finds that there are new vouchers.
#[derive(Clone, Copy, Debug, FromRow)]
pub struct Arrivals {
    /// Id of the newest voucher, 0 without any. It grows with each load, because ids are drawn under the head lock.
    pub newest: i64,
    /// Whether another shard has given vouchers after the position that the caller has seen. They may be older than the newest.
    pub are_moved: bool,
    /// Head of the log.
    pub position: Position,
}

/// Returns the arrivals in a shard's stock, those from other shards after a position.
pub async fn arrivals(pool: &PgPool, shard: ShardId, after: Position) -> Result<Arrivals, sqlx::Error> {
    sqlx::query_as(
        "SELECT coalesce((SELECT id FROM vault.vouchers WHERE shard_id = $1 ORDER BY id DESC LIMIT 1), 0) AS newest,
            EXISTS (SELECT FROM events WHERE shard_id = $1 AND type = 'VouchersMovedIn' AND position > $2) AS are_moved, position
         FROM log_head WHERE shard_id = $1",
    )
    .bind(shard)
    .bind(after)
    .fetch_one(pool)
    .await
}

/// Returns the (product, denomination) pairs with free vouchers in each of the shards, and their number up to a limit. Expired
/// vouchers do not count.
pub async fn available_pairs(
    db: impl PgExecutor<'_>,
    shards: &[ShardId],
    pairs: &[(ProductId, Decimal)],
    limit: i64,
) -> Result<Vec<(ShardId, ProductId, Decimal, i64)>, sqlx::Error> {
    if pairs.is_empty() {
        return Ok(vec![]);
    }
    sqlx::query_as(concat!(
        "SELECT s.id, w.product_id, w.denomination, stock.vouchers
         FROM unnest($1::smallint[]) AS s (id) CROSS JOIN unnest($2::bigint[], $3::numeric[]) AS w (product_id, denomination)
         CROSS JOIN LATERAL
            (SELECT count(*) AS vouchers FROM
                (SELECT FROM vault.vouchers
                 WHERE shard_id = s.id AND product_id = w.product_id AND denomination = w.denomination AND order_id IS NULL
                   AND expired_at IS NULL AND (expires_on IS NULL OR expires_on >= ",
        expiry_day!(),
        ") ORDER BY id LIMIT $4) AS counted) AS stock
         WHERE stock.vouchers > 0"
    ))
    .bind(shards)
    .bind(pairs.iter().map(|(product, _)| *product).collect::<Vec<_>>())
    .bind(pairs.iter().map(|(_, denomination)| *denomination).collect::<Vec<_>>())
    .bind(limit)
    .fetch_all(db)
    .await
}

/// Adds vouchers to the stock.
pub async fn insert(conn: &mut PgConnection, shard: ShardId, rows: &[NewRow]) -> Result<(), sqlx::Error> {
    if rows.is_empty() {
        return Ok(());
    }
    sqlx::query(
        "INSERT INTO vault.vouchers (shard_id, id, product_id, denomination, reference, fingerprint, sealed, expires_on, key_id)
         SELECT $1, new.*
         FROM unnest($2::bigint[], $3::bigint[], $4::numeric[], $5::text[], $6::bytea[], $7::bytea[], $8::date[], $9::bigint[]) AS new",
    )
    .bind(shard)
    .bind(rows.iter().map(|v| v.id).collect::<Vec<_>>())
    .bind(rows.iter().map(|v| v.product_id).collect::<Vec<_>>())
    .bind(rows.iter().map(|v| v.denomination.decimal()).collect::<Vec<_>>())
    .bind(rows.iter().map(|v| &*v.reference).collect::<Vec<_>>())
    .bind(rows.iter().map(|v| &v.fingerprint[..]).collect::<Vec<_>>())
    .bind(rows.iter().map(|v| &*v.sealed).collect::<Vec<_>>())
    .bind(rows.iter().map(|v| v.expires_on).collect::<Vec<_>>())
    .bind(rows.iter().map(|v| v.key_id).collect::<Vec<_>>())
    .execute(conn)
    .await?;
    Ok(())
}

/// Assigns vouchers to orders. If another order has one, which the head lock rules out, the statement writes nothing.
pub fn push_claims(write: &mut Write, shard_id: ShardId, claims: &[(i64, OrderId)]) {
    let claims: Vec<_> = claims.iter().map(|&(id, order_id)| ClaimRow { shard_id, id, order_id }).collect();
    write.update(
        "UPDATE vault.vouchers v SET order_id = r.order_id",
        &claims,
        "WHERE v.shard_id = r.shard_id AND v.id = r.id AND v.order_id IS NULL",
    );
}

row_type! {
    struct ClaimRow as "public.voucher_claim" {
        shard_id: ShardId,
        id: i64,
        order_id: OrderId,
    }
}

/// A delivered voucher with its codes.
#[derive(Clone, Debug)]
pub struct Revealed {
    pub reference: String,
    pub card_number: Secret,
    pub pin: Option<Secret>,
    pub claim_url: Option<Secret>,
    pub expires_on: Option<NaiveDate>,
}

/// The sealed part of a voucher.
#[derive(Deserialize)]
struct Codes {
    card_number: String,
    pin: Option<String>,
    claim_url: Option<String>,
}

/// Returns whether codes of an order's vouchers were erased.
pub async fn are_erased(pool: &PgPool, shard: ShardId, order: OrderId) -> Result<bool, sqlx::Error> {
    sqlx::query_scalar("SELECT EXISTS (SELECT FROM vault.vouchers WHERE shard_id = $1 AND order_id = $2 AND sealed IS NULL)")
        .bind(shard)
        .bind(order)
        .fetch_one(pool)
        .await
}

/// Id, reference, sealed codes, last day of validity, key id and sealed key.
type SealedVoucher = (i64, String, Vec<u8>, Option<NaiveDate>, Option<i64>, Option<Vec<u8>>);

/// Opens the delivered vouchers of an order, oldest first, except those whose codes were erased. Reading them is an audited
/// event: append it first (`Command::RevealVouchers`).
pub async fn revealed(pool: &PgPool, keyring: &Keyring, shard: ShardId, order: OrderId) -> Result<Vec<Revealed>, VaultError> {
    let rows: Vec<SealedVoucher> = sqlx::query_as(
        "SELECT v.id, v.reference, v.sealed, v.expires_on, v.key_id, k.sealed FROM vault.vouchers v
         LEFT JOIN vault.data_keys k ON k.shard_id = v.shard_id AND k.id = v.key_id
         WHERE v.shard_id = $1 AND v.order_id = $2 AND v.sealed IS NOT NULL AND (v.key_id IS NULL OR k.id IS NOT NULL) ORDER BY v.id",
    )
    .bind(shard)
    .bind(order)
    .fetch_all(pool)
    .await?;
    let open = |(id, reference, sealed, expires_on, key_id, key): SealedVoucher| {
        let key = keys::beside(keyring, key_id, key.as_deref())?;
        let codes = keyring.open_under(key.as_ref(), KIND, id, &sealed)?;
        let codes: Codes = serde_json::from_slice(&codes).map_err(|_| VaultError::Damaged("a voucher's codes"))?;
        Ok(Revealed {
            reference,
            card_number: Secret::new(codes.card_number),
            pin: codes.pin.map(Secret::new),
            claim_url: codes.claim_url.map(Secret::new),
            expires_on,
        })
    };
    rows.into_iter().map(open).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn voucher(id: i64) -> Voucher {
        Voucher { id, reference: id.to_string() }
    }

    #[test]
    fn vouchers_that_are_put_back_are_the_oldest_again() {
        let mut shelf = Shelf { vouchers: (1..=4).map(voucher).collect(), ..Shelf::default() };
        let taken = shelf.take(3);
        shelf.put_back(taken.into_iter().rev().collect());
        assert_eq!(shelf.take(9).iter().map(|v| v.id).collect::<Vec<_>>(), [1, 2, 3, 4]);
    }
}
