//! The voucher stock in the vault.

mod expiry;
mod levels;
mod list;
mod named;

use std::collections::{HashMap, HashSet, VecDeque};

use chrono::NaiveDate;
use ledger_database::{PgConnection, PgPool};
use ledger_events::order::Order;
use ledger_events::{Money, OrderId, ProductId, ShardId};
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
pub use levels::{Level, levels, low};
pub use list::{StockedVoucher, VoucherState, list};
pub use named::{Gone, NamedVoucher, duplicates, named, set_expiry, transfer, void};

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

/// Finds the card numbers `$3` of the products `$2` that the stock of a shard has.
///
/// The transfers are found by their type: a product that is bought for each order has an event for each load. LIMIT makes each
/// card number one look-up with its product. Without it, a table without statistics is searched by the card number alone, which
/// reads every voucher for each new one.
pub const KNOWN: &str = "WITH RECURSIVE transfers AS MATERIALIZED (
        SELECT stream_id, data FROM events WHERE shard_id = $1 AND type = 'VouchersTransferredOut'),
     holders (product_id, holder_id) AS (
        SELECT DISTINCT id, id FROM unnest($2::bigint[]) AS p (id)
        UNION
        SELECT h.product_id, (t.data->>'to_product_id')::bigint FROM holders h JOIN transfers t ON t.stream_id = h.holder_id)
     SELECT new.product_id, new.fingerprint FROM unnest($2::bigint[], $3::bytea[]) AS new (product_id, fingerprint)
     JOIN holders h ON h.product_id = new.product_id
     CROSS JOIN LATERAL (SELECT FROM vault.vouchers v
        WHERE v.shard_id = $1 AND v.product_id = h.holder_id AND v.fingerprint = new.fingerprint LIMIT 1) AS held";

/// Finds uploaded vouchers that the stock has. A voucher that has moved to another product is one of them: a product counts as having
/// the card numbers of every product to which its vouchers have ever moved.
pub async fn known(
    conn: &mut PgConnection,
    shard: ShardId,
    keyring: &Keyring,
    uploads: &[(ProductId, &[NewVoucher])],
) -> Result<KnownVouchers, sqlx::Error> {
    let mut products = Vec::new();
    let mut fingerprints = Vec::new();
    let mut references = Vec::new();
    for (product, vouchers) in uploads {
        for voucher in *vouchers {
            products.push(*product);
            fingerprints.push(fingerprint(keyring, voucher).to_vec());
            references.extend(voucher.reference.as_deref());
        }
    }
    let found: Vec<(ProductId, Vec<u8>)> =
        sqlx::query_as(KNOWN).bind(shard).bind(products).bind(fingerprints).fetch_all(&mut *conn).await?;
    let taken: Vec<String> =
        sqlx::query_scalar("SELECT v.reference FROM unnest($2::text[]) AS new (reference) JOIN vault.vouchers v ON v.shard_id = $1 AND v.reference = new.reference")
            .bind(shard)
            .bind(references)
            .fetch_all(conn)
            .await?;
    let fingerprints = found.into_iter().filter_map(|(product, print)| Some((product, print.try_into().ok()?))).collect();
    Ok(KnownVouchers { fingerprints, references: taken.into_iter().collect() })
}

/// Free vouchers of one (product, denomination), oldest first, as far as they were read.
#[derive(Debug, Default)]
pub struct Shelf {
    vouchers: VecDeque<Voucher>,
    /// Id of the newest voucher that was read. Ids are drawn under the head lock, so a later voucher has a higher id, and an
    /// assigned voucher is never read again.
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

/// Returns the id of a shard's newest voucher, 0 without any. It grows whenever stock arrives, because ids are drawn under the
/// head lock.
pub async fn newest(pool: &PgPool, shard: ShardId) -> Result<i64, sqlx::Error> {
    let newest: Option<i64> = sqlx::query_scalar("SELECT id FROM vault.vouchers WHERE shard_id = $1 ORDER BY id DESC LIMIT 1")
        .bind(shard)
        .fetch_optional(pool)
        .await?;
    Ok(newest.unwrap_or_default())
}

/// Returns the (product, denomination) pairs with free vouchers, and their number up to a limit. Expired vouchers do not
/// count.
pub async fn available_pairs(
    db: impl PgExecutor<'_>,
    shard: ShardId,
    pairs: &[(ProductId, Decimal)],
    limit: i64,
) -> Result<Vec<(ProductId, Decimal, i64)>, sqlx::Error> {
    if pairs.is_empty() {
        return Ok(vec![]);
    }
    sqlx::query_as(concat!(
        "SELECT w.product_id, w.denomination, stock.vouchers
         FROM unnest($2::bigint[], $3::numeric[]) AS w (product_id, denomination)
         CROSS JOIN LATERAL
            (SELECT count(*) AS vouchers FROM
                (SELECT FROM vault.vouchers
                 WHERE shard_id = $1 AND product_id = w.product_id AND denomination = w.denomination AND order_id IS NULL
                   AND expired_at IS NULL AND (expires_on IS NULL OR expires_on >= ",
        expiry_day!(),
        ") ORDER BY id LIMIT $4) AS counted) AS stock
         WHERE stock.vouchers > 0"
    ))
    .bind(shard)
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
